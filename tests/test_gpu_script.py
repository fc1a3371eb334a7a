"""``make gpu``: a step that has ended is not repeated, and the page has a section for each; cells are imported once."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTIONS = ("Tests", "Equality with the CPU", "Rounds", "Throughput", "Cells", "25 million nodes", "Two workers")
STEPS = ("tests", "equality", "rounds-fedavg-cora", "rounds-fedgta-cora", "throughput", "cells", "huge", "workers")


@pytest.fixture
def script():
    place = importlib.util.spec_from_file_location("gpu_script", ROOT / "scripts/gpu.py")
    module = importlib.util.module_from_spec(place)
    sys.modules[place.name] = module
    place.loader.exec_module(module)
    return module


def measured(script, monkeypatch, tmp_path, **runs) -> list[str]:
    """Call the script on steps that do as told; returns the names of those that ran, in order."""
    ran = []

    def step(name, run):
        return script.Step(name, 0, lambda options, seconds: ran.append(name) or run())

    monkeypatch.setattr(script, "steps", lambda options: iter([step(name, run) for name, run in runs.items()]))
    script.main(["--device", "cpu", "--out", str(tmp_path / "gpu")])
    return ran


def test_a_step_with_work_left_is_continued_by_the_next_call(script, tmp_path, monkeypatch):
    cells = {"new": {"tables": 3, "leaderboard": 0}, "notes": [], "unfinished": "time was up"}
    huge = {"seconds": {"train": 1.0}}
    assert measured(script, monkeypatch, tmp_path, cells=lambda: cells, huge=lambda: huge) == ["cells", "huge"]
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert "Not measured yet: cells." in text and "New: 3 of the papers' tables" in text and "the next call continues" in text
    del cells["unfinished"]
    assert measured(script, monkeypatch, tmp_path, cells=lambda: cells, huge=lambda: huge) == ["cells"]
    assert measured(script, monkeypatch, tmp_path, cells=lambda: cells, huge=lambda: huge) == []
    assert "Not measured yet" not in (tmp_path / "gpu.md").read_text(encoding="utf-8")


def test_a_step_that_would_end_too_late_is_left_out(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "steps", lambda options: iter([script.Step("huge", 6, lambda *_: pytest.fail("started"))]))
    script.main(["--device", "cpu", "--minutes", "5", "--out", str(tmp_path / "gpu")])
    assert "left out, no time: huge" in capsys.readouterr().out
    assert list((tmp_path / "gpu").iterdir()) == []


@pytest.mark.parametrize(("seconds", "status"), [(60.0, False), (3.0, True)])
def test_scripts_that_make_cells_are_stopped_when_time_is_up(script, tmp_path, monkeypatch, seconds, status):
    """Both scripts get Ctrl-C, after which their finished runs are stored."""
    folder = tmp_path / "gpu"
    folder.mkdir()
    wait = "import sys, time\ntry: time.sleep(float(sys.argv[1]))\nexcept KeyboardInterrupt: print('failed: a run: stopped')"
    monkeypatch.setattr(script, "table_cells", lambda *_: [sys.executable, "-c", wait, "0.1"])
    monkeypatch.setattr(script, "leaderboard_cells", lambda *_: [sys.executable, "-c", wait, "30" if status else "0.1"])
    begin = time.monotonic()
    result = script.cells(script.parser().parse_args(["--small", "--out", str(folder)]), seconds)
    assert time.monotonic() - begin < 25
    assert ("unfinished" in result, result["notes"]) == (status, ["failed: a run: stopped"] * status)
    assert result["new"] == {"tables": 0, "leaderboard": 0}


def test_the_number_of_processes_is_half_of_the_best_that_was_measured(script, tmp_path):
    assert script.best_number(tmp_path) == (1, False)
    measured = [{"processes": n, "mps": mps, "runs per minute": n * (1 + mps), "failed": 0} for n in (1, 8) for mps in (False, True)]
    (tmp_path / "throughput.json").write_text(json.dumps({"about": "", "result": {"measured": measured}}))
    assert script.best_number(tmp_path) == (4, True)


def test_the_speed_of_the_device_is_the_median_over_methods(script, tmp_path):
    assert script.speedup(tmp_path) == 1.0
    for number, eager in enumerate((0.5, 0.25, None)):
        modes = {"cpu": {"seconds per round": 1.0}, "eager": {"error": "no memory"} if eager is None else {"seconds per round": eager}}
        (tmp_path / f"rounds-{number}-cora.json").write_text(json.dumps({"about": "", "result": {"modes": modes}}))
    assert script.speedup(tmp_path) == 3.0


def test_a_script_that_ignores_ctrl_c_is_killed_with_its_children(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "GRACE", 0.1)
    ignoring = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {ignoring!r}]); {ignoring}"
    process = script.logged([sys.executable, "-c", parent], tmp_path / "log")
    while (tmp_path / "log").read_text().count("ready") < 2:
        time.sleep(0.05)
    child = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not child.is_file():
        pytest.skip("this system does not list a process's children")
    number = int(child.read_text())
    script.interrupt(process)
    time.sleep(0.2)
    state = Path(f"/proc/{number}/stat")
    assert process.returncode == -9 and (not state.is_file() or state.read_text().split()[2] == "Z")


@pytest.mark.audit
def test_the_page_of_the_documentation_quotes_what_was_measured(script):
    assert "\n".join(script.quoted(script.FOLDER)) in script.QUOTING.read_text(encoding="utf-8")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_killed_rehearsal_continues_where_it_was_and_has_every_section(tmp_path):
    line = [sys.executable, "scripts/gpu.py", "--device", "cpu", "--small", "--minutes", "60", "--out", str(tmp_path / "gpu")]
    first = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "gpu" / "equality.json").is_file():
        assert first.poll() is None
        time.sleep(0.1)
    time.sleep(1)  # into the third step
    first.kill()
    before = [line.split()[0] for line in first.communicate()[0].splitlines()]
    assert before == list(STEPS[: len(before)])
    second = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert [line.split()[0] for line in second.stdout.splitlines()] == [*STEPS[len(before) - 1 :], "written:"]
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert all(f"## {section}\n" in text for section in SECTIONS) and "error" not in text and "Not measured" not in text
    assert "New: 1 of the papers' tables" in text
    (tmp_path / "results").mkdir()
    imported = subprocess.run(
        [sys.executable, "-m", "fgl_bench", "import", "gpu", "into=results"], cwd=tmp_path, capture_output=True, text=True
    )
    assert imported.returncode == 1  # a rehearsal's run of 40 trips is in no table
    assert "fills no cell of a table" in imported.stdout or "not committed" in imported.stdout
