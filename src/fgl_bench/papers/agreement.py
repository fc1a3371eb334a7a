"""Pages and counts of the findings on published cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from fgl_bench.papers.matched_rows import chosen_on
from fgl_bench.papers.plan import Paper, Stored, Table, look_up
from fgl_bench.papers.published import Printed
from fgl_bench.papers.settlements import AGREES, NOT_RUN, OPEN, SETTLED, Settled, Settlement, settle

ABOUT = (
    "*agrees*: ours is within 1.5 points of the print, or both 95 % intervals overlap (trips: the intervals only), on the row and the "
    "model that `results/settlements/` names for the printed row. *other model*: the other one of our two models agrees. *another "
    "setting*: the row that agrees has another setting. *last round*: the named model agrees in the last round instead of the best one on "
    "validation. *another draw*: the code behind the paper draws its masks once, it is not known which draw the paper had, and the print "
    "lies where 95 % of single draws of the named row do. *contradiction*, *not reproducible*: nothing that we ran agrees, for the reason "
    "given. *open*: nobody has said why."
)
HEADS = ("row", "model", "column", "printed", "ours", "finding", "shown_by", "reason")
OVERVIEW = (
    "",
    "## Findings",
    "",
    "Printed cells that a row of ours stands for, each once, on the row and model that `results/settlements/` names for them. "
    "`<paper>/settlement.md` has them one by one.",
    "",
    f"| paper | {' | '.join((*SETTLED, OPEN, NOT_RUN))} |",
    "|---" * (len(SETTLED) + 3) + "|",
)


def settle_all(
    paper: Paper,
    tables: Sequence[Table],
    stored: Stored,
    published: Printed,
    settlements: Sequence[Settlement],
    draws: Stored = MappingProxyType({}),
) -> dict[str, list[Settled]]:
    """Apply :func:`~fgl_bench.papers.settlements.settle` to the tables of a paper; findings by table key.

    A published cell that appears in several tables is settled in the first one.
    """
    found, left = {}, published
    for table in tables:
        found[table.key] = settle(paper, table, stored, left, settlements, draws)
        if found[table.key]:
            shown = {id(look_up(published, table, row, column)) for row in table.rows for column in table.columns}
            left = Printed(cell for cell in left.cells if id(cell) not in shown)
    return found


def overview_line(title: str, settled: Mapping[str, Sequence[Settled]]) -> str:
    """Return a paper's line below :data:`OVERVIEW`."""
    number = counts(each for cells in settled.values() for each in cells)
    return f"| {title} | {' | '.join(map(str, number.values()))} |"


def counts(found: Iterable[Settled]) -> dict[str, int]:
    """Count each finding, including zeros."""
    number = Counter(each.finding for each in found)
    return {name: number[name] for name in (*SETTLED, OPEN, NOT_RUN)}


def coverage(papers: Mapping[str, Mapping[str, Sequence[Settled]]], absent: Collection[str]) -> list[str]:
    """Return a section with the number of published cells that were run, among those whose dataset is available.

    Args:
        papers: findings by table, by the paper's title.
        absent: unavailable datasets; their published cells count only if they were run.
    """
    total, head = [0, 0, 0], "| paper | printed cells | data set at hand | run | % of those at hand |"
    lines = ["", "## How many were run", "", head, "|---|--:|--:|--:|--:|"]
    for title, found in papers.items():
        cells = [each for of_table in found.values() for each in of_table]
        run = sum(each.finding != NOT_RUN for each in cells)
        available = run + sum(each.finding == NOT_RUN and each.dataset not in absent for each in cells)
        total = [a + b for a, b in zip(total, (len(cells), available, run), strict=True)]
        lines.append(f"| {title} | {len(cells)} | {available} | {run} | {percent(run, available)} |")
    every, available, run = total
    return [*lines, f"| all | {every} | {available} | {run} | {percent(run, available)} |"]


