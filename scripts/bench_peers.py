"""Seconds per round of other frameworks and of ours, on the same clients.

    python scripts/bench_peers.py openfgl=CLONE flower fed_graph
    python scripts/bench_peers.py fedgb=CLONE --clients 10

Each framework runs in an environment of its own, ``--environments``/<name>, which pip makes where it is not there. OpenFGL and FedGB are
no packages: name your clone. ``--python openfgl=PYTHON`` names an interpreter that has what it needs instead.

Clients, masks, local epochs and optimizer are equal (``scripts/cross_check`` has the drivers). The other framework trains one seed with
one thread and with all; the faster counts, by the median of its rounds but the first. Ours is the run of a table: five seeds at its
defaults, both models of every client scored; its seconds are those of training, over rounds and seeds.

Rows go to ``results/bench/peers.csv``, what each framework answered to ``results/bench/peers/``, and the table into docs/benchmark.md
(``--tables-only``: nothing else). A framework that cannot be run says why.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "scripts" / "cross_check"), str(ROOT / "scripts")]

from blocks import filled  # noqa: E402
from compare import commit, common, pooled, run_ours, run_theirs  # noqa: E402

from fgl_bench.utils.processes import last_line  # noqa: E402

RESULTS, PAGE = ROOT / "results" / "bench", ROOT / "docs" / "benchmark.md"
TORCH = f"torch=={torch.__version__.partition('+')[0]}"
SEEDS = 5


class Peer(NamedTuple):
    """A framework.

    Attributes:
        package: whose version is recorded; None for a clone.
        needs: what pip installs.
        alone: what it installs without what that needs in turn.
        rounds: of each method, theirs and ours; few of theirs where one takes minutes.
        all_cores: it cannot be told to use fewer.
    """

    title: str
    package: str | None
    needs: tuple[str, ...]
    alone: tuple[str, ...]
    rounds: dict[str, tuple[int, int]]
    all_cores: bool = False


PYG = "torch_geometric"
PEERS = {
    "openfgl": Peer(
        "OpenFGL",
        None,
        (
            PYG, "dtaidistance", "munkres", "networkx", "ogb", "opacus", "pandas", "pymetis", "python-louvain", "scikit-learn",
            "scikit-network", "torchmetrics", "tqdm",
        ),
        (),
        {"fedavg": (20, 100), "fedgta": (20, 100), "fed_pub": (10, 100), "fedsage_plus": (30, 30), "fedtad": (3, 10)},
    ),
    "fedgb": Peer(
        "FedGB",
        None,
        (PYG, "munkres", "networkx", "pandas", "scikit-learn", "scikit-network", "scipy", "tqdm", "zstandard"),
        (),
        {"fedavg": (20, 100), "fedgta": (20, 100), "fed_pub": (10, 100), "fedtad": (3, 10)},
    ),
    "flower": Peer("Flower", "flwr", ("flwr[simulation]", PYG), (), {"fedavg": (20, 100)}),
    "fed_graph": Peer(
        "FedGraph",
        "fedgraph",
        (
            PYG, "ray[default]", "attridict", "dtaidistance", "gdown", "huggingface_hub", "networkx", "ogb", "pandas", "requests",
            "scikit-learn", "tenseal", "torchmetrics",
        ),
        ("fedgraph",),
        {"fedavg": (20, 100)},
        all_cores=True,
    ),
}  # fmt: skip


def main() -> int:
    options = parser().parse_args()
    options.load = os.getloadavg()[0]
    if not options.tables_only:
        chosen = dict((part + "=").split("=")[:2] for part in options.peers or PEERS)
        if unknown := set(chosen) - set(PEERS):
            print(f"{', '.join(sorted(unknown))}: no such framework; allowed: {', '.join(PEERS)}", file=sys.stderr)
            return 2
        for name, source in chosen.items():
            bench(name, source, options)
    write_table(RESULTS / "peers.csv", PAGE)
    return 0


def bench(name: str, source: str, options: argparse.Namespace) -> None:
    """Write the rows of one framework, method by method, or one with the reason why it cannot be run."""
    peer, pythons = PEERS[name], dict(part.split("=", 1) for part in options.python)
    if peer.package is None and not source:
        keep({"framework": peer.title, "problem": f"{name}=CLONE was not given"})
        return
    try:
        python = pythons.get(name) or environment(peer, options.environments / name)
    except subprocess.CalledProcessError as error:
        keep({"framework": peer.title, "problem": f"installing it failed: {last_line(error)}"})
        return
    options = argparse.Namespace(**{**vars(options), "repository": name, "source": source, "python": python})
    for method in peer.rounds:
        if options.methods and method not in options.methods:
            continue
        print(f"{peer.title}, {method} ...", flush=True)
        row = {
            "framework": peer.title,
            "version": version(peer, source, python),
            "method": method,
            "dataset": options.dataset,
            "clients": str(options.clients),
        }
        try:
            row |= compared(name, method, options)
        except subprocess.CalledProcessError as error:
            row["problem"] = last_line(error)
        keep(row)
        print("  " + (row.get("problem") or f"{row['their_s']} s per round, ours {row['our_s']}, ratio {row['ratio']}"), flush=True)


def compared(name: str, method: str, options: argparse.Namespace) -> dict[str, str]:
    """Return a row without the columns that identify it: seconds and accuracies of both sides."""
    matched = importlib.import_module(name).MATCHED[method]
    evaluated, (rounds, our_rounds) = matched.get("evaluated", "trained"), PEERS[name].rounds[method]
    line = common(options, matched, options.dataset)
    ours = run_ours([*line, f"rounds={our_rounds}", f"seeds={list(range(SEEDS))}"])
    answers, cores = {}, os.cpu_count() or 1
    for threads in [cores] if PEERS[name].all_cores else options.threads or sorted({1, cores}):
        answers[threads], counts = run_theirs(options, method, matched, [*line, f"rounds={rounds}", "seeds=[0]"], threads=threads)
        file = RESULTS / "peers" / f"{name}-{method}-{options.dataset}-{options.clients}_clients-{threads}_threads.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(answers[threads]) + "\n")
    seconds = {threads: float(np.median(answer["seconds"][1:])) for threads, answer in answers.items()}
    threads = min(seconds, key=seconds.get)
    own = ours.summary["seconds"]["train"] / our_rounds / SEEDS
    curve = ours.curve()
    curve = curve[curve["round"] == rounds][f"test_{evaluated}"]
    return {
        "rounds": str(rounds), "model": evaluated, "threads": str(threads),
        "their_s": f"{seconds[threads]:.3g}", "our_s": f"{own:.3g}", "ratio": f"{seconds[threads] / own:.3g}",
        "theirs": f"{100 * final(answers[threads], counts, evaluated):.1f}", "ours": f"{100 * float(curve.mean()):.1f}",
        "tried": " ".join(map(str, answers)), "cores": str(cores), "load": f"{options.load:.1f}",
        "versions": f"torch {torch.__version__.partition('+')[0]}, Python {platform.python_version()}",
        "date": str(date.today()), "command": "fgl-bench " + " ".join([*line, f"rounds={our_rounds}"]), "problem": "",
    }  # fmt: skip


def final(theirs: dict[str, Any], counts: np.ndarray, evaluated: str) -> float:
    """Pooled test accuracy after the last round."""
    if plain := theirs.get(f"test_{evaluated}"):
        return plain[-1]
    return float(pooled(theirs, counts, evaluated)[-1, 1])


def environment(peer: Peer, folder: Path) -> str:
    """The interpreter of an environment with what the framework needs, made where it is not there."""
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        print(f"installing {peer.title} into {folder} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, text=True)
        for given in ([TORCH], [TORCH, *peer.needs], ["--no-deps", *peer.alone]):
            if given != ["--no-deps"]:
                subprocess.run([python, "-m", "pip", "install", "--quiet", *given], check=True, capture_output=True, text=True)
        done.touch()
    return str(python.absolute())


def version(peer: Peer, source: str, python: str) -> str:
    if peer.package is None:
        return tag(source) or commit(source)[:12]
    asked = f"from importlib.metadata import version; print(version({peer.package!r}))"
    return subprocess.run([python, "-c", asked], capture_output=True, text=True).stdout.strip()


def tag(source: str) -> str:
    """The clone's tag; empty where its commit has none."""
    known = subprocess.run(["git", "-C", source, "describe", "--tags", "--exact-match"], capture_output=True, text=True)
    return known.stdout.strip()


