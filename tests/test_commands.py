"""``fgl-bench ls``, ``show``, ``cp`` and ``check``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fgl_bench.cli.check import PROMISES, examine
from fgl_bench.cli.commands import ls, show
from fgl_bench.errors import UserError
from tests.warm import ROOT, command, environment


def test_ls_names_groups_and_choices_with_what_they_are(capsys):
    ls([])
    assert "algorithm" in capsys.readouterr().out
    ls(["algorithm"])
    said = capsys.readouterr().out
    assert {line.split()[0] for line in said.splitlines()} == {path.stem for path in (ROOT / "conf/algorithm").glob("*.yaml")}
    assert "FedAvg with a proximal term" in said
    ls(["scenario/sparsity"])
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {"feature", "label", "none", "topology"}


@pytest.mark.parametrize("name", ["algorithm/fedprox", "algorithm=fedprox", "fedprox", "algorithm/fedprox.yaml"])
def test_show_prints_the_file(name, capsys):
    show([name])
    assert capsys.readouterr().out == (ROOT / "conf/algorithm/fedprox.yaml").read_text(encoding="utf-8")


def test_show_finds_presets_and_nested_groups(capsys):
    show(["experiment/fedsa_gcl/table2", "scenario/sparsity/label"])
    said = capsys.readouterr().out
    assert "FedSA-GCL, table 2" in said and "_target_: fgl_bench.data.sparsity.LabelSparsity" in said


def test_a_copy_runs_under_its_own_name_and_nothing_is_overwritten(tmp_path):
    done = command(tmp_path, "cp", "fedprox", "mine")
    assert done.returncode == 0 and "fgl-bench --config-dir mine algorithm=my_fedprox" in done.stdout
    target = tmp_path / "mine/algorithm/my_fedprox.yaml"
    target.write_text(target.read_text(encoding="utf-8").replace("mu: 0.01", "mu: 0.5"), encoding="utf-8")
    assert "mu: 0.5" in command(tmp_path, "--config-dir", "mine", "--cfg", "job", "algorithm=my_fedprox").stdout
    again = command(tmp_path, "cp", "fedprox", "mine")
    assert again.returncode == 1 and "is there already" in again.stderr and "mu: 0.5" in target.read_text(encoding="utf-8")


def test_commands_that_only_read_load_no_heavy_library(tmp_path):
    script = (
        "import atexit, sys\n"
        "heavy = {'torch', 'torch_geometric', 'scipy', 'pandas', 'numpy', 'matplotlib'}\n"
        "atexit.register(lambda: print('HEAVY', sorted(heavy & set(sys.modules))))\n"
        "from fgl_bench.cli.main import main\nmain()\n"
    )
    line = [sys.executable, "-c", script, "ls", "algorithm"]
    done = subprocess.run(line, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


# ---- check

METHOD = """
from dataclasses import dataclass

import torch

from fgl_bench.algorithms.base import Algorithm, Traffic
from fgl_bench.algorithms.base import Peers
from fgl_bench.algorithms.powers import ServerNodes, TrainedScore
from fgl_bench.algorithms.records import Message
from fgl_bench.algorithms.base import SemiAsyncServer
from fgl_bench.algorithms.base import ServerRounds
from fgl_bench.engine.mixing import Mixing, normalize


@dataclass
class {name}({bases}):
    {body}
"""
MIX = """
    def mix(self, reports, arrived):
        return Mixing({weights})
"""
GOOD = MIX.format(weights="normalize(self.setting.weights, arrived)[:, None]")
METHODS = {  # (body, what is broken)
    "good": (GOOD,),
    "with_a_key": (f"power: float\n{GOOD.replace('self.setting.weights', 'self.setting.weights ** self.power')}",),
    "rows_too_heavy": (MIX.format(weights="normalize(self.setting.weights, arrived)[:, None] * 1.01"), "rows of averages sum to one"),
    "silent": (f"{GOOD}\n    def traffic(self):\n        return Traffic({{}}, {{}})", "bytes are counted: models are mixed"),
    "free_dice": (
        f"{GOOD}\n    def correct_gradient(self, step, gradient):\n        return gradient + 0.1 * torch.rand_like(gradient)",
        "a repeated run gives the same numbers: the same run gives another model",
    ),
    "looks_at_others": (  # the mean over the replicas at hand depends on how many are at hand
        f"{GOOD}\n    def correct_gradient(self, step, gradient):\n        return gradient + 0.1 * gradient.mean(0, keepdim=True)",
        "a seed alone equals the seed among others: alone, the seed gives another model",
        "chunks of clients change nothing: trained 1 client(s) at a time",
    ),
    "explodes": (
        f"{GOOD}\n    def correct_gradient(self, step, gradient):\n        return gradient / 0.0",
        "models stay finite: client 0 of seed 0",
    ),
}  # fmt: skip


def bases(body: str) -> str:
    """What a class with this body derives from: ServerRounds, unless a comment at its beginning says otherwise."""
    told = re.match(r"\s*# (\w.*)", body)
    return told[1] if told else "ServerRounds"


def written(folder: Path, name: str, body: str) -> Path:
    path = folder / f"own_{name}.py"
    path.write_text(METHOD.format(name="".join(map(str.title, name.split("_"))), bases=bases(body), body=body.lstrip()), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", METHODS)
def test_each_promise_that_is_broken_is_named(name, tmp_path, capsys):
    body, *broken = METHODS[name]
    path = written(tmp_path, name, body)
    status = examine(str(path), ["algorithm.power=0.5"] if name == "with_a_key" else [])
    said = capsys.readouterr().out
    if broken:
        assert status == 1 and all(f"  BROKEN  {each}" in said for each in broken), said
    else:
        assert status == 0 and said.count("  kept  ") == len(PROMISES) and said.endswith("keeps all promises\n")


def test_a_file_with_several_methods_asks_which(tmp_path, capsys):
    path = written(tmp_path, "first", GOOD)
    path.write_text(path.read_text(encoding="utf-8") + "\n\n@dataclass\nclass Second(First):\n    pass\n", encoding="utf-8")
    with pytest.raises(UserError, match="name one as .*:CLASS"):
        examine(str(path), [])
    assert examine(f"{path}:Second", []) == 0 and "Second: keeps all promises" in capsys.readouterr().out


def test_the_command_ends_with_the_status_of_the_check(tmp_path):
    written(tmp_path, "silent", METHODS["silent"][0])
    done = command(tmp_path, "check", "own_silent.py")
    assert done.returncode == 1 and "1 promise(s) broken" in done.stdout and "Traceback" not in done.stderr
