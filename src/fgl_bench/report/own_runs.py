"""Runs of any folder as tables of the report page, like those of a paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.plan import Cell, Column, Key, Paper, Row, Table
from fgl_bench.papers.published import Printed
from fgl_bench.report.shown import Source
from fgl_bench.results.cells import NAME as CELLS
from fgl_bench.results.cells import compact
from fgl_bench.results.choose import Chosen, Values, choose, latest, unlike, value, values
from fgl_bench.results.compare import OF_CLIENTS, heading, label, score
from fgl_bench.results.frame import Result
from fgl_bench.results.question import ANY, Question, as_text
from fgl_bench.results.result_table import ResultTable, in_folder, overrides_at
from fgl_bench.results.scored import of_task, scored_models
from fgl_bench.results.statistics import wide

NAME = "runs"
TEST = "test"  # the metric of every run
SPEAKING = ("algorithm", "dataset", "split", "model", "scenario", "optimizer")  # groups whose choices are shown without the group's name


def own_runs(folder: Path, runs: Sequence[Result]) -> Source:
    """Return tables of the runs in ``folder``."""
    stored: dict[Key, Mapping[str, Any]] = {}
    files: dict[str, Path] = {}
    cells, tables = [], []
    downloads, readings, pivots = {}, {}, {}
    scores: dict[str, Mapping[str, Any]] = {}
    for number, chosen in enumerate(sections(runs), 1):
        table = table_of(str(number), chosen)
        shown = ResultTable(folder, chosen)
        downloads[table.key] = {
            "csv": shown.csv(),
            "md": shown.markdown(commands=False),
            "tex": shown.latex(commands=False),
        }
        readings[table.key] = reading(shown)
        pivots[table.key] = pivot_of(chosen)
        tables.append(table)
        some = next(iter(chosen.runs.values()))
        for row, first in zip(table.rows, chosen.rows, strict=True):
            for column, second in zip(table.columns, chosen.columns, strict=True):
                run = chosen.runs.get((first, second))
                folder_override = [] if is_cell(run or some) else in_folder((run or some).results_dir)
                words = overrides_at(chosen, (first, second))
                cells.append(Cell(table.key, row, column, () if words is None else (*words, *folder_override)))
                if run is not None:
                    stored[cells[-1].key] = stored_of(run, cells[-1].command)
                    files[run.summary["config_hash"]] = run.folder / CELLS if is_cell(run) else run.folder
                    scores[run.summary["config_hash"]] = scores_of(run)
    paper = Paper(NAME, "Your runs", tuple(tables), ())
    return Source(paper, cells, stored, Printed([]), (), files, downloads, readings, pivots=pivots, scores=scores, own=True)


def pivot_of(chosen: Chosen) -> dict[str, Any]:
    """Return the values of a table's rows and columns by key, as they are shown, and the metrics of its runs with their headings."""
    asked, runs = chosen.question, list(chosen.runs.values())
    own = sorted({str(run.summary["metric"]) for run in runs})
    names = dict.fromkeys(name for run in runs for name in metrics(run))
    return {
        "row_values": [shown_values(asked.rows, line) for line in chosen.rows],
        "column_values": [shown_values(asked.cols, line) for line in chosen.columns],
        "metrics": {name: heading(own, None if name == TEST else name) for name in names},
    }


def shown_values(keys: Sequence[str], line: Values) -> dict[str, str]:
    return {key: spoken(key, each) if each != "null" else "" for key, each in zip(keys, line, strict=True)}


def metrics(run: Result) -> Iterator[str]:
    """Yield the names of the metrics that a run may have, its own as ``test``."""
    yield from (TEST, *run.summary.get("metrics", {}), "last", *OF_CLIENTS)
    yield from (f"trips_to_{target}" for target in run.summary["client_trips"]["to_target"])


def scores_of(run: Result) -> dict[str, dict[str, list[Any]]]:
    """Return text, mean, half-width of the 95 % interval and completeness by metric and kind of model, as far as the run has them."""
    found: dict[str, dict[str, list[Any]]] = {}
    for metric in metrics(run):
        for model in scored_models(MODELS, [run.summary]):
            with suppress(UserError):
                one = score(run, None if metric == TEST else metric, model)
                found.setdefault(metric, {})[model] = [one.text(1), one.mean, one.half, one.complete]
    return found


def stored_of(run: Result, line: str) -> Mapping:
    """Convert a run to a stored cell; cells are returned unchanged."""
    return run.summary if is_cell(run) else compact(run.summary, line, run.folder)


def table_of(key: str, chosen: Chosen) -> Table:
    """Return the table, named by the common values of its runs."""
    asked = chosen.question
    rows = tuple(Row(each, each, values[0]) for values in chosen.rows for each in [title(asked.rows, values)])
    columns = tuple(Column(values[0], ", ".join(map(spoken, asked.cols[1:], values[1:]))) for values in chosen.columns)
    return Table(key, "", caption(chosen), "accuracy", columns, rows)


