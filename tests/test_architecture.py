"""The order of the rooms of ``src``: who may import whom. Imports inside functions and for type checkers count as any other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
MOST_LINES = 500

# Every room and those that it may import, from the ground up. A room is a folder or a module directly below the package.
BELOW_RUNNER = {
    "errors",
    "utils",
    "data",
    "config",
    "engine",
    "models",
    "optimizers",
    "tasks",
    "evaluation",
    "algorithms",
    "scenarios",
    "results",
}
MAY_IMPORT = {
    "errors": set(),
    "utils": {"errors"},
    "data": {"errors", "utils"},
    "config": {"errors", "utils"},
    "engine": {"errors", "utils", "data"},
    "optimizers": {"errors", "engine"},
    "models": {"errors", "utils", "data", "engine"},
    "tasks": {"errors", "utils", "data", "engine", "models"},
    "evaluation": {"errors", "utils", "data", "engine"},
    "algorithms": {"errors", "utils", "data", "engine", "models", "optimizers"},
    "scenarios": {"errors", "utils", "engine", "evaluation", "algorithms"},
    "results": {"errors", "utils", "data", "config", "evaluation"},
    "runner": BELOW_RUNNER,
    "leaderboard": {*BELOW_RUNNER, "runner"},
    "papers": {*BELOW_RUNNER, "runner", "leaderboard"},
    "report": {"errors", "utils", "config", "evaluation", "results", "leaderboard", "papers"},
    "hydra_plugins": {"config", "errors", "results", "runner", "utils"},
    "cli": {*BELOW_RUNNER, "runner", "leaderboard", "papers", "report"},
    "__main__": {"utils", "cli"},
    "__init__": {"algorithms", "models", "optimizers", "data", "errors", "results", "runner"},
}
COMPOSES = {"config", "cli", "hydra_plugins"}  # the rooms that may import Hydra


def module_name(path: Path) -> str:
    """``fgl_bench.engine.batch``; a package is named by its folder."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def room(module: str) -> str:
    """``engine`` of ``fgl_bench.engine.batch``; the plugins are one room."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == "fgl_bench" else top


def imported(path: Path) -> Iterator[str]:
    """Full names of everything that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def neighbours(module: str) -> set[str]:
    """The modules of ``src`` that ``module`` imports."""
    found = set()
    for name in imported(MODULES[module]):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {"", module}


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_a_room_imports_only_rooms_below_it(name: str) -> None:
    arrows = {(module, other) for module in MODULES if room(module) == name for other in neighbours(module)}
    astray = sorted(arrow for arrow in arrows if room(arrow[1]) not in {name, *MAY_IMPORT[name]})
    assert not astray


def test_every_room_has_its_place_and_the_places_make_an_order() -> None:
    assert {room(module) for module in MODULES} == set(MAY_IMPORT)
    names = list(MAY_IMPORT)
    assert all(names.index(other) < names.index(name) for name, others in MAY_IMPORT.items() for other in others)


def test_no_modules_import_each_other_in_a_circle() -> None:
    waiting = {module: neighbours(module) for module in MODULES}
    while free := {module for module, others in waiting.items() if not others & waiting.keys()}:
        waiting = {module: others for module, others in waiting.items() if module not in free}
    assert not waiting, "these are in a circle or import one"


def test_modules_are_small() -> None:
    paths = [path for path in SOURCE.rglob("*") if path.suffix in (".py", ".js", ".css")]
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert len(paths) > len(MODULES) and not {str(path): count for path, count in lines.items() if count > MOST_LINES}


def test_only_the_configuration_and_the_command_line_know_hydra() -> None:
    using = {room(module) for module, path in MODULES.items() if any(name.split(".")[0] == "hydra" for name in imported(path))}
    assert using <= COMPOSES
