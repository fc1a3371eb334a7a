"""Every key of every choice: values of the wrong type, out of range, and not numbers at all."""

from __future__ import annotations

import math

from tests.hostile.bed import Case, Pool, as_expected
from tests.hostile.keys import Key, bases


def hostile(key: Key) -> list[str]:
    """Some values that the key may not have."""
    if key.kind == "word":
        return ["nonsense", "[a]", "null"]
    if key.kind == "bool":
        return ["maybe", "[true]", "null"]
    step = 1 if key.kind.startswith("int") else 0.5
    below = f"{key.least:g}" if "(" in key.open else f"{key.least - (step if key.least > -1e3 else 0):g}"
    below = below if key.kind.startswith("int") else f"{float(below):.10f}".rstrip("0") + "0"
    above = [] if math.isinf(key.most) else [f"{key.most:g}" if ")" in key.open else f"{key.most + step:.10g}"]
    if key.kind.endswith("s"):
        return [f"[{below}]", "[abc]", "abc", "null"]
    return [below, "nan" if key.kind == "real" else "1.5", *above[:1], "abc" if above else "-inf"]


def test_no_key_takes_what_it_does_not_allow(pool: Pool) -> None:
    every = [(base, key) for base, keys in bases() for key in keys]
    cases = []
    for number, (base, key) in enumerate(every):  # another kind of mistake from key to key; test_drawn.py has every key
        values = hostile(key)
        if number % 6 == 0:
            value = values[number // 6 % len(values)]
            cases.append(Case((*base.split(), f"{key.name}={value}"), refused=f"{key.name.split('.')[-1]}|num_edges"))
    assert len(cases) >= 50
    as_expected(pool, cases)
