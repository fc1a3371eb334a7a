"""What other code is given of a federation, and what is made of its answers."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from fgl_bench.config.compose import as_command
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import resolve

FOLDER = Path(__file__).parents[1] / "scripts" / "cross_check"
TINY = ["dataset=csbm", "dataset.num_nodes=120", "dataset.num_edges=300", "num_clients=3", "rounds=2", "agg_weight=nodes", "threads=1"]


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("compare")


def loaded(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


def test_other_code_is_given_every_client_as_it_is_and_our_weights(compare, tmp_path):
    with as_command([*TINY, "algorithm=fedavg", "seeds=[3]"]) as cfg:
        spec = resolve(cfg)
        (federation,) = prepare(spec)
        compare.export(spec, federation, tmp_path)
    whole = loaded(tmp_path / "global.npz")
    edges = {tuple(edge) for edge in whole["edge_index"].T.tolist()}
    assert len(edges) == federation.notes["edges"] * 2
    for i, client in enumerate(federation.clients):
        given = loaded(tmp_path / f"client_{i}.npz")
        for name, value in (("y", client.labels), ("train", client.train), ("val", client.val), ("test", client.test)):
            np.testing.assert_array_equal(given[name], value)
        np.testing.assert_array_equal(whole["x"][client.nodes], given["x"])
        assert {tuple(edge) for edge in client.nodes[given["edge_index"]].T.tolist()} <= edges
    initial = loaded(tmp_path / "initial.npz")
    assert initial["conv0.weight"].shape == (federation.num_features, 64)
    assert np.abs(initial["conv0.weight"]).max() > 0


DRIVER = '''
import json, sys
from pathlib import Path
job = Path(sys.argv[1])
settings = json.loads((job / "settings.json").read_text())
right = [[[1, 2]] * settings["clients"], [[2, 1]] * settings["clients"]]
(job / "theirs.json").write_text(json.dumps({"trained": right, "received": [], "seconds": [1.0, 3.0], "asked": settings}))
'''


def test_what_is_asked_of_other_code_is_what_ours_does(compare, tmp_path, monkeypatch):
    (tmp_path / "other.py").write_text(DRIVER)
    monkeypatch.setattr(compare, "__file__", str(tmp_path / "compare.py"))
    options = compare.parser().parse_args(["openfgl"])
    options.repository = "other"
    line = [*TINY, "algorithm=fedavg", "lr=0.02", "local_epochs=3", "model.dropout=0.1", "seeds=[1]"]
    theirs, counts = compare.run_theirs(options, "fedavg", {"theirs": "avg", "config": {"mu": 1}}, line)
    asked = theirs["asked"]
    expected = {"method": "avg", "lr": 0.02, "local_epochs": 3, "dropout": 0.1, "rounds": 2, "clients": 3, "seed": 1, "config": {"mu": 1}}
    assert {name: asked[name] for name in expected} == expected
    # The second round has the better validation score, 6 of the validation nodes against 3.
    assert compare.best(theirs, counts, "trained") == pytest.approx(3 / counts[:, 1].sum())


def test_right_answers_are_counted_not_averaged(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    driving = importlib.import_module("driving")
    assert driving.right((2 / 3, 0.25), [3, 8]) == [2, 2]


@pytest.mark.parametrize("repository", ["openfgl", "fed_pub", "fedgta", "fediih"])
def test_every_comparison_composes(compare, repository):
    matched = importlib.import_module(repository).MATCHED
    for name, each in matched.items():
        with as_command(["dataset=cora", "split=metis", "num_clients=10", "agg_weight=nodes", "scenario=sync", *each["ours"]]) as cfg:
            assert resolve(cfg).settings.agg_weight == "nodes", name


def test_an_unknown_method_is_one_line(compare, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["compare.py", "openfgl", "--methods", "fedfoo"])
    assert compare.main() == 2
    assert "fedfoo: no such comparison; allowed: local, fedavg" in capsys.readouterr().err


def test_the_page_has_a_line_for_every_comparison(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    page = importlib.import_module("page")
    row = {
        "method": "fedavg", "dataset": "cora", "split": "metis", "clients": "10", "evaluated": "trained", "rounds": "100",
        "theirs": "81.30", "theirs_spread": "0.90", "ours": "80.81", "ours_spread": "0.56", "difference": "-0.49",
        "interval": "0.93", "steps_differ": "0.00", "their_round_s": "0.2", "our_round_s": "0.01", "commit": "abc",
        "versions": "torch 2", "remark": "Said once.",
    }  # fmt: skip
    rows = [row, {**row, "method": "fedtad", "steps_differ": ""}]
    (tmp_path / "one.csv").write_text("\n".join(",".join(each.values()) for each in [dict.fromkeys(row, "") | {k: k for k in row}, *rows]))
    text = tmp_path / "page.md"
    text.write_text("before\n<!-- rows: one -->\nold\n<!-- /rows -->\n<!-- rows: two -->\n<!-- /rows -->\nafter\n")
    page.write_page(tmp_path, text)
    written = text.read_text()
    assert "| fedavg (1) | cora | trained, 100 rounds | 81.30 ± 0.90 | 80.81 ± 0.56 | -0.49 ± 0.93 | 0.00 |" in written
    assert "| fedtad (1) |" in written and "| random |" in written and written.count("Said once.") == 1
    assert "Nothing has been run." in written and "old" not in written
    page.write_page(tmp_path, text)
    assert text.read_text() == written


def test_stored_rows_are_of_comparisons_that_exist(compare):
    for file in (FOLDER.parents[1] / "results" / "cross_check").glob("*.csv"):
        matched = importlib.import_module(file.stem).MATCHED
        header, *lines = file.read_text().splitlines()
        assert lines and header.startswith("method,dataset")
        assert {line.partition(",")[0] for line in lines} <= set(matched)
