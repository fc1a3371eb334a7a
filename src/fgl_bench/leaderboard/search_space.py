"""Search spaces and the configurations to try, a deterministic function of entry and column."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fgl_bench.errors import UserError
from fgl_bench.utils.seeding import derive_seed

MOST = 100_000  # configurations per space

Space = Mapping[str, Sequence[Any]]  # choices by key, the default first; values of combined keys are lists


def space_of(content: object, where: str) -> dict[str, list[Any]]:
    """Return choices by key from a mapping in the form of ``fgl-bench tune``; empty for None.

    Raises:
        UserError: the mapping is invalid.
    """
    if not isinstance(content, Mapping):
        raise UserError(f"{where}: a space has a line for every key, such as algorithm.mu: {{choices: [0.01, 0.1]}}")
    space = {}
    for key, bounds in content.items():
        values = bounds.get("choices") if isinstance(bounds, Mapping) and set(bounds) == {"choices"} else None
        if not isinstance(values, list) or not values:
            raise UserError(f"{where}: {key}: the leaderboard draws from {{choices: [...]}}, the default first")
        width = len(names(str(key)))
        if width > 1 and not all(isinstance(value, list) and len(value) == width for value in values):
            raise UserError(f"{where}: {key}: every choice is a list of {width} values")
        space[str(key)] = list(values)
    if size(space) > MOST:
        raise UserError(f"{where}: {size(space)} configurations; at most {MOST} are allowed")
    return space


def names(key: str) -> list[str]:
    """Split combined keys: ``optimizer,lr`` to ``[optimizer, lr]``."""
    return [part.strip() for part in key.split(",")]


def size(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def drawn(space: Space, trials: int, *axes: str | int) -> list[dict[str, Any]]:
    """Return the distinct configurations to try: the defaults first, then others in the order of hashes of ``axes``.

    Fewer than ``trials`` if the space is smaller.
    """
    others = sorted(range(1, size(space)), key=lambda number: derive_seed(0, "leaderboard", *axes, number))
    return [configuration(space, number) for number in [0, *others[: trials - 1]]]


def configuration(space: Space, number: int) -> dict[str, Any]:
    """Return configuration ``number``: 0 has the first choice of every key, and the last key varies fastest."""
    chosen = next(itertools.islice(itertools.product(*space.values()), number, None))
    pairs = [zip(names(key), value if "," in key else [value], strict=True) for key, value in zip(space, chosen, strict=True)]
    return dict(itertools.chain.from_iterable(pairs))
