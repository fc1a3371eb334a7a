"""Which hooks of a method only some scenarios call; those of ``Algorithm`` that are not named here are called by every scenario."""

from __future__ import annotations

from fgl_bench.errors import UserError

ROUNDS = ("mix", "portrait", "regraph", "stage")
HOOKS = {
    "sync": (*ROUNDS, "refine", "bytes_after"),
    "decentralized": (*ROUNDS, "topology", "exchange"),
    "semi_async": ("buffer_size", "waits", "merges_before_upload", "upload_blocks", "payload", "serve", "begin"),
}


def check_hooks(method: type) -> None:
    """Refuse a method whose own class overrides a hook that none of its scenarios calls.

    Hooks that it inherits are not looked at: a base may serve several scenarios. Nor are methods of scenarios outside the package.

    Raises:
        UserError: naming the hook and the scenarios that call it.
    """
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
