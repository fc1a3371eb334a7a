"""Run directories: named by the configuration, written last and atomically."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fgl_bench.config.identity import canonical_names, corrections
from fgl_bench.errors import UserError
from fgl_bench.results.saved_models import write_models
from fgl_bench.results.selection import score_trained
from fgl_bench.results.shapes import flaw, history_flaw, summary_flaw
from fgl_bench.utils.files import umask
from fgl_bench.utils.masking import masked_config
from fgl_bench.utils.scratch import leftovers
from fgl_bench.utils.scratch import scratch as scratch_folder
from fgl_bench.utils.sources import code_sums

if TYPE_CHECKING:
    from fgl_bench.evaluation.history import History

SCHEMA_VERSION = 2
READABLE = (1, SCHEMA_VERSION)  # runs of version 1.0 can be compared with each other; results/migrate.py makes them runs of this version
# Keys about where and how a run is made: runs that differ only in these are the same run.
PRESENTATION = (
    "device", "threads", "memory_budget_gb", "seeds_per_chunk", "out_of_core", "shard", "data_dir", "results_dir", "cache_dir",
    "overwrite", "progress", "selection", "average", "tracker", "checkpoint_minutes", "keep_models",
)  # fmt: skip


# Keys that are answered from a stored history, by what stands for them in every identity: the default of when they were a part of it.
AFTERWARDS = {"targets": [0.5, 0.6, 0.7, 0.8]}


def identity(config: Mapping[str, Any], rounds: int, trips: int, data: Mapping[str, str] | None = None) -> dict[str, Any]:
    """All that decides the numbers: the resolved configuration without presentation keys, the computed budget, and the content of files.

    Sums of the source of classes from outside the package stand under ``code``, those of raw files under ``data``, where there are such.
    So do the dates of corrections to classes of the package, under ``code``.

    Args:
        config: the resolved configuration.
        data: raw files that the package does not know, see :func:`fgl_bench.data.sums.fingerprint`.
    """
    known = masked_config({key: value for key, value in config.items() if key not in PRESENTATION})  # it is stored in clear
    named = {key: canonical_names(value) for key, value in known.items()}
    named |= {key: value for key, value in AFTERWARDS.items() if key in named}
    chosen = {key: value for key, value in named.items() if value != {}}
    content = {"code": code_sums(chosen) | corrections(chosen), "data": dict(data or {})}
    return {**chosen, "rounds": rounds, "trips": trips, **{key: sums for key, sums in content.items() if sums}}


def config_hash(what: dict) -> str:
    """Twelve hex digits of the canonical form of :func:`identity`."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]


def run_folder(results: Path, dataset: str, split: str, clients: int, scenario: str, algorithm: str, digest: str) -> Path:
    """``<results>/<dataset>/<split>-<clients>/<scenario>/<algorithm>/<hash>``."""
    return results / dataset / f"{split}-{clients}" / scenario / algorithm / digest


class Untrusted(Exception):
    """A run directory or a cell that cannot be used, and why."""


def checked(text: str, name: str | None = None) -> dict:
    """The summary of a run or a cell, after checks that it is valid and belongs to its configuration.

    Args:
        name: the hash in its folder's or file's name; None if it has none.

    Raises:
        Untrusted: it is damaged, of another version, or of another configuration.
    """
    try:
        found = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise Untrusted(f"not readable as json ({error})") from error
    if not isinstance(found, dict) or "schema_version" not in found or not isinstance(found.get("test"), dict):
        raise Untrusted("no summary of a run")
    if found["schema_version"] not in READABLE:
        raise Untrusted(f"schema_version {found['schema_version']!r}, this version writes {SCHEMA_VERSION}")
    digest = found.get("config_hash")
    if isinstance(found.get("config"), dict) and config_hash(found["config"]) != digest:
        raise Untrusted(f"its configuration does not have the hash {digest}")
    if name is not None and digest != name:
        raise Untrusted(f"it is the run {digest}, not {name}")
    wrong = summary_flaw(found)
    if wrong is not None:
        raise Untrusted(wrong)
    if score_trained(found) == "never" and set(found["test"]["trained"]["per_seed"]) != {None}:
        raise Untrusted("its trained models' scores are those of one client only, as before split.score_trained; overwrite=true repeats it")
    return found


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number")


def read_summary(folder: Path) -> dict | None:
    """The summary of the run in ``folder``; None where there is nothing.

    Raises:
        Untrusted: the folder is not a complete run of the configuration in its name.
    """
    try:
        text = (folder / "summary.json").read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if folder.exists():
            raise Untrusted("no summary.json in it") from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Untrusted(f"summary.json cannot be read ({error})") from error
    summary = checked(text, Path(os.path.abspath(folder)).name)
    for name in ("config.yaml", "history.csv"):
        if not (folder / name).is_file():
            raise Untrusted(f"no {name} in it")
    for wrong in (flaw(summary, "run"), history_flaw(folder / "history.csv", summary["seeds"])):
        if wrong is not None:
            raise Untrusted(wrong)
    for path in folder.glob("*.npz"):
        if not zipfile.is_zipfile(path):
            raise Untrusted(f"{path.name} is no archive of arrays")
    return summary


def is_complete(folder: Path) -> bool:
    """Whether the run in ``folder`` was finished: its summary is written last, in one piece, and names its configuration."""
    try:
        return read_summary(folder) is not None
    except Untrusted:
        return False


