"""Results of a search: a table of trials, importances of the keys, and the command of the best trial."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from fgl_bench.cli.tune.space import chosen, rounded, short
from fgl_bench.cli.tune.study import STAGES, Search
from fgl_bench.config.values import plain
from fgl_bench.errors import UserError
from fgl_bench.results.console import line_width
from fgl_bench.results.result_table import plain_cell
from fgl_bench.results.sweeps import record
from fgl_bench.utils.masking import masked

MOST_ROWS = 20
LEAST_SCORED = 5  # minimum number of trials for importances


def print_outcome(search: Search) -> None:
    """Print the trials, best first, the importances of the keys and the command of the best run; write all trials to a csv.

    Raises:
        UserError: no trial could be run.
    """
    trials = sorted(search.study.get_trials(deepcopy=False), key=rank)
    ended = [trial for trial in trials if trial.state.is_finished()]
    if not ended:
        return
    write(search, ended)
    runs = [Path(trial.user_attrs["run"]) for trial in ended if "run" in trial.user_attrs]
    if runs:
        record(search.results, runs, masked(shlex.join(["fgl-bench", *sys.argv[1:]])), None, search=True)
    scored: list[Any] = [trial for trial in ended if trial.state.name == "COMPLETE"]
    if not scored:
        raise UserError("no trial could be run to its end; the refusals above say why")
    print(f"\n{table(search, ended)}")
    print(f"validation in %, of {search.options.model_of} models, mean over seeds at the selected points")
    print(f"all {len(ended)} trials: {search.path}.csv")
    print(importances(search, len(scored)))
    line = ["fgl-bench", *(word for folder in search.folders for word in ("--config-dir", str(folder))), *search.overrides]
    line += chosen(scored[0].params, search.overrides)
    print(f"best of {len(scored)}: validation {100 * float(scored[0].value):.2f}\n  {masked(shlex.join(line))}", flush=True)


def rank(trial: Any) -> tuple[int, float, int]:
    """Sort key: scored trials by score, ties by number; then pruned trials, latest first."""
    if trial.state.name == "COMPLETE":
        return 0, -float(trial.value), trial.number
    return (1, -(trial.last_step or 0), trial.number) if trial.state.name == "PRUNED" else (2, 0.0, trial.number)


def table(search: Search, ended: Sequence[Any]) -> str:
    """Format the best trials, one line each, cut to the terminal's width."""
    names, width = short(list(search.space)), line_width()
    rows = [[score(trial), *(rounded(trial.params.get(key)) for key in search.space), trial.number, fate(trial)] for trial in ended]
    lines = tabulate(rows[:MOST_ROWS], headers=["validation", *names, "trial", ""], disable_numparse=True).splitlines()
    return "\n".join(line.rstrip() if len(line.rstrip()) <= width else f"{line[: width - 1]}…" for line in lines)


def score(trial: Any) -> str:
    return f"{100 * trial.value:.2f}" if trial.state.name == "COMPLETE" else "-"


def fate(trial: Any) -> str:
    """Describe the end of a trial without a score."""
    if trial.state.name == "PRUNED":
        return f"pruned at {100 * (trial.last_step or 0) / STAGES:.0f} %"
    return str(trial.user_attrs.get("reason", "")).partition(":")[0]


def importances(search: Search, scored: int) -> str:
    """Return the share of the scores' variance explained by each key."""
    if scored < LEAST_SCORED or len({trial.value for trial in search.study.get_trials(deepcopy=False) if trial.value is not None}) < 2:
        return f"importances: need {LEAST_SCORED} trials with different scores"
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    try:
        shares = get_param_importances(search.study, evaluator=FanovaImportanceEvaluator(seed=0))
    except ImportError:
        return "importances: need scikit-learn, pip install 'fgl-bench[tune]'"
    return f"importances (fANOVA, {scored} trials): {', '.join(f'{key} {share:.2f}' for key, share in shares.items())}"


def write(search: Search, ended: Sequence[Any]) -> None:
    """Write all trials to ``<study>.csv``, best first."""
    with open(f"{search.path}.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["trial", "state", "validation", *search.space, "reason"])
        for trial in ended:
            value = trial.value if trial.state.name == "COMPLETE" else ""
            values = [plain(trial.params[key]) if key in trial.params else "" for key in search.space]
            texts = map(plain_cell, (*values, trial.user_attrs.get("reason", "")))
            writer.writerow([trial.number, trial.state.name.lower(), value, *texts])
