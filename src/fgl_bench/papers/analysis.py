"""Statistics of a paper's table from the stored cells, as plain data for the report page and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.plan import Column, Paper, Row, Stored, Table, in_table, look_up
from fgl_bench.papers.published import Printed
from fgl_bench.results import statistics
from fgl_bench.results.scored import scored_models
from fgl_bench.results.statistics import Agreement, Comparison, Ranks
from fgl_bench.utils.files import write_whole


@dataclass(frozen=True)
class CellScore:
    """One score of ours.

    Attributes:
        mean, half: the mean shown in the table, and the half-width of its 95 % interval.
        per_seed: scores for ranks and tests; larger is better.
    """

    mean: float
    half: float | None
    per_seed: tuple[float, ...]


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of a column: the best method, tests of the others against it, agreement with the paper's order, the Pareto front."""

    best: str
    others: tuple[Comparison, ...]
    agreement: Agreement | None
    front: tuple[str, ...]


@dataclass(frozen=True)
class Statistics:
    """Statistics of a table for one kind of model; methods are identified by title.

    Attributes:
        columns: by column key, for columns with at least two methods.
        ranks: over the columns on which all ``ranked`` methods were run; None for fewer than two.
        points: (bytes per seed, score), by column key and title.
        fairness: means over the ranked methods' columns, by title; fractions.
        unscored: cells left out because a seed has no score.
    """

    model: str
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    ranks: Ranks | None = None
    points: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    fairness: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    unscored: tuple[str, ...] = ()


def of_accuracy(cell: Mapping, model: str, target: float | None) -> CellScore | None:
    """Return the score in percent."""
    test = cell["test"][model]
    if test["mean"] is None or any(value is None for value in test["per_seed"]):
        return None
    return CellScore(100 * test["mean"], None if test["ci95"] is None else 100 * test["ci95"], tuple(100 * v for v in test["per_seed"]))


def of_trips(cell: Mapping, model: str, target: float | None) -> CellScore | None:
    """Return the trips of seeds that reached the target; for ranks and tests, others count as the whole budget."""
    counts = cell["client_trips"]["to_target"].get(f"{target:g}", {}).get(model) if target is not None else None
    if not counts or not counts["reached"]:
        return None
    budget = cell.get("config", {}).get("trips", cell["client_trips"]["total"])
    return CellScore(counts["mean"], counts["ci95"], tuple(-float(budget if n is None else n) for n in counts["per_seed"]))


def of_metric(name: str, cell: Mapping, model: str, target: float | None) -> CellScore | None:
    """Return an additional metric of the run in percent."""
    test = cell.get("metrics", {}).get(name)
    return None if test is None else of_accuracy({"test": test}, model, target)


Scorer = Callable[[Mapping, str, float | None], "CellScore | None"]
SCORES: dict[str, Scorer | None] = {"accuracy": of_accuracy, "trips": of_trips, "seconds": None, "costs": None, "curves": None}


def scorer(measure: str) -> Scorer | None:
    """Return the scoring function of a table's measure; None if it has no statistics."""
    return SCORES[measure] if measure in SCORES else partial(of_metric, measure)


def analyze(table: Table, stored: Stored, published: Printed, model: str) -> Statistics:
    """Compute the statistics of one kind of model (``received``, ``trained``); empty if the measure has none."""
    scored = scorer(table.measure)
    if scored is None:
        return Statistics(model)
    targets, scores, cells = published.targets(table.key), {}, {}
    for row in table.rows:
        for column in table.columns:
            cell = stored.get((table.key, row.key, column.key))
            if cell and (score := scored(cell, model, targets.get(column.dataset))) is not None:
                scores[row.key, column.key], cells[row.key, column.key] = score, cell
    points = {
        column.key: {
            row.title: (sum(cell["bytes"][way] for way in ("upload", "download")), mean(scores[row.key, column.key].per_seed))
            for row in table.rows
            if (cell := cells.get((row.key, column.key)))
        }
        for column in table.columns
    }
    whole = block(table, scores)
    return Statistics(
        model,
        {
            column.key: found
            for column in table.columns
            if (found := of_column(table, column, scores, cells, published, points[column.key])) is not None
        },
        ranked(whole, scores),
        points,
        shared(whole, cells, model),
        tuple(name for name, cell in in_table(table, stored) if None in cell["test"][model]["per_seed"]),
    )


def of_column(
    table: Table,
    column: Column,
    scores: Mapping[tuple[str, str], CellScore],
    cells: Mapping[tuple[str, str], Mapping],
    published: Printed,
    points: Mapping[str, tuple[float, float]],
) -> ColumnStatistics | None:
    """Compute a column's statistics; None for fewer than two methods. Tests only compare methods with the column's most frequent seeds."""
    scored = {row: scores[row.key, column.key] for row in table.rows if (row.key, column.key) in scores}
    seeds = [tuple(cells[row.key, column.key]["seeds"]) for row in scored]
    usual = max(seeds, key=seeds.count, default=())
    paired = {row.title: score.per_seed for row, score, own in zip(scored, scored.values(), seeds, strict=True) if own == usual}
    if len(paired) < 2:
        return None
    best, others = statistics.against_best(paired)
    both: dict[str, tuple[float, float]] = {}  # of several rows for a published row, the first counts
    for row, score in scored.items():
        if (their := look_up(published, table, row, column)) is not None:
            both.setdefault(str(their.where), (mean(score.per_seed), (-1 if table.measure == "trips" else 1) * float(their.mean)))
    tau = statistics.agreement(*([pair[i] for pair in both.values()] for i in (0, 1)))
    return ColumnStatistics(best, tuple(others), tau, tuple(statistics.pareto(points)))


