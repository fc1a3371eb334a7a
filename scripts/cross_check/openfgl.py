"""Runs one method of OpenFGL on an exported federation; started by ``compare.py`` in a process of its own.

    python scripts/cross_check/openfgl.py JOB SOURCE

``SOURCE`` is a clone that the user has made; nothing in it is changed. What its code needs to run on a current PyTorch and without data
sets of its own is put in its place here: its loader of data sets hands out the exported clients, and ``torch.load`` reads the masks that
this driver has written, with ``weights_only=False`` as older versions did.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import time
import types
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from driving import GCN, Scores, begin_with, drive, graphs, old_scatter, right, store_weights

SEEN_AS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "photo": "Photo", "computers": "Computers", "cs": "CS"}
PLAIN = {"layers.0.weight": "conv0.weight", "layers.1.weight": "conv1.weight", "layers.0.bias": "conv0.bias", "layers.1.bias": "conv1.bias"}


FEDDC = ["algorithm=feddc", "algorithm.alpha=0.1", "algorithm.scaling=none", "algorithm.clip=null", "local_epochs=3"]
FGSSL = ["algorithm=fgssl", "algorithm.structure=edges", "algorithm.structure_temperature=0.1", "local_epochs=3"]
FEDDEP = {
    "model": "graphsage", "ours": ["algorithm=feddep", "algorithm.gen_hidden=[256,2048]", "model=graphsage", "agg_weight=uniform"],
    "deterministic": False, "rounds": 30,
}  # fmt: skip
WHOLE = [f"algorithm.{view}_{part}=0" for view in ("weak", "strong") for part in ("edge_drop", "feature_mask")]

GRAPHS = {
    "model": "gin", "ours": ["task=graph", "algorithm=fedavg", "model=gin", "local_epochs=3", "agg_weight=train"],
    "datasets": ["mutag", "proteins"], "split": "iid", "weights": True,
}  # fmt: skip
LINKS = {"ours": ["task=link", "algorithm=fedavg", "local_epochs=3", "agg_weight=train"], "datasets": ["cora"], "weights": True}
TASKS = {"node": "node_cls", "graph": "graph_cls", "link": "link_pred"}
LAYERS = GCN | {
    "lin1.weight": "pooled.weight", "lin1.bias": "pooled.bias", "lin2.weight": "classifier.weight", "lin2.bias": "classifier.bias",
}  # fmt: skip
for _i in range(2):
    LAYERS |= {
        f"convs.{_i}.eps": f"conv{_i}.epsilon", f"convs.{_i}.nn.0.weight": f"conv{_i}.weight", f"convs.{_i}.nn.0.bias": f"conv{_i}.bias",
        f"convs.{_i}.nn.1.weight": f"conv{_i}.inner_scale", f"convs.{_i}.nn.1.bias": f"conv{_i}.inner_shift",
        f"convs.{_i}.nn.3.weight": f"conv{_i}.out_weight", f"convs.{_i}.nn.3.bias": f"conv{_i}.out_bias",
        f"batch_norms.{_i}.weight": f"conv{_i}.out_scale", f"batch_norms.{_i}.bias": f"conv{_i}.out_shift",
    }  # fmt: skip


MATCHED: dict[str, dict[str, Any]] = {
    "local": {"theirs": "isolate", "ours": ["algorithm=local"]},
    "fedavg": {"ours": ["algorithm=fedavg"]},
    "fedavg_received": {"theirs": "fedavg", "ours": ["algorithm=fedavg", "local_epochs=3"], "evaluated": "received"},
    "fedprox": {"ours": ["algorithm=fedprox", "algorithm.mu=0.001", "local_epochs=3"]},
    "scaffold": {
        "ours": ["algorithm=scaffold", "algorithm.control=option_ii_literal", "algorithm.weighting=samples", "local_epochs=3"],
    },
    "moon": {"ours": ["algorithm=moon", "algorithm.mu=1", "algorithm.temperature=0.5", "local_epochs=3"]},
    "fedgta": {"ours": ["algorithm=fedgta", "algorithm.propagation=openfgl", "local_epochs=3"]},
    "fed_pub": {
        "theirs": "fedpub",
        "ours": ["algorithm=fed_pub", "model.head=linear", "algorithm.tau=10", "algorithm.reg=inert", "local_epochs=3"],
        "deterministic": False,
    },
    "feddc": {"ours": [*FEDDC, "algorithm.control=literal"]},
    "feddc_mean_gradient": {"theirs": "feddc", "ours": FEDDC},
    "fedtad": {"ours": ["algorithm=fedtad", "local_epochs=3"], "deterministic": False, "rounds": 10},
    "fedsage_plus": {
        "model": "graphsage",
        "ours": ["algorithm=fedsage_plus", "algorithm.gen_hidden=[256,2048]", "model=graphsage", "local_epochs=3"],
        "deterministic": False,
        "rounds": 30,
    },
    "feddep": {**FEDDEP, "ours": [*FEDDEP["ours"], "algorithm.initial_missing=null"]},
    "feddep_one_missing": {**FEDDEP, "theirs": "feddep", "change": "one_missing"},
    "adafgl": {"ours": ["algorithm=adafgl"], "deterministic": False},  # where a personal round is one step
    "fedproto": {"ours": ["algorithm=fedproto", "algorithm.term=classes", "algorithm.average=openfgl", "local_epochs=3"]},
    "fedgl": {"ours": ["algorithm=fedgl", "local_epochs=3"]},
    "fedavg_graphs": {"theirs": "fedavg", **GRAPHS},
    "fedavg_graphs_plain_head": {"theirs": "fedavg", "change": "plain_head", **GRAPHS},
    "fedavg_graphs_no_norm": {**GRAPHS, "theirs": "fedavg", "change": "no_norm", "ours": [*GRAPHS["ours"], "model.norm=none"]},
    "fedavg_links": {"theirs": "fedavg", **LINKS},
    "fedavg_links_last_layer": {"theirs": "fedavg", "change": "last_layer", **LINKS},
    "fgssl": {"ours": [*FGSSL, "algorithm.contrast_weight=0", "algorithm.structure_weight=0.1"], "still": WHOLE, "rounds": 10},
    "fgssl_contrast": {
        "theirs": "fgssl",
        "change": "contrast",
        "ours": [*FGSSL, "algorithm.structure_weight=0"],
        "still": WHOLE,
        "rounds": 10,
    },
    "fedgl_normalized": {"theirs": "fedgl", "change": "normalized_propagation", "ours": ["algorithm=fedgl", "local_epochs=3"]},
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Train as the settings say; returns what :func:`watched` counts."""
    args = arguments(importlib.import_module("openfgl.config").args, settings, folder)
    if settings["method"] == "feddep":
        importlib.import_module("torch_geometric.loader").NeighborSampler = NeighborSampler
        importlib.import_module("openfgl.flcore.feddep._utils").HideGraph.__abstractmethods__ = frozenset()  # of newer transforms
        args.num_rounds += 1
    if settings["method"] == "adafgl":  # whose product of a sparse and a dense matrix is a library at a path of its authors
        product = importlib.import_module("openfgl.flcore.adafgl.op")
        product.csr_sparse_dense_matmul = lambda matrix, x: np.asarray(matrix @ x, dtype=np.float32)
    for name, value in settings["config"].items():
        importlib.import_module(f"openfgl.flcore.{settings['method']}.{settings['method']}_config").config[name] = value
    trainer = trainer_of("openfgl.flcore.trainer", args, settings, job, folder)
    initial, plain = np.load(job / "initial.npz"), settings["method"] == "fedgl"  # whose layers multiply by [in, out]
    if settings["exact"] and settings["method"] == "fgssl":
        for client in trainer.clients:
            client.augWeak = client.augStrongF = client.augNone
    if settings["change"]:
        CHANGES[settings["change"]](trainer)
    names = LAYERS if settings["task"] != "node" else PLAIN if plain else GCN
    for owner in (*trainer.clients, trainer.server):
        begin_with(owner.task.model, initial, names, not plain)
    scores = watched(trainer)
    if settings["method"] == "feddep":
        scores = {name: rounds[1:] for name, rounds in scores.items()}
    if settings["task"] != "node":
        store_weights(job, [dict(client.task.model.named_parameters()) for client in trainer.clients], names)
    return scores


