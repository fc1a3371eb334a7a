"""Write the numbers that pages of docs/ quote, from the tables in results/tables/.

    python scripts/quote_results.py

A block of a page begins with a line such as

    <!-- numbers: fedsa_gcl/table3 columns=cora,photo rows=local,fedavg -->

and ends with ``<!-- /numbers -->``; the lines between them are replaced. A column is a data set. Where a table has several for a data set,
``/`` and the number of clients or the first letters of the group choose one (``cora/20``, ``pubmed/iid``). ``<!-- numbers: counts -->``,
``floor``, ``claims``, ``sparsity``, ``readings``, ``alternatives`` and ``own_best`` are the frames of fgl_bench.papers.reproduction, and
``<!-- numbers: outlook -->`` is results/tables/outlook.md.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import pandas as pd  # noqa: E402
from blocks import filled  # noqa: E402

from fgl_bench.results.render import markdown  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("reproduction.md", "reproduction_readings.md", "findings.md", "notes/speed.md")
OPTION = re.compile(r"(columns|rows)=(\S+)")


def page(text: str, tables: Path) -> str:
    """``text`` with every block filled in from the folder ``tables``."""
    return filled(text, "numbers", lambda asked: ["", *numbers(asked, tables), ""])


def numbers(asked: str, tables: Path) -> list[str]:
    """The lines of one block."""
    name, *options = asked.split()
    if name == "headline":
        return headline(tables)
    if name in FRAMES:
        frame = FRAMES[name](tables)
        return markdown(list(frame.columns), frame.astype(str).to_numpy().tolist()).splitlines()
    if name == "outlook":
        return (tables / "outlook.md").read_text(encoding="utf-8").splitlines()[1:]
    chosen = {key: names.split(",") for key, names in (OPTION.fullmatch(option).groups() for option in options)}  # type: ignore[union-attr]
    with (tables / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    titles = {cell["row"]: cell["title"] for cell in cells}
    lines = [f"| method | {' | '.join(chosen['columns'])} |", "|---" * (1 + len(chosen["columns"])) + "|"]
    for row in chosen["rows"]:
        if row not in titles:
            raise SystemExit(f"quote_results: {name} has no row {row}")
        of_row = [cell for cell in cells if cell["row"] == row]
        lines.append(f"| {titles[row]} | {' | '.join(scores(of_row, column) for column in chosen['columns'])} |")
    return lines


def scores(cells: list[dict[str, str]], column: str) -> str:
    """``received/trained (printed)`` in %; empty where there was no run."""
    dataset, _, part = column.partition("/")
    here = [cell for cell in cells if cell["dataset"] == dataset]
    if part.isdigit():
        here = [cell for cell in here if cell["num_clients"] == part]
    elif part:
        here = [cell for cell in here if cell["group"].lower().startswith(part.lower())]
    by_model = {cell["model"]: cell for cell in here}
    if len(by_model) != len(here) or not here:
        raise SystemExit(f"quote_results: {len(here) // 2} columns are called {column}; name the clients or the group of one")
    if not by_model["received"]["mean"]:
        return ""
    ours = "/".join(f"{100 * float(by_model[model]['mean']):.1f}" for model in ("received", "trained") if model in by_model)
    printed = by_model["received"]["published_mean"]
    return f"{ours} ({float(printed):.1f})" if printed else ours


TITLES = {"dfed_sst": "DFed-SST", "fedaas": "FedAAS", "fedgta": "FedGTA", "fedsa_gcl": "FedSA-GCL", "fedssa": "FedSSA", "all": "all"}
CLASSES = ["equivalent", "inconclusive", "different", "under-specified", "contradictory", "not run"]


def read(tables: Path, name: str) -> pd.DataFrame:
    frame = pd.read_csv(tables / f"{name}.csv", dtype={"table": str}).replace({"paper": TITLES})
    if "table" in frame:
        backbone = frame["backbone"].fillna("") if "backbone" in frame else ""
        frame.insert(0, "paper, table", (frame["paper"] + ", " + frame["table"] + " " + backbone).str.strip())
    return frame


def interval(frame: pd.DataFrame, names: tuple[str, str, str], form: str) -> list[str]:
    """``middle (low to high)``; without the ends where there are none."""
    rows = frame[list(names)].itertuples(index=False)
    return [f"{form} ({form} to {form})".format(*row) if pd.notna(row[1]) else form.format(row[0]) for row in rows]


def counts(tables: Path) -> pd.DataFrame:
    return read(tables, "counts")[["paper", "printed", "at_hand", "tested", *CLASSES]].rename(columns={"at_hand": "data set available"})


def floor(tables: Path) -> pd.DataFrame:
    """Shares of the tested cells with floor and ceiling, in %."""
    found = read(tables, "counts")
    shown = found[["paper", "tested"]].copy()
    for blank, name in enumerate(("equivalent", "different")):
        shown[f"{name}, %"] = found[f"{name}_share"].map("{:.0f}".format)
        for kind in ("floor", "ceiling"):
            key = f"{name}_{kind}"
            shown[kind + " " * blank] = interval(found, (key, f"{key}_low", f"{key}_high"), "{:.0f}")
    return shown.assign(p=found["p"].map("{:.3f}".format))


def claims(tables: Path) -> pd.DataFrame:
    found = read(tables, "claims")
    found["tau"] = interval(found, ("tau", "tau_low", "tau_high"), "{:.2f}")
    for name, ends in (("printed_margin", ()), ("margin", ("low", "high"))):
        texts = [interval(found.assign(none=None), (name, *(ends or ("none", "none"))), form) for form in ("{:+.1f}", "{:+.0f}")]
        found[name] = [whole if trips else tenth for trips, tenth, whole in zip(found["trips"], *texts, strict=True)]
    heads = {"best_printed": "best in print", "best_ours": "best in ours", "printed_margin": "margin in print", "margin": "margin in ours"}
    heads |= {"beaten": "a baseline is ahead", "winner": "wins most"}
    return found[["paper, table", "columns", *heads, "tau"]].rename(columns=heads)


def sparsity(tables: Path) -> pd.DataFrame:
    found = read(tables, "sparsity")
    changes = {"printed_change": "change in print", "change": "change in ours"}
    found[list(changes)] = found[list(changes)].map("{:+.2f}".format)
    heads = changes | {"printed_raised": "raised in print", "raised": "raised in ours", "same_print": "same print"}
    return found[["paper, table", "cells", *heads]].rename(columns=heads)


def readings(tables: Path) -> pd.DataFrame:
    """Equivalent, inconclusive and differing cells by reading and paper."""
    found = read(tables, "readings")
    parts = (found["equivalent"], found["inconclusive"], found["different"] + found["under-specified"])
    found["cell"] = parts[0].astype(str).str.cat([part.astype(str) for part in parts[1:]], sep=" / ")
    wide = found.pivot(index="reading", columns="paper", values="cell").fillna("").loc[found["reading"].unique()]
    return wide.reset_index().rename_axis(columns=None)


def alternatives(tables: Path) -> pd.DataFrame:
    found = read(tables, "alternatives").rename(columns={"title": "row"})
    found["differ"] = found["different"] + found["under-specified"]
    return found[["paper", "row", "model", "equivalent", "inconclusive", "differ"]]


def own_best(tables: Path) -> pd.DataFrame:
    found = read(tables, "own_best")
    found["margin in ours"] = interval(found, ("margin", "low", "high"), "{:+.1f}")
    heads = {"best_printed": "best in print", "best_ours": "best in ours"}
    return found[["paper, table", "columns", *heads, "margin in ours"]].rename(columns=heads)


def open_settings(tables: Path) -> pd.DataFrame:
    found = pd.read_csv(tables.parent / "settlements" / "registered.csv", dtype=str, keep_default_na=False).replace({"paper": TITLES})
    found = found[found["open"] != ""].drop_duplicates(["paper", "method"])
    return found[["paper", "method", "open"]].rename(columns={"open": "setting"})


def headline(tables: Path) -> list[str]:
    """What the claims and the counts come to, a line each."""
    found, counted, best = read(tables, "claims"), read(tables, "counts").set_index("paper").loc["all"], read(tables, "own_best")
    scores, trips = found[~found["trips"]], found[found["trips"]]
    sums = {name: [part[name].sum() for part in (scores, trips, best)] for name in ("columns", "best_printed", "best_ours")}
    ends = [f"{scores[name].min():+.1f} to {scores[name].max():+.1f}" for name in ("printed_margin", "margin")]
    below, above, known = (scores["high"] < 0).sum(), (scores["low"] > 0).sum(), found[found["tau_low"].notna()]
    orders = (known["tau_low"] > 0).sum(), (known["tau_high"] < 0).sum()
    same, apart = ([f"{counted[f'{name}_{kind}']:.0f}" for kind in ("share", "floor", "ceiling")] for name in ("equivalent", "different"))
    columns, printed, ours = sums["columns"], sums["best_printed"], sums["best_ours"]
    tau = f"{known['tau'].min():.2f} to {known['tau'].max():.2f}"
    return [
        f"- **Best method.** The paper's own method is best in {printed[0]} of {columns[0]} columns in print, and in {ours[0]} in ours.",
        f"  In trips to a target it is best in {printed[1]} and {ours[1]} of {columns[1]}. With the best of all our rows and models for it",
        f"  in each cell, a reading tried after the fact, it is best in {ours[2]} of {columns[2]}.",
        f"- **Margin.** Over the best baseline it is {ends[0]} points in print, by table, and {ends[1]} in ours.",
        f"  The interval of ours lies below zero in {below} of {len(scores)} tables, and above in {above}.",
        f"- **Order.** The mean tau is {tau}, by table. Its interval lies above zero in {orders[0]} of {len(known)} tables,",
        f"  and below in {orders[1]}.",
        f"- **Cells.** Of {counted['tested']:.0f} tested cells {same[0]} % are equivalent (floor {same[1]}, ceiling {same[2]}),",
        f"  and {apart[0]} % differ (floor {apart[1]}, ceiling {apart[2]}).",
    ]


FRAMES = {"open": open_settings} | {each.__name__: each for each in (counts, floor, claims, sparsity, readings, alternatives, own_best)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pages", type=Path, nargs="+", default=[ROOT / "docs" / name for name in PAGES])
    options.add_argument("--tables", type=Path, default=ROOT / "results" / "tables")
    options.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is not up to date")
    given = options.parse_args()
    for path in given.pages:
        before = path.read_text(encoding="utf-8")
        after = page(before, given.tables)
        if before == after:
            continue
        if given.check:
            sys.exit(1)
        path.write_text(after, encoding="utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
