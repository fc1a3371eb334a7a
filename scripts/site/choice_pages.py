"""Pages of single methods and datasets: name, paper, formula, keys, scores, verification and BibTeX."""

from __future__ import annotations

import csv
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fgl_bench.cli.commands import about
from fgl_bench.cli.leaderboard import stored
from fgl_bench.config.choices import path_of
from fgl_bench.evaluation.summary import half_width
from fgl_bench.leaderboard.protocol import asked_protocol
from fgl_bench.leaderboard.submission import whole_board
from fgl_bench.report.method_facts import verification
from fgl_bench.results.render import display_names
from fgl_bench.scenarios.hooks import supported

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from choice_keys import cell, class_of, key_table, keys_of  # noqa: E402
from docstrings import ROLE, linked  # noqa: E402
from hooks import mathml  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERDICTS = ("equivalent", "inconclusive", "different", "under-specified", "contradictory")
PAPERS = {"dfed_sst": "DFed-SST", "fedaas": "FedAAS", "fedgta": "FedGTA", "fedsa_gcl": "FedSA-GCL", "fedssa": "FedSSA"}
TASKS = {"": "nodes", "task=graph": "graphs", "task=link": "links"}


@cache
def facts(group: str) -> dict[str, dict[str, str]]:
    """Return titles, papers and formulas of the choices of a group, from methods.yaml or datasets.yaml."""
    return yaml.safe_load((HERE / f"{'methods' if group == 'algorithm' else 'datasets'}.yaml").read_text(encoding="utf-8"))


@cache
def bibliography() -> dict[str, str]:
    """Return the entries of docs/references.bib by key."""
    text = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
    return {key: entry for entry, key in re.findall(r"^(@\w+\{(\w+),\n.*?^\})$", text, re.MULTILINE | re.DOTALL)}


def reference(key: str) -> str:
    """Return a line with authors, title, venue and link of an entry."""
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", bibliography()[key], re.MULTILINE))
    first, *others = (author.partition(",")[0] for author in fields["author"].split(" and "))
    authors = f"{first} et al." if len(others) > 1 or "others" in others else " and ".join([first, *others])
    title = f"[{fields['title']}]({fields['url']})" if "url" in fields else fields["title"]
    venue = next(fields[name] for name in ("booktitle", "journal", "howpublished") if name in fields)
    return re.sub(r"\{\\\W\{?(\w)\}?\}|[{}]", r"\1", f"{authors}: {title}. {venue}, {fields['year']}.")


def bibtex(key: str | None) -> list[str]:
    return ["## BibTeX", "", "```bibtex", *bibliography()[key].splitlines(), "```", ""] if key else []


def title(group: str, choice: str) -> str:
    return facts(group)[choice].get("title") or display_names()[choice]


# ---- methods


def method_page(choice: str) -> Iterator[str]:
    """Lines of a method's page, without its class."""
    path, fact = path_of("algorithm", choice, ()), facts("algorithm")[choice]
    cls = class_of(path)
    yield from (f"# {title('algorithm', choice)}", "", about(path), "")
    if "paper" in fact:
        yield from (f"Paper: {reference(fact['paper'])}", "")
    yield from ("```console", f"$ fgl-bench algorithm={choice}", "```", "")
    scenarios = ", ".join(f"[`{name}`](../scenario.md#{name})" for name in supported(cls))
    yield from (f"Scenarios: {scenarios}. Tasks: {', '.join(f'[`{name}`](../task.md#{name})' for name in cls.tasks)}.", "")
    if "formula" in fact:
        parts = re.split(r",\s*\\quad\s*", fact["formula"])  # a line each
        lines = [mathml(part + "," * (part is not parts[-1]), "block") for part in parts]
        yield from ("## Formula", "", f'<div class="formula">{"".join(lines)}</div>', "")
    text, resolutions = split_docstring(cls)
    lead, _, others = text.partition("\n\n")
    repeated = others and lead.partition(" (")[0] == about(path).partition(" (")[0]
    yield from ("## How it works", "", others if repeated else text, "")
    yield from ("## Keys", "", *key_table("algorithm.", keys_of("algorithm", path)))
    yield from ("## Scores", "", *leaderboard_scores(choice), *paper_scores(choice))
    yield from (
        "## Verification",
        "",
        f"{cell(verification(choice))} [How methods are checked](../../cross_check.md).",
        "",
    )
    if resolutions:
        yield from ("Where the paper and the code differ, or are silent:", "", resolutions, "")
    yield from bibtex(fact.get("paper"))


