#!/usr/bin/env python3
"""Draw random mutants of src/ and count those that the tests kill.

    python scripts/mutants.py draw --count 150 --seed 0
    python scripts/mutants.py measure --column after --coverage .coverage

``draw`` writes tests/mutants.csv: a row is a file, a function, and a change of its code. ``measure`` applies each change in a worktree of
HEAD, runs the tests that execute the changed line, and notes the first test that fails. It continues where it was interrupted.
Of the stored rows, 150 are drawn with seed 0 and the last 30 with seed 58. An outcome is "equivalent" where no run can differ: the same
value, another stream of draws, or a tolerance; that is judged by hand. "gone" is code that has been changed since.
The lines that tests execute come from ``pytest --cov=src/fgl_bench --cov-context=test``.
"""

from __future__ import annotations

import argparse
import ast
import csv
import importlib
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "mutants.csv"
KEY = ("file", "function", "kind", "before", "after", "nth")
COLUMNS = (*KEY, "outcome_before", "test_before", "outcome_after", "test_after")
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
HEAVY = ("torch", "numpy", "pandas", "scipy.sparse", "omegaconf", "torch_geometric", "pytest")


class Mutant(NamedTuple):
    """A change of one node of the code; ``nth`` counts equal changes in the same function."""

    function: str
    kind: str
    node: ast.AST
    changed: ast.AST

    @property
    def texts(self) -> tuple[str, str]:
        return ast.unparse(self.node), ast.unparse(self.changed)


def variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the kind and the changed copy of every mutant of ``node`` itself."""
    copy = deepcopy(node)
    if isinstance(copy, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(copy.op) in OPERATORS:
        copy.op = OPERATORS[type(copy.op)]()
        yield "operator", copy
    elif isinstance(copy, ast.Compare) and type(copy.ops[0]) in OPERATORS:
        copy.ops[0] = OPERATORS[type(copy.ops[0])]()
        yield "operator", copy
    elif isinstance(copy, ast.UnaryOp) and isinstance(copy.op, ast.Not | ast.USub) and not isinstance(copy.operand, ast.Constant):
        yield "operator", copy.operand
    elif isinstance(copy, ast.Constant) and isinstance(copy.value, bool | int | float):
        copy.value = not copy.value if isinstance(copy.value, bool) else copy.value + 1
        yield "constant", copy
    elif isinstance(copy, ast.Call) and len(copy.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in copy.args[:2]):
        copy.args[:2] = copy.args[1::-1]
        yield "arguments", copy
    stored = isinstance(node, ast.Assign) and all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    if (
        stored
        or isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Expr)
        and not isinstance(getattr(node, "value", None), ast.Constant | ast.Yield | ast.YieldFrom)
    ):
        yield "statement", ast.Pass()


def mutants(tree: ast.AST, inside: str = "") -> Iterator[Mutant]:
    """Yield every mutant of the code below ``tree``; annotations, decorators and formatted strings stay as they are."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "bases"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr):
                continue
            own = f"{inside}.{node.name}".strip(".") if isinstance(node, ast.FunctionDef | ast.ClassDef) else inside
            if hasattr(node, "lineno"):
                yield from (Mutant(own, kind, node, changed) for kind, changed in variants(node))
            yield from mutants(node, own)


def rows_of(path: Path) -> Iterator[tuple[dict[str, str], Mutant]]:
    """Yield the table's row of every mutant of a file, and the mutant."""
    seen: Counter[tuple[str, ...]] = Counter()
    for mutant in mutants(ast.parse(path.read_text(encoding="utf-8"))):
        key = (mutant.function, mutant.kind, *mutant.texts)
        yield dict(zip(KEY, (str(path.relative_to(path_root(path))), *key, str(seen[key])), strict=True)), mutant
        seen[key] += 1


def path_root(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.name == "src").parent


def draw(count: int, seed: int) -> None:
    """Write ``count`` mutants to the table, all equally likely."""
    every = [row for path in sorted((ROOT / "src").rglob("*.py")) for row, _ in rows_of(path)]
    write(random.Random(seed).sample(every, count))
    print(f"{count} of {len(every)} mutants are in {TABLE.relative_to(ROOT)}")


def write(rows: list[dict[str, str]]) -> None:
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def mutate(path: Path, row: dict[str, str]) -> int:
    """Apply the row's change to the file, and return the changed line; raises ``LookupError`` if the code is gone."""
    mutant = next((mutant for other, mutant in rows_of(path) if all(other[name] == row[name] for name in KEY)), None)
    if mutant is None:
        raise LookupError(f"{row['file']}: {row['function']} has no {row['before']!r}")
    node, lines = mutant.node, path.read_bytes().splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    start, end = lines[first][: node.col_offset], lines[last][node.end_col_offset :]  # type: ignore[attr-defined]
    lines[first : last + 1] = [start + mutant.texts[1].encode() + end]
    path.write_bytes(b"".join(lines))
    return first + 1


