"""FedSSA's rows whose settings depend on the column."""

from __future__ import annotations

from typing import Any

import pytest

from fgl_bench.config.compose import Composer
from fgl_bench.papers.plan import Key, load_paper, plan

pytestmark = pytest.mark.audit

PAPER = load_paper("fedssa")
PLANNED = {cell.key: cell.overrides for cell in plan(PAPER.tables)}


@pytest.fixture(scope="module")
def composed() -> Composer:
    return Composer()


def test_fed_pub_is_sharper_among_overlapping_clients_and_all_have_its_authors_weight_decay(composed: Composer) -> None:
    disjoint, overlapping, other = (
        composed(PLANNED[key])
        for key in (("1", "fed_pub", "cora, 5 clients"), ("6", "fed_pub", "cora, 30 clients"), ("1", "fedper", "cora, 5 clients"))
    )
    assert (disjoint.algorithm.tau, overlapping.algorithm.tau) == (3, 5)
    assert {cfg.weight_decay for cfg in (disjoint, overlapping, other)} == {1e-6}
    assert {disjoint.algorithm.reg, overlapping.algorithm.reg} == {"inert"}


def test_fediih_has_the_numbers_of_its_authors(composed: Composer) -> None:
    def of(table: str, column: str) -> Any:
        return composed(PLANNED[table, "fediih", column])

    cora = of("1", "cora, 5 clients")
    assert (cora.model.factors, cora.model.width, cora.model.layers, cora.model.dropout) == (2, 128, 2, 0.3)
    assert (cora.lr, cora.weight_decay, cora.algorithm.inference_layers) == (0.02, 0.005, 2)
    assert [of("1", f"computers, {n} clients").model.dropout for n in (5, 20)] == [0.35, 0.4]
    five, overlapping = of("1", "computers, 5 clients"), of("6", "computers, 30 clients")
    assert (five.model.factors, overlapping.model.factors) == (6, 4) and five.model.layers == five.algorithm.inference_layers == 1


def test_unifilter_has_fedgsps_numbers_where_it_is_tuned(composed: Composer) -> None:
    for name in ("local_tuned", "fedavg_tuned"):
        cfg = composed(PLANNED["1", name, "photo, 5 clients"])
        model = cfg.model
        assert (model.orders, model.hidden, model.layers, model.tau) == (10, 256, 5, 0.95)
        assert (model.dropout, model.input_dropout, model.basis_dropout) == (0.4, 0.4, 0.25)
        assert (cfg.lr, cfg.weight_decay, model.filter_lr, model.filter_weight_decay) == (0.006, 5e-5, 0.005, 5e-4)
        assert (cfg.rounds, cfg.local_epochs, model.per_feature, model.default_homophily) == (200, 2, True, 0.75)
    assert composed(PLANNED["1", "local_tuned", "photo, 20 clients"]).model.tau == 0.99
    assert not composed(PLANNED["1", "fedavg", "photo, 5 clients"]).model.per_feature


@pytest.mark.parametrize(("row", "keys"), [("fediih", 8), ("local_tuned", 16), ("fedavg_tuned", 16)])
def test_every_column_has_settings_of_its_own(row: str, keys: int) -> None:
    for table in ("1", "2", "6", "7"):
        own = {key: [text for text in overrides if not text.startswith(("experiment", "dataset", "algorithm=", "model=", "num_clients"))]
               for key, overrides in PLANNED.items() if key[:2] == (table, row)}  # fmt: skip
        assert own and {len({text.partition("=")[0] for text in texts}) for texts in own.values()} == {keys}


def test_seconds_and_figures_are_those_of_the_accuracy_tables_runs() -> None:
    same: dict[Key, Key] = {("figure4", row, "cora, 10 clients"): ("1", row, "cora, 10 clients") for row in ("fed_pub", "fediih", "fedssa")}
    same |= {("figure6", "fedssa", "cora, 10 clients"): ("1", "fedssa", "cora, 10 clients")}
    assert all(PLANNED[one] == PLANNED[other] for one, other in same.items())
