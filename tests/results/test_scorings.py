"""Agreement with prints under other scores of the same runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.published import Printed
from fgl_bench.papers.work import SCORINGS, Work, compared, rescored
from tests.results.test_analysis import cell, printed
from tests.results.test_settlements import NAMED, PAPER, TABLE


def scored(mean: float) -> dict:
    return {"mean": mean, "std": 0.0, "ci95": 0.0, "per_seed": [mean, mean]}


def result(dataset: str, mean: float, last: float | None = None, **others: float) -> dict:
    """A stored run with other scores than the usual one, ``client_macro=0.7`` for instance."""
    found = cell("b", dataset, [mean, mean])
    selected: dict = {}
    for name, value in others.items():
        selection, average = name.split("_")
        selected.setdefault(selection, {})[average] = scored(value)
    more = {"selected": selected, **({} if last is None else {"last": scored(last)})}
    return {**found, "test": {model: {**found["test"][model], **more} for model in MODELS}}


def test_every_score_is_compared_with_the_print_and_a_run_without_it_is_left_out(tmp_path: Path) -> None:
    runs = {
        "cora": result("cora", 0.80, last=0.70, federation_macro=0.80, client_weighted=0.90, client_macro=0.60),
        "pubmed": result("pubmed", 0.80, last=0.80, federation_macro=0.70),
    }
    stored = {("3", "a_e3", dataset): run for dataset, run in runs.items()}
    published = Printed([printed("3", name, "a", "80.0", "") for name in (*runs, "photo")])
    work = Work(PAPER, [TABLE], published, tmp_path, settlements=(NAMED,), stored=stored)
    assert compared([work])[-1] == "| Paper | 2 of 2 (100 %) | 1 of 2 (50 %) | 0 of 1 (0 %) | 0 of 1 (0 %) | 1 of 2 (50 %) |"


@pytest.mark.parametrize(("name", "mean"), [*zip(list(SCORINGS)[1:], (0.2, 0.3, 0.4, 0.1), strict=True)])
def test_both_models_and_all_metrics_take_the_score(name: str, mean: float) -> None:
    run = result("cora", 0.8, last=0.1, federation_macro=0.2, client_weighted=0.3, client_macro=0.4)
    run["metrics"] = {"macro_f1": run["test"], "auc": cell("b", "cora", [0.5])["test"]}
    found = rescored(run, SCORINGS[name])
    assert found is not None
    assert found["test"] == found["metrics"]["macro_f1"] == {model: scored(mean) for model in MODELS}
    assert "auc" not in found["metrics"], "it is stored for the usual score only"
