"""What is tuned, and the configurations that are tried: a function of the entry and the column, the same everywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fgl_bench.errors import UserError
from fgl_bench.utils.seeding import derive_seed

MOST = 100_000  # configurations of a space

Space = Mapping[str, Sequence[Any]]  # choices by key, the default first; the values of keys that stand together are lists


def space_of(content: object, where: str) -> dict[str, list[Any]]:
    """Choices by key, of a mapping in the form of ``fgl-bench tune``; none of nothing.

    Raises:
        UserError: it has another form.
    """
    if not isinstance(content, Mapping):
        raise UserError(f"{where}: a space has a line for every key, such as algorithm.mu: {{choices: [0.01, 0.1]}}")
    found = {}
    for key, bounds in content.items():
        values = bounds.get("choices") if isinstance(bounds, Mapping) and set(bounds) == {"choices"} else None
        if not isinstance(values, list) or not values:
            raise UserError(f"{where}: {key}: the leaderboard draws from {{choices: [...]}}, the default first")
        together = len(names(str(key)))
        if together > 1 and not all(isinstance(value, list) and len(value) == together for value in values):
            raise UserError(f"{where}: {key}: every choice is a list of {together} values")
        found[str(key)] = list(values)
    if size(found) > MOST:
        raise UserError(f"{where}: {size(found)} configurations; at most {MOST} are allowed")
    return found


def names(key: str) -> list[str]:
    """``[optimizer, lr]`` of ``optimizer,lr``."""
    return [part.strip() for part in key.split(",")]


def size(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def drawn(space: Space, trials: int, *axes: str | int) -> list[dict[str, Any]]:
    """The configurations that are tried, different ones, by key: the defaults first, the others in the order of hashes of ``axes``.

    Fewer than ``trials`` where the space has no more.
    """
    others = sorted(range(1, size(space)), key=lambda number: derive_seed(0, "leaderboard", *axes, number))
    return [configuration(space, number) for number in [0, *others[: trials - 1]]]


def configuration(space: Space, number: int) -> dict[str, Any]:
    """The configuration with this number; 0 has the first choice of every key, and the last key varies fastest."""
    chosen = next(itertools.islice(itertools.product(*space.values()), number, None))
    pairs = [zip(names(key), value if "," in key else [value], strict=True) for key, value in zip(space, chosen, strict=True)]
    return dict(itertools.chain.from_iterable(pairs))