def agreeing(paper: str, by_table: Mapping[str, Sequence[Settled]], choices: Sequence[Mapping[str, str]]) -> tuple[int, int, int, int]:
    """Count agreeing and run cells on the columns used to choose rows, then on the others."""
    columns = chosen_on(choices, paper)
    run = [each for cells in by_table.values() for each in cells if each.finding != NOT_RUN]
    inside = [each for each in run if f"{each.table}, {each.column}" in columns]
    near, all_near = (sum(each.finding == AGREES for each in part) for part in (inside, run))
    return near, len(inside), all_near - near, len(run) - len(inside)


def section_of_chosen(papers: Mapping[str, tuple[int, int, int, int]]) -> list[str]:
    """Return a section with the :func:`agreeing` cells of every paper and in total."""
    total = tuple(map(sum, zip(*papers.values(), strict=True)))
    lines = [
        "",
        "## On the columns that rows were chosen on, and on the others",
        "",
        "Rows and models are named by one rule on the columns of two data sets, seeds 0 to 2 (`results/settlements/choices.csv`). "
        "Agreement there was looked for; agreement on the other columns was not.",
        "",
        "| paper | agrees, of those chosen on | % | agrees, of the others | % | in all, % |",
        "|---|---|--:|---|--:|--:|",
    ]
    for title, (near, run, other_near, other_run) in {**papers, "all": total}.items():
        entries = [f"{near} of {run}", percent(near, run), f"{other_near} of {other_run}", percent(other_near, other_run)]
        lines.append(f"| {title} | {' | '.join(entries)} | {percent(near + other_near, run + other_run)} |")
    return lines


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}" if whole else ""


def named(settlements: Sequence[Settlement], choices: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a table of the rows that published rows are compared with, and the reasons."""
    if not settlements:
        return []
    lines = ["", "## What is compared", "", "| printed | tables | our row | model | because |", "|---|---|---|---|---|"]
    for each in settlements:
        where = (each.printed, ", ".join(each.tables) or "all", each.row or "the first", each.model)
        lines.append(f"| {' | '.join(where)} | {each.why or because(each, choices)} |")
    return lines


def because(named: Settlement, choices: Sequence[Mapping[str, str]]) -> str:
    """Return the gaps of the chosen row and model and of the second-best ones."""
    own = next((each for each in choices if (each["printed"], each["row"], each["model"]) == (named.printed, named.row, named.model)), None)
    if own is None:
        return ""
    others = [each for each in choices if each is not own and (each["printed"], each["where"]) == (own["printed"], own["where"])]
    text = f"{own['gap']} points from the print on {len(own['columns'].split('; '))} columns"
    if not others:
        return text
    second = min(others, key=lambda each: float(each["gap"]))
    return f"{text}; {second['row']}, {second['model']}: {second['gap']}"


def markdown(
    paper: Paper,
    found: Mapping[str, Sequence[Settled]],
    settlements: Sequence[Settlement] = (),
    choices: Sequence[Mapping[str, str]] = (),
) -> str:
    """Return a page with the findings of every table, disagreements first.

    Args:
        choices: the paper's rows of ``results/settlements/choices.csv``.
    """
    lines = [f"# {paper.title}: what became of the printed cells", "", ABOUT, *named(settlements, choices)]
    for key, cells in found.items():
        run = [each for each in cells if each.finding != NOT_RUN]
        if not run:
            continue
        summary = ", ".join(f"{number} {name}" for name, number in counts(cells).items() if number)
        lines += ["", f"## Table {key}", "", f"{summary}.", "", f"| {' | '.join(HEADS).replace('_', ' ')} |", "|---" * len(HEADS) + "|"]
        run.sort(key=lambda each: each.finding == AGREES)
        lines += [f"| {' | '.join(str(getattr(each, name)) for name in HEADS)} |" for each in run]
    return "\n".join(lines) + "\n"
