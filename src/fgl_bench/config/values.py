"""Checks of configuration values: valid in run names and files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError
from fgl_bench.utils.processes import quoted

NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,99}")
NAMES_ARE = "letters, digits, _ - . +, not beginning with a dot, at most 100 of them"
UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters and lone surrogates
LARGEST = 2**63 - 1
MOST_VALUES = 1000  # per list
MOST_DIGITS = 300  # maximum of a float


def shown(value: Any) -> str:
    """Format a value for Hydra's command line; arrays are lists."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{shown(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple | range):
        return "[" + ",".join(map(shown, value)) + "]"
    return quoted(str(value) if isinstance(value, PurePath) else value)


def plain(value: Any) -> str:
    """Format like :func:`shown`, without quotes around words."""
    return value if isinstance(value, str) and NAME.fullmatch(value) else shown(value)


def check_lengths(texts: Iterable[str]) -> None:
    """Raise UserError for lists and numbers longer than any key allows.

    Hydra's parser takes minutes for such lists.
    """
    for text in texts:
        if "=[" in text and text.count(",") >= MOST_VALUES:
            raise UserError(f"{text.partition('=')[0][:60]}=[... {text.count(',') + 1} of them]: must be a list of at most {MOST_VALUES}")
        if (digits := re.search(rf"\d{{{MOST_DIGITS},}}", text)) is not None:
            raise UserError(f"{text.partition('=')[0][:60]}: a number of {len(digits[0])} digits; at most {LARGEST} is allowed")


def check_name(key: str, name: str) -> None:
    """Raise UserError unless ``name`` is valid as a folder below ``results_dir``."""
    if not NAME.fullmatch(name):
        shown = name if len(name) <= 60 else f"{name[:60]}... ({len(name)} characters)"
        raise UserError(f"{key}={shown!r}: results are filed under this name; allowed are {NAMES_ARE}")


def check_keys(cfg: DictConfig, known: Mapping[str, Any]) -> None:
    """Raise UserError for an unused top-level key (``+foo=1``)."""
    for key in map(str, cfg):
        if key not in known:
            raise UserError(f"{key}: unknown key{suggest(key, known)}")


def check_values(cfg: DictConfig) -> None:
    """Raise UserError for values that JSON cannot represent: NaN, infinities and numeric keys."""
    check_value("", OmegaConf.to_container(cfg, resolve=True))


def check_value(key: str, value: Any) -> None:
    """Apply :func:`check_values` to one value and nested ones."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise UserError(f"{key}: its key {name} is no string; quote it")
            check_text(key or "config", name)
            check_value(f"{key}.{name}" if key else name, inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            check_value(f"{key}[{number}]", inner)
    elif isinstance(value, str):
        check_text(key, value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key}={value}: must be a finite number{' or null' if math.isinf(value) else ''}")
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise UserError(f"{key}={str(value)[:20]}...: must be an integer of at most {LARGEST}, or written with a point")
    elif not isinstance(value, int | float | None):
        raise UserError(f"{key}: a {type(value).__name__} is not allowed; use numbers, strings, lists and mappings")


def check_text(key: str, text: str) -> None:
    """Raise UserError for a string with control characters, or one that cannot be written as UTF-8."""
    if UNWRITABLE.search(text):
        raise UserError(f"{key}={text[:60]!r}: control characters and broken UTF-8 are not allowed in a value")
