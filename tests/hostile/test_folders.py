"""Folders of configurations of one's own, and what lies in the current folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.bed import TINY, Answer, Case, Pool, as_expected

TARGET = "_target_: fgl_bench.algorithms.fedavg.FedAvg\n"
NESTED = "".join("{a: " for _ in range(3000))
ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 8))

# algorithm/mine.yaml, and what the message has to say.
BROKEN: dict[Any, str] = {
    "# a comment only\n": "_target_ is missing",
    "5": "mine.yaml",
    "- a\n- b\n": "mine.yaml|algorithm",
    "_target_: [": "mine.yaml, line",
    "a: b: c": "mine.yaml, line 1",
    f"{TARGET}{TARGET}": "mine.yaml, line 2",
    f"{TARGET}x: 2001-01-01\n": "mine.yaml|x",
    "a: 1\n---\nb: 2\n": "mine.yaml",
    "a: &a [*a]\n": "mine.yaml|algorithm",
    f"{TARGET}1: 2\n": "1|algorithm",
    f"{TARGET}x: .nan\n": "x",
    "_target_: ???\n": "_target_",
    f"{TARGET}mu: ???\n": "mu",
    "defaults: 5\n": "defaults|mine.yaml",
    "defaults: [nowhere]\n": "nowhere",
    "defaults: [mine]\n": "ecursi|mine",
    "defaults: [../../../../etc/passwd]\n": "passwd",
    "# @package _global_\nhydra:\n  run:\n    dir: /proc/x\n": "proc|algorithm|hydra",
    b"\xff\xfe\x00mine": "mine.yaml: cannot be read as yaml",
    f"{TARGET}{ALIASES}": "a0: unknown key",
    "_target_: my_broken.Method\n": "my_broken",
    "_target_: my_exit.Method\n": "my_exit",
    "_target_: my_raise.Method\n": "my_raise",
    "_target_: my_loop.Method\n": "my_loop",
    "_target_: my_value.Method\n": "my_value.*not a class",
}
MODULES = {
    "my_broken.py": "def (:\n",
    "my_exit.py": "import sys\nsys.exit(0)\n",
    "my_raise.py": "raise RuntimeError('line one\\nline two')\n",
    "my_loop.py": "from my_loop import Method\n",
    "my_empty.py": "",
    "my_value.py": "Method = 5\n",
}


def case(content: Any, message: str | None, **more: Any) -> Case:
    files = {"own/algorithm/mine.yaml": content, **MODULES}
    return Case(("--config-dir", "own", *TINY.split(), "algorithm=mine"), message, files=files, check=not_run, **more)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to(target: str, path: Path) -> None:
    path.symlink_to(target)


def not_run(answer: Answer) -> None:
    assert "ran" not in answer.left, "a yaml has run a command"


@pytest.mark.nightly
def test_broken_files_of_a_folder(pool: Pool) -> None:
    cases = [case(content, message) for content, message in BROKEN.items()]
    as_expected(pool, cases)


def test_folders_that_are_none(pool: Pool) -> None:
    mine = ("--config-dir", "own", *TINY.split(), "algorithm=mine")
    cases = [
        Case(mine, "mine", files={"own/algorithm/mine.yaml": None}),
        Case(mine, "own", files={"own": "a file"}),
        Case(mine, "mine", files={"own": None}),
        Case(mine, "mine", files={"own/algorithm": "a file"}),
        Case(mine, "mine", files={"own/algorithm/mine.yml": TARGET}),
        Case(mine, "mine", files={"own/algorithm/mine.yaml": link_to_itself}),
        Case(mine, "mine", files={"own/algorithm/mine.yaml": partial(link_to, "/proc/nowhere")}),
        Case(
            ("--config-dir", "own", *TINY.split(), "algorithm=fedavg"),
            reason="the package's own config.yaml comes first",
            files={"own/config.yaml": "lr: [\n"},
        ),
        Case(("--config-dir", "own", "--help"), None, "help does not read a yaml", files={"own/algorithm/mine.yaml": "["}, sane=False),
    ]
    as_expected(pool, cases)


@pytest.mark.nightly
def test_files_that_are_strange_and_right(pool: Pool) -> None:
    reasons = {
        TARGET: "a plain choice",
        f"{TARGET}# \U0001f600\n": "comments may hold any sign",
        f"---\n{TARGET}...\n": "marks of a document",
        "_target_: 'fgl_bench.algorithms.fedavg.FedAvg'": "quoted, without an end of line",
        "{_target_: fgl_bench.algorithms.fedavg.FedAvg}": "flow style",
        TARGET.replace("\n", "\r\n"): "ends of lines of another system",
    }
    as_expected(pool, [case(content, None, reason=reason) for content, reason in reasons.items()])
