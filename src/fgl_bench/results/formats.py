"""A user's table for the terminal, as Markdown and as tidy data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fgl_bench.errors import printable
from fgl_bench.results.commands import missing_commands
from fgl_bench.results.compared import Block, Compared, Place, column_label, label
from fgl_bench.results.divergence import MARK
from fgl_bench.results.question import is_number
from fgl_bench.results.statistics import FEW, LEVEL, wide

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_MISSING = 10  # that a terminal lists
RANK = "rank"


def text(table: Compared, width: int) -> str:
    """For a terminal of ``width`` characters: columns that do not fit stand below in a part of their own."""
    from tabulate import tabulate

    lines = []
    for block in table.blocks:
        lines += ["", f"{table.unit}, {block.model} model"]
        heads, rows = cells(table, block, lambda shown, best, alike: shown + (" *" if best else " ~" if alike else ""))
        for part in fitting(heads, rows, width):
            picked = [[row[i] for i in part] for row in rows]
            lines += tabulate(picked, [heads[i].replace(" ", "\n") for i in part], disable_numparse=True).splitlines() + [""]
        lines.pop()
    return "\n".join([*lines[1:], "", *wrapped(notes(table, "*", "~"), width), *absent(table)])


def cells(table: Compared, block: Block, mark: Callable[[str, bool, bool], str]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of strings: the row's name, a cell for every column, the average rank where there is one.

    Args:
        mark: of a cell's text, whether it is the best and whether it does not differ significantly from the best.
    """
    ranks = block.ranks.ranks if block.ranks else {}
    named = [column_label(table.question.cols, column) for column in table.chosen.columns]
    heads = [label(table.question.rows), *named, *[RANK] * bool(ranks)]
    rows = []
    for row in table.chosen.rows:
        shown = [cell(table, block, (row, column), mark) for column in table.chosen.columns]
        rank = [f"{ranks[label(row)]:.2f}" if label(row) in ranks else ""] * bool(ranks)
        rows.append([label(row), *shown, *rank])
    return heads, rows


def cell(table: Compared, block: Block, place: Place, mark: Callable[[str, bool, bool], str]) -> str:
    """One cell; a dash where there is no run."""
    if place not in block.scores:
        return "-"
    standing, shown = block.tests.get(place), block.scores[place].text(table.digits)
    return shown if standing is None else mark(shown, standing.best, standing.alike)