Block = tuple[tuple[Row, ...], tuple[Column, ...]]


def block(table: Table, known: Collection[tuple[str, str]]) -> Block:
    """Return the largest complete block of rows and columns; empty if no two rows share two columns."""
    by_row = {row.key: {column.key for column in table.columns if (row.key, column.key) in known} for row in table.rows}
    best: Block = ((), ())
    for wanted in by_row.values():  # a maximal block has all columns of one of its rows
        rows = tuple(row for row in table.rows if wanted <= by_row[row.key])
        shown = tuple(column for column in table.columns if column.key in wanted)
        if min(len(rows), len(shown)) > 1 and len(rows) * len(shown) > len(best[0]) * len(best[1]):
            best = rows, shown
    return best


def ranked(whole: Block, scores: Mapping[tuple[str, str], CellScore]) -> Ranks | None:
    """Return average ranks of a block's rows."""
    rows, shown = whole
    values = {row.title: [mean(scores[row.key, column.key].per_seed) for column in shown] for row in rows}
    return statistics.average_ranks(values, [column.dataset for column in shown])


def shared(whole: Block, cells: Mapping[tuple[str, str], Mapping], model: str) -> dict[str, dict[str, float]]:
    """Return fairness over clients by title, means over a block's columns. Older cells only have the worst client."""
    means, (rows, shown) = {}, whole
    for row in rows:
        tests = [cells[row.key, column.key]["test"][model] for column in shown]
        parts = [test.get("fairness") or {"worst": test.get("worst_client", {}).get("mean")} for test in tests]
        names = [name for name in parts[0] if all(part.get(name) is not None for part in parts)]
        means[row.title] = {name: mean(part[name] for part in parts) for name in names}
    return means


# ---- Markdown

ABOUT = (
    "*Worse than the best*: two-sided paired t-tests across the seeds against the best mean of the column, corrected by Holm for the "
    "comparisons of the column, at 5 %. Seeds that share a partition differ by initialization, dropout and stragglers only, so a "
    "test says what is true of *this* partition; with fewer than five seeds it finds large differences only. *Rank*: mean rank over"
    " the columns that all ranked methods were run on, [95 % bootstrap over graphs; a graph brings all of its columns]. *tau*: "
    "Kendall's tau-b of our order of the methods and the printed one; of several readings of a printed row the first counts. "
    "*Front*: no other method moves fewer bytes and scores as high, or as few and scores higher."
)


def markdown(paper: Paper, table: Table, found: Sequence[Statistics]) -> str:
    """Return a page with the statistics of both kinds of model."""
    lines = [f"# {paper.title}, table {table.key}: statistics", "", ABOUT]
    for part in found:
        lines += ["", f"## {part.model} models"]
        lines += ["", f"Left out, because some of its seeds have no score: {', '.join(part.unscored)}."] if part.unscored else []
        if not part.columns:
            lines += ["", "Too few runs yet."]
            continue
        lines += ["", "| column | best | not significantly different | worse (p after Holm) | tau | front |", "|---|---|---|---|---|---|"]
        lines += [row_of(key, column) for key, column in part.columns.items()]
        if part.ranks is not None:
            lines += ["", *ranks_of(part.ranks)]
        if part.fairness:
            lines += ["", *fairness_of(part.fairness)]
    return "\n".join(lines) + "\n"


def row_of(key: str, column: ColumnStatistics) -> str:
    alike = ", ".join(other.name for other in column.others if not other.worse)
    worse = ", ".join(f"{other.name} ({other.adjusted:.2g})" for other in column.others if other.worse)
    tau = "" if column.agreement is None else f"{column.agreement.tau:.2f} of {column.agreement.methods}"
    return f"| {key} | {column.best} | {alike} | {worse} | {tau} | {', '.join(column.front)} |"


def ranks_of(ranks: Ranks) -> list[str]:
    lines = [f"Ranks over {ranks.columns} columns of {ranks.graphs} graph(s):", "", "| method | rank |", "|---|---|"]
    return lines + [f"| {name} | {text} |" for name, text in ranks.texts().items()]


def fairness_of(by_title: Mapping[str, Mapping[str, float]]) -> list[str]:
    names = ("worst", "tenth", "median", "best", "std")
    head = ["Over clients, in %, means over seeds and columns:", "", f"| method | {' | '.join(names)} |", "|---" * 6 + "|"]
    cells = ((title, [f"{100 * part[name]:.1f}" if name in part else "" for name in names]) for title, part in by_title.items())
    return [*head, *(f"| {title} | {' | '.join(shown)} |" for title, shown in cells)]


def write_statistics(folder: Path, paper: Paper, table: Table, stored: Stored, published: Printed) -> Path | None:
    """Write ``<folder>/table<key>_statistics.md``; None if the measure has no statistics."""
    if scorer(table.measure) is None:
        return None
    models = scored_models(MODELS, (cell for _, cell in in_table(table, stored)))
    found = [analyze(table, stored, published, model) for model in models]
    path = folder / f"table{table.key}_statistics.md"
    write_whole(path, markdown(paper, table, found))
    return path
