"""The summary table that a run prints."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tabulate import tabulate

from fgl_bench.errors import printable
from fgl_bench.results import render
from fgl_bench.results.scored import COMMON, of_task, score_trained, selected, shares, warning

NARROW = 80


def line_width() -> int:
    """Return the line length in characters: the terminal's width, at least 80; 80 for a file or a pipe."""
    return max(shutil.get_terminal_size((NARROW, 24)).columns, NARROW) if sys.stdout.isatty() else NARROW


def percent(stats: dict) -> str:
    return render.percent(stats["mean"], 2, stats["ci95"], stats.get("per_seed", ()))


def amount(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def reach(stats: dict, seeds: int) -> str:
    """Format the mean trips of the seeds that reached a target, and their number."""
    return f"{stats['mean']:.0f} ({stats['reached']}/{seeds})" if stats["reached"] else f"- (0/{seeds})"


OTHERS = "all other columns: best point of the whole federation; last point and trips by the weighted mean;"
SCORED = {
    "final": "trained models are scored at the last point only, where they are selected (split.score_trained=every: at every point);",
    "never": "trained models are not scored (split.score_trained=never);",
}
HARDSHIPS = ("lr_schedule", "noise", "attack", "aggregator", "privacy")  # groups that are named if they are not the default
POINTS = {"federation": "the best validation point", "client": "each client's best validation point"}
MEANS = {"weighted": "", "macro": "unweighted mean over clients, "}


def table(summary: dict, selection: str = "federation", average: str = "weighted") -> str:
    """Format the run's table: test scores of both models, trips to each target, bytes, seconds.

    Args:
        selection, average: the test score to show, see :func:`fgl_bench.evaluation.summary.selected_scores`.
    """
    from fgl_bench.results.statistics import guarantee, wide  # imports numpy; read-only commands do not

    seeds, when = len(summary["seeds"]), score_trained(summary)
    rows, halves, diverged = [], [], summary.get("diverged")
    for model in ("received", "trained"):
        test = summary["test"][model]
        shown = selected(test, selection, average)
        targets = [reach(by[model], seeds) if model in by else "-" for by in summary["client_trips"]["to_target"].values()]
        lost = [f"{len(diverged.get(model, {}))} of {seeds} seeds"] if diverged else []
        score = "not recorded" if shown is None else percent(shown)
        halves.append(None if shown is None or shown["ci95"] is None else 100 * shown["ci95"])
        rows.append([f"{model} model", score, percent(test["last"]), percent(test["worst_client"]), *lost, *targets])
    absent = any(selected(summary["test"][model], selection, average) is None for model in ("received", "trained"))
    names = [f"trips to {100 * float(t):g} %" for t in summary["client_trips"]["to_target"]]
    scored = ["", "test " + summary["metric"], "last point", "worst client", *["diverged"] * bool(diverged)]
    body = tabulate(rows, headers=[*scored, *names], disable_numparse=True)
    if max(map(len, body.splitlines())) > NARROW:  # scores above, trips below
        count = len(scored)
        aims = [name.removeprefix("trips to ") for name in names]
        parts = [([row[:count] for row in rows], scored), ([[row[0], *row[count:]] for row in rows], ["trips to", *aims])]
        body = "\n\n".join(tabulate(part, headers=headers, disable_numparse=True) for part, headers in parts)
    head = (
        f"{summary['algorithm']} on {summary['dataset']}{of_task(summary)}, {summary['split']} split, {summary['num_clients']} clients, "
        f"{summary['model']}, {summary['scenario']}, {seeds} seed{'s' * (seeds != 1)}"
        + "".join(f", {key}={summary[key]}" for key in HARDSHIPS if key in summary)
    )
    moved, spent = summary["bytes"], summary["seconds"]
    trips = summary["client_trips"]["total"]
    busiest = f", {amount(moved['busiest'])} through the busiest client" if "busiest" in moved else ""
    malicious = max(map(len, summary.get("malicious_clients", [[]])))
    without = max(summary.get("unscored_clients", {}).get("test", [0])) - malicious
    why = ", or one of a single class" if summary["metric"] == "auc" else ""
    lines = [
        head,
        body,
        *([f"{shares(summary)};"] if diverged else []),
        *(["(n/m): over the n of m seeds that have a score;"] if "/" in "".join(cell for row in rows for cell in row[1:4]) else []),
        f"test {summary['metric']} in % at {POINTS[selection]}, {MEANS[average]}mean over seeds ± 95 % t-interval;",
        *([SCORED[when]] if when in SCORED else []),
        *wide(halves),
        *([OTHERS] if (selection, average) != COMMON else []),
        *([f"not recorded: this run is older than selection={selection} average={average}; overwrite=true repeats it;"] if absent else []),
        *([f"{malicious} of {summary['num_clients']} clients are malicious and count in no mean;"] if malicious else []),
        *([unseen_line(summary["unseen"])] if "unseen" in summary else []),
        *([f"trained for {', '.join(map(str, summary['rounds_trained']))} rounds (by seed);"] if "rounds_trained" in summary else []),
        *([f"{guarantee(summary['privacy_spent'])};"] if "privacy_spent" in summary else []),
        *([f"{without} client(s) have an empty test set{why}, and count in no mean;"] if without else []),
        "trips: mean of the seeds that reached the validation target, and how many did",
        f"{trips} client trips per seed, {amount(moved['upload'])} up and {amount(moved['download'])} down per seed{busiest};",
        f"prepared in {spent['prepare']:.1f} s, trained in {spent['train']:.1f} s on {summary['device']}",
    ]
    return "\n".join(lines)


def unseen_line(unseen: dict) -> str:
    """Return the scores of the clients that were left out of training."""
    received, tuned = (percent(unseen[kind]) for kind in ("received", "fine_tuned"))
    return (
        f"{len(unseen['clients'][0])} unseen clients after the last round: received model {received}, "
        f"after {unseen['epochs']} epochs of fine-tuning {tuned};"
    )


def show(summary: dict, folder: Path, again: bool, selection: str = "federation", average: str = "weighted") -> None:
    """Print the :func:`table` and the run's folder; warn if a seed diverged."""
    problem = warning(summary)
    if problem is not None:
        print(problem, file=sys.stderr, flush=True)
    print(printable(table(summary, selection, average)))
    print(f"{'complete already (overwrite=true repeats it)' if again else 'written'}: {folder}", flush=True)
