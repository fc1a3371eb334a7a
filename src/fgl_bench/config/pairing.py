"""Errors for methods that cannot run on the chosen model or split, with a working command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from omegaconf import DictConfig

from fgl_bench.config.groups import COMMAND, label
from fgl_bench.errors import Unsuited, UserError


@contextmanager
def suited(algorithm: str, pairing: Mapping[str, str], overrides: Sequence[str]) -> Iterator[None]:
    """Add a working command to the error of a method that cannot run on the chosen model or split.

    Args:
        algorithm: name of the method.
        pairing: choices of other groups that the method was designed for.
        overrides: the user's overrides.

    Raises:
        UserError: the method cannot run; the message ends with a working command.
    """
    try:
        yield
    except Unsuited as reason:
        command = shlex.join(["fgl-bench", *paired(overrides, pairing)])
        raise UserError(f"algorithm={algorithm}: {reason}; try: {command}") from reason


def overrides_of(cfg: DictConfig) -> list[str]:
    """Return the user's overrides and folders of user groups.

    For a configuration without a command, only the algorithm.
    """
    command = COMMAND.get()
    if command is None:
        return [f"algorithm={label(cfg, 'algorithm')}"]
    own = [source.path for source in command.runtime.config_sources if "command-line" in source.provider]
    return [*command.overrides.task, *(f"--config-dir={os.path.relpath(path)}" for path in own)]


def paired(overrides: Sequence[str], choices: Mapping[str, str]) -> list[str]:
    """Return ``overrides`` with ``choices`` after the algorithm, replacing overrides of the same groups and their keys."""
    replaced = tuple(f"{key}{sign}" for key in choices for sign in "=.")
    others = [text for text in overrides if not text.lstrip("+").startswith(replaced)]
    position = next((i + 1 for i, text in enumerate(others) if text.startswith("algorithm=")), 0)
    return [*others[:position], *(f"{key}={value}" for key, value in choices.items()), *others[position:]]
