"""The compact results that tables are made from: one small file a run, kept where the raw runs are not."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fgl_bench.reporting.store import SCHEMA_VERSION

DROPPED = ("per_client",)


def compact(summary: Mapping, command: str) -> dict:
    """``summary.json`` without the clients' own scores, and the command that made it."""
    test = {model: {key: value for key, value in scores.items() if key not in DROPPED} for model, scores in summary["test"].items()}
    return {**summary, "test": test, "command": command}


def cell_path(folder: Path, cell: Mapping) -> Path:
    """``<folder>/<dataset>-<split>-<sparsity>-<algorithm>-<hash>.json``."""
    names = ("dataset", "split", "sparsity", "algorithm", "config_hash")
    return folder / ("-".join(str(cell[name]) for name in names) + ".json")


def write_cell(folder: Path, cell: Mapping) -> Path:
    """Write one cell, whole or not at all."""
    path = cell_path(folder, cell)
    write_whole(path, json.dumps(cell, indent=1, allow_nan=False) + "\n")
    return path


def read_cells(folder: Path) -> dict[str, dict]:
    """All cells in ``folder`` by configuration hash; what is no cell of this version is passed over."""
    cells = {}
    for path in sorted(folder.glob("*.json")):
        try:
            cell = json.loads(path.read_text(encoding="utf-8"))
            if cell["schema_version"] == SCHEMA_VERSION:
                cells[cell["config_hash"]] = cell
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return cells


def covers(planned: object, stored: object) -> bool:
    """Whether a stored configuration is the planned one, but for keys that did not exist when it was run.

    A key that is added later must default to what was done before, so that results outlive it.
    """
    if isinstance(planned, Mapping) and isinstance(stored, Mapping):
        return all(key in planned and covers(planned[key], value) for key, value in stored.items())
    return planned == stored


def find(cells: Mapping[str, dict], digest: str, config: Mapping) -> dict | None:
    """The stored cell of this configuration: by its hash, else one that :func:`covers` it."""
    if digest in cells:
        return cells[digest]
    same = (cell for cell in cells.values() if cell.get("config") and covers(config, cell["config"]))
    return next(same, None)


def write_whole(path: Path, text: str) -> None:
    """:func:`write_bytes` of a text."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file to a temporary sibling and rename it, so that nobody ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
