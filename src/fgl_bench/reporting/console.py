"""The table that a command ends with."""

from __future__ import annotations

import sys
from pathlib import Path

from tabulate import tabulate

from fgl_bench.reporting.divergence import shares, warning, without_score


def percent(stats: dict) -> str:
    """``81.2 ± 0.6`` in percent, with the 95 % interval's half-width where there is one."""
    if stats["mean"] is None:
        return "-"
    half = stats["ci95"]
    return f"{100 * stats['mean']:.2f}" + (f" ± {100 * half:.2f}" if half is not None else "")


def amount(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def reach(stats: dict, seeds: int) -> str:
    """Mean trips of the seeds that reached a target, and how many did."""
    return f"{stats['mean']:.0f} ({stats['reached']}/{seeds})" if stats["reached"] else f"- (0/{seeds})"


def table(summary: dict) -> str:
    """The run's table: test score of both models, trips to each target, bytes, seconds."""
    seeds = len(summary["seeds"])
    rows = []
    for model in ("received", "trained"):
        test = summary["test"][model]
        targets = [reach(by[model], seeds) for by in summary["client_trips"]["to_target"].values()]
        rows.append([f"{model} model", percent(test), percent(test["last"]), percent(test["worst_client"]), *targets])
    names = [f"trips to {100 * float(t):g} %" for t in summary["client_trips"]["to_target"]]
    body = tabulate(rows, headers=["", "test " + summary["metric"], "last point", "worst client", *names], disable_numparse=True)
    head = (
        f"{summary['algorithm']} on {summary['dataset']}, {summary['split']} split, {summary['num_clients']} clients, "
        f"{summary['model']}, {summary['scenario']}, {seeds} seed(s)"
    )
    moved, spent = summary["bytes"], summary["seconds"]
    trips = summary["client_trips"]["total"]
    busiest = f", {amount(moved['busiest'])} through the busiest client" if "busiest" in moved else ""
    without = max(summary.get("unscored_clients", {}).get("test", [0]))
    why = ", or of one class only" if summary["metric"] == "auc" else ""
    lines = [
        head,
        body,
        *([f"{shares(summary)};"] if summary.get("diverged") else []),
        *([f"{without_score(summary)};"] if summary.get("diverged") and without_score(summary) else []),
        f"test {summary['metric']} in % at the best validation point, mean over seeds ± 95 % t-interval;",
        *([f"{without} client(s) have no test nodes{why}, and count in no mean;"] if without else []),
        "trips: mean of the seeds that reached the validation target, and how many did",
        f"{trips} client trips a seed, {amount(moved['upload'])} up and {amount(moved['download'])} down a seed{busiest};",
        f"prepared in {spent['prepare']:.1f} s, trained in {spent['train']:.1f} s on {summary['device']}",
    ]
    return "\n".join(lines)


def show(summary: dict, folder: Path, again: bool) -> None:
    """Print the table and where the run is kept; warn where a seed has diverged."""
    said = warning(summary)
    if said is not None:
        print(said, file=sys.stderr, flush=True)
    print(table(summary))
    print(f"{'complete already (overwrite=true repeats it)' if again else 'written'}: {folder}", flush=True)
