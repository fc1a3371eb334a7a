"""``fgl-bench place``: a user's own method in a published table's setting, or in the leaderboard."""

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
from fgl_bench.papers.placement import Placement, alike, diagrams, leaderboard, placement, spoken, stored_results, write, write_row
from fgl_bench.results.console import line_width
from fgl_bench.results.question import short
from fgl_bench.results.store import PRESENTATION
from fgl_bench.runner.finished import Finished
from fgl_bench.runner.one import run_one
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
    placed = placement(asked["paper"], asked["table"], datasets, f"{method.__name__} (yours)", results)
    for number, column in enumerate(placed.table.columns, 1):
        print(f"run {number} of {len(placed.table.columns)}: {method.__name__} on {column.key}", file=sys.stderr, flush=True)
        line = [*placed.overrides(column), *overrides]
        made = run(method, line, folders)
        placed.add(column, made.summary, shlex.join(["fgl-bench", *command(method, line)]), made.folder)
    tell(placed)
    usual = Path("placed", f"{placed.paper.name}-table{placed.table.key}-{method.__name__.lower()}")
    out = home("out", asked["out"]) if asked["out"] else usual
    changed = [text for text in overrides if text.partition("=")[0].lstrip("+").partition(".")[0] not in ("algorithm", *PRESENTATION)]
    try:
        files = [*write(placed, out, changed), write_row(placed, out, changed)]
        files += diagrams(placed, out)
    except OSError as error:
        raise UserError(f"out={short(str(out))}: cannot be written ({error.strerror})") from error
    print("written: " + ", ".join(path.name for path in files) + f" in {out}")


def command(method: type, overrides: Sequence[str]) -> list[str]:
    """The arguments of an ordinary run of the method; keys that FedAvg does not have are added."""
    rest = [f"+{text}" if text.startswith("algorithm.") else text for text in overrides]
    scenario = [] if any(text.startswith("scenario=") for text in overrides) else [f"scenario={supported(method)[0]}"]
    return [*rest[:2], "algorithm=fedavg", f"algorithm._target_={method.__module__}.{method.__name__}", *scenario, *rest[2:]]


def run(method: type, overrides: Sequence[str], folders: Sequence[Path]) -> Finished:
    """Make the method's run, or read it where it is complete already."""
    mine = [text for text in overrides if text.lstrip("+").startswith("algorithm.")]
    rest = [text for text in overrides if text not in mine]
    scenario = [] if any(text.startswith("scenario=") for text in rest) else [f"scenario={supported(method)[0]}"]
    with as_command([*rest[:2], "algorithm=fedavg", *scenario, *rest[2:]], folders, ["algorithm"]) as cfg:
        OmegaConf.set_struct(cfg, False)
        cfg.algorithm = {"_target_": f"{method.__module__}.{method.__name__}", **keys(mine)}
        return run_one(cfg)


def keys(mine: Sequence[str]) -> dict[str, Any]:
    """``algorithm.KEY=VALUE`` by key."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(mine))
    except HydraException as error:
        raise UserError(f"{short(' '.join(mine))}: must be algorithm.KEY=VALUE ({short(str(error))})") from error
    sweep = next((one for one in parsed if one.is_sweep_override()), None)
    if sweep is not None:
        raise UserError(f"{short(str(sweep.input_line))}: place takes one value of a key")
    return {str(one.key_or_group).removeprefix("algorithm."): one.value() for one in parsed}


def tell(placed: Placement) -> None:
    """Print a leaderboard for every column and kind of model, and the average ranks."""
    print(f"{placed.paper.title}, table {placed.table.key}: {placed.table.title}")
    for column in placed.table.columns:
        for model in MODELS:
            print(f"\n{column.key}, {model} model")
            print(tabulate(list(leaderboard(placed, column, model)), HEAD, disable_numparse=True))
            print(spoken(placed, column, model))
    print("\nMean over the seeds ± half-width of the 95 % t-interval. diff.: yours minus it; p: paired")
    print("t-test over the seeds, Holm-corrected for all of them, * below 5 %. Printed numbers do not")
    print("say which of the two models they score.")
    for model in MODELS:
        ranks, over = placed.ranks(model)
        if ranks is not None and placed.title in ranks.ranks:
            near = "; ".join(alike(ranks, placed.title)) or "none"
            said = f"{model} model: average rank {ranks.ranks[placed.title]:.2f} of {len(ranks.ranks)} over {over}; not significantly"
            said += f" different (critical difference {ranks.difference:.2f}): {near}"
            print(textwrap.fill(said, line_width(), subsequent_indent="  "))
