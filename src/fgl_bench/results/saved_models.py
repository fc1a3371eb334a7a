"""Models that a run has kept (``keep_models``): ``models.safetensors`` in its folder.

A tensor is called ``<seed>/<client>/<received or trained>/<parameter>``. The file's metadata say under ``models`` which ones they are:
``final``, ``best by federation`` or ``best by client``.
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


def which_models(keep: str, selection: str) -> str | None:
    """What ``keep_models`` and ``selection`` ask for; None where nothing is kept."""
    return {"none": None, "final": "final"}.get(keep, f"best by {selection}")


def write_models(folder: Path, models: Mapping[str, np.ndarray], which: str) -> Path:
    """The file; raises OSError where it cannot be written."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(dict(models), folder / FILE, {"models": which})
    except SafetensorError as error:
        raise OSError(str(error)) from error
    return folder / FILE


def kept(folder: Path) -> str | None:
    """Which models the run in ``folder`` has kept; None where there are none that can be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / FILE, "np") as file:
            return (file.metadata() or {}).get("models")
    except (OSError, SafetensorError):
        return None


def load_models(folder: str | Path) -> Models:
    """The models that a run has kept, by seed, client, kind of model and parameter.

    ``load_models(folder)[0][3]["trained"]["weight0"]`` is a parameter of the model that client 3 of seed 0 trained. A client without a
    defined validation score has no best model.

    Raises:
        UserError: the run has kept none.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(folder, FILE)
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise UserError(f"{folder}: this run has kept no models; make it with keep_models=final or keep_models=best") from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: cannot be read ({error}); make the run again with overwrite=true") from error
    found: Models = {}
    for name, value in sorted(tensors.items(), key=lambda item: [int(part) if part.isdigit() else 0 for part in item[0].split("/")]):
        seed, client, kind, parameter = [*name.split("/", 3), "", "", ""][:4]
        if not (seed.isdecimal() and client.isdecimal() and parameter):
            raise UserError(f"{path}: {name[:60]!r} is not SEED/CLIENT/KIND/PARAMETER; make the run again with overwrite=true")
        found.setdefault(int(seed), {}).setdefault(int(client), {}).setdefault(kind, {})[parameter] = value
    return found
