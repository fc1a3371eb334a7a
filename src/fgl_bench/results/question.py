"""Selection of runs for a table or figure, as command-line or Python arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError, printable
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.results.statistics import TESTS

ANY = "*"
BOTH = "both"
MOST_TEXT = 60
Words = str | Sequence[str]


@dataclass(frozen=True)
class Question:
    """A selection of runs and the metric to compare.

    Attributes:
        rows, cols: keys whose values are the rows and columns.
        where: allowed values by key; ``*`` allows any value, so that runs may differ in it.
        model_of: kinds of models to score.
        metric: see :func:`fgl_bench.results.compare.score`; None for each run's own.
        against: name of the row that the others are compared with; None compares with the best of a column.
        test: of these differences, one of :data:`fgl_bench.results.statistics.TESTS`.
    """

    rows: tuple[str, ...] = ("algorithm",)
    cols: tuple[str, ...] = ("dataset", "split")
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    model_of: tuple[str, ...] = MODELS
    metric: str | None = None
    against: str | None = None
    test: str = "t"

    @property
    def keys(self) -> tuple[str, ...]:
        """All named keys."""
        return tuple(dict.fromkeys((*self.rows, *self.cols, *self.where)))

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of ``fgl-bench table`` for this question, without defaults."""
        default = Question()
        given = [f"rows={','.join(self.rows)}"] if self.rows != default.rows else []
        given += [f"cols={','.join(self.cols) or 'none'}"] if self.cols != default.cols else []
        if self.where:
            given.append("where=" + ",".join(f"{key}={','.join(values)}" for key, values in self.where.items()))
        if len(self.model_of) == 1:
            given.append(f"model_of={self.model_of[0]}")
        given += [f"metric={self.metric}"] if self.metric else []
        given += [f"against={self.against}"] if self.against else []
        return [*given, *([f"test={self.test}"] if self.test != default.test else [])]


KEYS = ("rows", "cols", "where", "model_of", "metric")


def question(
    rows: Words = "algorithm",
    cols: Words = "dataset,split",
    where: Words | Mapping[str, Any] = (),
    model_of: str = BOTH,
    metric: str | None = None,
    against: str | None = None,
    test: str = "t",
) -> Question:
    """Parse a question.

    Args:
        rows, cols: keys, joined by commas or as a list; ``cols=none`` for one column.
        where: ``"num_clients=10,dataset=cora,citeseer"``, several such strings, or a mapping from keys to a value or list of values.

    Raises:
        UserError: an argument cannot be parsed.
    """
    named = {name: keys_of(name, words) for name, words in (("rows", rows), ("cols", cols))}
    if not named["rows"]:
        raise UserError("rows= must name at least one key, such as rows=algorithm")
    twice = [key for key in named["rows"] if key in named["cols"]]
    if twice:
        raise UserError(f"{twice[0]} cannot be in rows= and in cols=")
    if model_of not in (*MODELS, BOTH):
        raise UserError(f"model_of={short(model_of)}: must be one of {', '.join((*MODELS, BOTH))}")
    if test not in TESTS:
        raise UserError(f"test={short(test)}: must be one of {', '.join(TESTS)}")
    if test != "t" and not against:
        raise UserError(f"test={test}: needs against=; the best of a column is found by paired t-tests")
    models = MODELS if model_of == BOTH else (model_of,)
    return Question(named["rows"], named["cols"], conditions(where), models, metric or None, against or None, test)


def keys_of(name: str, words: Words) -> tuple[str, ...]:
    """Return the keys of a list; raises UserError for repeated or malformed keys."""
    texts = [text for word in ([words] if isinstance(words, str) else words) for text in parts(str(word))]
    if texts == ["none"] and name == "cols":
        return ()
    keys = tuple(canonical(text) for text in texts)
    wrong = next((text for text, key in zip(texts, keys, strict=True) if not key or "=" in text or keys.count(key) > 1), None)
    if wrong is not None:
        raise UserError(f"{name}={short(','.join(texts))}: must be keys, each once, joined by commas, such as algorithm,num_clients")
    return keys


def conditions(where: Words | Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the allowed values by key. In a string, a part without ``=`` is another value of the previous key."""
    if isinstance(where, Mapping):
        listed = {key: value if isinstance(value, list | tuple) else [value] for key, value in where.items()}
        return {canonical(str(key)): tuple(as_text(value) for value in values) for key, values in listed.items()}
    allowed: dict[str, list[str]] = {}
    key = ""
    for text in (part for word in ([where] if isinstance(where, str) else where) for part in parts(str(word))):
        name, equals, value = text.partition("=")
        key = canonical(name) if equals else key
        value = value if equals else name
        if not key or not value.strip():
            raise UserError(f"where={short(text)}: must be KEY=VALUE, more values and more keys after commas")
        if value not in allowed.setdefault(key, []):
            allowed[key].append(value)
    return {key: tuple(values) for key, values in allowed.items()}


def parts(text: str) -> list[str]:
    """Split the text at commas outside brackets."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [part.strip() for part in pieces] if text.strip() else []


INNER = ("scenario.sparsity", "scenario.noise", "scenario.attack")


def canonical(key: str) -> str:
    """Return the canonical key: ``sparsity`` for ``scenario/sparsity`` (so of other groups in ``scenario``), dots instead of slashes."""
    key = key.strip().replace("/", ".")
    return key.removeprefix("scenario.") if key in INNER else key


def as_text(value: Any) -> str:
    """Format a configuration value as users write it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_text, value))}]"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else printable(str(value)).replace("\n", "\\n")


def matches(value: Any, text: str) -> bool:
    """Return True if a condition's text denotes this value."""
    if text in (ANY, as_text(value)):
        return True
    if isinstance(value, int | float) and not isinstance(value, bool):
        return is_number(text) and float(text) == value  # YAML reads 1e-2 as a string
    try:
        return bool(yaml.safe_load(text) == value) and not isinstance(value, bool)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def is_number(text: str) -> bool:
    """Return True if a text is a number other than NaN."""
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def short(text: str) -> str:
    """Return the text on one line, cut to a maximum length."""
    line = " ".join(str(text).split())
    return line if len(line) <= MOST_TEXT else f"{line[:MOST_TEXT]}..."


def read_words(arguments: Iterable[str], known: Sequence[str], usage: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return ``KEY=VALUE`` arguments by key, in order, and the other arguments.

    Raises:
        UserError: a key is unknown, or a single-valued key is given twice.
    """
    given: dict[str, list[str]] = {}
    rest = []
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals:
            rest.append(text)
            continue
        if key not in known:
            raise UserError(f"{short(text)}: unknown key{suggest(key, known)}; {usage}")
        if key in given and key != "where":
            raise UserError(f"{key}= is given twice")
        given.setdefault(key, []).append(value)
    return given, rest
