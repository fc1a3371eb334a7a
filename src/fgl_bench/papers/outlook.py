"""Computing time of all papers' tables, and estimates for the missing runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from fgl_bench.papers.plan import in_order
from fgl_bench.papers.work import Work

DEAREST = 10


def outlook(works: Sequence[Work], absent: Collection[str]) -> list[str]:
    """Return Markdown with finished and missing runs and core hours per paper, then the most expensive missing rows.

    A run shown in several tables of a paper counts once, in the first. Alternative rows belong to a published row that is compared with
    another row.

    Args:
        absent: unavailable datasets, whose runs are left out.
    """
    cells = [
        (work, cell, work.cost(cell) or 0.0)
        for work in works
        for cell in in_order(work.paper, work.missing())
        if cell.dataset not in absent
    ]
    lines = ["| paper | runs made | hours | to make | about, hours | of them alternative rows |", "|---|--:|--:|--:|--:|--:|"]
    totals = [0.0] * 5
    for work in works:
        seconds = [cell["seconds"]["total"] for cell in {cell["config_hash"]: cell for cell in work.stored.values()}.values()]
        mine, later = [(cell, cost) for other, cell, cost in cells if other is work], work.alternatives()
        estimated, alternative = sum(cost for _, cost in mine), sum(cost for cell, cost in mine if cell.overrides in later)
        numbers = (len(seconds), sum(seconds) / 3600, len(mine), estimated / 3600, alternative / 3600)
        totals = [total + value for total, value in zip(totals, numbers, strict=True)]
        lines.append(_line(work.paper.title, numbers))
    lines += [_line("all", totals), "", "| paper | row | runs to make | about, hours |", "|---|---|--:|--:|"]
    rows: dict[tuple[str, str], list[float]] = defaultdict(list)
    for work, cell, cost in cells:
        rows[work.paper.title, cell.row.title].append(cost)
    for (paper, row), costs in sorted(rows.items(), key=lambda each: -sum(each[1]))[:DEAREST]:
        lines.append(f"| {paper} | {row} | {len(costs)} | {sum(costs) / 3600:.1f} |")
    return lines


def _line(name: str, row: Sequence[float]) -> str:
    finished, spent, missing, estimated, alternative = row
    return f"| {name} | {finished:.0f} | {spent:.1f} | {missing:.0f} | {estimated:.1f} | {alternative:.1f} |"
