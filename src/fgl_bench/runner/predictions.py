"""Predictions of the saved models of a run, and what follows from them: embeddings, scores of classes, confusion matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from scipy.special import softmax

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.algorithms.powers import federated
from fgl_bench.data.canonical import canonical_edges, canonical_features
from fgl_bench.data.datasets.custom import Part, part_of
from fgl_bench.data.federation import ServerFederation
from fgl_bench.data.graph import ClientGraph, Federation, Graph
from fgl_bench.data.import_graph import read
from fgl_bench.data.own import arrays_of
from fgl_bench.data.pooling import Pooled
from fgl_bench.data.raw import data_root, one_line
from fgl_bench.engine.batch import Batch
from fgl_bench.engine.dropout import no_dropout
from fgl_bench.errors import UserError, require_choice
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.models._mixed import Mixed
from fgl_bench.results.frame import Result
from fgl_bench.results.saved_models import load_models
from fgl_bench.runner.build import DTYPES, simulation
from fgl_bench.runner.memory import network
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import resolve

if TYPE_CHECKING:
    from pandas import DataFrame


class Predicted(NamedTuple):
    """The saved models of one seed on the graphs that are scored.

    Attributes:
        logits: ``[C, n, Y]``; None if the saved models do not fit the network, or the method predicts by more than a model.
        hidden: ``[C, n, h]``, the representation before the last layer; None if the method does not predict by the network alone.
    """

    federation: Federation
    batch: Batch
    logits: np.ndarray | None
    hidden: np.ndarray | None


def predicted(cfg: DictConfig, folder: Path, model: str) -> Iterator[Predicted]:
    """Yield the seeds of a run with saved models; nothing for pooled clients.

    Args:
        cfg: configuration of the run.
        model: ``received`` or ``trained``.
    """
    spec, device, models = resolve(cfg), torch.device("cpu"), load_models(folder)
    for federation in prepare(spec):
        own = federated(spec.fresh_algorithm(), [federation])
        if isinstance(own[0], Pooled):
            return
        if not own[0].clients[0].of_nodes:  # training and evaluation each compute a part of the examples
            own = [replace(each, observed=each.clients) for each in own]
        what = (spec.settings, own, network(spec, own, device), spec.fresh_algorithm(), device, spec.rounds, spec.trips)
        trainer = simulation(*what, None, spec.scenario.drops_uploads, spec.optimizer).trainer
        batch, layout, saved = trainer.evaluation, trainer.layout, models.get(federation.seed, {})
        each = [saved.get(client, {}).get(model, {}) for client in range(batch.size)]
        fit = all({name: tuple(x.shape) for name, x in one.items()} == layout.of(client).shapes for client, one in enumerate(each))
        if not fit or not trainer.algorithm.predicts_alone:
            yield Predicted(own[0], batch, None, None)
            continue
        rows = torch.zeros(batch.size, layout.size, dtype=batch.dtype)
        for client, one in enumerate(each):
            row = layout.of(client).pack(one)
            rows[client, : len(row)] = row
        parameters = layout.views(rows)
        with torch.no_grad():
            first = trainer.model.first(parameters, batch)
            logits = trainer.algorithm.predict(trainer.model, parameters, batch, first)
            plain = type(trainer.algorithm).predict is Algorithm.predict
            hidden = trainer.model.forward(parameters, batch, first, no_dropout).hidden.numpy() if plain else None
        yield Predicted(own[0], batch, logits.numpy(), hidden)


def of_run(result: Result, model: str) -> Iterator[tuple[Predicted, np.ndarray]]:
    """Yield the seeds of a run, each with its logits.

    Raises:
        UserError: the run has no saved models, or predicts otherwise than by a client's model for one class per node of its own.
    """
    require_choice("model", model, MODELS)
    seeds = list(predicted(OmegaConf.load(result.folder / "config.yaml"), result.folder, model))  # type: ignore[arg-type]
    if not seeds or isinstance(seeds[0].federation, ServerFederation) or seeds[0].federation.clients[0].labels.ndim > 1:
        raise UserError(f"{result.folder}: predictions need clients with test nodes and one class per node")
    for seed in seeds:
        if seed.logits is None:
            raise UserError(f"{result.folder}: the saved models do not predict by themselves; {result.summary['algorithm']} needs more")
        yield seed, seed.logits


def predictions(result: Result, model: str = "trained") -> DataFrame:
    """Return one row per seed, client and example (node) of a run with saved models (``keep_models=best`` or ``final``).

    Columns are ``seed``, ``client``, ``node`` (its number in the whole graph), ``part`` (``train``, ``val``, ``test`` or ``none``),
    ``label``, ``predicted`` and ``probability`` (of the predicted class). Examples without a label have label -1. If the user's graph names
    its nodes or classes, columns ``id``, ``label_name`` and ``predicted_name`` follow.

    Args:
        model: ``received`` or ``trained``.

    Raises:
        UserError: the run has no saved models, or they do not predict one class per node of a client.
    """
    import pandas as pd

    frames = []
    for seed, logits in of_run(result, model):
        for number, client in enumerate(seed.federation.clients):
            ids = client.example_ids
            part = np.select([client.train, client.val, client.test], ["train", "val", "test"], "none")
            own = softmax(logits[number, : len(ids)], axis=-1)
            columns: dict[str, Any] = {"seed": seed.federation.seed, "client": number, "node": ids, "part": part}
            columns |= {"label": client.labels, "predicted": own.argmax(-1), "probability": own.max(-1)}
            frames.append(pd.DataFrame(columns))
    rows = pd.concat(frames, ignore_index=True)
    if not client.of_nodes:
        return rows
    graph = graph_of(result)
    return named(rows, graph.node_ids, graph.class_names)


def named(rows: DataFrame, ids: np.ndarray | None, classes: Sequence[str]) -> DataFrame:
    """Add the names of nodes and classes in the data, where they have any."""
    if ids is not None:
        rows["id"] = np.asarray(ids)[rows["node"]]
    for name in ("label", "predicted") if classes else ():
        if name in rows:
            rows[f"{name}_name"] = np.array([*classes, ""])[rows[name]]  # -1 is the last
    return rows


def graph_of(result: Result) -> Graph:
    """Return the graph of a run; raises UserError if its files are absent."""
    spec = resolve(OmegaConf.load(result.folder / "config.yaml"))  # type: ignore[arg-type]
    return spec.dataset.load(spec.settings.data_dir)


def unlabeled(graph: Any, columns: int) -> Part:
    """Check a graph to predict; labels are not read.

    Raises:
        UserError: it has no features ``[N, columns]`` of finite numbers, or edges of other nodes.
    """
    wanted = f"graph: must have x [N, {columns}] and edge_index [2, E] with nodes from 0 to N - 1"
    try:
        content = arrays_of(graph).content
        count = int(content["x"].shape[0] if "x" in content else content["x_shape"][0])
        part, _ = part_of({**content, "y": np.zeros(count, dtype=np.int64)}, "graph")
    except (UserError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise UserError(f"{wanted} ({one_line(error)}); fgl-bench import makes a file of tables") from None
    if part.features.shape[1] != columns:
        raise UserError(wanted)
    if not np.isfinite(part.features.sum(dtype=np.float64)):
        raise UserError("graph: x has values that are not finite")
    return part


def predictions_for(result: Result, path: Path, **options: Any) -> DataFrame:
    """Return ``node``, ``predicted``, ``probability`` and names as in :func:`predictions` for the nodes of a graph in a file.

    Args:
        path: a file that ``fgl_bench.graph`` reads, with the columns of x of the run.
        options: of :func:`predict`.

    Raises:
        UserError: as :func:`predict`; or the file cannot be read.
    """
    import pandas as pd

    graph = read(path)
    own = predict(result, graph, **options)
    rows = pd.DataFrame({"node": range(len(own)), "predicted": own.argmax(1), "probability": own.max(1)})
    return named(rows, arrays_of(graph).content.get("id"), graph_of(result).class_names)


def embeddings(result: Result, model: str = "trained") -> np.ndarray:
    """Return the representations before the last layer, ``[rows, h]`` in the order of :func:`predictions`.

    Raises:
        UserError: as :func:`predictions`; or the method does not predict by the network alone.
    """
    rows = []
    for seed, _ in of_run(result, model):
        if seed.hidden is None:
            raise UserError(f"{result.folder}: {result.summary['algorithm']} does not predict by the network alone; it has no embeddings")
        rows += [seed.hidden[number, : len(client.example_ids)] for number, client in enumerate(seed.federation.clients)]
    return np.concatenate(rows)


def confusion_matrix(result: Result, model: str = "trained") -> DataFrame:
    """Return the numbers of test examples by ``label`` (row) and ``predicted`` class (column), over all clients and seeds.

    Raises:
        UserError: as :func:`predictions`.
    """
    import pandas as pd

    test = predictions(result, model).query("part == 'test'")
    classes = range(result.summary["graph"]["classes"])
    return pd.crosstab(test["label"], test["predicted"]).reindex(index=classes, columns=classes, fill_value=0)


def class_scores(result: Result, model: str = "trained") -> DataFrame:
    """Return ``precision``, ``recall``, ``f1`` and ``support`` of every class from :func:`confusion_matrix`; 0 where a ratio is 0 / 0.

    Raises:
        UserError: as :func:`predictions`.
    """
    import pandas as pd

    counts = confusion_matrix(result, model)
    right, support, answers = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    scores = {"precision": right / answers, "recall": right / support, "f1": 2 * right / (support + answers)}
    return pd.DataFrame(scores).fillna(0.0).assign(support=support).rename_axis("label")


def predict(result: Result, graph: Any, *, seed: int | None = None, client: int = 0, model: str = "received") -> np.ndarray:
    """Return the class probabilities ``[N, Y]`` of the nodes of another graph, such as new nodes, by a saved model.

    Args:
        result: a run with saved models (``keep_models=best`` or ``final``).
        graph: ``{"x": [N, F], "edge_index": [2, E]}``, a PyG ``Data`` or a networkx graph; the columns of x are those of the run. Labels
            are not read.
        seed: one of the run's, by default the first.
        client: whose model; with methods such as FedAvg all clients receive the same one.
        model: ``received`` or ``trained``.

    Raises:
        UserError: the run has no such model, the method predicts by more than the backbone, or the graph does not fit it.
    """
    require_choice("model", model, MODELS)
    cfg: Any = OmegaConf.load(result.folder / "config.yaml")
    spec = resolve(cfg)
    own, trained_on = type(spec.algorithm), prepare(spec)[0]
    of_classes = trained_on.clients[0].of_nodes and trained_on.clients[0].labels.ndim == 1
    if own.predict is not Algorithm.predict or own.backbone is not Algorithm.backbone or not of_classes:
        raise UserError(f"{result.summary['algorithm']}: predicts by more than the backbone, or not one class per node")
    seed = trained_on.seed if seed is None else seed
    saved = load_models(result.folder).get(seed, {}).get(client, {}).get(model)
    if saved is None:
        raise UserError(f"{result.folder}: has no saved {model} model of seed {seed} and client {client}")
    part = unlabeled(graph, trained_on.num_features)
    features = spec.dataset.scaled(canonical_features(part.features), data_root(spec.settings.data_dir))
    none, edges = np.zeros(len(part.labels), dtype=bool), canonical_edges(part.edges[0], part.edges[1], len(part.labels))
    new = ClientGraph(np.arange(none.size), features, edges, np.full(none.size, -1), none, none, none)
    batch, rows = Batch([new], DTYPES[cfg.dtype], "cpu"), {name: value[None] for name, value in saved.items()}
    backbone = spec.model
    if isinstance(spec.model, Mixed):
        backbone = spec.model.backbones[spec.model.dealt(seed, trained_on.num_clients)[client]]
    network = backbone.settle([new], trained_on.num_classes, batch.device, 1, None, lambda copies: True)
    with torch.no_grad():
        return network.forward(rows, batch, network.first(rows, batch), no_dropout).logits[0].softmax(-1).numpy()
