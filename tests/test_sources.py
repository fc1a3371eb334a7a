"""A run's identity covers the source of classes from outside the package."""

from __future__ import annotations

import hashlib
import sys

import pytest

from fgl_bench.utils.sources import code_sums, files_of


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def config(*targets):
    return {"algorithm": {"_target_": targets[0], "parts": [{"_target_": target} for target in targets[1:]]}, "lr": 0.1}


def test_classes_of_the_package_and_of_python_add_nothing(folder):
    assert code_sums(config("fgl_bench.algorithms.fedavg.FedAvg", "collections.OrderedDict", "len")) == {}


def test_a_module_counts_with_what_it_imports_from_its_folder(folder):
    (folder / "mine_a.py").write_text("import json\nimport mine_b\nfrom mine_pack.deep import x\n")
    (folder / "mine_b.py").write_text("from mine_c import y\n")
    (folder / "mine_c.py").write_text("import mine_a\ny = 1\n")
    (folder / "mine_d.py").write_text("")
    (folder / "mine_pack").mkdir()
    (folder / "mine_pack/__init__.py").write_text("")
    (folder / "mine_pack/deep.py").write_text("x = 1\n")
    sums = code_sums(config("mine_a.Method"))
    expected = ("mine_a.py", "mine_b.py", "mine_pack/__init__.py", "mine_pack/deep.py", "mine_c.py")
    assert list(sums) == [f"mine_a:{name}" for name in expected]
    assert sums["mine_a:mine_c.py"] == hashlib.sha256(b"import mine_a\ny = 1\n").hexdigest()
    for name in ("mine_c.py", "mine_pack/deep.py"):
        (folder / name).write_text("x = y = 2\n")
        changed = code_sums(config("mine_a.Method"))
        assert [key for key in sums if changed[key] != sums[key]] == [f"mine_a:{name}"]
        sums = changed


def test_nested_objects_count_too(folder):
    (folder / "mine_e.py").write_text("")
    (folder / "mine_f.py").write_text("")
    assert list(code_sums(config("mine_f.A", "mine_e.B", "fgl_bench.models.gcn.GCN"))) == ["mine_e:mine_e.py", "mine_f:mine_f.py"]


def test_relative_imports_inside_a_package(folder):
    (folder / "mine_kit").mkdir()
    for name in ("__init__", "base", "extra", "other"):
        (folder / f"mine_kit/{name}.py").write_text("")
    (folder / "mine_kit/method.py").write_text("from . import base\nfrom .extra import z\nimport numpy\n")
    assert [path.name for path in files_of("mine_kit.method")] == ["method.py", "base.py", "extra.py"]
