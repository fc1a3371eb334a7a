"""FedGTA's tables: what rows with backbones and strategies compose to."""

from __future__ import annotations

import dataclasses

import pytest

from fgl_bench.config.compose import Composer
from fgl_bench.config.groups import build
from fgl_bench.papers.plan import load_paper, plan

pytestmark = pytest.mark.audit

TABLES = {table.key: table for table in load_paper("fedgta").tables}
SOME = {
    "3": ("gcn_disjoint", "gamlp_fedgta"),
    "3_wide": ("gamlp_fedgta",),
    "6_small": ("gamlp_default", "sgc_without_moments"),
    "5": ("fedgl_with_fedgta",),
    "4": ("s2gc_moon",),
    "6": ("graphsage_without_confidence",),
}


@pytest.fixture(scope="module")
def found():
    """One cell of each of these rows, and what its command composes to."""
    narrowed = []
    for key, rows in SOME.items():
        table, last = TABLES[key], slice(0, 1) if key in ("3", "6_small") else slice(-1, None)
        narrowed.append(dataclasses.replace(table, rows=tuple(r for r in table.rows if r.key in rows), columns=table.columns[last]))
    composed = Composer()
    return {(c.table, c.row.key): (c, composed(c.overrides)) for c in plan(narrowed)}


def test_what_the_cells_are(found):
    cfg = {key: composed for key, (_, composed) in found.items()}
    assert cfg["3", "gamlp_fedgta"] == cfg["6_small", "gamlp_default"]
    assert cfg["3", "gcn_disjoint"].algorithm.graph == "disjoint" and not cfg["3", "gcn_disjoint"].split.inductive
    wide = cfg["3_wide", "gamlp_fedgta"]
    assert (wide.model.hidden, wide.local_epochs, wide.num_clients, wide.split.backend) == (256, 5, 10, "igraph")
    assert cfg["6_small", "sgc_without_moments"].algorithm.moments == "none"
    combined = cfg["5", "fedgl_with_fedgta"]
    assert type(build(combined.algorithm).server).__name__ == "FedGTA" and combined.split._target_.endswith("Metis")
    assert combined.split.inductive and combined.dataset.name == "reddit" and combined.local_epochs == 5
    assert cfg["4", "s2gc_moon"].split.inductive and "hidden" not in cfg["4", "s2gc_moon"].model
    without = cfg["6", "graphsage_without_confidence"]
    assert without.algorithm.weights == "samples" and without.split._target_.endswith("Metis") and without.model.hidden == 256
    assert all(c.rounds == 100 and list(c.seeds) == [0, 1, 2, 3, 4] and list(c.split.per_seed) == [] for c in cfg.values())
