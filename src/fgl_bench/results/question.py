"""What a table or a figure is asked to show, as arguments of the command line or of Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from fgl_bench.config.choices import suggest
from fgl_bench.errors import UserError, printable
from fgl_bench.evaluation.summary import MODELS

ANY = "*"
BOTH = "both"
MOST_TEXT = 60
Words = str | Sequence[str]


@dataclass(frozen=True)
class Question:
    """Which runs are compared, and by what.

    Attributes:
        rows, cols: keys whose values make the rows and the columns.
        where: by key the values that a run may have; ``*`` allows any, and says that the runs may differ in it.
        model_of: the kinds of models that are scored.
        metric: see :func:`fgl_bench.results.compare.score`; None is each run's own.
    """

    rows: tuple[str, ...] = ("algorithm",)
    cols: tuple[str, ...] = ("dataset", "split")
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    model_of: tuple[str, ...] = MODELS
    metric: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that are named."""
        return tuple(dict.fromkeys((*self.rows, *self.cols, *self.where)))

    @property
    def arguments(self) -> list[str]:
        """The question as arguments of ``fgl-bench table``, without those that are the default."""
        default = Question()
        given = [f"rows={','.join(self.rows)}"] if self.rows != default.rows else []
        given += [f"cols={','.join(self.cols) or 'none'}"] if self.cols != default.cols else []
        if self.where:
            given.append("where=" + ",".join(f"{key}={','.join(values)}" for key, values in self.where.items()))
        if len(self.model_of) == 1:
            given.append(f"model_of={self.model_of[0]}")
        return [*given, *([f"metric={self.metric}"] if self.metric else [])]


KEYS = ("rows", "cols", "where", "model_of", "metric")


def question(
    rows: Words = "algorithm",
    cols: Words = "dataset,split",
    where: Words | Mapping[str, Any] = (),
    model_of: str = BOTH,
    metric: str | None = None,
) -> Question:
    """The question that the words make.

    Args:
        rows, cols: keys, joined by commas or as a list; ``cols=none`` makes one column.
        where: ``"num_clients=10,dataset=cora,citeseer"``, several such texts, or a mapping from keys to a value or a list of values.

    Raises:
        UserError: a word cannot be read.
    """
    named = {name: keys_of(name, words) for name, words in (("rows", rows), ("cols", cols))}
    if not named["rows"]:
        raise UserError("rows= must name at least one key, such as rows=algorithm")
    twice = [key for key in named["rows"] if key in named["cols"]]
    if twice:
        raise UserError(f"{twice[0]} cannot be in rows= and in cols=")
    if model_of not in (*MODELS, BOTH):
        raise UserError(f"model_of={short(model_of)}: must be one of {', '.join((*MODELS, BOTH))}")
    models = MODELS if model_of == BOTH else (model_of,)
    return Question(named["rows"], named["cols"], conditions(where), models, metric or None)


def keys_of(name: str, words: Words) -> tuple[str, ...]:
    """The keys of a list, each once."""
    texts = [text for word in ([words] if isinstance(words, str) else words) for text in parts(str(word))]
    if texts == ["none"] and name == "cols":
        return ()
    keys = tuple(canonical(text) for text in texts)
    wrong = next((text for text, key in zip(texts, keys, strict=True) if not key or "=" in text or keys.count(key) > 1), None)
    if wrong is not None:
        raise UserError(f"{name}={short(','.join(texts))}: must be keys, each once, joined by commas, such as algorithm,num_clients")
    return keys


def conditions(where: Words | Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Allowed values by key. In a text, a part without ``=`` is one more value of the key before it."""
    if isinstance(where, Mapping):
        listed = {key: value if isinstance(value, list | tuple) else [value] for key, value in where.items()}
        return {canonical(str(key)): tuple(said(value) for value in values) for key, values in listed.items()}
    found: dict[str, list[str]] = {}
    key = ""
    for text in (part for word in ([where] if isinstance(where, str) else where) for part in parts(str(word))):
        name, equals, value = text.partition("=")
        key = canonical(name) if equals else key
        value = value if equals else name
        if not key or not value.strip():
            raise UserError(f"where={short(text)}: must be KEY=VALUE, more values and more keys after commas")
        if value not in found.setdefault(key, []):
            found[key].append(value)
    return {key: tuple(values) for key, values in found.items()}


def parts(text: str) -> list[str]:
    """The text split at commas outside of brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found] if text.strip() else []


def canonical(key: str) -> str:
    """``sparsity`` for ``scenario/sparsity``; dots for slashes."""
    key = key.strip().replace("/", ".")
    return "sparsity" if key == "scenario.sparsity" else key


def said(value: Any) -> str:
    """A value of a configuration as a person writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(said, value))}]"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else printable(str(value)).replace("\n", "\\n")


def matches(value: Any, text: str) -> bool:
    """Whether a condition's text stands for this value."""
    if text in (ANY, said(value)):
        return True
    if isinstance(value, int | float) and not isinstance(value, bool):
        return is_number(text) and float(text) == value  # yaml takes 1e-2 for a text
    try:
        return bool(yaml.safe_load(text) == value) and not isinstance(value, bool)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def is_number(text: str) -> bool:
    """Whether a text is a number, and not NaN."""
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def short(text: str) -> str:
    """The beginning of a text that may be long or have several lines."""
    line = " ".join(str(text).split())
    return line if len(line) <= MOST_TEXT else f"{line[:MOST_TEXT]}..."


def read_words(arguments: Iterable[str], known: Sequence[str], usage: str) -> tuple[dict[str, list[str]], list[str]]:
    """``KEY=VALUE`` arguments by key, in order, and those that are none.

    Raises:
        UserError: a key is unknown, or given twice where it may be only once.
    """
    found: dict[str, list[str]] = {}
    rest = []
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals:
            rest.append(text)
            continue
        if key not in known:
            raise UserError(f"{short(text)}: unknown key{suggest(key, known)}; {usage}")
        if key in found and key != "where":
            raise UserError(f"{key}= is given twice")
        found.setdefault(key, []).append(value)
    return found, rest
