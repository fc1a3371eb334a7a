"""Claims of the papers' tables, in print and in our runs: the own method is best, by a margin, in the order of the methods.

``results/settlements/RULE.md`` has the definitions. A claim is checked for each table and backbone, over the columns in which the paper's
own method and at least two baselines are printed and run.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fgl_bench.papers.verdicts import FOLDS, LEVELS, RUNS, nearest

REFERENCES = ("global",)
BUDGET = 2000  # client trips
UNPERTURBED = {("dfed_sst", "3"): "2", ("dfed_sst", "4"): "2", ("fedsa_gcl", "4"): "3", ("fedsa_gcl", "5"): "3"}  # by table of sparsity
RESAMPLES = 9999


def entrants(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with both numbers, with ``entry`` (method and variant) and ``backbone``.

    Trips become means with the runs that missed the target at the full budget, negated: larger is better.
    """
    cells = cells[(cells["ours"].notna() | cells["missed"]) & ~cells["method"].isin(REFERENCES)].copy()
    conditions = [dict(pair.split("=") for pair in where.split()) for where in cells["where"]]
    cells["backbone"] = [each.get("backbone", "") for each in conditions]
    cells["entry"] = [f"{name} {each.get('variant', '')}".strip() for name, each in zip(cells["method"], conditions, strict=True)]
    for name, reached, planned in (("printed", "printed_runs", cells["paper"].map(RUNS)), ("ours", "runs", cells["seeds"])):
        mean = cells[name].where(cells[reached] > 0, 0.0)
        censored = (mean * cells[reached] + BUDGET * (planned - cells[reached])) / planned
        cells[name] = cells[name].where(~cells["trips"], -censored)
    return cells


def pairs(drawn: pd.DataFrame) -> pd.DataFrame:
    """Return the variance between draws of the difference of each two runs that were measured on the same draws."""
    found = []
    for _, runs in drawn.groupby(["paper", "table", "column", "model"], sort=False):
        for one, other in combinations(runs.to_dict("records"), 2):
            difference = np.subtract(one["values"], other["values"])
            found.append({**one, "between": max(0.0, float(difference.var(ddof=1)) - one["within"] - other["within"])})
    return pd.DataFrame(found, columns=list(drawn.columns))


def claims(cells: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """Return a row of claims for each paper, table and backbone; margins in points, or in trips."""
    paired, rows = pairs(drawn), []
    for (paper, table, backbone), group in entrants(cells).groupby(["paper", "table", "backbone"], sort=False):
        found = [claim for _, column in group.groupby("column", sort=False) if (claim := _column(column, str(paper), paired)) is not None]
        if not found:
            continue
        each = pd.DataFrame(found)
        error = math.sqrt(each["error"].pow(2).sum()) / len(each)
        rows.append(
            {
                **{"paper": paper, "table": table, "backbone": backbone, "columns": len(each), "methods": int(each["methods"].max())},
                "trips": bool(group["trips"].iloc[0]),
                **{"best_printed": int((each["printed"] > 0).sum()), "best_ours": int((each["ours"] > 0).sum())},
                **{"printed_margin": each["printed"].mean(), "margin": each["ours"].mean()},
                **{"low": each["ours"].mean() - 1.96 * error, "high": each["ours"].mean() + 1.96 * error},
                **{"beaten": int((each["ours"] + 1.96 * each["error"] < 0).sum()), "winner": each["winner"].mode().iloc[0]},
                **dict(zip(("tau", "tau_low", "tau_high"), mean_tau(each["tau"].dropna().to_numpy()), strict=True)),
            }
        )
    return pd.DataFrame(rows)


def _column(cells: pd.DataFrame, paper: str, paired: pd.DataFrame) -> dict[str, Any] | None:
    """Return margins, order and winner of one column; None without the own method or two baselines."""
    own, others = cells[cells["entry"] == paper], cells[cells["entry"] != paper]
    if len(own) != 1 or len(others) < 2:
        return None
    mine, rival = own.iloc[0], others.iloc[int(others["ours"].to_numpy().argmax())]
    between = 0.0 if mine["trips"] or paper in FOLDS else nearest(paired, mine.to_dict(), LEVELS[1:])[0]
    seeds = sum(each["variance"] / each["runs"] if each["runs"] > 1 else 0.0 for each in (mine, rival))
    return {
        "methods": len(cells),
        "printed": mine["printed"] - others["printed"].max(),
        "ours": mine["ours"] - rival["ours"],
        "error": math.sqrt(seeds + between),
        "tau": stats.kendalltau(cells["printed"], cells["ours"]).statistic,
        "winner": cells["entry"].iloc[int(cells["ours"].to_numpy().argmax())],
    }


def mean_tau(taus: np.ndarray) -> tuple[float, float, float]:
    """Return the mean of the columns' taus with a 95 % percentile bootstrap over them; NaN ends for fewer than three."""
    if len(taus) < 3:
        return (float(taus.mean()) if len(taus) else math.nan, math.nan, math.nan)
    ends = stats.bootstrap((taus,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    return float(taus.mean()), float(ends.low), float(ends.high)


def sparsity(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what hiding labels or edges changes, in print and in ours: means of perturbed less unperturbed scores over the same cells."""
    rows = []
    for (paper, table), clean in UNPERTURBED.items():
        of_paper = cells[(cells["paper"] == paper) & cells["ours"].notna()]
        before = of_paper[(of_paper["table"] == clean) & ~of_paper["column"].str.endswith(", 20 clients")]
        both = of_paper[of_paper["table"] == table].merge(before, on=["method", "dataset"], suffixes=("", "_clean"))
        printed, ours = both["printed"] - both["printed_clean"], both["ours"] - both["ours_clean"]
        rows.append(
            {
                **{"paper": paper, "table": table, "cells": len(both), "printed_change": printed.mean(), "change": ours.mean()},
                **{"printed_raised": (printed > 0).sum(), "raised": (ours > 0).sum()},
                "same_print": (both["printed_text"] == both["printed_text_clean"]).sum(),
            }
        )
    return pd.DataFrame(rows)
