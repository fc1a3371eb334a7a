"""``fgl-bench place``: a user's method in the setting of a published table, or in the leaderboard."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from tabulate import tabulate

from fgl_bench.cli import place_in_leaderboard
from fgl_bench.cli.check.subject import load_method
from fgl_bench.config.compose import as_command
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.placement import Placement, diagrams, leaderboard, placement, spoken, stored_results, write, write_row
from fgl_bench.results.console import line_width
from fgl_bench.results.question import short
from fgl_bench.results.store import PRESENTATION
from fgl_bench.runner.one import run_one
from fgl_bench.runner.run_store import Finished
from fgl_bench.scenarios.hooks import supported
from fgl_bench.utils.files import home

USAGE = "fgl-bench place my_method.py [paper=fedsa_gcl table=3 datasets=cora,citeseer] [algorithm.KEY=VALUE]"
BOARD = "leaderboard"
OWN = {"paper": "fedsa_gcl", "table": "3", "datasets": "", "results": "", "out": ""}
HEAD = ["", "method", "ours", "printed", "diff.", "p"]


def show(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """The command.

    Raises:
        UserError: an argument is wrong, or the method cannot be run.
    """
    names = [text for text in arguments if "=" not in text]
    if len(names) == 2 and names[1] == BOARD and names[0].partition(":")[0].endswith(".py"):
        place_in_leaderboard.show(names[0], [text for text in arguments if "=" in text], folders)
        return
    if len(names) != 1 or not names[0].partition(":")[0].endswith(".py"):
        named = f"{names[0]}: must be a file with your method, such as my_method.py;" if names else "place what?"
        raise UserError(f"{named} {USAGE}")
    given = [text.partition("=")[::2] for text in arguments if text.partition("=")[0] in OWN]
    asked = {**OWN, **dict(given)}
    if twice := [key for key, times in Counter(key for key, _ in given).items() if times > 1]:
        raise UserError(f"{twice[0]}= is given twice")
    overrides = [text for text in arguments if "=" in text and text.partition("=")[0] not in OWN]
    method = load_method(names[0])
    datasets = [name.strip() for name in asked["datasets"].split(",") if name.strip()]
    results = home("results", asked["results"]) if asked["results"] else stored_results(asked["paper"])
    user_placement = placement(asked["paper"], asked["table"], datasets, f"{method.__name__} (yours)", results)
    for number, column in enumerate(user_placement.table.columns, 1):
        print(f"run {number} of {len(user_placement.table.columns)}: {method.__name__} on {column.key}", file=sys.stderr, flush=True)
        line = [*user_placement.overrides(column), *overrides]
        finished = run(method, line, folders)
        user_placement.add(column, finished.summary, shlex.join(["fgl-bench", *command(method, line)]), finished.folder)
    print_placement(user_placement)
    usual = Path("placed", f"{user_placement.paper.name}-table{user_placement.table.key}-{method.__name__.lower()}")
    out = home("out", asked["out"]) if asked["out"] else usual
    changed = [text for text in overrides if text.partition("=")[0].lstrip("+").partition(".")[0] not in ("algorithm", *PRESENTATION)]
    try:
        files = [*write(user_placement, out, changed), write_row(user_placement, out, changed)]
        files += diagrams(user_placement, out)
    except OSError as error:
        raise UserError(f"out={short(str(out))}: cannot be written ({error.strerror})") from error
    print("written: " + ", ".join(path.name for path in files) + f" in {out}")


def command(method: type, overrides: Sequence[str]) -> list[str]:
    """Return the arguments of a normal run of the method; keys that FedAvg lacks are added."""
    rest = [f"+{text}" if text.startswith("algorithm.") else text for text in overrides]
    scenario = [] if any(text.startswith("scenario=") for text in overrides) else [f"scenario={supported(method)[0]}"]
    return [*rest[:2], "algorithm=fedavg", f"algorithm._target_={method.__module__}.{method.__name__}", *scenario, *rest[2:]]


def run(method: type, overrides: Sequence[str], folders: Sequence[Path]) -> Finished:
    """Run the method, or read its complete run."""
    keys_of_method = [text for text in overrides if text.lstrip("+").startswith("algorithm.")]
    rest = [text for text in overrides if text not in keys_of_method]
    scenario = [] if any(text.startswith("scenario=") for text in rest) else [f"scenario={supported(method)[0]}"]
    with as_command([*rest[:2], "algorithm=fedavg", *scenario, *rest[2:]], folders, ["algorithm"]) as cfg:
        OmegaConf.set_struct(cfg, False)
        cfg.algorithm = {"_target_": f"{method.__module__}.{method.__name__}", **keys(keys_of_method)}
        return run_one(cfg)


def keys(overrides: Sequence[str]) -> dict[str, Any]:
    """Parse ``algorithm.KEY=VALUE`` arguments."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UserError(f"{short(' '.join(overrides))}: must be algorithm.KEY=VALUE ({short(str(error))})") from error
    sweep = next((one for one in parsed if one.is_sweep_override()), None)
    if sweep is not None:
        raise UserError(f"{short(str(sweep.input_line))}: place takes one value of a key")
    return {str(one.key_or_group).removeprefix("algorithm."): one.value() for one in parsed}


def print_placement(placement: Placement) -> None:
    """Print a ranking per column and kind of model, and the average ranks."""
    print(f"{placement.paper.title}, table {placement.table.key}: {placement.table.title}")
    for column in placement.table.columns:
        for model in MODELS:
            print(f"\n{column.key}, {model} model")
            print(tabulate(list(leaderboard(placement, column, model)), HEAD, disable_numparse=True))
            print(spoken(placement, column, model))
    print("\nMean over the seeds ± half-width of the 95 % t-interval. diff.: yours minus it; p: paired")
    print("t-test over the seeds, Holm-corrected for all of them, * below 5 %. Printed numbers do not")
    print("say which of the two models they score.")
    for model in MODELS:
        ranks, average = placement.ranks(model)
        if ranks is not None and placement.title in ranks.ranks:
            text = ranks.texts()[placement.title]
            line = f"{model} model: average rank {text} of {len(ranks.ranks)} over {average}"
            print(textwrap.fill(line, line_width(), subsequent_indent="  "))
