"""``fgl-bench import`` and ``fgl_bench.graph``: tables, networkx and PyG files become the arrays of ``dataset=custom``."""

from __future__ import annotations

import json

import networkx
import numpy as np
import pandas as pd
import pytest
import torch

import fgl_bench
from fgl_bench import UserError
from fgl_bench.cli.import_cells import run
from fgl_bench.data.datasets.custom import Custom
from fgl_bench.utils.patience import say_once

NODES = pd.DataFrame(
    {
        "name": ["n3", "n1", "n2", "n9"],
        "age": [3, 1, 2, 9],
        "tall": [True, False, True, True],
        "kind": ["b", "a", None, "b"],
        "city": ["x", "x", "y", "y"],
    }
)
EDGES = pd.DataFrame({"weight": [1, 1], "source": ["n1", "n9"], "target": ["n2", "n3"]})


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    NODES.to_csv("nodes.csv", index=False)
    EDGES.to_csv("edges.csv", index=False)
    EDGES[["source", "target"]].to_csv("edges.txt", sep=" ", header=False, index=False)


def custom(path: str = "nodes.npz"):
    return Custom("own", [0.5, 0.25, 0.25], "accuracy", False, path=path).load(None)


@pytest.mark.parametrize("edges", ["edges.csv", "edges.txt"])
def test_the_rows_of_a_table_are_the_nodes_of_the_graph(tables, capsys, edges):
    say_once.cache_clear()
    run(["nodes.csv", edges, "label=kind", "owner=city"])
    assert capsys.readouterr().err == "note: nodes.csv: label=kind, id=name, owner=city; features: age, tall\n"
    graph = custom()
    assert graph.features.tolist() == [[3, 1], [1, 0], [2, 1], [9, 1]]
    assert graph.labels.tolist() == [1, 0, -1, 1] and graph.num_classes == 2 and graph.owner.tolist() == [0, 0, 1, 1]
    assert sorted(map(tuple, graph.edges.T.tolist())) == [(0, 3), (1, 2), (2, 1), (3, 0)]
    assert np.load("nodes.npz")["y"].tolist() == ["b", "a", "", "b"], "names are kept"


def test_a_table_of_excel_has_no_mark_in_the_name_of_its_first_column(tables):
    NODES.to_csv("nodes.csv", index=False, encoding="utf-8-sig")
    graph = fgl_bench.graph("nodes.csv", "edges.csv", label="kind", id="name", drop=["city"])
    assert graph["id"].tolist() == NODES["name"].tolist()


@pytest.mark.parametrize("ending", ["graphml", "gml", "json"])
def test_attributes_of_networkx_files_are_columns(tables, ending):
    network = networkx.Graph([("n1", "n2"), ("n9", "n3")])
    for name, age, kind in zip(NODES["name"], NODES["age"], "baab", strict=True):
        network.nodes[name].update(age=int(age), kind=kind)
    if ending == "json":
        with open("g.json", "w") as file:
            json.dump(networkx.node_link_data(network), file)
    else:
        getattr(networkx, f"write_{ending}")(network, f"g.{ending}")
    run([f"g.{ending}", "label=kind", "out=made.npz"])
    made, own = np.load("made.npz"), fgl_bench.graph(network, label="kind")
    assert all(np.array_equal(made[key], own[key]) for key in ("x", "y", "edge_index"))
    assert made["x"].ravel().tolist() == [1, 2, 9, 3] and made["y"].tolist() == ["a", "a", "b", "b"]


def test_a_pyg_file_keeps_its_masks_and_its_class_is_not_imported(tables):
    from torch_geometric.data import Data

    data = Data(x=torch.rand(4, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 1, 0]))
    data.train_mask = torch.tensor([True, False, True, False])
    torch.save(data, "data.pt")
    run(["data.pt"])
    graph = custom("data.npz")
    assert graph.masks["train_mask"].tolist() == [True, False, True, False] and torch.equal(torch.from_numpy(graph.features), data.x)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nodes.csv", "edges.csv"], "nodes.csv: which column has the labels? label=COLUMN, one of name, age, tall, kind, city"),
        (["nodes.csv", "edges.csv", "label=kind"], "nodes.csv: no numbers in city, such as 'x' in row 1; leave them out by drop=city"),
        (["words.csv", "edges.csv", "label=kind", "drop=city"], "words.csv: no numbers in age, such as 'unknown' in row 3;"),
        (["far.csv", "edges.csv", "label=kind", "drop=city"], "far.csv: age has an infinite value"),
        (["heading.csv", "edges.csv", "label=kind"], "heading.csv: has no rows"),
        (["nodes.csv", "heading.csv", "label=kind"], "heading.csv: has no rows"),
        (["empty.csv", "edges.csv"], "empty.csv: cannot be read (it is empty)"),
        (["latin.csv", "edges.csv"], "latin.csv: is not in UTF-8"),
        (["nodes.csv", "edges.csv", "label=kin", "drop=city"], "label=kin: nodes.csv has no such column; it has name, age"),
        (
            ["nodes.csv", "bad.csv", "label=kind", "drop=city"],
            "bad.csv: 'zz' in column target is no node of nodes.csv, whose ids are such as n3",
        ),
        (
            ["gaps.csv", "edges.csv", "label=kind", "drop=city"],
            "gaps.csv: age is empty for 1 node(s); fill it, or leave it out by drop=age",
        ),
        (["twice.csv", "edges.csv", "label=kind", "drop=city"], "twice.csv: two nodes have the id n3"),
        (["nodes.csv"], "nodes.csv: a table of nodes needs one of edges"),
        (["nodes.csv", "edges.csv", "label=kind", "drop=city,nope"], "drop=nope: nodes.csv has no such column"),
        (["nodes.csv", "edges.csv", "lable=kind"], "lable=kind: unknown key; did you mean label?"),
        (["none.csv", "edges.csv"], "none.csv: there is no such file"),
        (["broken.gml"], "broken.gml: cannot be read ("),
        (["pickled.pt"], "pickled.pt: cannot be read (it holds a"),
        ([], "import what: give one folder of cells, fgl-bench import FOLDER [into=results]; or a graph, fgl-bench import NODES.csv"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_line_and_nothing_is_written(tables, tmp_path, words, message):
    EDGES.replace("n2", "zz").to_csv("bad.csv", index=False)
    NODES.assign(age=[3, None, 2, 9]).to_csv("gaps.csv", index=False)
    NODES.replace("n9", "n3").to_csv("twice.csv", index=False)
    NODES.assign(age=["3", "1", "unknown", "9"]).to_csv("words.csv", index=False)
    NODES.assign(age=[3, 1, np.inf, 9]).to_csv("far.csv", index=False)
    NODES[:0].to_csv("heading.csv", index=False)
    NODES.replace("x", "Köln").to_csv("latin.csv", index=False, encoding="latin-1")
    (tmp_path / "empty.csv").write_text("\n")
    (tmp_path / "broken.gml").write_text("graph [ node [")
    torch.save(pytest.approx(1), "pickled.pt")
    with pytest.raises(UserError) as caught:
        run(words)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*.npz"))
