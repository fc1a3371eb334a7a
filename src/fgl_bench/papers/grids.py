"""A paper's tables with its numbers beside ours, as rows of entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fgl_bench.papers.measures import MEASURES, Entry, common
from fgl_bench.papers.plan import Stored, Table, in_table, look_up
from fgl_bench.papers.published import Printed, Published
from fgl_bench.results.divergence import MARK, diverged_seeds, scored_seeds
from fgl_bench.results.selection import scored_models

MEAN = "mean"


@dataclass(frozen=True)
class Grid:
    """A part of a table as rows of entries.

    Attributes:
        group: the part's heading; empty where a table has one part only.
        columns: (dataset, what is shown of it: ``received`` | ``trained`` | ``published`` | ...).
        rows: title and entries.
    """

    group: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]


def printed(cell: Published | None) -> str:
    if cell is None:
        return ""
    return cell.text if cell.reached is None else f"{cell.text} ({cell.reached}/5)"


def mean_entry(row: Sequence[Mapping | None], model: str) -> Entry:
    """Unweighted mean over the datasets of the table, where all were run and have a score; marked where a seed has diverged."""
    cells = [cell for cell in row if cell is not None and cell["test"][model]["mean"] is not None]
    if len(cells) < len(row):
        return Entry()
    value = sum(100 * cell["test"][model]["mean"] for cell in cells) / len(cells)
    text = f"{value:.1f} {MARK}" if any(diverged_seeds(cell) for cell in cells) else f"{value:.1f}"
    whole = all(scored_seeds(cell["test"][model]) == len(cell["seeds"]) for cell in cells)
    return Entry(text, round(value, 1) if whole else None)


def printed_mean(row: Sequence[Published | None]) -> str:
    """The published cells' unweighted mean, worked out anew: the printed "Overall" is not always the mean of its row."""
    means = [float(cell.mean) for cell in row if cell is not None]
    return "" if len(means) < len(row) else f"{sum(means) / len(means):.1f}"


def sent(cell: Mapping) -> str:
    """Megabytes that a client uploads in a trip, on average."""
    return f"{cell['bytes']['upload'] / cell['client_trips']['total'] / 1e6:.3g}"


def levels(table: Table, stored: Stored, published: Printed) -> dict[str, float]:
    """Validation scores to reach, by column key: the printed targets, or what the rows that are compared have in common."""
    printed, found = published.targets(table.key), {}
    for column in table.columns:
        cells = (stored.get((table.key, key, column.key)) for key in table.compared)
        found[column.key] = common([cell for cell in cells if cell]) if table.compared else printed.get(column.dataset)
    return {key: value for key, value in found.items() if value is not None}


def grids(table: Table, stored: Stored, published: Printed, targets: Mapping[str, float]) -> list[Grid]:
    """The table's numbers, a grid for each group of columns; the best of ours is marked in every column.

    Args:
        targets: validation accuracy by column key, see :func:`levels`.
    """
    groups = dict.fromkeys(column.group for column in table.columns)
    return [grid(table, group, stored, published, targets) for group in groups]


def grid(table: Table, group: str, stored: Stored, published: Printed, targets: Mapping[str, float]) -> Grid:
    """One of :func:`grids`."""
    measure, shown = MEASURES[table.measure], [column for column in table.columns if column.group == group]
    with_mean = measure.with_mean and len(shown) > 1
    ours = scored_models(measure.kinds, (cell for _, cell in in_table(table, stored)))
    kinds = (*ours, *["published"] * measure.printed, *["MB"] * table.with_bytes)
    heads = [(column.dataset, kind) for column in shown for kind in kinds]
    heads += [(MEAN, kind) for kind in (*ours, "published")] * with_mean
    rows = []
    for row in table.rows:
        found = [stored.get((table.key, row.key, column.key)) for column in shown]
        theirs = [look_up(published, table, row, column) for column in shown]
        entries = []
        for column, cell, their in zip(shown, found, theirs, strict=True):
            target = targets.get(column.key)
            entries += [Entry() if cell is None else measure.shown(cell, kind, target) for kind in ours]
            entries += [Entry(printed(their))] * measure.printed
            entries += [Entry("" if cell is None else sent(cell))] * table.with_bytes
        if with_mean:
            entries += [*(mean_entry(found, kind) for kind in ours), Entry(printed_mean(theirs))]
        rows.append((row.title, tuple(entries)))
    top = [max((rank for _, row in rows if (rank := row[i].rank) is not None), default=None) for i in range(len(heads))]
    marked = tuple(
        (title, tuple(replace(e, best=e.rank is not None and e.rank == top[i]) for i, e in enumerate(row))) for title, row in rows
    )
    return Grid(group, tuple(heads), marked)
