"""The C library's allocator is set for arrays, without a change to anything else of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fgl_bench.utils import allocator

ROUNDS = """
import resource, sys, torch
from fgl_bench.utils.allocator import keep_freed_memory, return_freed_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
if sys.argv[1] == "kept":
    keep_freed_memory()
before = resident()
blocks = [torch.ones(10**6) for _ in range(50)]
del blocks
kept = resident() - before
return_freed_memory()
print(kept, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
@pytest.mark.parametrize(("how", "some"), [("", False), ("kept", True)])
def test_freed_memory_is_kept_until_it_is_returned(how, some):
    done = subprocess.run([sys.executable, "-c", ROUNDS, how], capture_output=True, text=True, check=True)
    kept, left = map(int, done.stdout.split())
    assert (kept > 150e6) == some and left < 30e6


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    allocator.keep_freed_memory()
    allocator.return_freed_memory()


def test_the_command_line_is_the_module():
    done = subprocess.run([sys.executable, "-m", "fgl_bench", "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("fgl-bench ") and done.stderr == ""
