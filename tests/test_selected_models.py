"""Kept models have the scores that the run has stored for them, also where it was interrupted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import fgl_bench
from fgl_bench.algorithms.powers import federated
from fgl_bench.data.splits.base import SCORE_TRAINED
from fgl_bench.engine.training import ServerTrainer
from fgl_bench.errors import UserError
from fgl_bench.evaluation import summary as summaries
from fgl_bench.evaluation.history import Outcome, history_rows
from fgl_bench.evaluation.summary import MODELS, SELECTIONS, chosen_points
from fgl_bench.results.saved_models import write_models
from fgl_bench.runner.build import simulation
from fgl_bench.runner.memory import Plan, network
from fgl_bench.runner.program import simulate
from fgl_bench.runner.selected_models import SelectedModels
from tests.quick import prepared
from tests.runner.test_checkpoints import Run

CPU = torch.device("cpu")
SEEDS = [0, 3]
CASES = {
    "sync": ("fedadam", {}),
    "sync part": ("fedavg", {"participation": 0.5, "scenario.slow_fraction": 0.5, "scenario.deadline": 2.0}),
    "sync seldom": ("fedgta", {"eval_every": 12}),
    "semi_async": ("fedsa_gcl", {}),
    "semi_async atomic": ("fedsa_gcl", {"scenario.fast_trips": "atomic", "algorithm.merge": "before_upload"}),
    "decentralized": ("osgp", {}),
    "pooled": ("global", {}),
    "served": ("fedavg", {"split": "iid_server", "split.score_trained": "every"}),
    "served at the end": ("fedavg", {"split": "iid_server", "split.score_trained": "final"}),
}


def outcome(folder: Path, algorithm: str, changes: dict[str, Any], rounds: int = 8) -> tuple[Any, Any, Outcome]:
    changes = {"dtype": "float64", "lr": 0.05, **changes}
    spec, federations = prepared(algorithm, folder, changes, seeds=SEEDS, rounds=rounds)
    return spec, federations, simulate(spec, federations, CPU, plan=Plan(2, None))


@pytest.mark.parametrize("case", CASES)
def test_selected_models_have_the_scores_of_their_point(case: str, tmp_path: Path) -> None:
    keep, selection = ("final", "federation") if list(CASES).index(case) % 3 == 0 else ("best", "client")
    algorithm, changes = CASES[case]
    spec, federations, found = outcome(tmp_path, algorithm, {**changes, "keep_models": keep, "selection": selection})
    method = spec.fresh_algorithm()
    pooled = federated(method, federations)
    sim = simulation(spec.settings, pooled, network(spec, pooled, CPU), method, CPU, spec.rounds, spec.trips)
    layout, clients = sim.setting.layout, sim.setting.num_clients
    for kind in MODELS:
        names = [[{n: f"{seed}/{c}/{kind}/{n}" for n in layout.shapes} for c in range(clients)] for seed in SEEDS]
        rows = [layout.pack({n: torch.from_numpy(found.models[key]) for n, key in each.items()}) for of in names for each in of]
        by_server = kind == "trained" and isinstance(sim.trainer, ServerTrainer)
        scores = (sim.trainer.evaluate_trained if by_server else sim.trainer.evaluate)(torch.stack(rows)).double().numpy()
        scores = scores.reshape(len(SEEDS), -1, 1 + len(found.histories[0].others), 2)[:, :, 0]
        for s, history in enumerate(found.histories):
            at = np.full(scores.shape[1], len(history.trips) - 1)
            if keep == "best":
                by = 0 if case == "pooled" else SELECTIONS.index(selection)  # all clients have one model
                at = chosen_points(history, kind, None)[by]
            np.testing.assert_allclose(scores[s], history.scores[kind][at, np.arange(len(at))], rtol=1e-12)
    assert len(found.models) == len(MODELS) * len(SEEDS) * clients * len(layout.shapes), "and nothing else"


@pytest.mark.parametrize(("when", "participation"), [("every", 0.5), ("final", 1.0), ("never", 0.5)])
def test_every_clients_trained_model_is_scored_on_the_servers_nodes(when: str, participation: float, tmp_path: Path) -> None:
    changes = {"split": "iid_server", "split.score_trained": when, "participation": participation, "keep_models": "final"}
    spec, federations, found = outcome(tmp_path, "fedavg", changes)
    sim = simulation(spec.settings, federations, network(spec, federations, CPU), spec.fresh_algorithm(), CPU, spec.rounds, spec.trips)
    trainer, layout, clients = sim.trainer, sim.setting.layout, sim.setting.num_clients
    for s, (seed, history, federation) in enumerate(zip(SEEDS, found.histories, federations, strict=True)):
        models = {kind: {c: {n: f"{seed}/{c}/{kind}/{n}" for n in layout.shapes} for c in range(clients)} for kind in MODELS}
        assert (models["trained"][0]["conv0.weight"] in found.models) == (when != "never")
        if when == "never":
            continue
        by_hand = []
        for names in models["trained"].values():
            row = layout.pack({name: torch.from_numpy(found.models[key]) for name, key in names.items()})
            answer = trainer.logits(torch.stack([row] * len(SEEDS)))[s].argmax(-1).numpy()
            test = federation.server.test
            by_hand.append((answer == federation.server.labels)[test].mean())
        assert len(set(by_hand)) > 1
        np.testing.assert_allclose(history.each("trained")[-1, :, 1], by_hand, rtol=1e-12)
    scores = summaries.test_scores(found.histories, "trained")
    points = {"every": 9, "final": 1, "never": 0}[when]
    for history in found.histories:
        assert (~np.isnan(history.scores["trained"]).any((1, 2))).sum() == points and not history.diverged("trained").any()
        assert np.isfinite(history.scores["received"]).all() and len(history.trips) == 9
    assert summaries.divergence(found.histories) is None
    assert ("trained" in summaries.trips_to_target(found.histories, 0.5, 48)) == (when == "every")
    if when == "final":
        assert scores["selected_trips"] == [int(history.trips[-1]) for history in found.histories]
        worst = [history.each("trained")[-1, :, 1].min() for history in found.histories]
        assert scores["worst_client"]["mean"] == pytest.approx(np.mean(worst))
    if when == "never":
        assert scores["per_seed"] == scores["selected_trips"] == [None, None] and scores["mean"] is scores["last"]["mean"] is None
    rows = history_rows(found.histories)
    assert [row["val_trained"] is not None for row in rows] == [row["diverged_trained"] == 0 for row in rows]


def test_when_trained_models_are_scored_changes_no_received_score(tmp_path: Path) -> None:
    every, final, never = (outcome(tmp_path, "fedavg", {"split": "iid_server", "split.score_trained": when})[2] for when in SCORE_TRAINED)
    for whole, *others in zip(every.histories, final.histories, never.histories, strict=True):
        for one in others:
            np.testing.assert_array_equal(one.scores["received"], whole.scores["received"])
    last = [run.histories[0].scores["trained"][-1] for run in (every, final)]
    np.testing.assert_array_equal(*last)


def test_keeping_models_changes_no_number_and_lets_go_of_what_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []
    step_end = SelectedModels.step_end

    def counting(self: SelectedModels, sim: Any, state: Any) -> None:
        step_end(self, sim, state)
        most.append(len(sim.models))

    monkeypatch.setattr(SelectedModels, "step_end", counting)
    (*_, none), (*_, best) = (outcome(tmp_path, "fedadam", {"keep_models": keep}, 30) for keep in ("none", "best"))
    for one, other in zip(none.histories, best.histories, strict=True):
        np.testing.assert_array_equal(one.scores["trained"], other.scores["trained"])
    assert not none.models and max(most) <= 6 * 6 * len(SEEDS), "a few of every client, however many rounds"


def test_a_new_network_in_the_middle_is_kept_by_its_own_parameters(tmp_path: Path) -> None:
    *_, found = outcome(tmp_path, "adafgl", {"keep_models": "final", "algorithm.federated_rounds": 3})
    assert any("slope" in name for name in found.models)


def test_a_run_that_was_interrupted_keeps_the_models_of_one_that_was_not(tmp_path: Path) -> None:
    def run(name: str) -> Run:
        changes = {"keep_models": "best", "mixing_at": [12]}
        return Run(*prepared("fedadam", tmp_path / "cache", changes, seeds=[0, 1, 2], rounds=8), tmp_path / name / "0123456789ab")

    whole, _ = run("whole")(kept=False)
    run("part").interrupted(6)
    again, _ = run("part")()
    assert whole.models.keys() == again.models.keys()
    assert all(np.array_equal(whole.models[name], again.models[name]) for name in whole.models)


def test_the_example_of_the_docs_scores_a_model_as_the_run_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[1] / "docs/guides/saved_models.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(import fgl_bench\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example.replace("keep_models=", 'dataset__num_nodes=300, dataset__num_edges=700, device="cpu", keep_models='), names)
    scores = names["result"].clients().set_index(["client", "evaluated"])["score"]
    assert names["accuracy"].item() == pytest.approx(scores[3, "trained"], abs=1e-6)


def test_a_run_is_made_again_where_it_has_not_kept_what_is_asked_for(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    tiny: dict[str, Any] = {
        "dataset__num_nodes": 120,
        "dataset__num_edges": 300,
        "num_clients": 3,
        "rounds": 3,
        "seeds": [4],
        "device": "cpu",
    }
    first = fgl_bench.run("fedavg", "csbm", **tiny)
    with pytest.raises(UserError, match="has no saved models; repeat it with keep_models=final"):
        fgl_bench.load_models(first.folder)
    again = fgl_bench.run("fedavg", "csbm", keep_models="best", **tiny)
    assert again.folder == first.folder and "has not kept the models asked for (best by federation)" in capsys.readouterr().err
    models = fgl_bench.load_models(again.folder)
    assert list(models) == [4] and list(models[4]) == [0, 1, 2] and list(models[4][0]) == list(MODELS)
    stamp = (again.folder / "models.safetensors").stat().st_mtime_ns
    for keep in ("best", "none"):
        fgl_bench.run("fedavg", "csbm", keep_models=keep, **tiny)
    assert (again.folder / "models.safetensors").stat().st_mtime_ns == stamp, "it has what is asked for"
    with safe_open(again.folder / "models.safetensors", "np") as file:
        assert file.metadata() == {"models": "best by federation"}
    for name in ("4/0/trained", "a/b/c/d", "x"):
        write_models(again.folder, {name: np.zeros(1)}, "final")
        with pytest.raises(UserError, match=rf"models.safetensors: '{name}' is not .*overwrite=true") as refused:
            fgl_bench.load_models(again.folder)
        assert "\n" not in str(refused.value)
    (again.folder / "models.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match="cannot be read .*overwrite=true"):
        fgl_bench.load_models(again.folder)
