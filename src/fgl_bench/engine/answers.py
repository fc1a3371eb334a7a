"""Checks of the return values of a method's hooks; the error gives the expected and the actual shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fgl_bench.errors import UserError


def check_shape(hook: str, value: Any, sizes: Mapping[str, int], *forms: str) -> None:
    """Raise UserError unless ``value`` is a tensor of one of the forms.

    Args:
        hook: the name of the hook, such as ``mix()``.
        sizes: the length of every named dimension.
        forms: allowed shapes, such as ``"S C C"``; a dimension is a name in ``sizes`` or a number.
    """
    allowed = [[sizes[part] if part in sizes else int(part) for part in form.split()] for form in forms]
    if isinstance(value, Tensor) and list(value.shape) in allowed:
        return
    names = " or ".join(f"[{', '.join(form.split())}]" for form in forms)
    expected = f"{names} = {' or '.join(map(str, allowed))}" if any(allowed) else "a scalar"
    raise UserError(f"{hook} returned {named(value, sizes)}; expected {expected}")


def check_like(hook: str, value: Tensor, model: Tensor) -> None:
    """Raise UserError unless ``value`` has the dtype and the device of the models."""
    if value.dtype != model.dtype or value.device != model.device:
        raise UserError(f"{hook} returned {value.dtype} on {value.device}; expected {model.dtype} on {model.device}, as the models are")


def check_kind(hook: str, value: Any, kind: type | tuple[type, ...], words: str) -> None:
    """Raise UserError unless ``value`` is of this type; ``words`` describe it, such as ``a Mixing``."""
    if not isinstance(value, kind):
        raise UserError(f"{hook} returned {named(value, {})}; expected {words}")


def check_reports(reports: Any, rows: int) -> None:
    """Raise UserError unless ``reports`` are tensors by name, with a row for every trip."""
    check_kind("report()", reports, Mapping, "tensors by name, {} where a client reports nothing")
    for name, value in reports.items():
        if not isinstance(value, Tensor) or not value.ndim or len(value) != rows:
            raise UserError(f"report() returned '{name}' = {named(value, {'k': rows})}; expected a tensor with k = {rows} rows")


def named(value: Any, sizes: Mapping[str, int]) -> str:
    """``[C, C] = [6, 6]`` for a tensor whose lengths are those of different names, else its lengths; the type of anything else."""
    if value is None or not isinstance(value, Tensor):
        return "None" if value is None else f"a {type(value).__name__}"
    names = {length: name for name, length in sizes.items()}
    known = len(names) == len(sizes) and value.ndim > 0 and all(length in names for length in value.shape)
    return f"[{', '.join(names[length] for length in value.shape)}] = {list(value.shape)}" if known else f"{list(value.shape)}"
