"""Validates stored files against the JSON Schemas in ``schemas.json``."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FAULTS = {"minItems": "is empty", "uniqueItems": "has a value twice"}
MOST = 1e100  # keeps sums, squares and powers finite
LIMITS = {  # columns of history.csv; losses and other metrics of diverging models may be infinite
    **dict.fromkeys(("seed", "trip", "round", "time", "upload_bytes", "download_bytes", "busiest_bytes"), (-MOST, MOST, "a finite number")),
    **dict.fromkeys(("val_received", "test_received", "val_trained", "test_trained"), (0, 1, "a score from 0 to 1")),
}


def writable(value: object) -> bool:
    """Return True unless the value is a text that UTF-8 cannot hold, such as one with a lone surrogate."""
    return not isinstance(value, str) or value.isascii() or value.encode(errors="replace").decode() == value


@functools.cache
def validator(name: str) -> Callable[[object], object]:
    """Compile the schema ``name``; jsonschema is 13 times slower on a summary."""
    import fastjsonschema

    schemas = json.loads(Path(__file__).with_name("schemas.json").read_text(encoding="utf-8"))
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": schemas["definitions"], **schemas[name]}
    compiled: Callable[[object], object] = fastjsonschema.compile(schema, formats={"printable": str.isprintable, "writable": writable})
    return compiled


def refused(name: str) -> float:
    """Serve as ``parse_constant`` of json: reject NaN and infinities."""
    raise ValueError(f"{name} is no number")


def flaw(content: object, name: str) -> str | None:
    """Describe the first violation of the schema ``name`` in ``content``; None if it is valid."""
    from fastjsonschema import JsonSchemaValueException

    try:
        validator(name)(content)
    except JsonSchemaValueException as error:
        field, shape = str(error.name).removeprefix("data").removeprefix(".") or "it", error.definition
        if error.rule == "required":
            absent = next(key for key in shape["required"] if key not in error.value)
            return f"{absent if field == 'it' else f'{field}.{absent}'} is missing"
        if error.rule == "propertyNames":
            return f"{field} has a key that is not {shape['propertyNames'].get('title', 'a text without control characters')}"
        if error.rule in FAULTS:
            return f"{field} {FAULTS[error.rule]}"
        text = repr(error.value)
        kind = shape.get("title") or ("a list" if "array" in shape["type"] else "a mapping")
        return f"{field} is {text if len(text) <= 40 else f'{text[:37]}...'}, not {kind}"
    return None


def curve_flaw(curve: Any) -> str | None:
    """Describe the flaw of a thinned curve whose lists differ in length; None if it is valid."""
    wrong = flaw(curve, "curve")
    if wrong is None and len({len(values) for values in curve.values()}) != 1:
        return "curve has lists of several lengths"
    return wrong


def summary_flaw(summary: Mapping) -> str | None:
    """Describe the first flaw of a summary or cell; None if it is valid."""
    wrong, seeds = flaw(summary, "summary"), summary.get("seeds")
    if wrong is not None or not isinstance(seeds, list):
        return wrong
    scores = {"test": summary["test"], "metrics": summary.get("metrics", {}), "client_trips": summary["client_trips"]}
    return next((f"{path} has {count} values for {len(seeds)} seed(s)" for path, count in lengths(scores) if count != len(seeds)), None)


def lengths(scores: Mapping, path: str = "") -> Iterator[tuple[str, int]]:
    """Yield the path and length of every list below ``scores``."""
    for name, inner in scores.items():
        if isinstance(inner, Mapping):
            yield from lengths(inner, f"{path}{name}.")
        elif isinstance(inner, list):
            yield path + name, len(inner)


def history_flaw(path: Path, seeds: Sequence[int]) -> str | None:
    """Describe the first flaw of a ``history.csv``; None if all columns are numeric and every seed has rows with ascending trips."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        columns = zip(header, zip(*rows, strict=True), strict=True)
        table = {name: np.array([float(text or "nan") for text in column]) for name, column in columns}
    except (OSError, ValueError, csv.Error) as error:
        return f"{path.name} cannot be read as a table of numbers ({str(error)[:80]})"
    for name in ("seed", "trip"):
        if name not in table or np.isnan(table[name]).any():
            return f"{path.name} has no column {name}" if name not in table else f"{path.name} has a row without {name}"
    for name in table.keys() & LIMITS.keys():
        least, most, kind = LIMITS[name]
        outside = table[name][(table[name] < least) | (table[name] > most)]
        if outside.size:
            return f"{path.name}: {name} is {outside[0]:g}, not {kind}"
    for seed in {*seeds, *table["seed"]}:
        trips = table["trip"][table["seed"] == seed]
        if not trips.size or seed not in seeds:
            return f"{path.name} has {'rows of another' if trips.size else 'no row of'} seed {seed:g}"
        if (np.diff(trips) <= 0).any():
            return f"{path.name} repeats a trip of seed {seed:g}, or goes back"
    return None
