"""Checks that a method has the hooks that its scenarios call, and no others."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache

from fgl_bench.algorithms.base import Algorithm, MixingPeers
from fgl_bench.algorithms.powers import POWERS
from fgl_bench.errors import UserError
from fgl_bench.scenarios.decentralized import Decentralized
from fgl_bench.scenarios.semi_async import SemiAsync
from fgl_bench.scenarios.sync import Sync

SCENARIOS = {scenario.contract: scenario.name for scenario in (Sync, Decentralized, SemiAsync)}
# The bases with hooks that not every method has.
OWNERS: tuple[type, ...] = (*SCENARIOS, MixingPeers, *POWERS)


@cache
def hooks(base: type) -> list[str]:
    """Public methods and properties that a base defines itself, in order."""
    return [name for name, own in vars(base).items() if not name.startswith("_") and (inspect.isfunction(own) or isinstance(own, property))]


HOOKS = {base: hooks(base) for base in (Algorithm, *OWNERS)}


def supported(method: type) -> list[str]:
    """Names of the package's scenarios that the method can run under."""
    return [name for contract, name in SCENARIOS.items() if issubclass(method, contract)]


def check_hooks(method: type[Algorithm]) -> None:
    """Refuse a method that lacks a required hook, or whose own class overrides a hook that no scenario calls.

    Inherited hooks are not checked: a base may serve several scenarios.

    Raises:
        UserError: naming the hook and the base that has it, or the arguments that it is called with.
    """
    for hook in vars(method):
        owners = [owner for owner in OWNERS if hook in HOOKS[owner]]
        if owners and not any(issubclass(method, owner) for owner in owners):
            raise UserError(
                f"{method.__name__}.{hook} is never called: {hook} is a hook of {names_of(owners)}, and {method.__name__} derives from "
                f"{names_of([owner for owner in OWNERS if issubclass(method, owner)], 'and') or 'none'}"
            )
        check_arguments(method, hook)
    if not any(issubclass(method, contract) for contract in SCENARIOS):
        raise UserError(f"{method.__name__} runs under no scenario; it must derive from {names_of(list(SCENARIOS))}")
    for hook in sorted(method.__abstractmethods__):
        owners = [owner for owner in OWNERS if hook in HOOKS[owner] and issubclass(method, owner)]
        raise UserError(f"{method.__name__}.{hook} is missing{f'; {names_of(owners)} needs it' if owners else ''}")


def names_of(bases: Sequence[type], joined: str = "or") -> str:
    """The names of bases and their scenarios, for messages."""
    return f" {joined} ".join(f"{base.__name__} (scenario={SCENARIOS[base]})" if base in SCENARIOS else base.__name__ for base in bases)


def check_arguments(method: type, hook: str) -> None:
    """Refuse a hook that cannot be called with the arguments of the one that it overrides."""
    own, base = vars(method)[hook], next((getattr(base, hook) for base, names in HOOKS.items() if hook in names), None)
    if not (inspect.isfunction(own) and inspect.isfunction(base)):
        return
    given = [name for name, one in inspect.signature(base).parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    signature = inspect.signature(own)
    try:
        signature.bind(*given)
    except TypeError:
        raise UserError(f"{method.__name__}.{hook}{signature} is called with ({', '.join(given)})") from None
