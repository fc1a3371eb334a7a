"""The directory of a run: its name, whether it is complete, and how it is written."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from omegaconf import DictConfig, OmegaConf

from fgl_bench.config.groups import build_group
from fgl_bench.config.settings import resolve_budget
from fgl_bench.data.sums import fingerprint
from fgl_bench.errors import UserError
from fgl_bench.results.checkpoints import ABOUT, checkpoint_folder, discard
from fgl_bench.results.frame import Result, trips_to
from fgl_bench.results.saved_models import requested_selection, saved_selection
from fgl_bench.results.store import Untrusted, clear_leftovers, config_hash, identity, is_complete, read_summary, run_folder, write_run
from fgl_bench.utils.files import write_whole
from fgl_bench.utils.masking import masked_yaml
from fgl_bench.utils.sources import outside_modules

if TYPE_CHECKING:
    from fgl_bench.data.datasets.base import Dataset
    from fgl_bench.evaluation.history import Outcome


class Finished(NamedTuple):
    """A complete run: its directory, its summary, and whether it was there already."""

    folder: Path
    summary: dict[str, Any]
    again: bool


@dataclass(frozen=True)
class RunStore:
    """The directory of one run.

    Attributes:
        config: the whole configuration, plain.
        identity: all that determines the results, see :func:`fgl_bench.results.store.identity`.
        folder: the directory, named by the hash of the identity.
        models: the selection of the models to save; None saves none.
        data: checksums of raw files, see :func:`fgl_bench.data.sums.fingerprint`; None before they are downloaded.
    """

    config: Mapping[str, Any]
    data: Mapping[str, str] | None
    identity: dict[str, Any]
    folder: Path
    models: str | None

    @classmethod
    def of(cls, config: Mapping[str, Any], names: Mapping[str, str], budget: tuple[int, int], dataset: Dataset) -> RunStore:
        """The store of a resolved configuration.

        Args:
            names: of every group's choice.
            budget: rounds and trips.
        """
        data = fingerprint(dataset, config["data_dir"], config["cache_dir"])
        what = identity(config, *budget, data)
        levels = names["dataset"], names["split"], config["num_clients"], names["scenario"], names["algorithm"]
        folder = run_folder(Path(config["results_dir"]), *levels, config_hash(what))
        return cls(config, data, what, folder, requested_selection(config["keep_models"], config["selection"]))

    @property
    def digest(self) -> str:
        """The hash of the identity."""
        return self.folder.name

    def complete(self) -> dict[str, Any] | None:
        """The summary of the complete run with the models asked for, None without.

        Raises:
            Untrusted: what is there cannot be used; the message is the reason.
        """
        clear_leftovers(self.folder)
        summary = read_summary(self.folder)
        if summary is not None and self.models is not None and saved_selection(self.folder) != self.models:
            raise Untrusted(f"it has not kept the models asked for ({self.models})")
        return summary

    def finished(self) -> Finished | None:
        """The complete run, None without; a leftover of its checkpoints is removed."""
        try:
            summary = self.complete()
        except (Untrusted, OSError):
            return None
        if summary is None:
            return None
        self.discard_checkpoints()  # of a process that was killed just after it had written the run
        return Finished(self.folder, summary, True)

    def reusable(self) -> dict[str, Any] | None:
        """:meth:`complete`, with a line on stderr about what cannot be used."""
        try:
            return self.complete()
        except Untrusted as reason:
            then = "made again" if is_complete(self.folder) else "kept under another name"
            print(f"warning: {self.folder} is not used: {reason}; it will be {then}", file=sys.stderr)
            return None

    def write(self, summary: dict[str, Any], outcome: Outcome, weights: Sequence[np.ndarray] | None) -> None:
        """Write the run directory and remove the checkpoints.

        Args:
            weights: nodes of the clients of every seed if scores are weighted by them.

        Raises:
            UserError: it cannot be written.
        """
        from fgl_bench.evaluation.history import history_rows

        arrays = {f"trips_{at}": matrix for at, matrix in outcome.mixing.items()}
        arrays |= {f"similarity_{at}": matrix for at, matrix in outcome.similarity.items()}
        arrays |= {} if outcome.exchanged is None else {"exchanged_bytes": outcome.exchanged}
        models = None if self.models is None else outcome.models
        rows, config = history_rows(outcome.histories, weights), masked_yaml(self.config)
        try:
            write_run(self.folder, config, summary, rows, arrays, outcome.final_state, models, self.models or "")
        except (OSError, UserError) as error:  # the folder above it may have gone while it trained
            left = "resumes from its last checkpoint" if any(checkpoint_folder(self.folder).rglob(ABOUT)) else "is lost"
            why = getattr(error, "strerror", None) or error
            raise UserError(
                f"results_dir: cannot write {self.folder} ({why}); a run of {summary['seconds']['total']:.0f} s {left}: "
                "make room or choose another folder, and give the same command again"
            ) from error
        self.discard_checkpoints()

    def discard_checkpoints(self) -> None:
        """Remove the checkpoints of the run."""
        discard(self.folder)


def early_store(cfg: DictConfig, names: Mapping[str, str]) -> RunStore | None:
    """The store of a configuration with valid keys; None if it needs further checks, and torch.

    :func:`fgl_bench.runner.validation.validate` reports errors of the chosen classes, before a run is made.
    """
    config = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))
    if cfg.device.startswith("cuda") or outside_modules(config):  # whose imports are unknown
        return None
    try:
        return RunStore.of(config, names, resolve_budget(cfg), build_group(cfg, "dataset"))
    except (UserError, OSError):
        return None


def with_targets(finished: Finished, targets: Sequence[float]) -> Finished:
    """A complete run with the trips to these validation scores; those that its summary lacks are computed from its history and added."""
    known, wanted = finished.summary["client_trips"]["to_target"], {f"{target:g}": target for target in targets}
    new = {name: trips_to(Result(finished.folder, finished.summary), target) for name, target in wanted.items() if name not in known}
    known |= new
    if new:
        with suppress(OSError):  # a folder that cannot be written: they are computed again
            write_whole(finished.folder / "summary.json", json.dumps(finished.summary, indent=2, allow_nan=False) + "\n")
    trips = {**finished.summary["client_trips"], "to_target": {name: known[name] for name in wanted}}
    return finished._replace(summary={**finished.summary, "client_trips": trips})
