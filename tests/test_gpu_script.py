"""``make gpu``: a step that has ended is not repeated, and the page has a section for each."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]
SECTIONS = ("Tests", "Equality with the CPU", "Rounds", "Throughput", "25 million nodes")


@pytest.fixture
def script():
    place = importlib.util.spec_from_file_location("gpu_script", ROOT / "scripts/gpu.py")
    module = importlib.util.module_from_spec(place)
    sys.modules[place.name] = module
    place.loader.exec_module(module)
    return module


def test_a_killed_call_loses_the_step_under_way_and_the_next_one_goes_on(script, tmp_path, monkeypatch):
    made = []

    def measured(options):
        made.append("throughput")
        return {"1 process(es)": {"runs per minute": 12.0, "failed": 0}}

    def killed(options):
        made.append("huge")
        if made.count("huge") == 1:
            raise KeyboardInterrupt
        return {"seconds": {"train": 1.0}}

    monkeypatch.setattr(script, "steps", lambda options: iter([script.Step("throughput", 0, measured), script.Step("huge", 0, killed)]))
    line = ["--device", "cpu", "--out", str(tmp_path / "gpu")]
    with pytest.raises(KeyboardInterrupt):
        script.main(line)
    assert [path.name for path in (tmp_path / "gpu").iterdir()] == ["throughput.json"]
    script.main(line)
    assert made == ["throughput", "huge", "huge"]
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert "| 1 process(es) | 12.0" in text and "## 25 million nodes" in text


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_rehearsal_on_a_cpu_has_every_section(script, tmp_path):
    script.main(["--device", "cpu", "--small", "--minutes", "60", "--out", str(tmp_path / "gpu")])
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert all(f"## {section}" in text for section in SECTIONS) and "error" not in text