def title(keys: Sequence[str], values: Values) -> str:
    """Return a title such as ``fedprox mu=0.1``, without keys that the method does not have."""
    named = [f"{key.rpartition('.')[2]}={value}" for key, value in zip(keys[1:], values[1:], strict=True) if value != "null"]
    return label([values[0], *named])


def spoken(key: str, value: str) -> str:
    """Format a value as ``10 clients``, ``louvain`` or ``lr=0.1``."""
    if key == "num_clients":
        return f"{value} client{'s' * (value != '1')}"
    return value if key in SPEAKING else f"{key.rpartition('.')[2]}={value}"


def caption(chosen: Chosen) -> str:
    """Return the methods and datasets, the first few by name."""
    methods, datasets = (list(dict.fromkeys(value[0] for value in side)) for side in (chosen.rows, chosen.columns))
    more = list(dict.fromkeys(key.rpartition(".")[2] for key in (*chosen.question.rows[1:], *chosen.question.cols[2:])))
    by = f", by {listed(more)}" if more else ""
    return f"{listed(methods)} on {listed(datasets)}{of_task(next(iter(chosen.runs.values())).summary)}{by}"


def listed(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def is_cell(run: Result) -> bool:
    return "command" in run.summary


def reading(shown: ResultTable) -> str:
    """Return the explanation of a table's scores."""
    counts = sorted({len(run.summary["seeds"]) for run in shown.chosen.runs.values()})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    half = " ± half-width of the 95 % t-interval" * (counts[-1] > 1)
    halves = [score.half for block in shown.blocks for score in block.scores.values()]
    return " ".join((
        f"{shown.unit[:1].upper()}{shown.unit[1:]} at the best validation point, mean over {seeds} seed{'s' * (counts != [1])}{half}.",
        "Received: the model that a client gets; trained: the same model after local training.",
        *wide(halves),
    ))  # fmt: skip


ROW = "algorithm"
COLUMNS = ("dataset", "split")
LAST = ("rounds", "trips")  # keys that often follow from others
FULL = 0.5  # minimum share of cells with a run


def sections(runs: Sequence[Result]) -> list[Chosen]:
    """Return the fewest tables that show every run once, have one task and are at least half full.

    For a user's class, only runs of the latest version are shown.
    """
    of_tasks = parts(latest(runs), "task")
    return [choose(part, question_of(part)) for of_one in of_tasks for part in split(of_one)]


def split(runs: list[Result]) -> list[list[Result]]:
    """Split the runs repeatedly by the key that leaves the fewest empty cells."""
    asked = question_of(runs)
    whole = size(runs, asked)
    if len(runs) >= FULL * whole:
        return [runs]
    parted = {key: parts(runs, key) for key in (*asked.cols, *asked.rows) if key != ROW}
    sizes = {key: sum(size(part, asked) for part in part_list) for key, part_list in parted.items()}
    best = min(sizes, key=lambda key: sizes[key], default=None)
    if best is None or sizes[best] >= whole:
        return [runs]
    return [few for part in parted[best] for few in split(part)]


def parts(runs: Sequence[Result], key: str) -> list[list[Result]]:
    """Group the runs by the values of a key."""
    groups: dict[str, list[Result]] = {}
    for run in runs:
        groups.setdefault(as_text(value(run, key)), []).append(run)
    return list(groups.values())


def size(runs: Sequence[Result], asked: Question) -> int:
    """Return rows times columns."""
    return len({values(run, asked.rows) for run in runs}) * len({values(run, asked.cols) for run in runs})


def question_of(runs: Sequence[Result]) -> Question:
    """Build a question from all differing keys: keys of the method as rows, the others as columns.

    A key that is determined by the previous keys is not used; ``where`` allows any value of it.
    """
    differing = list(unlike(runs, {ROW, *COLUMNS}))
    differing.sort(key=lambda key: (key in LAST, LAST.index(key) if key in LAST else 0))
    rows: tuple[str, ...] = (ROW,)
    cols: tuple[str, ...] = COLUMNS
    follow: dict[str, tuple[str, ...]] = {}
    for key in differing:
        own = key.startswith(f"{ROW}.")
        if decided(runs, rows if own else cols, key):
            follow[key] = (ANY,)
        elif own:
            rows += (key,)
        else:
            cols += (key,)
    return Question(rows, cols, follow)


def decided(runs: Sequence[Result], keys: Sequence[str], key: str) -> bool:
    """Return True if the values of ``keys`` determine the value of ``key``."""
    known: dict[tuple[str, ...], Any] = {}
    return all(known.setdefault(values(run, keys), value(run, key)) == value(run, key) for run in runs)