class NeighborSampler:
    """PyG's class of this name, which needs a library of its own: mini-batches of nodes, with random neighbors of every layer."""

    def __init__(self, edge_index: Any, sizes: list[int], node_idx: Any, num_nodes: int, batch_size: int, shuffle: bool):
        ends = np.argsort(edge_index[1].numpy(), kind="stable")
        counts = np.bincount(edge_index[1].numpy(), minlength=num_nodes)
        self.neighbors = np.split(edge_index[0].numpy()[ends], np.cumsum(counts)[:-1])
        self.sizes, self.nodes, self.batch_size, self.shuffle = sizes, node_idx.numpy(), batch_size, shuffle

    def __len__(self) -> int:
        return -(-len(self.nodes) // self.batch_size)

    def __iter__(self) -> Any:
        nodes = np.random.permutation(self.nodes) if self.shuffle else self.nodes  # noqa: NPY002 (the generator of their code)
        for start in range(0, len(nodes), self.batch_size):
            batch = known = nodes[start : start + self.batch_size]
            layers = []
            for size in self.sizes:
                drawn = [np.random.permutation(self.neighbors[node])[:size] for node in known]  # noqa: NPY002
                source, target = np.concatenate(drawn), np.repeat(np.arange(len(known)), [len(each) for each in drawn])
                wider = np.concatenate([known, np.setdiff1d(source, known)])
                order = np.argsort(wider)
                edges = torch.from_numpy(np.stack([order[np.searchsorted(wider[order], source)], target]))
                layers.append(Layer(edges, None, (len(wider), len(known))))
                known = wider
            yield len(batch), torch.from_numpy(known), layers[::-1]


class Layer(NamedTuple):
    edge_index: torch.Tensor
    e_id: None
    size: tuple[int, int]

    def to(self, device: Any) -> Layer:
        return self


def arguments(args: Any, settings: dict[str, Any], folder: Path) -> Any:
    """Set the arguments of the command line that their code has parsed on import."""
    values = {
        "root": str(folder),
        "dataset": [SEEN_AS.get(settings["dataset"], "Cora")],
        "fl_algorithm": settings["method"],
        "model": [settings["model"]],
        "num_clients": settings["clients"],
        "num_rounds": settings["rounds"],
        "num_epochs": settings["local_epochs"],
        "use_cuda": settings["cuda"],
        "lr": settings["lr"],
        "weight_decay": settings["weight_decay"],
        "hid_dim": settings["hidden"],
        "num_layers": settings["layers"],
        "dropout": settings["dropout"],
        "metrics": ["auc" if settings["task"] == "link" else "accuracy"],
        "task": TASKS[settings["task"]],
        "seed": settings["seed"],
        "simulation_mode": "subgraph_fl_metis",
    }
    for name, value in values.items():
        setattr(args, name, value)
    return args


def trainer_of(module: str, args: Any, settings: dict[str, Any], job: Path, folder: Path) -> Any:
    """Their trainer on the exported federation, with what their code needs from older versions of PyTorch and of PyG's extensions."""
    old_scatter()
    torch.load = lambda *args, load=torch.load, **more: load(*args, **{"weights_only": False, **more})
    trainer_module = importlib.import_module(module)
    trainer_module.FGLDataset = lambda args: EXPORTED[settings["task"]](job, folder, settings)
    trainer = trainer_module.FGLTrainer(args)
    if settings["task"] != "node":  # clients count by their training graphs or pairs here, not by all
        type(trainer.server.task).num_samples = property(lambda task: int(masks(task)[0].sum()))
    return trainer


def watched(trainer: Any) -> Scores:
    """Train; returns every round's seconds and the right answers of each client's trained model, and of the server's if all receive it."""
    scores: Scores = {"seconds": [], "trained": [], "received": []}
    counts = [[int(mask.sum()) for mask in masks(client.task)[1:]] for client in trainer.clients]
    correct = areas if trainer.args.metrics == ["auc"] else right_answers
    last = time.perf_counter()

    def evaluate() -> None:
        nonlocal last
        scores["trained"].append(
            [correct(client.task.evaluate(mute=True), each) for client, each in zip(trainer.clients, counts, strict=True)]
        )
        scores["seconds"].append(time.perf_counter() - last)
        if not trainer.server.personalized:
            parts = [client.task.splitted_data for client in trainer.clients]
            with contextlib.suppress(Exception):  # a method whose server has no network for this
                scores["received"].append(
                    [correct(trainer.server.task.evaluate(part, mute=True), n) for part, n in zip(parts, counts, strict=True)]
                )
        last = time.perf_counter()

    trainer.evaluate = evaluate
    trainer.train()
    return scores


def masks(task: Any) -> list[torch.Tensor]:
    """Masks of training, validation and test examples."""
    prefix = "" if hasattr(task, "train_mask") else "merged_edge_"
    return [getattr(task, f"{prefix}{part}_mask") for part in ("train", "val", "test")]


def right_answers(answer: dict[str, Any], counts: list[int]) -> list[int]:
    return right((answer["accuracy_val"], answer["accuracy_test"]), counts)


def areas(answer: dict[str, Any], counts: list[int]) -> list[float]:
    """Areas under ROC curves, times the numbers of pairs."""
    return [float(answer[f"auc_{part}"]) * count for part, count in zip(("val", "test"), counts, strict=True)]


class Graphs(list):
    """A data set of theirs: graphs that a mask selects."""

    def __getitem__(self, index: Any) -> Any:
        return [self[int(i)] for i in index.nonzero()] if isinstance(index, torch.Tensor) else super().__getitem__(index)

    def to(self, device: Any) -> Graphs:
        return self


def exported_graphs(job: Path, folder: Path, settings: dict[str, Any]) -> types.SimpleNamespace:
    """Clients with graphs; the server has all of them, one client after the other."""
    place, whole, local = folder / "graph_cls" / "default_split", Graphs(), []
    place.mkdir(parents=True)
    for i in range(settings["clients"]):
        data, masks = graphs(job, i)
        for part, mask in masks.items():
            torch.save(mask, place / f"{part}_{i}.pt")
            (place / f"glb_{part}_{i}.pkl").write_bytes(pickle.dumps((len(whole) + mask.nonzero()[:, 0]).tolist()))
        local.append(Graphs(data))
        whole += data
    for each in (*local, whole):
        each.num_global_classes = int(np.load(job / "global.npz")["num_classes"])
    return types.SimpleNamespace(local_data=local, global_data=whole, processed_dir=str(folder))


def exported_links(job: Path, folder: Path, settings: dict[str, Any]) -> types.SimpleNamespace:
    """Clients with labeled pairs of nodes. The network's last layer is as wide as the embeddings."""
    from torch_geometric.data import Data

    place, local = folder / "link_pred" / "default_split", []
    place.mkdir(parents=True)

    def data(arrays: Any) -> Data:
        x, edges = (torch.from_numpy(arrays[name]) for name in ("x", "edge_index"))
        return Data(x=x.to(torch.get_default_dtype()), edge_index=edges, num_global_classes=settings["hidden"])

    for i in range(settings["clients"]):
        arrays = np.load(job / f"client_{i}.npz")
        local.append(data(arrays))
        tensors = {
            "forward_data": local[-1], "merged_edge_index": arrays["pairs"], "merged_edge_label": arrays["y"].astype(settings["dtype"]),
            **{f"merged_edge_{part}": arrays[part] for part in ("train", "val", "test")},
        }  # fmt: skip
        for name, value in tensors.items():
            torch.save(torch.from_numpy(value) if isinstance(value, np.ndarray) else value, place / f"{name}_{i}.pt")
        torch.save(torch.from_numpy(arrays["nodes"][arrays["pairs"]]), place / f"glb_merged_edge_index_{i}.pkl")
    return types.SimpleNamespace(local_data=local, global_data=data(np.load(job / "global.npz")), processed_dir=str(folder))


def exported(job: Path, folder: Path, settings: dict[str, Any]) -> types.SimpleNamespace:
    """The federation as its loader would hand it out; masks lie in files where its tasks look for them."""
    from torch_geometric.data import Data

    whole = np.load(job / "global.npz")
    classes = int(whole["num_classes"])

    def data(arrays, **more) -> Data:
        x, edges, y = (torch.from_numpy(arrays[name]) for name in ("x", "edge_index", "y"))
        return Data(x=x.float(), edge_index=edges, y=y, num_global_classes=classes, **more)

    masks = folder / "node_cls" / "default_split"
    masks.mkdir(parents=True)
    local = []
    for i in range(settings["clients"]):
        arrays = np.load(job / f"client_{i}.npz")
        for part in ("train", "val", "test"):
            torch.save(torch.from_numpy(arrays[part]), masks / f"{part}_{i}.pt")
            (masks / f"glb_{part}_{i}.pkl").write_bytes(pickle.dumps(arrays["nodes"][arrays[part]].tolist()))
        local.append(data(arrays, global_map=dict(enumerate(arrays["nodes"].tolist()))))
    return types.SimpleNamespace(local_data=local, global_data=data(whole), processed_dir=str(folder))


EXPORTED = {"node": exported, "graph": exported_graphs, "link": exported_links}


def normalized_propagation(trainer) -> None:
    """FedGL's network propagates by the plain adjacency matrix; here by GCN's."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.utils import to_torch_csr_tensor

    def operator(data):
        return to_torch_csr_tensor(*gcn_norm(data.edge_index, None, data.num_nodes))

    for client in trainer.clients:
        client.adj = operator(client.task.data)
        client.task.splitted_data["data"].adj = client.adj
    trainer.server.task.splitted_data["data"].adj = operator(trainer.server.task.data)


def plain_head(trainer) -> None:
    """Between readout and classifier no normalization over graphs."""
    for owner in (*trainer.clients, trainer.server):
        owner.task.model.batch_norm1 = torch.nn.Identity()


def no_norm(trainer) -> None:
    """No normalization at all."""
    plain_head(trainer)
    for owner in (*trainer.clients, trainer.server):
        model = owner.task.model
        for i, conv in enumerate(model.convs):
            conv.nn[1] = model.batch_norms[i] = torch.nn.Identity()


def last_layer(trainer) -> None:
    """Embeddings are the last convolution's; theirs are the hidden units before it, and the last convolution is not trained."""
    for owner in (*trainer.clients, trainer.server):
        model = owner.task.model
        model.forward = lambda data, forward=model.forward: forward(data)[::-1]


def contrast(trainer) -> None:
    """FGSSL's contrast, which is computed and left out of the loss, in the place of the structure term.

    It is of representations, as in the authors' network, whose two outputs come in the other order.
    """
    module, computed, inside = importlib.import_module("openfgl.flcore.fgssl.client"), [], []

    class Term:
        def __mul__(self, weight: float) -> torch.Tensor:
            return 3 * computed[-2]  # of the received and the trained model; the last is of two views of the trained one

    def keep(module: torch.nn.Module, given: Any, loss: torch.Tensor) -> None:
        computed.append(loss)

    def other_order(module: torch.nn.Module, given: Any, outputs: tuple) -> tuple:
        return outputs[::-1] if inside else outputs

    def watched_loss(make: Any) -> Any:
        def loss(*arguments: Any) -> torch.Tensor:
            inside.append(True)
            value = make()(*arguments)
            inside.clear()
            computed.clear()
            return value

        return lambda: loss

    module.edge_distribution_high = lambda *_: Term()
    for client in trainer.clients:
        client.contrast_model.register_forward_hook(keep)
        client.get_custom_loss_fn = watched_loss(client.get_custom_loss_fn)
        for model in (client.task.model, client.global_model):
            model.register_forward_hook(other_order)


def one_missing(trainer) -> None:
    """FedDEP's generators begin with about one missing neighbor of every node."""
    predictor = importlib.import_module("openfgl.flcore.feddep.localdep").NumPredictor
    begin = predictor.__init__

    def first(self: Any, latent_dim: int) -> None:
        begin(self, latent_dim)
        torch.nn.init.ones_(self.reg_1.bias)

    predictor.__init__ = first


CHANGES = {
    "normalized_propagation": normalized_propagation, "plain_head": plain_head, "no_norm": no_norm, "last_layer": last_layer,
    "contrast": contrast, "one_missing": one_missing,
}  # fmt: skip

if __name__ == "__main__":
    drive(train)
