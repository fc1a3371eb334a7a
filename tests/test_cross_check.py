"""What other code is given of a federation, and what is made of its answers."""

from __future__ import annotations

import csv
import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fgl_bench.config.compose import as_command
from fgl_bench.results.saved_models import write_models
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import resolve
from tests.small_graph_sets import of_graphs, of_pairs

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


def test_other_code_is_given_graphs_and_pairs(compare, tmp_path):
    driving = importlib.import_module("driving")
    for task, federation in (("graph", of_graphs()), ("link", of_pairs())):
        nodes = sum(client.num_nodes for client in federation.clients)
        with as_command([f"task={task}", "seeds=[0]", "dtype=float64"]) as cfg:
            compare.export(resolve(cfg), replace(federation, notes={"nodes": nodes}), tmp_path)
        assert loaded(tmp_path / "initial.npz")["conv0.weight"].dtype == np.float64
        for i, client in enumerate(federation.clients):
            given = loaded(tmp_path / f"client_{i}.npz")
            for name, value in (("y", client.labels), ("train", client.train), ("val", client.val), ("test", client.test)):
                np.testing.assert_array_equal(given[name], value)
            np.testing.assert_array_equal(given["edge_index"], client.edges)
            if task == "link":
                np.testing.assert_array_equal(given["pairs"], client.pairs)
                continue
            whole, masks = driving.graphs(tmp_path, i)
            assert [int(each.y) for each in whole] == client.labels.tolist() and masks["val"].tolist() == client.val.tolist()
            starts = np.searchsorted(client.graph, np.arange(len(whole)))
            for start, each in zip(starts, whole, strict=True):
                np.testing.assert_array_equal(each.x.numpy(), client.features[start : start + each.num_nodes])
            edges = np.concatenate([each.edge_index.numpy() + start for start, each in zip(starts, whole, strict=True)], 1)
            assert {tuple(edge) for edge in edges.T.tolist()} == {tuple(edge) for edge in client.edges.T.tolist()}


def test_weights_and_clusters_of_both_are_compared(compare, tmp_path):
    weights = {"head.weight": np.arange(6.0).reshape(3, 2)}
    stored = {f"0/{i}/trained/head.weight": weights["head.weight"][i] for i in range(3)}
    write_models(tmp_path, stored, "final")
    ours = SimpleNamespace(folder=tmp_path)
    assert compare.weights_differ(ours, weights) == 0
    assert compare.weights_differ(ours, {"head.weight": weights["head.weight"] + [[0, 0], [0, 0], [0, 0.25]]}) == 0.25
    both, split = np.full((1, 1, 3), 1 / 3), np.array([[[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]]])
    np.savez(tmp_path / "mixing.npz", trips_3=both, trips_6=both, trips_12=split, trips_9=split)
    assert compare.compared_clusters(ours, [[0, 0, 0], [0, 0, 0], [1, 0, 1], [1, 0, 1]]) == "3: 0,2|1"
    assert compare.compared_clusters(ours, [[0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 1]]) == "3: 0,2|1 / 3: 0,1|2"
    assert compare.compared_clusters(ours, [[0, 0, 0]] * 4) == "3: 0,2|1 / none"


DRIVER = """
import json, sys
from pathlib import Path
job = Path(sys.argv[1])
settings = json.loads((job / "settings.json").read_text())
right = [[[1, 2]] * settings["clients"], [[2, 1]] * settings["clients"]]
(job / "theirs.json").write_text(json.dumps({"trained": right, "received": [], "seconds": [1.0, 3.0], "asked": settings}))
"""


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


DRIVERS = sorted(path.stem for path in FOLDER.glob("*.py") if "MATCHED: " in path.read_text())


def test_every_driver_can_be_asked_for(compare):
    assert list(compare.REPOSITORIES) == DRIVERS


@pytest.mark.audit
@pytest.mark.parametrize("repository", DRIVERS)
def test_every_comparison_composes(compare, repository):
    matched = importlib.import_module(repository).MATCHED
    for name, each in matched.items():
        data = {key: each.get(key, value) for key, value in compare.DATA.items()}
        options = SimpleNamespace(split=data["split"], clients=data["clients"])
        line = compare.common(options, each, data["datasets"][0])
        weight = [key.partition("=")[2] for key in line if key.startswith("agg_weight=")][-1]  # a driver's own comes later
        with as_command(line) as cfg:
            assert resolve(cfg).settings.agg_weight == weight, name


