"""From the command to the first local step: how many calls of its own functions the package makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.warm import environment

MOST = 5_500
SMALL = (
    "algorithm=fedsa_gcl", "dataset=csbm", "dataset.num_nodes=300", "dataset.num_edges=900", "dataset.num_features=64", "num_clients=4",
    "trips=40", "seeds=[0]", "progress=false", "device=cpu",
)  # fmt: skip
COUNT = """
import sys, threading
import fgl_bench

src, calls, done = fgl_bench.__path__[0], 0, False

def profile(frame, event, argument):
    global calls, done
    code = frame.f_code
    if done or event != "call" or not code.co_filename.startswith(src):
        return
    calls += 1
    done = code.co_name == "forward" and "/models/" in code.co_filename

from fgl_bench.cli.main import main

threading.setprofile(profile)
sys.setprofile(profile)
try:
    main()
finally:
    sys.setprofile(None)
    print("CALLS", calls, done)
"""


def test_calls_before_the_first_step_are_bounded(tmp_path: Path) -> None:
    line = [sys.executable, "-c", COUNT, *SMALL, f"results_dir={tmp_path}"]
    done = subprocess.run(line, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=200, check=True)
    _, calls, reached = done.stdout.splitlines()[-1].split()
    assert reached == "True" and 1000 < int(calls) < MOST
