"""Saved models of a run (``keep_models``): ``models.safetensors`` in its folder.

Tensors are named ``<seed>/<client>/<received or trained>/<parameter>``. The metadata key ``models`` is ``final``,
``best by federation`` or ``best by client``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fgl_bench.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

FILE = "models.safetensors"
Models = dict[int, dict[int, dict[str, dict[str, "Tensor"]]]]


def requested_selection(keep: str, selection: str) -> str | None:
    """Return the selection requested by ``keep_models`` and ``selection``; None to save no models."""
    return {"none": None, "final": "final"}.get(keep, f"best by {selection}")


def write_models(folder: Path, models: Mapping[str, np.ndarray], which: str) -> Path:
    """Write the models and return the file; raises OSError if it cannot be written."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(dict(models), folder / FILE, {"models": which})
    except SafetensorError as error:
        raise OSError(str(error)) from error
    return folder / FILE


def saved_selection(folder: Path) -> str | None:
    """Return the selection of the saved models in ``folder``; None without readable models."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / FILE, "np") as file:
            return (file.metadata() or {}).get("models")
    except (OSError, SafetensorError):
        return None


def load_models(folder: str | Path) -> Models:
    """Load the saved models of a run, by seed, client, kind of model and parameter.

    ``load_models(folder)[0][3]["trained"]["weight0"]`` is a parameter of the trained model of client 3 with seed 0. A client without a
    defined validation score has no best model.

    Raises:
        UserError: the run has no saved models.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(folder, FILE)
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise UserError(f"{folder}: this run has no saved models; repeat it with keep_models=final or keep_models=best") from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: cannot be read ({error}); make the run again with overwrite=true") from error
    models: Models = {}
    for name, value in sorted(tensors.items(), key=lambda item: [int(part) if part.isdigit() else 0 for part in item[0].split("/")]):
        seed, client, kind, parameter = [*name.split("/", 3), "", "", ""][:4]
        if not (seed.isdecimal() and client.isdecimal() and parameter):
            raise UserError(f"{path}: {name[:60]!r} is not SEED/CLIENT/KIND/PARAMETER; make the run again with overwrite=true")
        models.setdefault(int(seed), {}).setdefault(int(client), {}).setdefault(kind, {})[parameter] = value
    return models
