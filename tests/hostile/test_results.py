"""What lies where a run would be: a damaged summary is said not to be used, is kept, and the run is made."""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

from fgl_bench.results.store import config_hash
from tests.hostile.bed import Answer, Case, Pool, T, as_expected

NESTED = "[" * 100_000
HISTORY = "seed,trip,test_received,test_trained\n0,0,0.1,0.1\n0,3,0.2,0.3\n"
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


def test_a_tampered_run_costs_itself_only(pool: Pool) -> None:
    sound, other = pool.answers([Case((*T.split(), *more)) for more in ((), ("algorithm=local",))])
    assert isinstance(sound, Answer) and isinstance(other, Answer)
    summary = sound.summaries[0]

    def run(summary: Any, place: str = "", history: str = HISTORY) -> dict[str, str]:
        folder = f"runs/{place or config_hash(summary['config'])}"
        text = json.dumps({**summary, "config_hash": config_hash(summary["config"])})
        return {f"{folder}/summary.json": text, f"{folder}/config.yaml": "", f"{folder}/history.csv": history}

    tampered = {
        "long": run({**summary, "seconds": {**summary["seconds"], "total": 10**400}}),
        "rounds": run({**summary, "config": {**summary["config"], "rounds": [2, 3]}}),
        "code": run({**summary, "config": {**summary["config"], "code": 7}}),
        "class": run({**summary, "config": {**summary["config"], "dataset": {"_target_": [1]}}}),
        "huge": run({**summary, "config": {**summary["config"], "lr": 1e308}}),
        "above": run({**summary, "test": {**summary["test"], "trained": {**summary["test"]["trained"], "mean": 1.5}}}),
        "twice": run(summary, history=f"{HISTORY}0,3,0.2,0.2\n"),
        "escapes": run({**summary, "device": "\x1b[2J\ud800"}),
        "names": run(summary, place="\x1b]0;x\x07\udc9f"),
    }

    def named(answer: Answer) -> None:
        lines = [line for line in answer.stderr.splitlines() if line.startswith("warning: ")]
        assert len(lines) == 1 and "is left out: " in lines[0], answer.stderr
        assert all(letter.isprintable() or letter == "\n" for letter in answer.stdout + answer.stderr)

    good, cases = run(other.summaries[0]), []
    for name, files in tampered.items():
        commands = [("table", "runs"), ("plot", "bars", "runs")] + [("report", "runs")] * (name in ("huge", "class"))
        cases += [Case(line, reason="the other run is shown", files={**good, **files}, check=named, sane=False) for line in commands]
    as_expected(pool, cases)


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
