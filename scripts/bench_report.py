"""Write the benchmark's files: bench.json, bench.md, growth.png, and the growth in docs/benchmark.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from bench_loops import METHODS  # noqa: E402
from blocks import filled  # noqa: E402

FOLDER, PAGE = (Path(__file__).resolve().parents[1] / name for name in ("results/bench", "docs/benchmark.md"))
SIZES = ("cora", "pubmed", "computers", "physics", "arxiv")
SIDES = {"engine": "engine", "loop": "plain loop", "loop_sparse": "sparse loop"}


def read(path: Path) -> dict:
    try:
        return {"cells": {}, "growth": {}, **json.loads(path.read_text(encoding="utf-8"))}
    except (OSError, ValueError):
        return {"cells": {}, "growth": {}}


def write(folder: Path, results: dict) -> None:
    from fgl_bench.utils.files import write_whole

    results["cells"] = dict(sorted(results["cells"].items(), key=lambda item: sort_key(item[0])))
    write_whole(folder / "bench.json", json.dumps(results, indent=1) + "\n")
    write_whole(folder / "bench.md", markdown(results))
    if results["growth"]:
        draw(folder, results["growth"])
    if folder.resolve() == FOLDER:
        write_whole(PAGE, filled(PAGE.read_text(encoding="utf-8"), "growth", lambda _: growth_table(results["growth"])))


def sort_key(name: str) -> tuple:
    method, dataset, clients, device = name.split("/")
    return device, METHODS.index(method), SIZES.index(dataset.removeprefix("csbm_")), int(clients)


def spread(seconds: Sequence[float]) -> str:
    """Median and quartiles in milliseconds."""
    low, middle, high = 1e3 * np.percentile(seconds, [25, 50, 75])
    digits = 1 if middle < 100 else 0
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def ratio(cell: dict, side: str) -> float:
    """How much faster the engine is than this loop, per seed and round."""
    return float(np.median(cell[side]["seconds"]) / np.median(cell["engine"]["seconds"]))


def percent(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.1f}"


def rows(name: str, cell: dict) -> list[list[str]]:
    table = []
    for side, title in SIDES.items():
        if side not in cell:
            continue
        result = cell[side]
        both = {model: result[model] for model in ("received", "trained")}
        number = len(cell["loop"]["received"]) if "loop" in cell else len(both["received"])
        accuracy = [
            f"{percent(values[:number])} ({percent(values)})" if len(values) > number else percent(values) for values in both.values()
        ]
        middle, train, memory = np.median(result["seconds"]), "", f"{result['increase'] / 1e6:.0f}"
        times, factor = "", ""
        if side == "engine":
            factor = f"{middle / result['floor']:.1f}" if "floor" in result else ""
            memory += f" ({result['predicted'] / 1e6:.0f})"
            title += f", {result['programs']} at once"
            if "training" in cell:
                train = f"{1e3 * np.median(cell['training']['seconds']):.1f}"
        else:
            times, title = f"{ratio(cell, side):.1f} x", f"{title}, {result['best']}"
        table.append([name, title, spread(result["seconds"]), train, times, factor, *accuracy, memory, f"{result['peak'] / 1e6:.0f}"])
    return table


HEADERS = ["cell", "side", "ms per seed and round", "training only", "engine faster", "over floor", "received %", "trained %",
           "MB more (predicted)", "peak MB"]  # fmt: skip


def table(cells: dict, style: str = "simple") -> str:
    from tabulate import tabulate

    lines = [row for name, cell in cells.items() for row in rows(name, cell)]
    return tabulate(lines, HEADERS, tablefmt=style, disable_numparse=True)


def markdown(results: dict) -> str:
    hardware = results["machine"]
    parts = ["# Speed of the engine", "", "Written by `make bench`; see docs/benchmark.md for what the columns mean.", ""]
    parts += [f"{hardware['cpu']}, {hardware['threads']} threads" + (f"; {hardware['gpu']}" if "gpu" in hardware else "") + ".", ""]
    cells = results["cells"]
    if cells:
        parts += [table(cells, "github"), ""]
        kinds = sorted({(c["date"], (c["code"] or {}).get("commit", "unknown")[:12] + ("+" if (c["code"] or {}).get("dirty") else ""),
                         c["versions"].get("torch", ""), c["versions"]["python"]) for c in cells.values()})  # fmt: skip
        parts += [f"Measured {date} at commit {commit}, torch {torch}, Python {python}." for date, commit, torch, python in kinds] + [""]
    for device in sorted({cell["device"] for cell in cells.values()}):
        rates = next(cell["rates"] for cell in cells.values() if cell["device"] == device)
        parts += [
            f"Rates behind the floor on {device}: copy {rates['copy'] / 1e9:.1f} GB/s (in cache {rates['copy_cached'] / 1e9:.1f}), "
            f"matrix product {rates['flops'] / 1e9:.0f} GFLOP/s.",
            "",
        ]
    profiles = {name: cell["profile"] for name, cell in cells.items() if "profile" in cell}
    if profiles:
        parts += ["## Where the time goes", ""]
        parts += [
            f"- {name}: " + ", ".join(f"`{operation}` {100 * share:.0f} %" for operation, share in list(shares.items())[:6])
            for name, shares in profiles.items()
        ] + [""]
    for device, axes in results["growth"].items():
        base = "one seed, 20 clients, 10 rounds; nodes: two edges a node, 500 features"
        parts += [
            f"## Growth on {device}",
            "",
            f"FedAvg at Cora's size, one axis varied ({base}). Exponents of the fitted power law:",
            "",
        ]
        parts += [f"- {axis}: time {fit['slope']['seconds']:.2f}, memory {fit['slope']['bytes']:.2f}" for axis, fit in axes.items()]
        parts += ["", "![growth](growth.png)", ""]
    return "\n".join(parts)


def growth_table(growth: dict) -> list[str]:
    """The lines of the block ``growth`` of docs/benchmark.md: a row for each axis."""
    from tabulate import tabulate

    heads = ["device", "axis", "from", "to", "seconds", "exponent", "MB", "exponent"]
    lines = []
    for device, axes in growth.items():
        for axis, fit in axes.items():
            first, last = fit["points"][0], fit["points"][-1]
            seconds, memory = (
                f"{first['seconds']:.3f} to {last['seconds']:.3f}",
                f"{first['bytes'] / 1e6:.0f} to {last['bytes'] / 1e6:.0f}",
            )
            slope = fit["slope"]
            lines.append([device, axis, first["at"], last["at"], seconds, f"{slope['seconds']:.2f}", memory, f"{slope['bytes']:.2f}"])
    return ["", tabulate(lines, heads, "pipe", disable_numparse=True) if lines else "Not measured yet.", ""]


def draw(folder: Path, growth: dict) -> None:
    """``growth.png``: time above, memory below, a column per axis."""
    import matplotlib.pyplot as plt

    from fgl_bench.results.plots.style import COLORS, STYLE, save_all

    axes_names = list(next(iter(growth.values())))
    scales: dict[str, tuple[str, Callable[[dict], float]]] = {
        "seconds": ("seconds", lambda p: p["seconds"]), "bytes": ("MB more", lambda p: p["bytes"] / 1e6)
    }  # fmt: skip
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(2, len(axes_names), figsize=(2.6 * len(axes_names), 4.8), layout="constrained", squeeze=False)
        for color, (device, axes) in zip(COLORS[1:], growth.items(), strict=False):
            for column, axis in enumerate(axes_names):
                for row, (quantity, (unit, value)) in enumerate(scales.items()):
                    plot, points = grid[row][column], axes[axis]["points"]
                    label = f"{device}: exponent {axes[axis]['slope'][quantity]:.2f}"
                    plot.loglog([p["at"] for p in points], [value(p) for p in points], "o-", color=color, label=label)
                    if quantity == "bytes" and device == "cpu":
                        predicted = [p["predicted"] / 1e6 for p in points]
                        plot.loglog([p["at"] for p in points], predicted, ":", color=COLORS[0], label="predicted")
                    plot.set_xlabel(axis)
                    plot.set_ylabel(unit if not column else "")
                    plot.legend(fontsize=7)
        save_all(figure, folder / "growth", ("png", "svg"), dpi=130)
