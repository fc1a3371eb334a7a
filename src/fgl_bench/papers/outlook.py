"""What the tables of all papers have taken, and about how long the rest will take here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from fgl_bench.papers.plan import in_order
from fgl_bench.papers.work import Work

DEAREST = 10


def outlook(works: Sequence[Work], absent: Collection[str]) -> list[str]:
    """Lines of Markdown: runs and core hours by paper, made and to make, then the rows that will take longest.

    A run that several tables of a paper show counts once, in the first of them. Alternative rows stand for a printed row that
    another one is compared with.

    Args:
        absent: datasets that are not at hand, whose runs are left out.
    """
    here = [
        (work, cell, work.cost(cell) or 0.0)
        for work in works
        for cell in in_order(work.paper, work.missing())
        if cell.dataset not in absent
    ]
    lines = ["| paper | runs made | hours | to make | about, hours | of them alternative rows |", "|---|--:|--:|--:|--:|--:|"]
    totals = [0.0] * 5
    for work in works:
        made = [cell["seconds"]["total"] for cell in {cell["config_hash"]: cell for cell in work.stored.values()}.values()]
        mine, later = [(cell, cost) for other, cell, cost in here if other is work], work.alternatives()
        ahead, beside = sum(cost for _, cost in mine), sum(cost for cell, cost in mine if cell.overrides in later)
        numbers = (len(made), sum(made) / 3600, len(mine), ahead / 3600, beside / 3600)
        totals = [total + value for total, value in zip(totals, numbers, strict=True)]
        lines.append(_line(work.paper.title, numbers))
    lines += [_line("all", totals), "", "| paper | row | runs to make | about, hours |", "|---|---|--:|--:|"]
    rows: dict[tuple[str, str], list[float]] = defaultdict(list)
    for work, cell, cost in here:
        rows[work.paper.title, cell.row.title].append(cost)
    for (paper, row), costs in sorted(rows.items(), key=lambda each: -sum(each[1]))[:DEAREST]:
        lines.append(f"| {paper} | {row} | {len(costs)} | {sum(costs) / 3600:.1f} |")
    return lines


def _line(name: str, row: Sequence[float]) -> str:
    made, spent, missing, ahead, beside = row
    return f"| {name} | {made:.0f} | {spent:.1f} | {missing:.0f} | {ahead:.1f} | {beside:.1f} |"