def keep(row: dict[str, str]) -> None:
    """Put a row in the place of the one that it repeats; one that could be run, in that of the framework's problem."""
    file = RESULTS / "peers.csv"
    rows = pd.read_csv(file, keep_default_na=False, dtype=str).to_dict("records") if file.exists() else []

    def repeated(old: dict[str, str]) -> bool:
        same = all(old.get(key, "") == row.get(key, "") for key in ("framework", "method", "dataset", "clients"))
        return same or (old["framework"] == row["framework"] and not old.get("method"))

    pd.DataFrame([*(old for old in rows if not repeated(old)), row]).fillna("").to_csv(file, index=False)


def write_table(rows: Path, page: Path) -> None:
    page.write_text(filled(page.read_text(encoding="utf-8"), "rows", lambda _: ["", table(rows), ""]), encoding="utf-8")


HEAD = ["framework", "method", "data", "s per round", "ours", "ratio", "accuracy after", "theirs", "ours"]


def table(file: Path) -> str:
    if not file.exists():
        return "Nothing has been run."
    order = [peer.title for peer in PEERS.values()]
    records = sorted(pd.read_csv(file, keep_default_na=False, dtype=str).to_dict("records"), key=lambda row: order.index(row["framework"]))
    lines = [f"| {' | '.join(HEAD)} |", "|---" * 3 + "|--:" * 3 + "|---" + "|--:" * 2 + "|"]
    for row in records:
        if not row.get("problem"):
            cells = [
                f"{row['framework']} {row['version']}", row["method"], f"{row['dataset']}, {row['clients']} clients", row["their_s"],
                row["our_s"], row["ratio"], f"{row['rounds']} rounds, {row['model']}", row["theirs"], row["ours"],
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    ran = [row for row in records if not row.get("problem")]
    conditions: dict[str, dict[str, None]] = {}
    for row in ran:
        busy = f"; load average {row['load']} before, theirs tried with {row['tried']} thread(s)" if row.get("load") else ""
        conditions.setdefault(f"{row['date']}; {row['cores']} cores; {row['versions']}{busy}", {})[row["framework"]] = None
    for condition, titles in conditions.items():
        lines += ["", f"{', '.join(titles)}: {condition}."]
    if not ran:
        lines = []
    for row in records:
        if row.get("problem"):
            title = f"{row['framework']}, {row['method']}" if row.get("method") else row["framework"]
            lines += ["", f"{title} could not be run: {row['problem']}."]
    return "\n".join(lines).strip()


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("peers", nargs="*", metavar="NAME[=CLONE]", help=f"default: all of {', '.join(PEERS)}")
    command.add_argument("--python", nargs="+", default=[], metavar="NAME=PYTHON")
    command.add_argument("--environments", type=Path, default=ROOT / ".bench-peers")
    command.add_argument("--methods", nargs="+")
    command.add_argument("--dataset", default="cora")
    command.add_argument("--split", default="metis")
    command.add_argument("--clients", type=int, default=20)
    command.add_argument("--threads", type=int, nargs="+", help="of the other framework; default: one, and all cores")
    command.add_argument("--tables-only", action="store_true")
    return command


if __name__ == "__main__":
    sys.exit(main())
