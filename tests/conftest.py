"""Shared settings: one thread, since small tensors lose time to more; no deadline for examples, since machines differ."""

from __future__ import annotations

import gc
import signal

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("suite", deadline=None, max_examples=25)
settings.register_profile("nightly", deadline=None)
settings.load_profile("suite")
# What the tests start is not to inherit the deafness of nohup and of a shell's background jobs.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Let the collector leave alone what imports have made: looking through it again and again takes a fifth of the suite's time."""
    gc.collect()
    gc.freeze()
