"""Write the tables of docs/scale.md: the classes of devices, and what a million clients ask of links and servers.

    python scripts/quote_scale.py

Message sizes are those that stored runs counted (FedSA-GCL's table 3 on Cora, GCN of 64 units); links are those of
``scenarios/devices.csv``. The rest is arithmetic.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from fgl_bench.results.cells import read_cells
from fgl_bench.scenarios.devices import MEGABIT, known_devices

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from blocks import filled  # noqa: E402

METHODS = ("fedavg", "fedsa_gcl", "fedbuff")
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "scale.md"
CLIENTS = 1_000_000
FLOPS = 1e12  # of one server a second


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("devices", devices), ("limits", limits)):
        text = filled(text, name, lambda _, lines=lines: ["", *lines(), ""])
    PAGE.write_text(text, encoding="utf-8")


def devices() -> Iterator[str]:
    yield "| device | slowdown | up, Mb/s | down, Mb/s | latency, ms | source |"
    yield "|---|--:|--:|--:|--:|---|"
    file = ROOT / "src" / "fgl_bench" / "scenarios" / "devices.csv"
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        yield f"| {' | '.join(row.values())} |"


def limits() -> Iterator[str]:
    """One line for what each kind of method asks in a round of :data:`CLIENTS` clients."""
    sizes = message_sizes()
    model, server, mobile = sizes["fedavg"][0], known_devices()["server"], known_devices()["mobile"]
    rate, parameters = server.up_mbps * MEGABIT, model / 4
    hops = math.ceil(math.log2(CLIENTS))
    down = sizes["fedsa_gcl"][1]
    rows: list[tuple[str, str, str, str]] = [
        ("a trip of a phone", f"{size(2 * model)} of messages", "`mobile`", f"{seconds(mobile.travel(model, model))} and its training"),
        ("a round of FedAvg, everybody", f"{size(CLIENTS * model)} in, as much out", "a `server` link", both(CLIENTS * model, rate)),
        ("the same, 1 % of the clients", f"{size(0.01 * CLIENTS * model)} in, as much out", "the same", both(0.01 * CLIENTS * model, rate)),
        ("FedBuff's server", f"{size(model)} an upload", "the same", f"at most {rate / sizes['fedbuff'][0]:,.0f} uploads a second"),
        ("FedSA-GCL's server", f"{size(down)} down an upload", "the same", f"at most {rate / down:,.0f} uploads a second"),
        (
            "FedGTA's personal averages",
            f"weights of all pairs, {parameters:,.0f} parameters",
            "1 TFLOP/s",
            seconds(2 * CLIENTS**2 * parameters / FLOPS),
        ),
        ("the weights themselves", size(4 * CLIENTS**2), "memory", ""),
    ]
    for graph, degree in (("a ring", 2), ("an exponential graph", hops), ("a complete graph", CLIENTS - 1)):
        asked = degree * model
        rows.append((f"D-PSGD on {graph}, a phone", f"{size(asked)} up, as much down", "`mobile`", seconds(mobile.travel(asked, asked))))
    rows.append(("the simulation, 20 bytes a parameter and client", size(5 * CLIENTS * model), "memory of all workers", ""))
    yield "| what | asks for | with this | takes |"
    yield "|---|---|---|--:|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def message_sizes() -> dict[str, tuple[float, float]]:
    """Bytes up and down of one trip, by method, in the run that has nothing but the table's preset."""
    cells = {cell["command"]: cell for cell in read_cells(ROOT / "results" / "cells" / "fedsa_gcl")}
    sizes = {}
    for method in METHODS:
        cell = cells[f"fgl-bench experiment=fedsa_gcl/table3 dataset=cora algorithm={method}"]
        trips = cell["client_trips"]["total"]
        sizes[method] = (cell["bytes"]["upload"] / trips, cell["bytes"]["download"] / trips)
    return sizes


def both(volume: float, rate: float) -> str:
    return f"{seconds(volume / rate)} either way"


def size(volume: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if volume < 1000 or unit == "TB":
            return f"{volume:.3g} {unit}" if volume < 1000 else f"{volume:,.0f} {unit}"
        volume /= 1000
    raise AssertionError


def seconds(duration: float) -> str:
    for limit, unit, divisor in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if duration < limit:
            return f"{duration / divisor:.2g} {unit}"
    return f"{duration / 86400:,.0f} days"


if __name__ == "__main__":
    main()
