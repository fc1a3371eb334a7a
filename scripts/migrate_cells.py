"""Turn the cells of version 1.0, a json file each, into a csv per paper in which every cell carries its places; run once, on 2026-11-29.

    python scripts/migrate_cells.py

A place is a table, the keys of a row and a column, and the overrides of the command that the plan has there. ``results/draws`` follows.
Keys that are younger than a cell are added to its configuration with the value that they had implicitly; its hash stays as it was.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fgl_bench.config import identity as names
from fgl_bench.config.compose import Composer
from fgl_bench.config.parts import Parts
from fgl_bench.config.settings import resolve_budget
from fgl_bench.papers.draws import draws_of
from fgl_bench.papers.plan import load_paper, papers, plan
from fgl_bench.results.cells import find, read_cells, setting
from fgl_bench.results.store import identity

ROOT = Path(__file__).resolve().parents[1] / "results"
ONCE = ("FedAAS1", "FedAAS2", "FedAll", "FedLocal")  # in modules of their own
VARIANTS = {f"fgl_bench.algorithms.{name.lower()}.{name}": f"fgl_bench.algorithms.fedaas.{name}" for name in ONCE}


def main() -> None:
    from cells_new import write_cells  # fgl_bench.results.cells since

    with Composer() as composer:
        parts = Parts(composer)
        for name in [*papers(), "first_question"]:
            planned = [] if name == "first_question" else plan(paper := load_paper(name), paper.tables, parts=parts)
            cells, draws = (read_cells(ROOT / kind / name) for kind in ("cells", "draws"))
            by_setting: dict[str, dict[str, dict]] = {}
            for digest, cell in cells.items():
                by_setting.setdefault(setting(cell["config"]), {})[digest] = cell
            many = list(draws.values())
            for cell in planned:
                if not cell.digest:
                    continue
                alike = by_setting.get(setting(cell.config), {})
                for found in (find(alike, cell.digest, cell.config), draws_of(many, cell.config)):
                    if found is not None:
                        found.setdefault("places", []).append([cell.table, cell.row.key, cell.column.key, list(cell.overrides)])
            for cell in (*cells.values(), *many):  # after all have been found: a cell with the younger keys covers no other plan
                if "places" in cell:
                    cell["config"] = filled(cell["config"], whole(parts, cell["places"][0][3]))
            for cell in cells.values() if name == "first_question" else ():
                cell["config"] = filled(cell["config"], whole(parts, shlex.split(cell["command"])[1:]))
            for kind, stored in (("cells", cells), ("draws", draws)):
                lost = [digest for digest, cell in stored.items() if "places" not in cell]
                print(f"{name}, {kind}: {len(stored)} cells, {sum(len(c.get('places', ())) for c in stored.values())} places, lost {lost}")
                made = [{"places": cell.pop("places", []), **cell} for cell in stored.values()]
                if stored:
                    shutil.rmtree(ROOT / kind / name)
                    write_cells(ROOT / kind / name, made)


def whole(parts: Parts, overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of a command, with the keys that identities left out."""
    cfg = parts(overrides)
    with patch.dict(names.BEFORE, clear=True), patch.object(names, "SERVED", {}):
        return identity(cfg.plain, *resolve_budget(cfg.settings))


def filled(stored: Mapping[str, Any], full: Mapping[str, Any]) -> dict[str, Any]:
    """``stored`` with the keys of ``full`` that it lacks, at any depth, and classes by the names of their modules."""
    found = dict(stored)
    for key, value in full.items():
        if key not in found:
            found[key] = value
        elif isinstance(value, Mapping) and isinstance(found[key], Mapping):
            found[key] = filled(found[key], value)
    if found.get("_target_") in VARIANTS:
        found["_target_"] = VARIANTS[found["_target_"]]
    return found


if __name__ == "__main__":
    main()
