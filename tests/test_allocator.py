"""The C library's allocator is set for arrays, before a run begins, without changing anything else of the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fgl_bench.utils import allocator

OLD = (allocator.glibc() or allocator.MENDED) < allocator.MENDED
SAY = """
import os, sys
from fgl_bench.utils.allocator import restart
restart()
print(os.getpid(), sys.argv[1:], sys.flags.optimize, os.environ.get("GLIBC_TUNABLES"), flush=True)
"""


@pytest.mark.parametrize(
    "told, expected",
    [(None, allocator.TUNABLE), ("glibc.malloc.mxfast=0", f"glibc.malloc.mxfast=0:{allocator.TUNABLE}"),
     ("glibc.malloc.tcache_count=7", "glibc.malloc.tcache_count=7")],
)  # fmt: skip
def test_what_the_user_tells_the_allocator_stays(monkeypatch, told, expected):
    monkeypatch.setattr(allocator, "glibc", lambda: (2, 36))
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if told:
        monkeypatch.setenv("GLIBC_TUNABLES", told)
    found = allocator.environment()
    assert found.pop("GLIBC_TUNABLES") == expected
    assert found == {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}


@pytest.mark.parametrize("version", [None, (2, 38), (2, 41)])
def test_other_c_libraries_and_mended_ones_are_left_alone(monkeypatch, version):
    monkeypatch.setattr(allocator, "glibc", lambda: version)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert allocator.environment() == dict(os.environ)


def test_a_process_begins_anew_once_as_itself():
    plain = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    arguments = ["a=1", "b= '2'"]
    process = subprocess.Popen([sys.executable, "-O", "-c", SAY, *arguments], stdout=subprocess.PIPE, text=True, env=plain)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    tunable = allocator.TUNABLE if OLD else None
    assert said == f"{process.pid} {arguments} 1 {tunable}\n"