def split_docstring(cls: type) -> tuple[str, str]:
    """Return the description of a class, and its paragraph of readings (``Resolutions: ...``), both as Markdown."""
    text = re.split(r"\n(?:Class attributes|Attributes|Args|Raises):\n", inspect.cleandoc(cls.__doc__ or ""))[0]
    parts = [ROLE.sub(linked, part).replace("``", "`") for part in re.split(r"\n\s*\n", text)]
    readings = [index for index, part in enumerate(parts) if part.startswith("Resolution")]
    first = readings[0] if readings else len(parts)
    resolutions = re.sub(r"^Resolutions?[^:]*: ", "", "\n\n".join(parts[first:]))
    return "\n\n".join(parts[:first]), resolutions[:1].upper() + resolutions[1:]


@cache
def boards() -> dict[str, Any]:
    protocols = {task: asked_protocol(dict([task.split("=")] if task else [])) for task in TASKS}
    return {task: whole_board(stored(protocol), protocol) for task, protocol in protocols.items()}


def leaderboard_scores(choice: str) -> Iterator[str]:
    """One line per leaderboard column in which the method has a score."""
    lines = []
    for task, board in boards().items():
        for column in board.columns:
            for name, scores in board.scores(column.key).items():
                if board.entries[name].algorithm == choice:
                    mean, half = 100 * scores.mean(), 100 * half_width(scores.std(ddof=1), len(scores))
                    lines.append(f"| {TASKS[task]} | {column.key} | {board.entries[name].model} | {mean:.1f} ± {half:.1f} |")
    if not lines:
        yield from ("The [leaderboard](../../leaderboard.md) has no complete cell of it yet.", "")
        return
    yield from ("On the [leaderboard](../../leaderboard.md), tuned: the mean over ten seeds ± the half-width of its 95 % interval.", "")
    yield from ("| task | column | backbone | test score in % |", "|---|---|---|---|", *lines, "")


@cache
def verdicts() -> pd.DataFrame:
    return pd.read_csv(ROOT / "results" / "tables" / "verdicts.csv", dtype={"table": str})


def paper_scores(choice: str) -> Iterator[str]:
    """One line per paper's table that prints the method: how many cells, their verdicts, and the mean difference."""
    cells = verdicts()[(verdicts()["method"] == choice) & verdicts()["ours"].notna()]
    if cells.empty:
        return
    yield from (
        "In the [papers' tables](../../results/tables.md): printed cells that were run, and their [verdicts](../../reproduction.md#cells).",
        "",
    )
    yield from ("| paper | table | cells | " + " | ".join(VERDICTS) + " | ours minus printed |", "|---" * (4 + len(VERDICTS)) + "|")
    for (paper, table), group in cells.groupby(["paper", "table"]):
        found = group["verdict"].value_counts()
        counted = " | ".join(str(found.get(verdict, 0)) for verdict in VERDICTS)
        difference = group["difference"].dropna()
        trips = group["ours"].max() > 100
        mean = "" if difference.empty else f"{difference.mean():+.0f} trips" if trips else f"{difference.mean():+.1f} points"
        yield f"| [{PAPERS[paper]}](../../results/{paper}.md) | {table} | {len(group)} | {counted} | {mean} |"
    yield ""


# ---- datasets


@cache
def counts() -> dict[str, dict[str, str]]:
    """Return the measured counts by dataset (scripts/measure_datasets.py)."""
    with (ROOT / "results" / "datasets.csv").open(encoding="utf-8", newline="") as file:
        return {line["dataset"]: line for line in csv.DictReader(file)}


def dataset_page(choice: str) -> Iterator[str]:
    """Lines of a dataset's page, without its class."""
    path, fact = path_of("dataset", choice, ()), facts("dataset")[choice]
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    yield from (f"# {title('dataset', choice)}", "", about(path), "", "```console", f"$ fgl-bench dataset={choice}", "```", "")
    yield from ("| property | value |", "|---|---|")
    measured = counts().get(choice)
    for name, text in (measured or {}).items():
        if name != "dataset" and text not in ("", "0") and (name, text) != ("graphs", "1"):
            yield f"| {name.replace('_', ' ')} | {text if name == 'edge_homophily' else f'{int(text):,}'} |"
    yield f"| score | `{values['metric']}` |"
    if values["ratios"]:
        yield f"| train, validation, test | {', '.join(map(str, values['ratios']))} |"
    for name in ("source", "license"):
        if name in fact:
            yield f"| {name} | {fact[name] if not fact[name].startswith('https') else f'<{fact[name]}>'} |"
    if "paper" in fact:
        yield f"| paper | {reference(fact['paper'])} |"
    yield ""
    if measured:
        yield from (
            "Edges are undirected, without loops and duplicates. Edge homophily is the share of edges that join nodes of one class.",
            "",
        )
    elif choice != "custom":
        yield from ("Its files were not available here, so its counts are those of the description above.", "")
    yield from ("## Keys", "", *key_table("dataset.", keys_of("dataset", path)), *bibtex(fact.get("paper")))
