"""Every promise of a backbone or a split has a faulty class that breaks it, and the package's own keep them all."""

from __future__ import annotations

import re

import pytest

from fgl_bench.cli.check import examine
from fgl_bench.config.choices import config_folder
from fgl_bench.errors import UserError
from tests.cli.check.test_methods import broken

MODELS, SPLITS = (sorted(path.stem for path in (config_folder() / group).glob("[!_]*.yaml")) for group in ("model", "split"))
# ---- backbones

BACKBONE = """
from dataclasses import dataclass

import torch

from fgl_bench.engine.batch import gcn_operator, plain_operator
from fgl_bench.engine.layout import ParameterLayout
from fgl_bench.engine.network import Output
from fgl_bench.models.base import Backbone


@dataclass
class Own(Backbone):
    hidden: int
    dropout: float

    def layout(self, num_features, num_classes):
        shapes = {{"first.weight": (num_features, self.hidden), "last.weight": (self.hidden, num_classes)}}
        return ParameterLayout(shapes, inputs=("first.weight",))

    def first(self, parameters, batch):
        return batch.operator(gcn_operator) @ (batch.features @ parameters["first.weight"])

    def forward(self, parameters, batch, first, dropout):
        hidden = dropout(torch.relu(first))
        {line}
        return Output(hidden, logits)
{more}
"""
PLAIN = "logits = hidden @ parameters['last.weight']"
OTHER_SHAPES = """
    def init_parameters(self, layout, generator):
        return {name: torch.ones(shape[::-1], dtype=torch.float64) for name, shape in layout.shapes.items()}
"""
INFINITE = """
    def init_parameters(self, layout, generator):
        return {name: torch.full(shape, torch.inf, dtype=torch.float64) for name, shape in layout.shapes.items()}
"""
CHAINS = """
    def chain(self, layout):
        return [("first.weight",)]
"""
BACKBONES = {
    "sound": (PLAIN, "", None),
    "looks_at_other_clients": (
        f"{PLAIN}; logits = logits - logits.mean(0, keepdim=True)",
        "",
        "a client alone equals the client among others",
    ),
    "counts_padding": (f"{PLAIN}; logits = logits + hidden.shape[1]", "", "padding changes nothing: client 1 without padding"),
    "divides_by_degree": (
        f"{PLAIN}; logits = logits / batch.degree[..., None]",
        "",
        "outputs are finite, of isolated nodes too: logits of node 0 of client 0, which has no edges",
    ),
    "draws_by_itself": (f"{PLAIN}; logits = torch.nn.functional.dropout(logits)", "", "a repeated pass gives the same numbers"),
    "draws_while_it_trains": (
        f"{PLAIN}; logits = logits if dropout.__class__.__name__ == 'function' else torch.nn.functional.dropout(logits)",
        "",
        "randomness comes from the given dropout alone: the same keys",
    ),
    "forgets_a_parameter": (
        "logits = hidden @ parameters['last.weight'].detach()",
        "",
        "finite gradients reach every parameter: no gradient reaches the parameter last.weight",
    ),
    "steep": (
        f"{PLAIN}; logits = logits + torch.sqrt(logits - logits.detach())",
        "",
        "finite gradients reach every parameter: the gradient of the parameter",
    ),
    "answers_hidden": ("logits = hidden", "", "outputs have their shapes: logits are [4, 40, 8]; expected [k, n, Y] = [4, 40, 3]"),
    "answers_flat": (f"{PLAIN}; hidden = hidden.flatten(0, 1)", "", "outputs have their shapes: hidden is [160, 8]"),
    "initialises_other_shapes": (
        PLAIN,
        OTHER_SHAPES,
        "parameters are as layout() says: init_parameters() gives first.weight of shape [8, 16]; layout() has [16, 8]",
    ),
    "initialises_infinity": (PLAIN, INFINITE, "parameters are as layout() says: init_parameters() gives numbers that are not finite"),
    "chains_a_part": (PLAIN, CHAINS, "parameters are as layout() says: chain() names first.weight"),
    "uses_another_s_model": (
        f"{PLAIN}; mean = parameters['last.weight'].mean(); logits = logits + mean - mean.detach()",
        "",
        "clients do not see each other's models: the output of client 0 depends on the model of client 1",
    ),
}


