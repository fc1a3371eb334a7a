"""Predictions of saved models: they give the run's scores, and scikit-learn's class scores and confusion matrix."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf
from scipy import sparse
from sklearn.metrics import confusion_matrix as counted
from sklearn.metrics import precision_recall_fscore_support

import fgl_bench
from fgl_bench import UserError, class_scores, confusion_matrix, embeddings, predict, predictions
from fgl_bench.cli import plot
from fgl_bench.results.plots import figures
from fgl_bench.runner.run import federations_of
from tests.warm import command

TINY = {"dataset__num_nodes": 200, "dataset__num_edges": 500, "num_clients": 4, "rounds": 4, "seeds": [0, 2], "lr": 0.05}


def made(folder, method="fedavg", **more):
    return fgl_bench.run(method, "csbm", results_dir=folder, **{**TINY, "keep_models": "best", **more})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("model", ["received", "trained"])
def test_predictions_give_the_scores_of_the_run(run, model):
    rows = predictions(run, model)
    assert list(rows.columns) == ["seed", "client", "node", "part", "label", "predicted", "probability"]
    assert rows.groupby("seed")["node"].nunique().tolist() == [200, 200]
    test = rows[rows["part"] == "test"]
    right = (test["label"] == test["predicted"]).groupby(test["seed"]).mean()
    assert right.tolist() == pytest.approx(run.summary["test"][model]["per_seed"])
    by_client = (test["label"] == test["predicted"]).groupby([test["seed"], test["client"]]).mean()
    assert by_client[0].tolist() == pytest.approx(run.summary["test"][model]["per_client"][0])


def test_clients_with_backbones_of_their_own_predict_with_them(tmp_path):
    run = made(tmp_path, "local", model=["gcn", "graphsage"])
    rows = predictions(run)
    right = (rows["label"] == rows["predicted"])[rows["part"] == "test"].groupby([rows["seed"], rows["client"]]).mean()
    assert right.tolist() == pytest.approx(np.concatenate(run.summary["test"]["trained"]["per_client"]).tolist())
    assert embeddings(run).shape[0] == len(rows)
    for client in range(4):
        own = of_client(run, 2, client)
        again = predict(run, {"x": own.features, "edge_index": own.edges}, seed=2, client=client, model="trained")
        assert again.argmax(1).tolist() == rows[(rows["seed"] == 2) & (rows["client"] == client)]["predicted"].tolist()


def test_class_scores_and_the_matrix_are_those_of_scikit_learn(run):
    test = predictions(run).query("part == 'test'")
    classes = list(range(run.summary["graph"]["classes"]))
    assert np.array_equal(confusion_matrix(run), counted(test["label"], test["predicted"], labels=classes))
    expected = precision_recall_fscore_support(test["label"], test["predicted"], labels=classes, zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert class_scores(run)[name].tolist() == pytest.approx(values.tolist())


def test_embeddings_are_those_that_the_last_layer_reads(tmp_path):
    run = made(tmp_path, model="mlp")
    rows, hidden = predictions(run), embeddings(run)
    assert hidden.shape == (len(rows), run.summary["config"]["model"]["hidden"])
    last = fgl_bench.load_models(run.folder)[2][1]["trained"]
    mine = ((rows["seed"] == 2) & (rows["client"] == 1)).to_numpy()
    logits = hidden[mine] @ last["linear1.weight"].numpy() + last["linear1.bias"].numpy()
    assert np.array_equal(logits.argmax(1), rows["predicted"][mine])


def test_methods_with_their_own_way_to_predict(tmp_path):
    run = made(tmp_path, "fed_pub")
    test = predictions(run).query("part == 'test'")
    assert (test["label"] == test["predicted"]).groupby(test["seed"]).mean().tolist() == pytest.approx(
        run.summary["test"]["trained"]["per_seed"]
    )
    with pytest.raises(UserError, match="fed_pub does not predict by the network alone"):
        embeddings(run)


def test_a_user_s_ids_and_classes_keep_their_names_and_new_nodes_are_scaled_as_the_old_ones(tmp_path):
    draw = np.random.default_rng(0)
    kind = draw.integers(0, 2, 80)
    y = np.array(["red", "blue"])[kind]
    y[70:] = ""
    x = np.stack([5e4 + 2e4 * kind, draw.random(80)], 1)
    graph = {"x": x, "edge_index": draw.integers(0, 80, (2, 10)), "y": y, "id": np.array([f"n{i}" for i in range(80)])}
    path = tmp_path / "graph.npz"
    np.savez(path, **graph)
    words = {"split": "iid", "num_clients": 2, "rounds": 30, "seeds": [0], "keep_models": "best", "results_dir": str(tmp_path / "runs")}
    result = fgl_bench.run("fedavg", "custom", dataset__path=str(path), dataset__standardize=True, **words)
    rows = predictions(result)
    assert (rows["id"] == "n" + rows["node"].astype(str)).all()
    assert rows["label_name"].tolist() == y[rows["node"]].tolist()
    assert ((rows["predicted"] == 0) == (rows["predicted_name"] == "blue")).all(), "classes are in sorted order"
    assert rows["probability"].between(0.5, 1).all()
    done = command(tmp_path, "predict", str(result.folder), str(path), "out=new.csv")
    assert done.returncode == 0, done.stderr
    new = pd.read_csv(tmp_path / "new.csv")
    assert new["id"].tolist() == graph["id"].tolist()
    assert (new["predicted_name"] == np.array(["red", "blue"])[kind]).mean() > 0.9, "without the old nodes' scale all would be one class"


def test_what_cannot_be_predicted_is_one_line(tmp_path):
    with pytest.raises(UserError, match="this run has no saved models; repeat it with keep_models=final"):
        predictions(made(tmp_path, keep_models="none"))
    with pytest.raises(UserError, match="predictions need clients with test nodes and one class per node"):
        predictions(made(tmp_path, split="iid_server"))
    with pytest.raises(UserError, match="the saved models do not predict by themselves; fedproto needs more"):
        predictions(made(tmp_path, "fedproto", algorithm__prediction="prototypes"))
    with pytest.raises(UserError, match="model=both: must be one of received, trained"):
        predictions(made(tmp_path), "both")


@pytest.mark.parametrize(
    ("kind", "title"), [("confusion", "received model, test nodes"), ("tsne", "received model, test examples, seed 0, t-SNE")]
)
def test_the_command_draws_one_run(run, tmp_path, kind, title):
    done = command(tmp_path, "plot", kind, str(run.folder), "model_of=received", "out=one.svg")
    assert done.returncode == 0 and title in (tmp_path / "one.svg").read_text(encoding="utf-8"), done.stderr
    for words, message in (((), f"plot {kind} of which run?"), ((str(run.folder), "model_of=all"), "model=all: must be one of")):
        wrong = command(tmp_path, "plot", kind, *words)
        assert wrong.returncode != 0 and message in wrong.stderr and "Traceback" not in wrong.stderr


def test_tsne_places_the_embedding_of_each_test_node(run, monkeypatch):
    """The points, classes and clients of a figure belong together, also where some nodes are drawn."""
    monkeypatch.setattr(plot, "MOST_POINTS", 20)
    monkeypatch.setattr(figures, "planar", lambda points: points)
    monkeypatch.setattr(figures, "tsne_figure", lambda *parts: parts)
    points, classes, clients, title = plot.tsne(run, "trained")()
    rows, hidden = predictions(run), embeddings(run)
    test = rows[(rows["part"] == "test") & (rows["seed"] == rows["seed"].min())]
    known = {hidden[i].tobytes(): (rows["label"][i], rows["client"][i]) for i in test.index}
    assert len(points) == 20 and f"20 of {len(test)} test examples" in title
    for point, label, client in zip(points, classes, clients, strict=True):
        assert known[point.tobytes()] == (label, client)


def of_client(run, seed, client):
    configuration = OmegaConf.load(run.folder / "config.yaml")
    (federation,) = [each for each in federations_of(configuration) if each.seed == seed]
    return federation.clients[client]


@pytest.mark.parametrize("settings", [{}, {"model": "graphsage"}, {"dataset__normalize_features": True}], ids=str)
@pytest.mark.parametrize("model", ["received", "trained"])
def test_another_graph_is_predicted_by_a_saved_model(tmp_path, settings, model):
    """The client's own subgraph as if it were new: the answers of predictions(); more nodes and edges change the others' only nearby."""
    run = made(tmp_path, **settings)
    own = of_client(made(tmp_path, **{**settings, "dataset__normalize_features": False}), 2, 3)
    graph = {"x": own.features, "edge_index": own.edges}
    probabilities = predict(run, graph, seed=2, client=3, model=model)
    rows = predictions(run, model)
    assert probabilities.argmax(1).tolist() == rows[(rows["seed"] == 2) & (rows["client"] == 3)]["predicted"].tolist()
    assert probabilities.sum(1) == pytest.approx(np.ones(own.num_nodes), abs=1e-5) and probabilities.min() >= 0
    alone = {"x": sparse.vstack([own.features, own.features[:1]]), "edge_index": own.edges[:, ::2]}
    assert predict(run, alone, seed=2, client=3).shape == (own.num_nodes + 1, run.summary["graph"]["classes"])


def test_what_cannot_be_predicted_is_refused(run, tmp_path):
    fits = {"x": np.ones((3, run.summary["graph"]["features"])), "edge_index": np.zeros((2, 0))}
    assert predict(run, fits).shape[0] == 3
    outside, lists = {**fits, "edge_index": np.array([[0], [3]])}, {"x": [[1.0]], "edge_index": fits["edge_index"]}
    for wrong in (
        {"x": np.ones((3, 4)), "edge_index": np.zeros((2, 0))},
        {"x": fits["x"]},
        {**fits, "edge_index": np.zeros(3)},
        outside,
        lists,
        {**fits, "x": fits["x"].astype(str)},
        {**fits, "id": np.array(["a"])},
        pd.DataFrame({"x": [1.0]}),
    ):
        with pytest.raises(UserError, match=r"graph: must have x \[N, 1433\] and edge_index"):
            predict(run, wrong)
    with pytest.raises(UserError, match="graph: x has values that are not finite"):
        predict(run, {**fits, "x": np.where(np.eye(*fits["x"].shape), np.nan, fits["x"])})
    sparse_x = torch.from_numpy(fits["x"]).to_sparse()
    assert np.array_equal(predict(run, {**fits, "x": sparse_x}), predict(run, fits))
    with pytest.raises(UserError, match="client 9"):
        predict(run, fits, client=9)
    with pytest.raises(UserError, match="more than the backbone"):
        predict(made(tmp_path, "fed_pub"), fits)
    with pytest.raises(UserError, match="no saved models"):
        predict(made(tmp_path, keep_models="none", rounds=1), fits)
