"""The leaderboard: equal tuning on validation, one test score for a winner, cells that go on where they were stopped."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fgl_bench.config.compose import Composer, as_command
from fgl_bench.config.groups import label
from fgl_bench.config.settings import resolve_budget
from fgl_bench.errors import UserError
from fgl_bench.evaluation.summary import MODELS
from fgl_bench.leaderboard.cell import BoardCell
from fgl_bench.leaderboard.protocol import balanced, configuration, read_protocol, space_of
from fgl_bench.leaderboard.record import Record, Trial, choose, current, path_of, read_record, read_records, write_record
from fgl_bench.leaderboard.remaining import plan
from fgl_bench.results.estimates import Kind
from fgl_bench.results.frame import value_of
from fgl_bench.runner.one import run_one
from fgl_bench.runner.run import federations_of
from fgl_bench.runner.validation import validate

ROOT = Path(__file__).parents[1]
TINY = [
    "dataset.num_nodes=160", "dataset.num_edges=360", "dataset.num_features=24", "dataset.words_per_node=6", "rounds=2",
]  # fmt: skip
CSBM = {"graph": "csbm", "split": "metis", "trials": 3}
CONTENT = {
    "version": 2, "experiment": "leaderboard", "sampler_seed": 0, "tuning_seeds": [10, 11], "test_seeds": [0, 1, 2], "clients": 3,
    "widen": {"lr": 3.0, "trials": 0}, "stragglers": {"slow_fraction": 0.3}, "scenarios": {"semi_async": {"lag_unit": "time"}},
    "dear_columns": [], "columns": {"csbm": CSBM},
    "shared": {"optimizer,lr": [["adam", 0.01], ["sgd", 0.5]], "weight_decay": [5e-4, 0.0], "width": 2},
    "models": {"gcn": {"model.hidden": [8, 4]}},
    "references": {"majority": {"tuned": False}, "local": {}},
    "methods": {"fedavg": {}, "fedprox": {"space": {"algorithm.mu": [0.01, 1.0]}}},
    "changed": TINY,
}  # fmt: skip


def written(folder: Path, **changes) -> Path:
    path = folder / "protocol.yaml"
    path.write_text(yaml.safe_dump({**CONTENT, **changes}, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture
def tiny(tmp_path):
    return read_protocol(written(tmp_path))


def making(protocol, name: str, folder: Path, **changes) -> BoardCell:
    entry = next(entry for entry in protocol.entries if entry.name == name)
    where = (f"cache_dir={folder / 'cache'}", "device=cpu", "threads=1")
    return replace(BoardCell(protocol, entry, protocol.columns[0], folder / "board", where, say=lambda text: None), **changes)


# The protocol

PROTOCOL = read_protocol()


def test_the_protocol_has_what_was_announced():
    assert len([entry for entry in PROTOCOL.entries if not entry.reference]) >= 20
    assert {"fedgta", "dfed_sst", "fedsa_gcl", "fedssa", "adafgl", "fedtad", "fediih", "fedsage_plus"} <= {
        entry.algorithm for entry in PROTOCOL.entries
    }
    assert len({column.graph for column in PROTOCOL.columns}) == 11 and len(PROTOCOL.tuning_seeds) == 5
    assert not set(PROTOCOL.tuning_seeds) & set(PROTOCOL.test_seeds) and len(PROTOCOL.test_seeds) == 10
    names = {entry.name for entry in PROTOCOL.entries}
    for entry in PROTOCOL.entries:  # on every backbone there is something to compare with
        suffix = "" if entry.model == "gcn" else f"-{entry.model}"
        assert {f"local{suffix}", f"fedavg{suffix}"} <= names
    assert all(f"scenario.{key}=" in " ".join(entry.overrides) for entry in PROTOCOL.entries for key in PROTOCOL.stragglers)


@pytest.fixture(scope="module")
def compose():
    return Composer()


@pytest.mark.audit
@pytest.mark.parametrize("entry", PROTOCOL.entries, ids=lambda entry: entry.name)
def test_the_first_trial_is_the_default_and_every_trial_can_be_run(entry, compose):
    column = next(column for column in PROTOCOL.columns if column.key == "cora")
    plain = compose(PROTOCOL.overrides(entry, column, {}, [0]))
    for key, value in PROTOCOL.trials_of(entry, column)[0].items():
        default = label(plain, key) if key == "optimizer" else value_of(OmegaConf.to_container(plain, resolve=True), key)
        if (entry.model, key) != ("disengcn", "model.dropout"):  # 0.35, which is in no space: docs/leaderboard.md says so
            assert default == value, f"{key}={value} is not the default"
    for column in PROTOCOL.columns:
        for values in PROTOCOL.trials_of(entry, column):
            validate(compose(PROTOCOL.overrides(entry, column, values, [0])))


@pytest.mark.audit
def test_all_methods_have_the_same_budget_of_client_trips(compose):
    for column in PROTOCOL.columns[:2]:
        assert len({resolve_budget(compose(PROTOCOL.overrides(entry, column, {}, [0])))[1] for entry in PROTOCOL.entries}) == 1


# What is tried


@given(st.integers(1, 6), st.integers(1, 15))
def test_draws_begin_with_the_default_and_are_balanced(choices, trials):
    found = balanced(choices, trials, "a", "b")
    assert len(found) == trials and found[0] == 0 and found == balanced(choices, trials + 1, "a", "b")[:trials]
    counts = [found[1:].count(place) for place in range(choices)]
    assert max(counts) - min(counts) <= 1


def test_keys_together_change_together():
    space = space_of({"optimizer,lr": [["adam", 1], ["sgd", 2]], "x": [5, 6, 7]}, "here")
    assert configuration(space, [1, 2]) == {"optimizer": "sgd", "lr": 2, "x": 7}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1], "a line for every key"),
        ({"lr": {"choices": [1]}}, "lr: must be a list of choices"),
        ({"lr": []}, "lr: must be a list of choices"),
        ({"a,b": [[1, 2], [1]]}, "every choice is a list of 2 values"),
    ],
)
def test_a_space_that_is_none_is_refused(content, said):
    with pytest.raises(UserError, match=said):
        space_of(content, "mine.yaml")


def test_the_digest_changes_with_the_rules_the_entry_and_the_column_but_not_with_others(tmp_path, tiny):
    def digests(**changes):
        protocol = read_protocol(written(tmp_path, **changes))
        return {entry.name: protocol.digest(entry, protocol.columns[0]) for entry in protocol.entries}

    before = digests()
    more = digests(methods={**CONTENT["methods"], "moon": {}}, columns={"csbm": CSBM, "cora": {**CSBM, "graph": "cora"}})
    assert {name: more[name] for name in before} == before
    other = digests(methods={**CONTENT["methods"], "fedprox": {"space": {"algorithm.mu": [0.01, 2.0]}}})
    assert {name for name in before if other[name] != before[name]} == {"fedprox"}
    rules = [{"tuning_seeds": [11, 12]}, {"test_seeds": [0, 1]}, {"clients": 4}, {"changed": []}, {"sampler_seed": 1}, {"stragglers": {}}]
    for change in (*rules, {"columns": {"csbm": {**CSBM, "trials": 4}}}, {"widen": {"lr": 2.0, "trials": 0}}):
        assert all(digests(**change)[name] != before[name] for name in before), change


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"columns": {"csbm": {**CSBM, "trials": 0}}}, "columns.csbm.trials=0: must be an integer of at least 1"),
        ({"clients": True}, "clients=True: must be an integer"),
        ({"test_seeds": [1]}, "must be a list of at least two different seeds"),
        ({"tuning_seeds": [1, 1]}, "must be a list of at least two different seeds"),
        ({"tuning_seeds": [2, 11]}, "tuning_seeds and test_seeds share 2"),
        ({"models": {"gcn": {"model.hidden": [8]}}}, "models.gcn: must have 2 choices"),
    ],
)
def test_a_protocol_that_would_not_be_sound_is_refused(changes, said, tmp_path):
    with pytest.raises(UserError, match=said):
        read_protocol(written(tmp_path, **changes))


def test_a_winner_at_the_edge_of_the_learning_rates_is_followed_beyond_it(tmp_path):
    protocol = read_protocol(written(tmp_path, widen={"lr": 3.0, "trials": 2}, columns={"csbm": {**CSBM, "trials": 1}}))
    entry, column = next(entry for entry in protocol.entries if entry.name == "fedavg"), protocol.columns[0]
    record = Record.new(protocol, entry, column)

    def tried(score: float) -> None:
        values = record.next_values(protocol, entry, column)
        record.trials.append(Trial(len(record.trials), values, {"received": [score] * 2, "trained": [score] * 2}, 1.0))

    tried(0.5)
    assert record.trials[0].values["lr"] == 0.01  # the only rate of Adam, so both ends
    tried(0.6)
    assert record.trials[1].values == {**record.trials[0].values, "lr": 0.03}
    record.trials[1] = replace(record.trials[1], validation={"received": [0.4] * 2, "trained": [0.4] * 2})
    assert record.next_values(protocol, entry, column) is None  # it did not win
    record.trials[1] = replace(record.trials[1], validation={"received": [0.6] * 2, "trained": [0.6] * 2})
    tried(0.7)
    assert record.trials[2].values["lr"] == 0.09 and record.next_values(protocol, entry, column) is None  # two at most


# A cell


class Untouchable(dict):
    """Test scores of a trial: whoever looks at one fails."""

    ALLOWED = ("selected_trips",)

    def __getitem__(self, key):
        assert key in self.ALLOWED, f"test score read in tuning: {key}"
        return super().__getitem__(key)

    def __iter__(self):
        raise AssertionError("test scores read in tuning")

    get = values = items = __iter__


def test_a_cell_has_its_trials_and_two_scores_and_tuning_sees_no_test_score(tiny, tmp_path, monkeypatch):
    asked = []
    usual = BoardCell.run

    @contextmanager
    def run(self, values, seeds, *more):
        asked.append((dict(values), tuple(seeds)))
        with usual(self, values, seeds, *more) as made:
            if seeds == tiny.tuning_seeds:
                made.summary["test"] = {model: Untouchable(scores) for model, scores in made.summary["test"].items()}
            yield made

    monkeypatch.setattr(BoardCell, "run", run)
    cell = making(tiny, "fedprox", tmp_path)
    record = cell.make()
    trials = tiny.trials_of(cell.entry, tiny.columns[0])
    assert record.complete and [trial.values for trial in record.trials] == trials and len(trials) == 3
    assert asked[:3] == [(values, (10, 11)) for values in trials]
    best = max(((trial.lower(model), trial.number, model) for trial in record.trials for model in MODELS), key=lambda each: each[0])
    assert (record.tuned.trial, record.tuned.model) == best[1:] and record.default.trial == 0
    assert asked[3:] == [(dict(trials[number]), (0, 1, 2)) for number in dict.fromkeys([0, best[1]])]
    for scored in (record.default, record.tuned):
        assert [len(scores) for scores in scored.scores.values()] == [3, 3] and scored.trips == 6 and scored.bytes["upload"] > 0
        assert (
            scored.time > 2
            and scored.curve["trips"][-1] == 6
            and scored.curve["test"][-1] == pytest.approx(np.mean(scored.scores[scored.model]), abs=1e-5)
        )
    predictions = np.load(path_of(tmp_path / "board", "fedprox", "csbm").with_suffix(".npz"))
    ends = np.cumsum(predictions["sizes"].sum(1))
    right = [(part == 0).mean() for part in np.split(predictions["nodes"], ends[:-1])]
    assert right == pytest.approx(record.tuned.scores[record.tuned.model], abs=1e-6)
    assert record.facts["metric"] == "accuracy" and record.facts["scenario"] == "sync" and record.facts["num_clients"] == 3
    assert read_record(path_of(tmp_path / "board", "fedprox", "csbm")) == record
    assert not list((tmp_path / "board").glob(".runs-*"))
    count = len(asked)
    assert making(tiny, "fedprox", tmp_path).make() == record and len(asked) == count  # nothing is made twice


def test_no_node_that_validates_a_trial_is_tested(tiny):
    entry, column = tiny.entries[1], tiny.columns[0]
    tested, validated = set(), set()
    for seeds, nodes, mask in ((tiny.tuning_seeds, validated, "val"), (tiny.test_seeds, tested, "test")):
        with as_command([*tiny.overrides(entry, column, {}, seeds), "progress=false"]) as cfg:
            for federation in federations_of(cfg):
                for client in federation.clients:
                    nodes |= set(client.nodes[getattr(client, mask)].tolist())
    assert len(tested) > 80 and len(validated) > 40 and not tested & validated


def test_the_winner_s_scores_are_those_of_its_command(tiny, tmp_path):
    scored = making(tiny, "fedavg", tmp_path).make().tuned
    line = [*shlex.split(scored.command)[1:], f"results_dir={tmp_path / 'runs'}", f"cache_dir={tmp_path / 'cache'}", "progress=false"]
    with as_command(line) as cfg:
        summary = run_one(cfg).summary
    for model in MODELS:
        assert summary["test"][model]["per_seed"] == pytest.approx(scored.scores[model], abs=1e-6)
    assert summary["config_hash"] == scored.config_hash


def test_a_cell_that_was_stopped_goes_on(tiny, tmp_path, monkeypatch):
    whole = making(tiny, "fedavg", tmp_path / "whole").make()
    making(tiny, "fedavg", tmp_path, until=0).make()
    assert not read_records(tmp_path / "board")  # no time for a single run
    usual, made = BoardCell.run, []

    def dying(self, values, seeds, *more):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(values)
        return usual(self, values, seeds, *more)

    monkeypatch.setattr(BoardCell, "run", dying)
    with pytest.raises(KeyboardInterrupt):
        making(tiny, "fedavg", tmp_path).make()
    [begun] = read_records(tmp_path / "board")
    assert len(begun.trials) == 2 and begun.tuned is None and not begun.complete
    monkeypatch.setattr(BoardCell, "run", usual)
    again = making(tiny, "fedavg", tmp_path).make()
    assert [trial.validation for trial in again.trials] == [trial.validation for trial in whole.trials]
    assert again.tuned.scores == whole.tuned.scores and again.default.scores == whole.default.scores


def test_a_cell_of_another_protocol_is_made_anew_and_not_mixed_in(tiny, tmp_path):
    first = making(tiny, "majority", tmp_path).make()
    assert first.planned == len(first.trials) == 1 and first.complete
    changed = read_protocol(written(tmp_path, test_seeds=[0, 1]))
    assert current(read_records(tmp_path / "board"), changed) == ([], [first])
    assert [cell.name for cell, _ in plan(changed, changed.columns, changed.entries[:1], tmp_path / "board", {})] == ["majority in csbm"]
    said = []
    second = making(changed, "majority", tmp_path, say=said.append).make()
    assert f"it is of protocol {first.protocol}, this is {second.protocol}" in said[0]
    assert len(second.tuned.scores["received"]) == 2
    assert current(read_records(tmp_path / "board"), changed) == ([second], [])
    assert plan(changed, changed.columns, changed.entries[:1], tmp_path / "board", {}) == []


def test_a_trial_that_is_refused_is_recorded_but_the_default_must_run(tmp_path):
    space = {"fedper": {"space": {"algorithm.personal_layers": [1, 7]}}}
    record = making(read_protocol(written(tmp_path, methods=space)), "fedper", tmp_path).make()
    refused = [trial for trial in record.trials if trial.problem]
    assert len(refused) == 1 and {trial.values["algorithm.personal_layers"] for trial in refused} == {7}
    assert record.complete and all(trial.validation["trained"] == [None, None] and trial.lower("trained") is None for trial in refused)
    broken = read_protocol(written(tmp_path, methods={"fedper": {"space": {"algorithm.personal_layers": [7, 1]}}}))
    with pytest.raises(UserError, match="personal_layers"):
        making(broken, "fedper", tmp_path).make()


def test_the_best_trial_has_the_highest_mean_less_its_standard_error_the_earliest_of_equals():
    def trial(number: int, received: list, trained: list) -> Trial:
        return Trial(number, {}, {"received": received, "trained": trained}, 1.0)

    assert trial(0, [0.5, 0.7, 0.6], []).lower("received") == pytest.approx(0.6 - np.std([0.5, 0.7, 0.6], ddof=1) / np.sqrt(3))
    safe, wild = trial(0, [0.6, 0.6], [0.5, 0.5]), trial(1, [0.1, 0.1], [0.5, 0.75])
    assert choose([safe, wild]) == (safe, "received")  # 0.625 less 0.125
    assert choose([safe, trial(1, [0.6, 0.6], [0.6, 0.6])]).trial.number == 0
    assert choose([trial(0, [None, 0.9], [0.2, 0.2])]).model == "trained" and choose([trial(0, [None, 0.9], [None] * 2)]) is None


# The runner


def leaderboard(folder: Path, *arguments: str, path: Path | None = None) -> list[str]:
    protocol = path or written(folder)
    line = [sys.executable, "scripts/leaderboard.py", "--protocol", str(protocol), "--results", str(folder / "board"), "--device", "cpu"]
    return [*line, *arguments]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


@pytest.mark.nightly
def test_the_script_makes_only_what_is_missing(tmp_path):
    env = {**ENVIRONMENT, "FGL_BENCH_CACHE": str(tmp_path / "cache")}
    made = subprocess.run(leaderboard(tmp_path, "--methods", "majority"), cwd=ROOT, env=env, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "done: majority in csbm" in made.stdout
    assert {record.entry: record.complete for record in read_records(tmp_path / "board")} == {"majority": True}
    listed = subprocess.run(leaderboard(tmp_path, "--list"), cwd=ROOT, env=env, capture_output=True, text=True)
    assert listed.stdout.startswith("1 cell(s) complete, 3 to make") and "majority" not in listed.stdout


def test_cheap_cells_come_first(tiny, tmp_path):
    known = {"local": 0.3, "fedavg": 0.2, "fedprox": 0.1, "majority": 0.5}
    rates = {Kind(name, "gcn", "csbm"): rate for name, rate in known.items()}
    cells = plan(tiny, tiny.columns, tiny.entries, tmp_path, rates)
    assert [cell.entry.name for cell, _ in cells] == ["fedprox", "fedavg", "majority", "local"]  # majority has one trial
    # Of a cell that was begun, what its trials took is known better: 2 seeds, 100 rounds, one epoch.
    slow = Record.new(tiny, tiny.entries[-1], tiny.columns[0])
    slow.trials.append(Trial(0, {"local_epochs": 1}, {"received": [0.5] * 2, "trained": [0.5] * 2}, 100.0))
    write_record(tmp_path, slow)
    cells = plan(tiny, tiny.columns, tiny.entries, tmp_path, rates)
    assert [cell.entry.name for cell, _ in cells] == ["fedavg", "majority", "local", "fedprox"]
    assert cells[-1][1] == pytest.approx(0.5 * 100 * (3 * 2 + 2 * 3))


@pytest.mark.nightly
def test_an_interrupted_script_keeps_its_trials_and_leaves_no_process(tmp_path):
    env = {**ENVIRONMENT, "FGL_BENCH_CACHE": str(tmp_path / "cache")}
    path = written(tmp_path, changed=[*TINY, "rounds=400"], columns={"csbm": {**CSBM, "trials": 4}})
    line = leaderboard(tmp_path, "--methods", "fedavg", path=path)
    process = subprocess.Popen(line, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    cell = tmp_path / "board" / "csbm" / "fedavg.json"
    end = time.monotonic() + 100
    while not cell.is_file() and time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=100)
    assert process.returncode == 130 and b"the same command continues" in told
    assert 1 <= len(read_record(cell).trials) <= 4
    assert not list((tmp_path / "board").glob(".runs-*"))