@pytest.mark.audit
def test_stored_rows_are_of_comparisons_that_exist(compare):
    files = list((FOLDER.parents[1] / "results" / "cross_check").glob("*.csv"))
    assert files
    for file in files:
        matched = importlib.import_module(file.stem).MATCHED
        header, *lines = file.read_text().splitlines()
        assert lines and header.startswith("method,dataset")
        assert {line.partition(",")[0] for line in lines} <= set(matched)


# ---- seconds of other frameworks


@pytest.fixture
def peers(compare, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    module = importlib.import_module("bench_peers")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text("before\n<!-- rows: peers -->\n\nold\n\n<!-- /rows -->\nafter\n")
    return module


def asked(peers, monkeypatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bench_peers.py", *words])
    return peers.main()


@pytest.mark.nightly
def test_other_code_counts_with_the_faster_number_of_threads(peers, monkeypatch, tmp_path):
    (tmp_path / "other.py").write_text(DRIVER.replace("[1.0, 3.0]", "[9.0, 3.0 / settings['threads'], 3.0 / settings['threads']]"))
    monkeypatch.setattr(sys.modules["compare"], "__file__", str(tmp_path / "compare.py"))
    monkeypatch.setitem(peers.PEERS, "other", peers.Peer("Other", None, (), (), {"fedavg": (2, 3)}))
    monkeypatch.setattr(peers.os, "cpu_count", lambda: 4)
    monkeypatch.setitem(sys.modules, "other", SimpleNamespace(MATCHED={"fedavg": {"ours": [*TINY[1:4], "algorithm=fedavg"]}}))
    options = peers.parser().parse_args(["--dataset", "csbm", "--clients", "3"])
    options.repository, options.source, options.python, options.load = "other", ".", sys.executable, 0.5
    options.threads = None
    row = peers.compared("other", "fedavg", options)
    assert (row["threads"], row["their_s"]) == ("4", "0.75")
    assert float(row["ratio"]) == pytest.approx(0.75 / float(row["our_s"]), rel=0.02)
    assert {file.name for file in (tmp_path / "peers").iterdir()} == {f"other-fedavg-csbm-3_clients-{n}_threads.json" for n in (1, 4)}


@pytest.mark.audit
def test_the_page_has_the_stored_rows(peers):
    root = FOLDER.parents[1]
    assert peers.table(root / "results" / "bench" / "peers.csv") in (root / "docs" / "benchmark.md").read_text(encoding="utf-8")


def test_the_page_says_how_many_comparisons_are_equivalent() -> None:
    """Two one-sided paired t-tests at 5 %, margin 1.5 points, from the scores by seed."""
    root, counts = FOLDER.parents[1], {"equivalent": 0, "different": 0, "inconclusive": 0}
    for path in sorted((root / "results/cross_check").glob("*.csv")):
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            ours, theirs = (np.array(row[name].split(), dtype=float) for name in ("ours_by_seed", "theirs_by_seed"))
            difference = ours - theirs
            half = stats.t.ppf(0.95, len(ours) - 1) * difference.std(ddof=1) / np.sqrt(len(ours))
            low, high = difference.mean() - half, difference.mean() + half
            inside, outside = low > -1.5 and high < 1.5, low > 1.5 or high < -1.5
            counts["equivalent" if inside else "different" if outside else "inconclusive"] += 1
    page = " ".join((root / "docs/cross_check.md").read_text(encoding="utf-8").split())
    assert f"{counts['equivalent']} of the {sum(counts.values())} comparisons below are equivalent within 1.5 points" in page
    findings = (root / "docs/findings.md").read_text(encoding="utf-8")
    assert f"{counts['equivalent']} of {sum(counts.values())} comparisons are equivalent within 1.5 points" in findings
    assert f"{counts['different']} differ by more" in page and f"and {counts['inconclusive']} are inconclusive" in page
