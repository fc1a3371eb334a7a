"""The C library's allocator is set for arrays, without a change to anything else of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fgl_bench.utils import allocator

ROUNDS = """
import resource, sys, torch
from fgl_bench.utils.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
torch.ones(2 * 10**6)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    torch.ones(2 * 10**6)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_pages_of_freed_arrays_are_taken_again():
    faults = [int(subprocess.run([sys.executable, "-c", ROUNDS, how], capture_output=True, text=True).stdout) for how in ("", "kept")]
    assert faults[1] < faults[0] / 10


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    allocator.keep_freed_memory()
    allocator.return_freed_memory()


def test_the_command_line_is_the_module():
    done = subprocess.run([sys.executable, "-m", "fgl_bench", "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("fgl-bench ") and done.stderr == ""
