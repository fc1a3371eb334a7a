"""Seconds of computing."""

from __future__ import annotations

import time

import torch


def clock(device: torch.device) -> float:
    """Seconds, once the device has done everything that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
