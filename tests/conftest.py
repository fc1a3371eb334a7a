"""Shared settings: one thread, since small tensors lose time to more; no deadline for examples, since machines differ."""

from __future__ import annotations

import gc
import signal

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what the tests start is not to inherit the deafness of nohup


def pytest_collection_finish() -> None:
    """Let the collector leave alone what imports have made: looking through it again and again takes a fifth of the suite's time."""
    gc.collect()
    gc.freeze()
