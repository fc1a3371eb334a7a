"""What lies where a run would be: a damaged summary is said not to be used, is kept, and the run is made."""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.bed import Answer, Case, Pool, T, as_expected

NESTED = "[" * 100_000
WHY = "the run is made again, and what was there is kept beside it"


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to(target: str, path: Path) -> None:
    path.symlink_to(target)


def changed(summary: dict, **changes: Any) -> str:
    """The summary with some keys changed; None takes one out."""
    other = {**copy.deepcopy(summary), **changes}
    return json.dumps({key: value for key, value in other.items() if value is not None})


def damaged(summary: dict) -> dict[str, Any]:
    received = summary["test"]["received"]

    def test(**changes: Any) -> dict:
        return {**summary["test"], "received": {**received, **changes}}

    return {
        "empty": "",
        "cut": json.dumps(summary)[:200],
        "text": "hello",
        "number": "5",
        "null": "null",
        "list": "[]",
        "nothing in it": "{}",
        "nested": NESTED,
        "bytes": b"\xff\xfe\x00",
        "folder": None,
        "link to itself": link_to_itself,
        "link to a device": partial(link_to, "/dev/null"),
        "version 99": changed(summary, schema_version=99),
        "version in words": changed(summary, schema_version="one"),
        "no version": changed(summary, schema_version=None),
        "another hash": changed(summary, config_hash="0" * 12),
        "no hash": changed(summary, config_hash=None),
        "hash of a list": changed(summary, config_hash=["x"]),
        "another configuration": changed(summary, config={**summary["config"], "lr": 5}),
        "configuration of words": changed(summary, config="x"),
        "no scores": changed(summary, test={}),
        "scores of words": changed(summary, test="x"),
        "mean of words": changed(summary, test=test(mean="abc")),
        "mean of nan": changed(summary, test=test(mean=float("nan"))),
        "too few scores": changed(summary, test=test(per_seed=[])),
        "no seconds": changed(summary, seconds=None),
        "seconds of words": changed(summary, seconds="long"),
        "no seeds": changed(summary, seeds=None),
        "seeds of words": changed(summary, seeds="0"),
        "no trips": changed(summary, client_trips=None),
    }


@pytest.mark.nightly
def test_damaged_runs_are_not_used(pool: Pool) -> None:
    first = pool.answers([Case(tuple(T.split()))])[0]
    assert isinstance(first, Answer) and len(first.summaries) == 1
    place = next(name for name in first.left if name.endswith("summary.json")).rpartition("/")[0]

    def said(answer: Answer) -> None:
        assert "is not used" in answer.stderr, f"nothing was said: {answer.stderr[-200:]}"
        assert any(".kept-" in name for name in answer.left) or any("kept" in name for name in answer.left), "what was there is gone"

    whole = {"config.yaml": "lr: 1\n", "history.csv": "seed,trip\n"}
    cases = []
    for content in damaged(first.summaries[0]).values():
        files = {f"{place}/{name}": text for name, text in whole.items()} | {f"{place}/summary.json": content}
        cases.append(Case(tuple(T.split()), reason=WHY, files=files, check=said))
    summary = json.dumps(first.summaries[0])
    cases.append(Case(tuple(T.split()), reason=WHY, files={f"{place}/summary.json": summary}, check=said))
    cases.append(Case(tuple(T.split()), reason=WHY, files={place: "a file"}, check=said))
    as_expected(pool, cases)
