"""The test bed: hostile inputs, run by the real command in processes of their own, and what must come of each.

A case says what it expects: to be refused, with a part of the message, or to be accepted, with the reason why that is right.
"""

from __future__ import annotations

import math
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

from tests.hostile.worker import Answer, serve
from tests.warm import CONTEXT

# A graph and a run so small that an accepted input costs a fraction of a second.
GRAPH = "dataset=csbm dataset.num_nodes=120 dataset.num_edges=300 dataset.num_features=40 dataset.words_per_node=6"
TINY = f"{GRAPH} model.hidden=8 num_clients=3 rounds=2 seeds=[0]"
T = f"{TINY} algorithm=fedavg"
WORKERS, SECONDS, MOST_LINES = 2, 120, 12


@dataclass(frozen=True)
class Case:
    """One hostile input.

    Attributes:
        arguments: of the command line.
        refused: a regular expression that the message must match; None for an input that is accepted.
        reason: why an accepted input is one.
        files: what lies in the current folder before, by path; a callable is given the path to write.
        variables: of the environment; None removes one.
        check: a further check of what came of it; raises AssertionError.
        sane: whether an accepted input must leave a run whose summary is consistent; commands leave none.
    """

    arguments: tuple[str, ...]
    refused: str | None = None
    reason: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str | None] = field(default_factory=dict)
    check: Callable[[Answer], None] | None = None
    sane: bool = True

    def __str__(self) -> str:
        line = " ".join(shlex.quote(text) for text in self.arguments)
        return line + "".join(f" [{path}: {repr(content)[:60]}]" for path, content in list(self.files.items())[:1])


def refused(table: Mapping[str, str], before: str = T, **more: Any) -> list[Case]:
    """A case for every line ``{arguments: message}``; ``before`` comes first."""
    return [Case((*before.split(), *shlex.split(text)), refused=message, **more) for text, message in table.items()]


def accepted(table: Mapping[str, str], before: str = T, **more: Any) -> list[Case]:
    """A case for every line ``{arguments: reason}``."""
    return [Case((*before.split(), *shlex.split(text)), reason=reason, **more) for text, reason in table.items()]


def judged(case: Case, answer: Answer | str) -> str | None:
    """What is wrong with the answer to a case; None if nothing is."""
    if isinstance(answer, str):
        return answer
    said = answer.stdout + answer.stderr
    if "Traceback" in said:
        return "a traceback: " + said.strip().splitlines()[-1]
    if case.refused is None:
        if answer.status != 0:
            return f"refused with status {answer.status}: {answer.stderr.strip()[-300:]}"
        if not case.reason:
            return "accepted, and the table does not say why"
        fault = next(filter(None, map(insane, answer.summaries)), None) if case.sane else None
        if case.sane and not answer.summaries:
            return "status 0, and nothing was run"
    else:
        if answer.status == 0:
            return f"accepted; expected a refusal with {case.refused!r}"
        lines = answer.stderr.strip().splitlines()
        if not 1 <= len(lines) <= MOST_LINES:
            return f"{len(lines)} lines of message"
        if not re.search(case.refused, answer.stderr):
            return f"the message lacks {case.refused!r}: {answer.stderr.strip()[:300]}"
        fault = f"refused, but it left {answer.left}" if answer.left else None
    if fault is None and case.check is not None:
        try:
            case.check(answer)
        except AssertionError as error:
            return str(error) or "its own check failed"
    return fault


def insane(summary: dict) -> str | None:
    """What in a summary cannot be: a score outside [0, 1], another number of seeds than was asked for."""
    for model, stats in summary["test"].items():
        scores = stats["per_seed"]
        if len(scores) != len(summary["seeds"]):
            return f"{len(scores)} scores for seeds={summary['seeds']}"
        for score in [*scores, stats["mean"]]:
            if score is not None and not (math.isfinite(score) and 0 <= score <= 1):
                return f"a {model} model's score of {score}"
    if summary["seeds"] != summary["config"]["seeds"] or summary["num_clients"] != summary["config"]["num_clients"]:
        return "the summary differs from its configuration"
    return None


class Pool:
    """Some processes, each answering one case at a time. One that dies or hangs is a failure of its case, and is replaced."""

    def __init__(self, count: int = WORKERS):
        self.count = count

    def answers(self, cases: Iterable[Case]) -> list[Answer | str]:
        """What came of every case, in order; a string says how its process ended instead."""
        cases = list(cases)
        found: list[Answer | str] = ["was not run"] * len(cases)
        waiting: SimpleQueue[int] = SimpleQueue()
        for number in range(len(cases)):
            waiting.put(number)

        def work() -> None:
            process, pipe = self._start()
            try:
                while True:
                    number = waiting.get_nowait()
                    case = cases[number]
                    pipe.send((case.arguments, dict(case.files), dict(case.variables)))
                    try:
                        found[number] = pipe.recv() if pipe.poll(SECONDS) else f"no answer within {SECONDS} s"
                    except EOFError:
                        process.join(5)
                        found[number] = f"its process died ({process.exitcode})"
                    if isinstance(found[number], str):
                        process.kill()
                        process, pipe = self._start()
            except Empty:
                process.kill()

        threads = [threading.Thread(target=work) for _ in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def _start(self) -> tuple[Any, Connection]:
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=serve, args=(there,), daemon=True)
        process.start()
        there.close()
        return process, here


def failures(pool: Pool, cases: Iterable[Case]) -> list[str]:
    """``<arguments>: <what is wrong>`` for every case whose answer is not the expected one."""
    cases = list(cases)
    return [f"{case}: {fault}" for case, answer in zip(cases, pool.answers(cases), strict=True) if (fault := judged(case, answer))]


def as_expected(pool: Pool, cases: Iterable[Case]) -> None:
    """Raise AssertionError with all :func:`failures`, if there are any."""
    found = failures(pool, cases)
    assert not found, f"{len(found)} not as expected:\n" + "\n".join(found)