@pytest.mark.parametrize("name", BACKBONES)
def test_a_faulty_backbone_is_refused(name, tmp_path, capsys):
    line, more, words = BACKBONES[name]
    path = tmp_path / f"own_net_{name}.py"
    path.write_text(BACKBONE.format(line=line, more=more), encoding="utf-8")
    status = examine(str(path), ["model.dropout=0.3"])
    said = capsys.readouterr().out
    if words is None:
        assert status == 0 and said.endswith("Own: keeps all promises\n"), said
    else:
        assert status == 1 and any(line.startswith(words) for line in broken(said)), said


SOON = ("gcn", "gat", "sign", "unifilter")


@pytest.mark.parametrize("name", [name if name in SOON else pytest.param(name, marks=pytest.mark.nightly) for name in MODELS])
def test_the_package_s_backbones_keep_all_promises(name, capsys):
    assert examine(f"model/{name}", []) == 0, capsys.readouterr().out


# ---- splits

SPLIT = """
from dataclasses import dataclass

import numpy as np

from fgl_bench.data.splits.base import Split


@dataclass
class Own(Split):
    def assign(self, graph, num_clients, seed):
        rng = np.random.default_rng(seed)
        parts = [np.sort(part) for part in np.array_split(rng.permutation(graph.num_nodes), num_clients)]
        {line}
"""
OWN_SPLITS = {
    "sound": ("return parts", None),
    "one_too_many": ("return [*parts, parts[0]]", "there are as many clients as asked for, none empty: there are 11 clients, not 10"),
    "an_empty_one": ("return [*parts[1:], parts[0][:0]]", "there are as many clients as asked for, none empty: client 9 has no node"),
    "out_of_range": (
        "return [part + 1 for part in parts]",
        "clients have ascending ids of nodes, none twice: client . has a node outside 0 to 159",
    ),
    "twice": (
        "return [np.sort(np.r_[part, part[:1]]) for part in parts]",
        "clients have ascending ids of nodes, none twice: client 0 has a node twice",
    ),
    "unsorted": (
        "return [part[::-1] for part in parts]",
        "clients have ascending ids of nodes, none twice: the nodes of client 0 are not ascending",
    ),
    "no_ids": ("return [part / 2 for part in parts]", "clients have ascending ids of nodes, none twice: client 0 has an array of float64"),
    "dice": ("return [parts[i] for i in np.random.permutation(num_clients)]", "the same seed gives the same clients"),
}


@pytest.mark.parametrize("name", OWN_SPLITS)
def test_a_faulty_split_is_refused(name, tmp_path, capsys):
    line, words = OWN_SPLITS[name]
    path = tmp_path / f"own_split_{name}.py"
    path.write_text(SPLIT.format(line=line), encoding="utf-8")
    status = examine(str(path), [])
    said = capsys.readouterr().out
    if words is None:
        assert status == 0 and said.endswith("Own: keeps all promises\n"), said
    else:
        assert status == 1 and any(re.match(words, line) for line in broken(said)), said


@pytest.mark.parametrize("name", SPLITS)
def test_the_package_s_splits_keep_all_promises(name, capsys):
    assert examine(f"split/{name}", []) == 0
    said = capsys.readouterr().out
    assert ("nodes have no client" in said) == name.endswith("_overlap")


def test_other_groups_are_not_tried():
    with pytest.raises(UserError, match="is a choice of dataset; check tries choices of algorithm, model, split"):
        examine("dataset/cora", [])
    with pytest.raises(UserError, match=r"did you mean algorithm/fedprox\b"):
        examine("fedprx", [])
