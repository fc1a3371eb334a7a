"""The table at the end of a command."""

from __future__ import annotations

import pytest

from fgl_bench.results.console import amount, percent, reach, show, table


def test_percentages():
    assert percent({"mean": 0.8123, "std": 0.01, "ci95": 0.00567}) == "81.23 ± 0.57"
    assert percent({"mean": 0.5, "std": None, "ci95": None}) == "50.00"
    assert percent({"mean": None, "std": None, "ci95": None}) == "no score"
    assert percent({"mean": 0.5, "std": 0.0, "ci95": 0.0}) == "50.00 ± 0.00"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (2.5e9, "2.5 GB"), (3e12, "3.0 TB"), (4e15, "4000.0 TB")],
)
def test_amounts(count, text):
    assert amount(count) == text


def test_targets():
    assert reach({"mean": 133.4, "reached": 3}, 5) == "133 (3/5)"
    assert reach({"mean": None, "reached": 0}, 5) == "- (0/5)"
    assert reach({"mean": 0.0, "reached": 5}, 5) == "0 (5/5)"


def test_a_wide_interval_gets_a_note():
    made = summary()
    assert "third of the scale" not in table(made)
    made["test"]["received"]["ci95"] = 0.17
    assert "third of the scale (33 points): 1 of 2" in table(made)


def scores(mean, reached):
    spread = {"mean": mean, "std": 0.01, "ci95": 0.012}
    return {**spread, "last": spread, "worst_client": {**spread, "mean": mean / 2}}, {
        **spread,
        "mean": 40.0 if reached else None,
        "reached": reached,
    }


def summary():
    received, received_trips = scores(0.61, 2)
    trained, trained_trips = scores(0.79, 0)
    return {
        "algorithm": "fedavg", "dataset": "cora", "split": "metis", "num_clients": 20, "model": "gcn", "scenario": "sync", "seeds": [0, 1],
        "metric": "accuracy", "test": {"received": received, "trained": trained},
        "client_trips": {"total": 2000, "to_target": {"0.7": {"received": received_trips, "trained": trained_trips}}},
        "bytes": {"upload": 7.4e8, "download": 7.4e8}, "seconds": {"prepare": 1.0, "train": 2.5, "total": 3.5}, "device": "CPU",
    }  # fmt: skip


def test_the_table_names_both_models_and_says_what_was_measured():
    text = table(summary())
    lines = text.splitlines()
    received, trained = (next(line for line in lines if line.startswith(name)) for name in ("received model", "trained model"))
    assert "61.00 ± 1.20" in received and "30.50" in received and "40 (2/2)" in received
    assert "79.00 ± 1.20" in trained and "- (0/2)" in trained
    header = next(line for line in lines if "test accuracy" in line)
    assert "trips to 70 %" in header and "worst client" in header
    assert "fedavg on cora, metis split, 20 clients, gcn, sync, 2 seeds" in text
    assert "2000 client trips" in text and "740.0 MB up" in text and "2.5 s on CPU" in text


def test_showing_says_whether_the_run_is_new(tmp_path, capsys):
    show(summary(), tmp_path, again=False)
    assert capsys.readouterr().out.endswith(f"written: {tmp_path}\n")
    show(summary(), tmp_path, again=True)
    assert f"complete already (overwrite=true repeats it): {tmp_path}" in capsys.readouterr().out


def test_clients_without_a_score_are_mentioned():
    made = summary()
    assert "in no mean" not in table(made)
    made["unscored_clients"] = {"val": [4, 4], "test": [0, 2]}
    assert "2 client(s) have an empty test set, and count in no mean;" in table(made)
    made["metric"] = "auc"
    assert "2 client(s) have an empty test set, or one of a single class, and count in no mean;" in table(made)


def test_another_selection_is_shown_and_said():
    made = summary()
    text = table(made, "client", "macro")
    assert "not recorded: this run is older than selection=client average=macro; overwrite=true repeats it;" in text
    for model, mean in (("received", 0.123), ("trained", 0.456)):
        found = {"mean": mean, "std": None, "ci95": None, "per_seed": [mean]}
        made["test"][model]["selected"] = {"client": {"macro": found}}
    text = table(made, "client", "macro")
    assert "12.30" in text and "45.60" in text and "not recorded" not in text
    assert "at each client's best validation point, unweighted mean over clients, mean over seeds" in text
    assert "all other columns: best point of the whole federation" in text and "all other columns" not in table(made)
