"""The wheel: built, installed in an environment of its own, run from outside the checkout."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True, timeout=200)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console script of a fresh environment that sees this one's dependencies but not the checkout."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=200)
    python = home / "bin" / "python"
    asked = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True
    )
    own = Path(asked.stdout.strip())
    line = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(line, check=True, timeout=200)
    # A path in a .pth file comes after the environment's own, and .pth files inside it (an editable install) are not read.
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return home / "bin" / "fgl-bench"


def call(script: Path, folder: Path, *arguments: str) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("FGL_BENCH", "HYDRA", "PYTHON"))}
    result = subprocess.run(
        [str(script), *arguments],
        cwd=folder,
        env={**clean, "FGL_BENCH_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.nightly
def test_wheel_holds_every_module_and_every_yaml_once(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    yamls = {f"fgl_bench/conf/{path.relative_to(ROOT / 'conf').as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert modules | yamls <= set(names) and len(names) == len(set(names))
    information = next(name for name in names if name.endswith("/METADATA")).split("/")[0]
    assert {name.split("/")[0] for name in names} == {"fgl_bench", "hydra_plugins", information}
    patterns = ("page/*.*", "vendor/*", "searches/*.yaml", "data/*.yaml", "plans/*.yaml", "results/*.json")
    other = [path for pattern in patterns for path in (ROOT / "src").rglob(pattern)]
    assert "fgl_bench/results/published/fedsa_gcl.csv" in names, "fgl-bench place has no printed numbers"
    assert "fgl_bench/results/cross_check/openfgl.csv" in names, "the report cannot say what was checked"
    assert {"fgl_bench/docs/references.bib", "fgl_bench/scripts/site/methods.yaml"} <= set(names), "the report cannot link papers"
    cells = {f"fgl_bench/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "results/cells").rglob("cells.csv")}
    assert cells and cells <= set(names), "fgl-bench place has no baselines"
    kept = {path.relative_to(ROOT / "src").as_posix() for path in other}
    assert len(kept) > 3 and kept <= set(names), "a file that the code reads is not in the wheel"


@pytest.mark.nightly
def test_installed_command_works_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    assert "fedsa_gcl" in call(installed, tmp_path, "--help")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert call(installed, tmp_path, "--version") == f"fgl-bench {version}\n"
    assert "FedProx" in call(installed, tmp_path, "--cfg", "job", "algorithm=fedprox")
    sources = call(installed, tmp_path, "--info", "searchpath")
    assert str(installed.parents[1]) in sources and str(ROOT) not in sources, "the checkout's conf is used"
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_installed_command_runs_a_federation(installed: Path, tmp_path: Path) -> None:
    call(installed, tmp_path, "algorithm=fedavg", "dataset=csbm", "seeds=[0]", "trips=40", "num_clients=4", "progress=false")
    [path] = tmp_path.glob("results/runs/csbm/metis-4/sync/fedavg/*/summary.json")
    summary = json.loads(path.read_text(encoding="utf-8"))
    assert summary["seeds"] == [0] and summary["client_trips"]["total"] == 40
    assert 0 < summary["test"]["trained"]["mean"] <= 1 or 1 < summary["test"]["trained"]["mean"] <= 100


def test_dependencies_are_what_the_code_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = " ".join([*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)])
    names = {
        "hydra": "hydra-core",
        "community": "python-louvain",
        "dp_accounting": "dp-accounting",
        "yaml": "omegaconf",
        "sklearn": "scikit-learn",
    }  # by import
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names_of = node.names if isinstance(node, ast.Import) else []
            modules = [each.name for each in names_of] or [getattr(node, "module", None) or "__future__"]
            for top in (module.split(".")[0] for module in modules):
                if top not in sys.stdlib_module_names and top not in ("fgl_bench", "__future__"):
                    assert names.get(top, top) in declared, f"{path.name} imports {top}, which pyproject.toml does not name"
