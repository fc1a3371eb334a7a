"""Which hooks of a method only some scenarios call; those of ``Algorithm`` that are not named here are called by every scenario."""

from __future__ import annotations

import inspect

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.errors import UserError

ROUNDS = ("mix", "portrait", "regraph", "stage")
HOOKS = {
    "sync": (*ROUNDS, "refine", "bytes_after"),
    "decentralized": (*ROUNDS, "topology", "exchange"),
    "semi_async": ("buffer_size", "waits", "merges_before_upload", "upload_blocks", "payload", "serve", "begin"),
}


def check_hooks(method: type) -> None:
    """Refuse a method whose own class overrides a hook that none of its scenarios calls, or with other arguments than it is called with.

    Hooks that it inherits are not looked at: a base may serve several scenarios. Nor are methods of scenarios outside the package.

    Raises:
        UserError: naming the hook and the scenarios that call it, or the arguments.
    """
    for hook, own in vars(method).items():
        check_arguments(method, hook, own)
    if not set(method.scenarios) <= set(HOOKS):
        return
    called = {hook for scenario in method.scenarios for hook in HOOKS[scenario]}
    for hook in vars(method):
        callers = [scenario for scenario, hooks in HOOKS.items() if hook in hooks]
        if callers and hook not in called:
            raise UserError(
                f"{method.__name__}.{hook} is never called: {method.__name__}.scenarios is {tuple(method.scenarios)}, "
                f"and only {' and '.join(f'scenario={scenario}' for scenario in callers)} calls {hook}"
            )


def check_arguments(method: type, hook: str, own: object) -> None:
    """Refuse a hook that cannot be called with the arguments of the one that it overrides."""
    base = None if hook.startswith("_") else getattr(Algorithm, hook, None)
    if not (inspect.isfunction(own) and inspect.isfunction(base)):
        return
    given = [name for name, one in inspect.signature(base).parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    signature = inspect.signature(own)
    try:
        signature.bind(*given)
    except TypeError:
        raise UserError(f"{method.__name__}.{hook}{signature} is called with ({', '.join(given)})") from None
