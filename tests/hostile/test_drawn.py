"""Values drawn by hypothesis for every key; what must come of each follows from the key's documented range alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.hostile.bed import Answer, Case, Pool, as_expected
from tests.hostile.keys import Key, bases, value_at

EACH = 1  # values of a key; of a number's three times as many in the slow test
EDGES = [math.nan, math.inf, -math.inf, -0.0, 1e308, -1e308, 5e-324, 1e-30, 1e30, 0.5, 1.0, 0.999999999]
HUGE = [2**63, 2**64, -(2**31), -(2**63), 10**30]
WORDS = ["${lr", "${no_such.key}", "${oc.env:NO_SUCH}", "a'b", 'a"b', "a\nb", "a\tb", "\\", "", " ", "NaN", "0x10", "1e3", "1_0", "ſ"]
SIGNS = st.characters(codec="utf-8", exclude_categories=("Cs", "Nd"), exclude_characters="${}")

WHOLE = st.integers(-9, 12) | st.sampled_from(HUGE)
REAL = st.floats(width=64) | st.sampled_from(EDGES) | st.floats(-2, 2)
TEXT = st.text(SIGNS, max_size=12) | st.sampled_from(WORDS)
LEAF = st.none() | st.booleans() | WHOLE | REAL | TEXT
NESTED = st.lists(LEAF, min_size=1, max_size=3) | st.dictionaries(st.sampled_from("abc"), LEAF, min_size=1, max_size=2)
STRATEGIES = {
    "int": st.integers(0, 12) | WHOLE | LEAF | NESTED,
    "real": st.floats(0, 1) | REAL | LEAF | NESTED,
    "ints": st.lists(WHOLE, min_size=1, max_size=3) | LEAF | NESTED,
    "reals": st.lists(REAL, min_size=1, max_size=3) | LEAF | NESTED,
    "bool": st.booleans() | TEXT | REAL | st.none() | NESTED,
    "word": TEXT | NESTED,
}


def drawn(strategy: st.SearchStrategy[Any], count: int = 150) -> list[Any]:
    """``count`` values of a strategy, the same every time."""
    found: list[Any] = []

    @settings(max_examples=count, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


def shown(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, list):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{shown(inner)}" for key, inner in value.items()) + "}"
    return repr(value)


def number(value: Any, kind: type) -> float | None:
    """The number that a value is, or that a string of it is; None where it is none of the kind."""
    if isinstance(value, bool) or not isinstance(value, int | str | kind):
        return None
    try:
        found = kind(value)
    except ValueError:
        return None
    return found if math.isfinite(found) and abs(found) < 2**63 or kind is float and math.isfinite(found) else None


def allowed(key: Key, value: Any) -> bool:
    """Whether the key may have the value, by what its comment in ``conf`` says."""
    if value is None:
        return key.nullable
    if key.kind == "bool":
        yes_or_no = ("true", "false", "yes", "no", "on", "off", "y", "n", "0", "1")
        return isinstance(value, bool) or (isinstance(value, str) and value.lower() in yes_or_no)
    if key.kind == "word":
        return isinstance(value, str) and value in key.words
    kind = int if key.kind.startswith("int") else float
    if key.kind.endswith("s"):
        entry = Key(key.name, key.kind[:-1], False, key.least, key.most, key.open)
        return isinstance(value, list) and all(allowed(entry, one) for one in value)
    if kind is float and isinstance(value, int) and abs(value) >= 2**63 and "." in key.name:
        return False
    found = number(value, kind)
    return found is not None and key.holds(found)


def cases(numbers: int = EACH) -> Iterator[Case]:
    values = {kind: cycle(drawn(strategy)) for kind, strategy in STRATEGIES.items()}
    for base, keys in bases():
        for key in keys:
            for _ in range(numbers if key.kind in ("int", "real") else 1):
                value = next(values[key.kind])
                line = (*base.split(), f"{key.name}={shown(value)}")
                if allowed(key, value):
                    yield Case(line, reason=f"{value!r} lies in the documented range", check=asked(key, value))
                else:
                    yield Case(line, refused=".")


def asked(key: Key, value: Any) -> Any:
    """A check that the run's configuration has the value that was asked for."""

    def check(answer: Answer) -> None:
        if answer.summaries and key.name in answer.summaries[0]["config"] and isinstance(value, int | float):
            assert float(value_at(answer.summaries[0]["config"], key.name)) == float(value), f"{key.name} is another one than {value}"

    return check


@pytest.mark.nightly
def test_drawn_values(pool: Pool) -> None:
    drawn_cases = list(cases())
    assert len(drawn_cases) >= 300
    as_expected(pool, drawn_cases)


def test_the_oracle() -> None:
    share = Key("x", "real", False, 0, 1, "(")
    assert allowed(share, 1) and allowed(share, "0.5") and not any(allowed(share, value) for value in (0, math.nan, True, "x", [1]))
    count = Key("x", "int", True, 1)
    assert allowed(count, 1) and allowed(count, None) and not any(allowed(count, value) for value in (0, 1.0, 2**63))
    assert allowed(Key("x", "ints", least=1), [1, 2]) and not allowed(Key("x", "ints", least=1), [1, 0])
    assert not allowed(Key("x", "word", words=("a", "b")), "c") and allowed(Key("x", "bool"), "yes")