def fitting(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[list[int]]:
    """Positions of the columns of every part; the first column stands in each."""
    padded = 2  # tabulate keeps so much room beside a heading
    sizes = [max([*(len(word) + padded for word in heads[i].split()), *(len(row[i]) for row in rows)]) + 2 for i in range(len(heads))]
    part = [0]
    for i in range(1, len(heads)):
        if len(part) > 1 and sum(sizes[j] for j in (*part, i)) - 2 > width:
            yield part
            part = [0]
        part.append(i)
    yield part


def notes(table: Compared, best: str, alike: str) -> list[str]:
    """Sentences below a table: how to read it.

    Args:
        best, alike: how the best cell, and those that do not differ significantly from it, are marked.
    """
    runs = list(table.chosen.runs.values())
    seeds = sorted({len(run.summary["seeds"]) for run in runs})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    standings = [standing for block in table.blocks for standing in block.tests.values()]
    found = [f"Mean over {count} seed{'s' * (seeds != [1])}{' ± half-width of the 95 % t-interval' * (seeds[-1] > 1)}."]
    found.append(f"{best} best of a column{' (fewest)' * any(s.lower for block in table.blocks for s in block.scores.values())}.")
    if tests := sorted({standing.seeds for standing in standings if standing.p is not None}):
        corrected = f"paired t-tests over the seeds, Holm-corrected in a column, {100 * LEVEL:g} %"
        found.append(f"{alike} not significantly different from the best: {corrected}.")
        if tests[0] < FEW:
            found.append(f"{tests[0]} seeds: a test of so few finds large differences only.")
    ranked = {block.model: block for block in table.blocks if block.ranks}
    if ranked:
        parts = [f"{len(block.ranked)} of {len(table.chosen.columns)} columns ({model})" for model, block in ranked.items()]
        whole = all(len(block.ranked) == len(table.chosen.columns) for block in ranked.values())
        found.append(f"{RANK}: average rank over {f'{len(table.chosen.columns)} columns' if whole else ', '.join(parts)}, 1 is best.")
    scenarios: dict[str, list[str]] = {}
    for run in runs:
        scenarios.setdefault(run.summary["scenario"], []).append(run.summary["algorithm"])
    if len(scenarios) > 1 and "scenario" not in table.question.keys:
        named = (f"{scenario} ({', '.join(sorted(set(methods)))})" for scenario, methods in sorted(scenarios.items()))
        found.append(f"Scenarios: {'; '.join(named)}.")
    scores = [score for block in table.blocks for score in block.scores.values()]
    found += wide([None if score.lower else score.half for score in scores])
    if any(score.diverged for score in scores):
        found.append(f"{MARK} models of some clients diverged.")
    if any(not score.complete for score in scores):
        found.append("(n/m): only n of m seeds have a value; the mean is theirs and competes with no other.")
    if table.chosen.superseded:
        found.append(f"{table.chosen.superseded} run(s) of an earlier version of a class or of data are left out.")
    return found


def wrapped(sentences: Sequence[str], width: int) -> list[str]:
    import textwrap

    return [line for sentence in sentences for line in textwrap.wrap(sentence, width, subsequent_indent="  ", break_on_hyphens=False)]


def absent(table: Compared, most: int | None = MOST_MISSING) -> list[str]:
    """The missing combinations with the commands that make them."""
    if not table.missing:
        return []
    lines = ["", f"{len(table.missing)} of {len(table.chosen.rows) * len(table.chosen.columns)} combinations have no run; to make them:"]
    lines += [f"  {command}" for command in missing_commands(table.chosen, table.folder, table.missing[:most])]
    return lines + ([f"  ... and {len(table.missing) - most} more"] if most and len(table.missing) > most else [])


def markdown(table: Compared, commands: bool = True) -> str:
    """A part for each kind of model; the best in bold, those that do not differ significantly from it underlined.

    Args:
        commands: list those of missing runs.
    """
    lines = []
    for block in table.blocks:
        heads, rows = cells(table, block, lambda shown, best, alike: f"**{shown}**" if best else f"<u>{shown}</u>" if alike else shown)
        lines += [f"**{table.unit}, {block.model} model**", ""]
        lines += ["| " + " | ".join(escaped(without_tags(head)) for head in heads) + " |", "|---" * len(heads) + "|"]
        lines += ["| " + " | ".join(map(escaped, (without_tags(row[0]), *row[1:]))) + " |" for row in rows] + [""]
    lines.append(without_tags(" ".join(notes(table, "Bold:", "Underlined:"))))
    missing = absent(table, None) if commands else []
    code = [f"    {one_line(line.strip())}" for line in missing[2:]]
    return "\n".join([*lines, *missing[:2], *[""] * bool(code), *code]) + "\n"


def escaped(entry: str) -> str:
    """For a cell of a Markdown table."""
    return entry.replace("|", "\\|")


def one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()))


def without_tags(name: str) -> str:
    """A name that a page does not take for HTML."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def csv(table: Compared) -> str:
    """:func:`frame` as csv."""
    return frame(table).map(plain_cell).to_csv(index=False, lineterminator="\n")


def plain_cell(value: Any) -> Any:
    """A text that a spreadsheet does not take for a formula: an apostrophe before = + - @, except before numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number(value) else value


def frame(table: Compared) -> DataFrame:
    """A row for every cell and kind of model."""
    import pandas as pd

    question, rows = table.question, []
    for block in table.blocks:
        for place in ((row, column) for row in table.chosen.rows for column in table.chosen.columns):
            line: dict[str, Any] = dict(zip((*question.rows, *question.cols), (*place[0], *place[1]), strict=True))
            line |= {"evaluated": block.model, "metric": question.metric}
            score, standing = block.scores.get(place), block.tests.get(place)
            if score is not None:
                run = table.chosen.runs[place]
                line |= {"metric": question.metric or run.summary["metric"], "mean": score.mean, "ci95": score.half, "std": score.std}
                line |= {"seeds": " ".join(map(str, score.per_seed))}
                line |= {"per_seed": " ".join("" if each is None else str(each) for each in score.per_seed.values())}
                line |= {"best": bool(standing and standing.best), "not_different": bool(standing and (standing.best or standing.alike))}
                line |= {"p_holm": standing.p if standing else None, "config_hash": run.summary["config_hash"], "folder": str(run.folder)}
            line["average_rank"] = block.ranks.ranks.get(label(place[0])) if block.ranks else None
            rows.append(line)
    return pd.DataFrame(rows)
