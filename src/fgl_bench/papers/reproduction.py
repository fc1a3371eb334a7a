"""Verdicts on all papers, counts with floor and ceiling, claims, and readings tried after the fact."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.claims import claims, sparsity
from fgl_bench.papers.plan import Table
from fgl_bench.papers.verdicts import (
    REPETITIONS,
    TESTED,
    VERDICTS,
    Score,
    by_seed,
    ceiling,
    cells_of,
    drawn_runs,
    floor,
    read_contradictions,
    shares,
    tested,
    verdicts,
    with_draws,
)
from fgl_bench.papers.work import Work
from fgl_bench.results.scored import selected
from fgl_bench.utils.files import write_whole

SHOWN = (
    *("paper", "table", "method", "where", "column", "dataset", "row", "title", "model", "open", "printed_text", "ours", "difference"),
    *("low", "high", "between", "verdict"),
)


def reproduction(works: Sequence[Work], settlements: Path, absent: Collection[str]) -> dict[str, pd.DataFrame]:
    """Return the frames ``verdicts``, ``counts``, ``claims``, ``sparsity``, ``readings``, ``alternatives`` and ``own_best``.

    Args:
        settlements: the folder of the registered rule.
        absent: unavailable datasets.
    """
    contradictions = read_contradictions(settlements)
    drawn = pd.concat([drawn_runs(work.paper.name, work.tables, work.draws, work.stored) for work in works], ignore_index=True)
    cells = verdicts(with_draws(printed_cells(works, contradictions), drawn))
    every = verdicts(with_draws(_all_rows(works, contradictions), drawn))
    return {
        "verdicts": cells[list(SHOWN)],
        "counts": counts(cells, drawn, absent),
        "claims": claims(cells, drawn),
        "sparsity": sparsity(cells),
        "readings": readings(works, cells, every, drawn, contradictions),
        "alternatives": alternatives(works, every),
        "own_best": own_best(cells, every, drawn),
    }


def printed_cells(
    works: Sequence[Work], contradictions: set[tuple[str, ...]], score: Callable[[Table], Score] = by_seed, other_model: bool = False
) -> pd.DataFrame:
    """Return :func:`~fgl_bench.papers.verdicts.cells_of` all papers, on the registered model or on the other one."""
    parts = []
    for work in works:
        model = work.registered["model"]
        lines = work.registered.assign(model=model.map(dict(zip(MODELS, MODELS[::-1], strict=True)))) if other_model else work.registered
        parts.append(cells_of(work.paper.name, work.tables, work.stored, work.published, lines, contradictions, score))
    return pd.concat(parts, ignore_index=True)


def counts(cells: pd.DataFrame, drawn: pd.DataFrame, absent: Collection[str], repetitions: int = REPETITIONS) -> pd.DataFrame:
    """Return the verdicts of each paper and of all, with the shares of :data:`TESTED` and their floor and ceiling in percent.

    ``different`` in shares includes ``under-specified``. ``p`` is the share of permutations with at least as many equivalent cells.
    """
    low, high, rows = floor(cells, repetitions), ceiling(cells, drawn, repetitions), []
    for paper in (*dict.fromkeys(cells["paper"]), "all"):
        part = cells if paper == "all" else cells[cells["paper"] == paper]
        number, run = part["verdict"].value_counts(), tested(part)
        row = {"paper": paper, "printed": len(part), "at_hand": int((~part["dataset"].isin(absent) | part["ours"].notna()).sum())}
        row |= {"tested": len(run), **{name: int(number.get(name, 0)) for name in VERDICTS}}
        for name in TESTED:
            named = run["verdict"].isin([name, "under-specified"] if name == "different" else [name])
            row[f"{name}_share"] = 100 * named.mean()
            for kind, of_all in (("floor", low), ("ceiling", high)):
                of_paper = of_all if paper == "all" else of_all.loc[[paper]]
                row |= dict(zip((f"{name}_{kind}{end}" for end in ("", "_low", "_high")), shares(of_paper, name), strict=True))
        permuted = (low if paper == "all" else low.loc[[paper]]).groupby("repetition").sum()
        reached = permuted["equivalent"] / permuted.sum(axis=1) >= row["equivalent_share"] / 100 - 1e-12
        rows.append({**row, "p": (1 + int(reached.sum())) / (1 + repetitions)})
    return pd.DataFrame(rows)


# ---- readings tried after the fact


def _scored(table: Table, change: Callable[[Mapping[str, Any], str], Any]) -> Score:
    """Return the accuracies of another score of a stored cell; None for older cells, and for other measures."""

    def score(cell: Mapping[str, Any], model: str, target: float | None) -> Any:
        found = change(cell["test"][model], model) if table.measure == "accuracy" else None
        return [None if value is None else 100 * value for value in found["per_seed"]] if found and "per_seed" in found else None

    return score


SCORES: dict[str, Callable[[Table], Score]] = {
    "last round": partial(_scored, change=lambda test, model: test.get("last")),
    "clients alike": partial(_scored, change=lambda test, model: selected(test, "federation", "macro")),
    "each client's best round": partial(_scored, change=lambda test, model: selected(test, "client", "weighted")),
}


PLACE = ["paper", "method", "where", "table", "column"]


def readings(
    works: Sequence[Work], cells: pd.DataFrame, every: pd.DataFrame, drawn: pd.DataFrame, contradictions: set[tuple[str, ...]]
) -> pd.DataFrame:
    """Return how many cells were tested under other readings, by verdict.

    ``nearest`` takes the row and the model that are nearest to the printed values, cell by cell.

    Args:
        every: the cells of all rows and both models.
    """
    found = {"registered": cells, "other model": verdicts(with_draws(printed_cells(works, contradictions, other_model=True), drawn))}
    for name, score in SCORES.items():
        found[name] = verdicts(with_draws(printed_cells(works, contradictions, score), drawn))
    found["nearest"] = every.assign(away=every["difference"].abs()).sort_values("away", kind="stable").drop_duplicates(PLACE)
    rows = []
    for name, part in found.items():
        for paper, of_paper in tested(part).groupby("paper"):
            number = of_paper["verdict"].value_counts()
            rows.append(
                {"reading": name, "paper": paper, "tested": len(of_paper), **{each: int(number.get(each, 0)) for each in VERDICTS[:4]}}
            )
    return pd.DataFrame(rows)


def alternatives(works: Sequence[Work], every: pd.DataFrame) -> pd.DataFrame:
    """Return the tested cells by verdict for each row that is not the registered one, with the registered model."""
    registered = pd.concat([work.registered for work in works[:1]])
    models = registered.drop_duplicates(["paper", "table", "method", "where"])[["paper", "table", "method", "where", "model"]]
    named = set(registered[["paper", "table", "row"]].itertuples(index=False, name=None))
    part = tested(every).merge(models)
    part = part[[place not in named for place in part[["paper", "table", "row"]].itertuples(index=False, name=None)]]
    counted = part.groupby(["paper", "title", "model"], sort=False)["verdict"].value_counts().unstack(fill_value=0)
    return counted.reindex(columns=list(VERDICTS[:4]), fill_value=0).reset_index()


def own_best(cells: pd.DataFrame, every: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """Return the claims on accuracy with the own method's best row and model in each cell, against the registered baselines."""
    own = every[(every["method"] == every["paper"]) & ~every["where"].str.contains("variant=without") & ~every["trips"]]
    own = own.sort_values("ours", ascending=False, kind="stable").drop_duplicates(PLACE)
    rivals = cells[(cells["method"] != cells["paper"]) & ~cells["trips"]]
    found = claims(pd.concat([rivals, own]), drawn)
    return found[["paper", "table", "backbone", "columns", "best_printed", "best_ours", "margin", "low", "high"]]


def _all_rows(works: Sequence[Work], contradictions: set[tuple[str, ...]]) -> pd.DataFrame:
    """Return the printed cells with every row and model of ours for them."""
    parts = []
    for work in works:
        lines = work.registered[work.registered["paper"] == work.paper.name].to_dict("records")
        every = [
            {**line, "row": row.key, "model": model}
            for line in lines
            for table in work.tables
            for row in table.rows
            for model in MODELS
            if table.key == line["table"] and row.published == line["method"] and _conditions(row.where) == line["where"]
        ]
        for model in MODELS:
            of_model = pd.DataFrame([line for line in every if line["model"] == model])
            parts.append(cells_of(work.paper.name, work.tables, work.stored, work.published, of_model, contradictions))
    found = pd.concat(parts, ignore_index=True)
    return found[found["seeds"] > 0]


def _conditions(where: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(where.items()))


def write(frames: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write ``<folder>/<name>.csv``, numbers with three decimals."""
    for name, frame in frames.items():
        write_whole(folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.3f", lineterminator="\n"))
    return [folder / f"{name}.csv" for name in frames]