def history_rows(histories: Sequence[History], weights: Sequence[np.ndarray] | None = None) -> list[dict]:
    """One row per seed and evaluation point; what is not defined is None.

    ``diverged_received`` and ``diverged_trained`` are the numbers of clients whose model is not finite at that point.
    """
    rows = []
    for number, h in enumerate(histories):
        weight = None if weights is None else weights[number]
        pooled = {model: h.pooled(model, weight) for model in h.scores}
        losses, diverged = h.train_loss(), {model: h.diverged(model).sum(1) for model in h.scores}
        others = {f"{model}_{name}": h.of_metric(name).pooled(model, weight)[:, 1] for name in h.others for model in h.scores}
        for t in range(len(h.trips)):
            row: dict[str, Any] = {"seed": h.seed, "trip": int(h.trips[t]), "round": int(h.version[t]), "time": round(float(h.time[t]), 6)}
            for model, score in pooled.items():
                row |= {f"val_{model}": rounded(score[t, 0]), f"test_{model}": rounded(score[t, 1])}
            row["train_loss"] = rounded(losses[t])
            unknown = h.trained_scored is not None and not h.trained_scored[t]
            row |= {f"diverged_{model}": None if unknown and model == "trained" else int(n[t]) for model, n in diverged.items()}
            for name, score in others.items():
                row[f"test_{name}"] = rounded(score[t])
            row |= {"upload_bytes": int(h.upload[t]), "download_bytes": int(h.download[t])}
            if h.busiest is not None:
                row["busiest_bytes"] = int(h.busiest[t])
            row |= {name: round(each[t].item(), 6) for name, each in h.spent.items()}
            for name, value in zip(("staleness_mean", "staleness_max"), h.staleness[t], strict=True):
                row[name] = None if np.isnan(value) else round(float(value), 4)
            rows.append(row)
    return rows


def rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def write_run(
    folder: Path,
    config: str,
    summary: dict,
    rows: list[dict],
    arrays: dict[str, np.ndarray],
    final_state: dict[str, np.ndarray] | None = None,
    models: dict[str, np.ndarray] | None = None,
    which: str = "",
) -> None:
    """Write a complete run directory, or none: everything goes to a temporary sibling that is then renamed.

    An earlier complete run is replaced. Anything else in its place is renamed and kept.

    Args:
        models: parameters by name, and ``which`` models they are, see :mod:`fgl_bench.results.saved_models`.

    Raises:
        UserError: the results directory cannot be written.
    """
    import pandas as pd

    with _under_way(folder) as scratch:
        (scratch / "config.yaml").write_text(config, encoding="utf-8")
        pd.DataFrame(rows).to_csv(scratch / "history.csv", index=False)
        for name, named in (("mixing.npz", arrays), ("final_state.npz", final_state)):
            if named:
                np.savez_compressed(scratch / name, **named)  # type: ignore[arg-type]  # none is called allow_pickle
        if models is not None:
            write_models(scratch, models, which).chmod(0o666 & ~umask())
        (scratch / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        scratch.chmod(0o777 & ~umask())
        _put(scratch, folder)


@contextmanager
def _under_way(folder: Path) -> Iterator[Path]:
    """A scratch folder beside ``folder``; raises UserError where there cannot be one."""
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            path = stack.enter_context(scratch_folder(f".{folder.name}-", folder.parent))
        except OSError as error:
            raise UserError(f"results_dir: cannot write {folder.parent} ({error.strerror}); choose a folder that can be written") from error
        yield path


def clear_leftovers(folder: Path) -> None:
    """Remove temporary folders of killed processes that were writing the run ``folder``; a complete run among them is kept."""
    with leftovers(f".{folder.name}-", folder.parent) as found:
        for path in found:
            replaced = path / folder.name  # by which :func:`_put` makes room
            if replaced.exists() and not folder.exists():
                os.replace(replaced, folder)
            elif replaced.exists() and not is_complete(replaced):
                _keep(replaced, folder)
            shutil.rmtree(path, ignore_errors=True)


def _put(scratch: Path, folder: Path) -> None:
    """Rename ``scratch`` to ``folder``, whatever lies there and whoever else does the same at the same time."""
    for _ in range(10):
        if _renamed(scratch, folder):
            return
        # Rename first, then check: the content may change between a check and a rename.
        with scratch_folder(f".{folder.name}-replaced-", folder.parent) as aside:
            found = aside / folder.name
            try:
                os.replace(folder, found)
            except FileNotFoundError:  # another process was faster
                continue
            try:
                if not is_complete(found):
                    _keep(found, folder)
                if _renamed(scratch, folder):
                    return
            except BaseException:
                if found.exists() and not folder.exists():
                    os.replace(found, folder)
                raise
    raise OSError(f"{folder} is written by others all the time")


def _renamed(scratch: Path, folder: Path) -> bool:
    """Rename ``scratch`` to ``folder``; False where a folder that is not empty, or a file, is in the way."""
    try:
        os.replace(scratch, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def _keep(found: Path, folder: Path) -> None:
    """Put ``found`` beside ``folder`` under another name."""
    kept = Path(tempfile.mkdtemp(prefix=f"{folder.name}.kept-", dir=folder.parent))
    os.replace(found, kept if found.is_dir() else kept / folder.name)