def tests_of_lines(coverage: Path) -> dict[str, dict[int, list[str]]]:
    """Return the tests that execute a line, by file below ``src`` and line."""
    tests: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    query = "select path, context, numbits from line_bits join file on file.id = file_id join context on context.id = context_id"
    for path, context, bits in sqlite3.connect(coverage).execute(query):
        name = "src/" + path.rpartition("/src/")[2]
        for position, byte in enumerate(bits):
            for bit in range(8):
                if byte >> bit & 1:
                    tests[name][8 * position + bit].append(context.partition("|")[0])
    return tests


def chosen(row: dict[str, str], line: int, lines: dict[int, list[str]], sizes: Counter[str], most: int) -> list[str]:
    """Return the tests to run, at most ``most``: of the module's own name first, then of its room, those that execute little first.

    A line that runs at import counts as executed by every test of the file.
    """
    tests = {test for test in lines.get(line, []) if test} or {test for others in lines.values() for test in others if test}
    stem, room = Path(row["file"]).stem.strip("_"), Path(row["file"]).parent.name

    def distance(test: str) -> tuple[int, int, str]:
        file = test.partition("::")[0]
        return 0 if f"test_{stem}.py" in file else 1 if f"/{room}/" in file else 2, sizes[test], test

    return sorted(tests, key=distance)[:most]


def collected(tree: Path, marks: str) -> set[str]:
    """Return the tests that there are, without those that ``marks`` leaves out."""
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", marks]
    done = subprocess.run(line, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree / "src")}, capture_output=True, text=True, check=False)
    return {text for text in done.stdout.splitlines() if "::" in text}


def run_tests(tests: list[str], tree: Path, limit: float) -> tuple[str, str]:
    """Run tests in a fork of this process, which has imported what takes long; returns the outcome and the test that failed."""
    with tempfile.TemporaryDirectory() as folder:
        log, listed = Path(folder, "log"), Path(folder, "tests")
        listed.write_text("\n".join(tests), encoding="utf-8")
        child = os.fork()
        if child == 0:
            os.setsid()
            os.chdir(tree)
            os.environ["PYTHONPATH"] = str(tree / "src")
            sys.path[:0] = [str(tree / "src"), str(tree)]
            output = os.open(log, os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            import pytest

            options = [
                "-x",
                "-q",
                "-W",
                "ignore::pytest.PytestAssertRewriteWarning",
                "-p",
                "no:cacheprovider",
                "--tb=line",
                "--durations=0",
                "--timeout=120",
            ]
            os._exit(int(pytest.main([*options, f"@{listed}"])))
        end, status = time.monotonic() + limit, None
        while status is None and time.monotonic() < end:
            done, code = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if done else None
            time.sleep(0.2)
        if status is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "time limit", ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        return ("survived", "") if status == 0 else ("killed", failed[1] if failed else f"status {status}")


def measure(column: str, coverage: Path, marks: str, limit: float, most: int) -> None:
    """Fill the columns ``outcome_<column>`` and ``test_<column>`` of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    covered = tests_of_lines(coverage)
    sizes = Counter(test for lines in covered.values() for tests in lines.values() for test in tests)
    for name in HEAVY:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree], check=True, cwd=ROOT)
        try:
            there = collected(tree, marks)
            for number, row in enumerate(rows, start=1):
                if row[f"outcome_{column}"]:
                    continue
                path = tree / row["file"]
                before = path.read_bytes() if path.exists() else b""
                try:
                    line = mutate(path, row)
                    lines = {at: [test for test in tests if test in there] for at, tests in covered[row["file"]].items()}
                    tests = chosen(row, line, lines, sizes, most)
                    outcome, test = run_tests(tests, tree, limit) if tests else ("not executed", "")
                except (LookupError, FileNotFoundError):
                    outcome, test = "gone", ""
                finally:
                    if before:
                        path.write_bytes(before)
                row |= {f"outcome_{column}": outcome, f"test_{column}": test}
                write(rows)
                print(
                    f"{number}/{len(rows)} {outcome:12} {row['file']} {row['function']}: {row['before']} -> {row['after']}  {test}",
                    flush=True,
                )
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], check=True, cwd=ROOT)
    outcomes = Counter(row[f"outcome_{column}"] for row in rows)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--count", type=int, default=150)
    drawing.add_argument("--seed", type=int, default=0)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--column", choices=("before", "after"), default="after")
    measuring.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    measuring.add_argument("--marks", default="not nightly and not audit", help="the tests that are run, as pytest's -m")
    measuring.add_argument("--limit", type=float, default=300, help="seconds for the tests of a mutant")
    measuring.add_argument("--most", type=int, default=60, help="tests for a mutant")
    args = parser.parse_args()
    if args.command == "draw":
        draw(args.count, args.seed)
    else:
        measure(args.column, args.coverage, args.marks, args.limit, args.most)


if __name__ == "__main__":
    main()
