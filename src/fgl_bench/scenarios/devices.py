"""Classes of devices: how much slower than the fastest they compute, and the links that they send over."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from fgl_bench.errors import UserError

MEGABIT = 1e6 / 8  # bytes


class Device(NamedTuple):
    """One class of devices, a row of ``devices.csv``, whose last column names where the numbers were measured.

    Attributes:
        slowdown: seconds of computation for one second of the fastest class.
        up_mbps, down_mbps: rates of the link, in megabits a second.
        latency_ms: of one message, in milliseconds.
    """

    slowdown: float
    up_mbps: float
    down_mbps: float
    latency_ms: float

    def travel(self, up: float, down: float) -> float:
        """Seconds that a trip's messages take: bytes down, then bytes up."""
        return 2 * self.latency_ms / 1000 + up / (self.up_mbps * MEGABIT) + down / (self.down_mbps * MEGABIT)


@cache
def known_devices() -> dict[str, Device]:
    """The classes by name."""
    text = files("fgl_bench.scenarios").joinpath("devices.csv").read_text(encoding="utf-8")
    return {row["device"]: Device(*(float(row[name]) for name in Device._fields)) for row in csv.DictReader(text.splitlines())}


def device(name: str) -> Device:
    """The class of this name; raises UserError if it is unknown."""
    if name not in known_devices():
        raise UserError(f"scenario.devices: there is no {name}; allowed: {', '.join(known_devices())}")
    return known_devices()[name]
