"""The leaderboard: equal tuning on validation, one test score for a winner, cells that go on where they were stopped."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fgl_bench.config.compose import Composer, as_command
from fgl_bench.config.groups import label
from fgl_bench.config.settings import resolve_budget
from fgl_bench.errors import UserError
from fgl_bench.leaderboard.cell import BoardCell, validation_scores
from fgl_bench.leaderboard.protocol import BoardColumn, configuration, drawn, read_protocol, size, space_of
from fgl_bench.leaderboard.record import Record, Trial, current, path_of, read_record, read_records, write_record
from fgl_bench.leaderboard.remaining import plan
from fgl_bench.results.estimates import Kind
from fgl_bench.results.frame import value_of
from fgl_bench.runner.one import run_one
from fgl_bench.runner.validation import validate

ROOT = Path(__file__).parents[1]
COLUMN = BoardColumn("csbm", "metis")
TINY = [
    "dataset.num_nodes=160", "dataset.num_edges=360", "dataset.num_features=24", "dataset.words_per_node=6", "rounds=2", "model.hidden=8",
]  # fmt: skip
CONTENT = {
    "experiment": "leaderboard", "trials": 3, "sampler_seed": 0, "tuning_seeds": [10, 11], "test_seeds": [0, 1, 2], "clients": 3,
    "columns": {"metis": ["csbm"]},
    "shared": {"optimizer,lr": {"choices": [["adam", 0.01], ["sgd", 0.5]]}, "weight_decay": {"choices": [5e-4, 0.0]}},
    "methods": {
        "majority": {"tuned": False}, "local": {}, "fedavg": {},
        "fedprox": {"space": {"algorithm.mu": {"choices": [0.01, 1.0]}}},
    },
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
    return replace(BoardCell(protocol, entry, COLUMN, folder / "board", where, say=lambda text: None), **changes)


# The protocol

PROTOCOL = read_protocol()
WANTED = (
    "majority local global fedavg fedprox scaffold moon fedper fedgta fed_pub gcfl_plus fedsage_plus adafgl fedasync fedbuff fedsa_gcl "
    "d_psgd dis_pfl dfed_sst fedssa"
)


def test_the_protocol_has_what_was_announced():
    assert {entry.algorithm for entry in PROTOCOL.entries} == set(WANTED.split())
    assert len(PROTOCOL.columns) == 22 and {column.split for column in PROTOCOL.columns} == {"louvain", "metis", "natural"}
    assert not set(PROTOCOL.tuning_seeds) & set(PROTOCOL.test_seeds) and len(PROTOCOL.test_seeds) == 10 and PROTOCOL.trials == 12
    assert {entry.name for entry in PROTOCOL.entries if entry.model != "gcn"} == {
        "fedgta-gamlp", "fed_pub-gcn_linear", "fedsage_plus-graphsage", "fedssa-unifilter",
    }  # fmt: skip
    tuned = [entry for entry in PROTOCOL.entries if entry.name != "majority"]
    assert all(entry.space.items() >= PROTOCOL.shared.items() for entry in tuned)
    assert {len(PROTOCOL.trials_of(entry, column)) for entry in tuned for column in PROTOCOL.columns} == {12}


@pytest.fixture(scope="module")
def compose():
    return Composer()


@pytest.mark.audit
@pytest.mark.parametrize("entry", PROTOCOL.entries, ids=lambda entry: entry.name)
def test_the_first_trial_is_the_default_and_every_choice_can_be_run(entry, compose):
    column = BoardColumn("cora", "louvain")
    plain = compose(PROTOCOL.overrides(entry, column, {}, [0]))
    validate(plain)
    for key, value in PROTOCOL.trials_of(entry, column)[0].items():
        default = label(plain, key) if key == "optimizer" else value_of(OmegaConf.to_container(plain, resolve=True), key)
        assert default == value, f"{key}={value} is not the default"
    own = {key: values for key, values in entry.space.items() if key not in PROTOCOL.shared}
    for number in range(max(map(len, own.values()), default=0)):  # every value of every key once
        chosen = {key: values[number % len(values)] for key, values in own.items()}
        validate(compose(PROTOCOL.overrides(entry, column, chosen, [0])))


@pytest.mark.audit
def test_all_methods_have_the_same_budget_of_client_trips(compose):
    for column in (BoardColumn("cora", "metis"), BoardColumn("webkb", "natural")):
        assert len({resolve_budget(compose(PROTOCOL.overrides(entry, column, {}, [0])))[1] for entry in PROTOCOL.entries}) == 1


# What is tried

SPACES = st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 4).map(lambda count: list(range(count))), max_size=5)


@given(SPACES, st.integers(1, 15))
def test_trials_are_different_begin_with_the_defaults_and_depend_on_entry_and_column(space, trials):
    found = drawn(space, trials, "fedavg", "cora-metis")
    assert found == drawn(space, trials, "fedavg", "cora-metis")
    assert len(found) == min(trials, size(space)) and found[0] == {key: values[0] for key, values in space.items()}
    assert len({json.dumps(one) for one in found}) == len(found)
    assert all(one[key] in space[key] for one in found for key in space)
    assert found == drawn(space, trials + 1, "fedavg", "cora-metis")[: len(found)]


def test_all_configurations_have_a_number_and_keys_together_change_together():
    space = space_of({"optimizer,lr": {"choices": [["adam", 1], ["sgd", 2]]}, "x": {"choices": [5, 6, 7]}}, "here")
    found = [configuration(space, number) for number in range(size(space))]
    assert len({json.dumps(one) for one in found}) == 6 and found[1] == {"optimizer": "adam", "lr": 1, "x": 6}
    assert {(one["optimizer"], one["lr"]) for one in found} == {("adam", 1), ("sgd", 2)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1], "a line for every key"),
        ({"lr": {"low": 1, "high": 2, "kind": "real"}}, "lr: the leaderboard draws from"),
        ({"lr": {"choices": []}}, "lr: the leaderboard draws from"),
        ({"a,b": {"choices": [[1, 2], [1]]}}, "every choice is a list of 2 values"),
        ({name: {"choices": list(range(60))} for name in "abc"}, "216000 configurations; at most 100000"),
    ],
)
def test_a_space_that_is_none_is_refused(content, said):
    with pytest.raises(UserError, match=said):
        space_of(content, "mine.yaml")


def test_the_digest_changes_with_the_rules_and_the_entry_but_not_with_other_methods(tmp_path, tiny):
    def digests(**changes):
        protocol = read_protocol(written(tmp_path, **changes))
        return {entry.name: protocol.digest(entry) for entry in protocol.entries}

    before = digests()
    more = digests(methods={**CONTENT["methods"], "moon": {}}, columns={"metis": ["csbm", "cora"]})
    assert {name: more[name] for name in before} == before
    other = digests(methods={**CONTENT["methods"], "fedprox": {"space": {"algorithm.mu": {"choices": [0.01, 2.0]}}}})
    assert {name for name in before if other[name] != before[name]} == {"fedprox"}
    for change in ({"trials": 4}, {"tuning_seeds": [11]}, {"test_seeds": [0]}, {"clients": 4}, {"changed": []}, {"sampler_seed": 1}):
        assert all(digests(**change)[name] != before[name] for name in before)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trials": 0}, "trials=0: must be an integer of at least 1"),
        ({"clients": True}, "clients=True: must be an integer"),
        ({"test_seeds": []}, "must be a list of different seeds"),
        ({"tuning_seeds": [1, 1]}, "must be a list of different seeds"),
        ({"tuning_seeds": [2, 11]}, "tuning_seeds and test_seeds share 2"),
    ],
)
def test_a_protocol_that_would_not_be_sound_is_refused(changes, said, tmp_path):
    with pytest.raises(UserError, match=said):
        read_protocol(written(tmp_path, **changes))


# A cell


class Untouchable(dict):
    """Test scores of a trial: whoever looks at one fails."""

    ALLOWED = ("val", "selected_trips")

    def __getitem__(self, key):
        assert key in self.ALLOWED, f"test score read in tuning: {key}"
        return super().__getitem__(key)

    def __iter__(self):
        raise AssertionError("test scores read in tuning")

    get = values = items = __iter__


def test_a_cell_has_its_trials_and_two_winners_and_tuning_sees_no_test_score(tiny, tmp_path, monkeypatch):
    asked = []
    usual = BoardCell.run

    def run(self, values, seeds):
        asked.append((dict(values), tuple(seeds)))
        summary = usual(self, values, seeds)
        if seeds == tiny.tuning_seeds:
            summary["test"] = {model: Untouchable(scores) for model, scores in summary["test"].items()}
        return summary

    monkeypatch.setattr(BoardCell, "run", run)
    record = making(tiny, "fedprox", tmp_path).make()
    trials = tiny.trials_of(making(tiny, "fedprox", tmp_path).entry, COLUMN)
    winners = {winner.trial for winner in record.winners.values()}
    assert record.complete and [trial.values for trial in record.trials] == trials and len(trials) == 3
    assert asked[:3] == [(values, (10, 11)) for values in trials]
    assert sorted(json.dumps(values) for values, _ in asked[3:]) == sorted(json.dumps(trials[number]) for number in winners)
    assert {seeds for _, seeds in asked[3:]} == {(0, 1, 2)}
    for model, winner in record.winners.items():
        assert record.trials[winner.trial].validation[model] == max(trial.validation[model] for trial in record.trials)
        assert len(winner.scores) == 3 and winner.trips == 6 and winner.bytes["upload"] > 0 and winner.seconds > 0
    assert record.facts["metric"] == "accuracy" and record.facts["scenario"] == "sync" and record.facts["num_clients"] == 3
    assert 0 < record.properties["homophily"] < 1 and 0 < record.properties["edge_cut"] < 1
    assert read_record(path_of(tmp_path / "board", "fedprox", COLUMN)) == record
    assert not list((tmp_path / "board").glob(".runs-*"))
    assert making(tiny, "fedprox", tmp_path).make() == record and len(asked) == 3 + len(winners)  # nothing is made twice


def test_what_tuning_is_told_does_not_depend_on_test_scores():
    def summary(test):
        scores = {"mean": test, "per_seed": [test], "per_client": [[test]], "val": {"mean": 0.5}, "selected_trips": [3]}
        return {"test": {"received": scores, "trained": {**scores, "selected_trips": [None]}}}

    assert validation_scores(summary(0.1)) == validation_scores(summary(0.9)) == {"received": 0.5, "trained": None}


def test_the_winner_s_scores_are_those_of_its_command(tiny, tmp_path):
    record = making(tiny, "fedavg", tmp_path).make()
    for model, winner in record.winners.items():
        line = [*shlex.split(winner.command)[1:], f"results_dir={tmp_path / 'runs'}", f"cache_dir={tmp_path / 'cache'}", "progress=false"]
        with as_command(line) as cfg:
            summary = run_one(cfg).summary
        assert summary["test"][model]["per_seed"] == winner.scores and summary["config_hash"] == winner.config_hash


def test_a_cell_that_was_stopped_goes_on(tiny, tmp_path, monkeypatch):
    whole = making(tiny, "fedavg", tmp_path / "whole").make()
    making(tiny, "fedavg", tmp_path, until=0).make()
    assert not read_records(tmp_path / "board")  # no time for a single run
    usual, made = BoardCell.run, []

    def dying(self, values, seeds):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(values)
        return usual(self, values, seeds)

    monkeypatch.setattr(BoardCell, "run", dying)
    with pytest.raises(KeyboardInterrupt):
        making(tiny, "fedavg", tmp_path).make()
    [begun] = read_records(tmp_path / "board")
    assert len(begun.trials) == 2 and not begun.winners and not begun.complete
    monkeypatch.setattr(BoardCell, "run", usual)
    again = making(tiny, "fedavg", tmp_path).make()
    assert [trial.validation for trial in again.trials] == [trial.validation for trial in whole.trials]
    assert {model: winner.scores for model, winner in again.winners.items()} == {model: w.scores for model, w in whole.winners.items()}


def test_a_cell_of_another_protocol_is_made_anew_and_not_mixed_in(tiny, tmp_path):
    first = making(tiny, "majority", tmp_path).make()
    assert first.planned == len(first.trials) == 1 and first.complete
    changed = read_protocol(written(tmp_path, test_seeds=[0, 1]))
    assert current(read_records(tmp_path / "board"), changed) == ([], [first])
    assert [cell.name for cell, _ in plan(changed, changed.columns, changed.entries[:1], tmp_path / "board", {})] == [
        "majority in csbm-metis"
    ]
    said = []
    second = making(changed, "majority", tmp_path, say=said.append).make()
    assert f"it is of protocol {first.protocol}, this is {second.protocol}" in said[0]
    assert len(second.winners["received"].scores) == 2
    assert current(read_records(tmp_path / "board"), changed) == ([second], [])
    assert plan(changed, changed.columns, changed.entries[:1], tmp_path / "board", {}) == []


def test_a_trial_that_is_refused_is_recorded_but_the_default_must_run(tmp_path):
    protocol = read_protocol(written(tmp_path, methods={"fedper": {"space": {"algorithm.personal_layers": {"choices": [1, 7]}}}}, trials=8))
    record = making(protocol, "fedper", tmp_path).make()
    refused = [trial for trial in record.trials if trial.problem]
    assert len(refused) == 4 and {trial.values["algorithm.personal_layers"] for trial in refused} == {7}
    assert record.complete and all(trial.validation["trained"] is None for trial in refused)
    broken = read_protocol(written(tmp_path, methods={"fedper": {"space": {"algorithm.personal_layers": {"choices": [7, 1]}}}}))
    with pytest.raises(UserError, match="personal_layers"):
        making(broken, "fedper", tmp_path).make()


def scored(*validation: float | None) -> Record:
    trials = [Trial(number, {}, {"received": score, "trained": score}, 1.0) for number, score in enumerate(validation)]
    return Record("p", "e", "e", "gcn", "d", "s", len(trials), trials)


def test_the_best_trial_is_the_earliest_of_equals_and_none_that_diverged():
    assert scored(0.5, 0.7, 0.7).best("trained").number == 1 and scored(0.5, None, 0.4).best("trained").number == 0
    assert scored(0.5, 0.75).gain("trained") == pytest.approx(0.25) and scored(None, 0.7).gain("trained") is None
    assert scored(None, None).best("received") is None and scored(None).complete  # there is nobody to score


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
    assert "done: majority in csbm-metis" in made.stdout and "1 of 4 cells are complete." in made.stdout
    assert {record.entry: record.complete for record in read_records(tmp_path / "board")} == {"majority": True}
    listed = subprocess.run(leaderboard(tmp_path, "--list"), cwd=ROOT, env=env, capture_output=True, text=True)
    assert listed.stdout.startswith("1 cell(s) complete, 3 to make") and "majority" not in listed.stdout


def test_cheap_cells_come_first(tiny, tmp_path):
    known = {"local": 0.3, "fedavg": 0.2, "fedprox": 0.1, "majority": 0.5}
    rates = {Kind(name, "gcn", "csbm"): rate for name, rate in known.items()}
    cells = plan(tiny, tiny.columns, tiny.entries, tmp_path, rates)
    assert [cell.entry.name for cell, _ in cells] == ["fedprox", "fedavg", "majority", "local"]  # majority has one trial
    # Of a cell that was begun, what its trials took is known better: 2 seeds, 100 rounds, one epoch.
    slow = Record.new(tiny, tiny.entries[-1], COLUMN)
    slow.trials.append(Trial(0, {"local_epochs": 1}, {"received": 0.5, "trained": 0.5}, 100.0))
    write_record(tmp_path, slow)
    cells = plan(tiny, tiny.columns, tiny.entries, tmp_path, rates)
    assert [cell.entry.name for cell, _ in cells] == ["fedavg", "majority", "local", "fedprox"]
    assert cells[-1][1] == pytest.approx(0.5 * 100 * (3 * 2 + 2 * 3))


@pytest.mark.nightly
def test_an_interrupted_script_keeps_its_trials_and_leaves_no_process(tmp_path):
    env = {**ENVIRONMENT, "FGL_BENCH_CACHE": str(tmp_path / "cache")}
    path = written(tmp_path, changed=[*TINY, "rounds=400"], trials=4)
    line = leaderboard(tmp_path, "--methods", "fedavg", path=path)
    process = subprocess.Popen(line, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    cell = tmp_path / "board" / "csbm-metis" / "fedavg.json"
    end = time.monotonic() + 100
    while not cell.is_file() and time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=100)
    assert process.returncode == 130 and b"the same command continues" in told
    assert 1 <= len(read_record(cell).trials) <= 4
    assert not list((tmp_path / "board").glob(".runs-*"))
