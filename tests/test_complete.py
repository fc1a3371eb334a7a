"""A run that is complete already is answered without what only training needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.warm import command

TINY = ("algorithm=fedavg", "dataset.num_nodes=120", "dataset.num_edges=300", "num_clients=3", "rounds=2", "seeds=[0]", "progress=false")
TOLD = """
import sys
from fgl_bench.cli.main import main
try:
    main()
finally:
    print(sorted({"torch", "pandas", "scipy.stats", "torch_geometric", "networkx"} & sys.modules.keys()), file=sys.stderr)
"""


def with_modules(folder: Path, *more: str) -> tuple[str, str]:
    """What a new process prints, and which of the modules that take long it has imported."""
    line = [sys.executable, "-c", TOLD, *TINY, f"results_dir={folder}", *more]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout, done.stderr.splitlines()[-1]


def test_a_complete_run_is_answered_without_torch_and_a_changed_one_is_made(tmp_path: Path) -> None:
    first, modules = with_modules(tmp_path)
    assert "torch" in modules and "written: " in first
    again, modules = with_modules(tmp_path)
    assert "complete already" in again and modules == "[]"
    assert again.splitlines()[:-1] == first.splitlines()[:-1]
    runs = (*TINY, f"results_dir={tmp_path}")
    for more in ("lr=0.02", "overwrite=true"):
        assert "written: " in command(tmp_path, *runs, more).stdout
    summary = next(tmp_path.rglob("summary.json"))
    summary.write_text(summary.read_text()[:-20])
    assert "written: " in command(tmp_path, *runs).stdout + command(tmp_path, *runs, "lr=0.02").stdout
