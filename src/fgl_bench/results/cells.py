"""The compact results from which tables are made: one small file per run, in git, unlike the runs themselves."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fgl_bench.config.identity import before
from fgl_bench.errors import printable
from fgl_bench.papers.plan import Cell
from fgl_bench.results.frame import value_of
from fgl_bench.results.pictures import curve, matrices, records
from fgl_bench.results.shapes import PICTURES
from fgl_bench.results.statistics import fairness
from fgl_bench.results.store import Untrusted, checked
from fgl_bench.utils.files import write_whole

DROPPED = ("per_client",)
_said: set[str] = set()  # warnings of this process
ANYTHING = object()


def compact(summary: Mapping, command: str, run: Path | None = None) -> dict:
    """``summary.json`` with fairness statistics instead of the clients' scores, and the command of the run.

    Args:
        run: the run's directory, for its curves, costs and matrices (``plots/pictures.py``).
    """
    test = {
        model: {
            **{key: value for key, value in scores.items() if key not in DROPPED},
            **({"fairness": fairness(scores["per_client"])} if "per_client" in scores else {}),
        }
        for model, scores in summary["test"].items()
    }
    return {**summary, "test": test, **(pictures(run) if run else {}), "command": command}


def pictures(run: Path) -> dict:
    """The thinned curve, cost records and matrices of a run; without the parts that cannot be read, which affects pictures but no score."""
    found: dict = {}
    for name, read, file in (("curve", curve, "history.csv"), ("records", records, "history.csv"), ("matrices", matrices, "mixing.npz")):
        try:
            found[name] = read(run / file) if (run / file).is_file() else None
        except Exception as error:  # a damaged file may raise anything
            warn(run / file, f"{type(error).__name__}: {error}")
    return {name: value for name, value in found.items() if value}


def warn(path: Path | str, reason: str) -> None:
    """Warn on stderr that a file, or a part of one, is not used; once per file."""
    line = printable(f"warning: {path} is not used: {' '.join(reason.split())[:200]}")
    if line not in _said:
        _said.add(line)
        print(line, file=sys.stderr)


def cell_path(folder: Path, cell: Mapping) -> Path:
    """``<folder>/<dataset>-<split>-<sparsity>-<algorithm>-<hash>.json``."""
    names = ("dataset", "split", "sparsity", "algorithm", "config_hash")
    return folder / ("-".join(str(cell[name]) for name in names) + ".json")


def write_cell(folder: Path, cell: Mapping) -> Path:
    """Write one cell atomically."""
    path = cell_path(folder, cell)
    write_whole(path, dumped(cell))
    return path


def dumped(cell: Mapping) -> str:
    """Json with a line for every key, and one for every list of numbers."""
    text = json.dumps(cell, indent=1, allow_nan=False)
    flat = re.sub(r"\[\n[-+.\deE,\snul]*\]", lambda found: re.sub(r"\s+", " ", found[0]).replace("[ ", "[").replace(" ]", "]"), text)
    return flat + "\n"


def read_cells(folder: Path, problem: Callable[[Path, str], None] = warn) -> dict[str, dict]:
    """All cells in ``folder`` by configuration hash; what is none of this version is passed over, and ``problem`` told why.

    A damaged curve, record or matrix is left out of its cell; the scores are still used.
    """
    cells = {}
    for path in sorted(folder.glob("*.json")):
        try:
            cell = checked(path.read_text(encoding="utf-8"))
            cells[cell["config_hash"]] = cell
            for name, picture_flaw in PICTURES.items():
                wrong = picture_flaw(cell[name]) if cell.get(name) is not None else None
                if wrong is not None:
                    problem(path, f"its {name} only: {wrong}")
                    del cell[name]
        except (OSError, UnicodeDecodeError) as error:
            problem(path, str(error))
        except Untrusted as reason:
            problem(path, str(reason))
    return cells


def covers(planned: object, stored: object, group: str = "") -> bool:
    """Whether a stored configuration is the planned one, but for keys that did not exist when it was run.

    The default of a key that is added later must keep the old behavior, so that stored results stay valid; or the key is in
    ``config.identity.BEFORE`` with the value that does.
    """
    if planned is ANYTHING:
        return True
    if isinstance(planned, Mapping) and isinstance(stored, Mapping):
        if any(planned.get(key, value) != value for key, value in before(group, planned).items() if key not in stored):
            return False
        return all(key in planned and covers(planned[key], value, key) for key, value in stored.items())
    return planned == stored


def find(cells: Mapping[str, dict], digest: str, config: Mapping) -> dict | None:
    """The stored cell of this configuration: by its hash, else one that :func:`covers` it."""
    if digest in cells:
        return cells[digest]
    # If raw files are absent, the plan does not know their sums; it accepts the stored ones.
    wanted = config if "data" in config else {**config, "data": ANYTHING}
    same = (cell for cell in cells.values() if cell.get("config") and covers(wanted, cell["config"]))
    return next(same, None)


def stored_of(planned: Iterable[Cell], folder: Path) -> dict[str, dict]:
    """What ``folder`` holds of the planned cells, by the hash of their planned configuration."""
    alike: dict[str, dict[str, dict]] = {}
    for digest, cell in read_cells(folder).items():
        alike.setdefault(setting(cell.get("config")), {})[digest] = cell
    wanted = {cell.digest: cell.config for cell in planned if cell.digest}
    found = {digest: find(alike.get(setting(config), {}), digest, config) for digest, config in wanted.items()}
    return {digest: cell for digest, cell in found.items() if cell is not None}


def setting(config: object) -> str:
    """What every configuration has, and what is the same in one that it :func:`covers`, so that few are compared."""
    return str([value_of(config, key) for key in ("dataset._target_", "dataset.name", "algorithm._target_", "num_clients")])
