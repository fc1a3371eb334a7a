"""Complete runs, recognized from their configuration without torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from omegaconf import DictConfig, OmegaConf

from fgl_bench.config.groups import build_group
from fgl_bench.config.settings import resolve_budget
from fgl_bench.data.sums import fingerprint
from fgl_bench.errors import UserError
from fgl_bench.results.checkpoints import discard
from fgl_bench.results.frame import Result, trips_to
from fgl_bench.results.saved_models import requested_selection, saved_selection
from fgl_bench.results.store import Untrusted, clear_leftovers, config_hash, identity, read_summary, run_folder
from fgl_bench.runner.validation import checked_names
from fgl_bench.utils.files import write_whole
from fgl_bench.utils.sources import outside_modules


class Finished(NamedTuple):
    """A complete run: its directory, its summary, and whether it was there already."""

    folder: Path
    summary: dict[str, Any]
    again: bool


def finished(cfg: DictConfig) -> Finished | None:
    """The complete run of a configuration with valid keys; None if it does not exist or further checks are needed.

    :func:`fgl_bench.runner.validation.validate` reports errors of the chosen classes, before a run is made.
    """
    if cfg.overwrite or cfg.device.startswith("cuda"):  # only torch knows whether the device exists
        return None
    config = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))
    if outside_modules(config):  # their imports are unknown
        return None
    try:
        what = identity(config, *resolve_budget(cfg), fingerprint(build_group(cfg, "dataset"), cfg.data_dir, cfg.cache_dir))
        names = checked_names(cfg)
        dataset, split, scenario, algorithm = (names[group] for group in ("dataset", "split", "scenario", "algorithm"))
        folder = run_folder(Path(cfg.results_dir), dataset, split, cfg.num_clients, scenario, algorithm, config_hash(what))
        clear_leftovers(folder)
        summary = read_summary(folder)
    except (UserError, Untrusted, OSError):
        return None
    which = requested_selection(cfg.keep_models, cfg.selection)
    if summary is None or (which is not None and saved_selection(folder) != which):
        return None
    discard(folder)  # of a process that was killed just after it had written the run
    return Finished(folder, summary, True)


def with_targets(found: Finished, targets: Sequence[float]) -> Finished:
    """A complete run with the trips to these validation scores; those that its summary lacks are computed from its history and added."""
    known, wanted = found.summary["client_trips"]["to_target"], {f"{target:g}": target for target in targets}
    new = {name: trips_to(Result(found.folder, found.summary), target) for name, target in wanted.items() if name not in known}
    known |= new
    if new:
        with suppress(OSError):  # a folder that cannot be written: they are computed again
            write_whole(found.folder / "summary.json", json.dumps(found.summary, indent=2, allow_nan=False) + "\n")
    trips = {**found.summary["client_trips"], "to_target": {name: known[name] for name in wanted}}
    return found._replace(summary={**found.summary, "client_trips": trips})


def stored(folder: Path) -> dict | None:
    """The summary of the complete run in ``folder``; None, and a warning where there is something else, if there is none."""
    try:
        return read_summary(folder)
    except Untrusted as reason:
        print(f"warning: {folder} is not used: {reason}; what is there will be kept under another name", file=sys.stderr)
        return None
