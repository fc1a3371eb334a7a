"""Methods that cannot run on the chosen model or split, and the command that would work."""

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
    """Word the refusal of a method that cannot run on the chosen model or split.

    Args:
        algorithm: what the method is called.
        pairing: choices of other groups that it was made for.
        overrides: what the user asked for.

    Raises:
        UserError: the method refuses; with the command that would work.
    """
    try:
        yield
    except Unsuited as reason:
        command = shlex.join(["fgl-bench", *paired(overrides, pairing)])
        raise UserError(f"algorithm={algorithm}: {reason}; try: {command}") from reason


def overrides_of(cfg: DictConfig) -> list[str]:
    """The overrides of the run as the user gave them, and folders of groups of the user's own.

    Where the configuration was not composed by a command, that is the algorithm alone.
    """
    command = COMMAND.get()
    if command is None:
        return [f"algorithm={label(cfg, 'algorithm')}"]
    own = [source.path for source in command.runtime.config_sources if "command-line" in source.provider]
    return [*command.overrides.task, *(f"--config-dir={os.path.relpath(path)}" for path in own)]


def paired(overrides: Sequence[str], choices: Mapping[str, str]) -> list[str]:
    """``overrides`` with these choices, behind the algorithm's, in the place of what they say of the same groups and keys in them."""
    replaced = tuple(f"{key}{sign}" for key in choices for sign in "=.")
    others = [text for text in overrides if not text.lstrip("+").startswith(replaced)]
    place = next((i + 1 for i, text in enumerate(others) if text.startswith("algorithm=")), 0)
    return [*others[:place], *(f"{key}={value}" for key, value in choices.items()), *others[place:]]
