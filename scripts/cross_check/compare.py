"""Compare ours with the authors' own code: the same clients, masks, features, hyper-parameters and, for equal networks, initial weights.

    python scripts/cross_check/compare.py openfgl --source CLONE --methods fedavg fedgta --datasets cora citeseer

``CLONE`` is a checkout that you make; its commit is recorded, and nothing of it is copied. A driver ``<repository>.py`` next to this file
runs one method of it in a process of its own (``--python`` for an environment of its own). Two comparisons are made of each method:

- *scores*: ``--rounds`` rounds with every seed, test accuracy where the pooled validation accuracy is best, of the models that both score;
- *steps*: the same without dropout, where nothing is random any more in most methods: the largest difference of the pooled test accuracy
  in any of the first ``--step-rounds`` rounds. Equal curves are equal steps. Where the driver writes weights, also in float64 the largest
  difference of any weight of a trained model after these rounds, and the clusters after each of them.

A comparison is a row of ``results/cross_check/<repository>.csv``, with both in it; a row that is there is not made again
(``--again`` makes it). ``--tables-only`` writes docs/cross_check.md from the rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from page import write_page

import fgl_bench
from fgl_bench.config.compose import as_command
from fgl_bench.data.federation import Federation
from fgl_bench.evaluation.summary import half_width
from fgl_bench.results.saved_models import load_models
from fgl_bench.runner.build import DTYPES, initial_models
from fgl_bench.runner.memory import network
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import RunSpec, resolve
from fgl_bench.utils.processes import last_line
from fgl_bench.utils.seeding import derive_seed

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "results" / "cross_check"
SCRATCH = tempfile.TemporaryDirectory()  # runs are read from it until the end
REPOSITORIES = (
    "adafgl", "ditto", "fed_graph", "fed_pub", "fedexp", "fedgb", "fedgcn", "fedgsp", "fedgta", "fediih", "fedspray", "fedstruct", "fedtad",
    "flower", "gcfl", "htfllib", "openfgl", "pfllib", "s2fgl",
)  # fmt: skip


def main() -> int:
    options = parser().parse_args()
    if options.tables_only:
        write_page(ROWS, ROOT / "docs" / "cross_check.md")
        return 0
    matched = importlib.import_module(options.repository).MATCHED
    unknown = set(options.methods or ()) - set(matched)
    if unknown:
        print(f"--methods: {', '.join(sorted(unknown))}: no such comparison; allowed: {', '.join(matched)}", file=sys.stderr)
        return 2
    file = ROWS / f"{options.repository}.csv"
    rows = pd.read_csv(file, keep_default_na=False, dtype=str).to_dict("records") if file.exists() else []
    for name in options.methods or matched:
        own = argparse.Namespace(
            **vars(options) | {key: getattr(options, key) or matched[name].get(key, value) for key, value in DATA.items()}
        )
        for dataset in own.datasets:
            what = {"method": name, "dataset": dataset, "split": own.split, "clients": str(own.clients)}
            there = [row for row in rows if all(row[key] == value for key, value in what.items())]
            if there and not options.again:
                continue
            print(f"{name} on {dataset} ...", flush=True)
            try:
                measured = compare(own, name, matched[name], dataset)
            except subprocess.CalledProcessError as error:
                side = "our command" if "fgl_bench" in error.cmd else "their code"
                print(f"{name} on {dataset}: {side} failed: {last_line(error)}", file=sys.stderr)
                continue
            rows = [row for row in rows if row not in there] + [{**what, **measured}]
            ROWS.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(rows).to_csv(file, index=False)
            print("  " + ", ".join(f"{key} {value}" for key, value in measured.items() if key in SHOWN), flush=True)
    write_page(ROWS, ROOT / "docs" / "cross_check.md")
    return 0


SHOWN = ("ours", "theirs", "difference", "interval", "steps_differ", "weights_differ", "clusters", "our_round_s", "their_round_s")
DATA = {"datasets": ["cora", "citeseer"], "split": "metis", "clients": 10}


def compare(options: argparse.Namespace, name: str, matched: dict[str, Any], dataset: str) -> dict[str, str]:
    """Return one row, without the columns that identify it."""
    seeds, evaluated = list(range(options.seeds)), matched.get("evaluated", "trained")
    always = [*common(options, matched, dataset), "threads=1"]
    rounds = min(options.rounds, matched.get("rounds", options.rounds))
    line = [*always, f"rounds={rounds}"]
    result = run_ours([*line, f"seeds={seeds}"])
    runs = [run_theirs(options, name, matched, [*line, f"seeds=[{seed}]"]) for seed in seeds]
    ours = 100 * result.scores().query("evaluated == @evaluated")["score"].to_numpy()
    theirs = 100 * np.array([best(*run, evaluated) for run in runs])
    steps, weights, clusters, step_rounds = None, None, "", matched.get("step_rounds", options.step_rounds)
    if matched.get("deterministic", True):
        still = [*always, "model.dropout=0", *matched.get("still", ()), f"rounds={step_rounds}", "seeds=[0]"]
        if matched.get("weights"):
            at = [options.clients * (number + 1) for number in range(step_rounds)]
            still += ["dtype=float64", "keep_models=final", f"mixing_at={at}".replace(" ", "")]
        own, (others, counts) = run_ours(still), run_theirs(options, name, matched, still, exact=True)
        steps = largest_difference(own, others, counts, evaluated)
        if matched.get("weights"):
            weights = weights_differ(own, others["weights"])
            clusters = compared_clusters(own, others.get("clusters"))
    difference = ours - theirs
    half = half_width(difference.std(ddof=1), len(seeds))
    return {
        "evaluated": evaluated,
        "rounds": str(rounds),
        "seeds": str(len(seeds)),
        "ours_by_seed": " ".join(f"{score:.2f}" for score in ours),
        "theirs_by_seed": " ".join(f"{score:.2f}" for score in theirs),
        "ours": f"{ours.mean():.2f}",
        "theirs": f"{theirs.mean():.2f}",
        "ours_spread": f"{ours.std(ddof=1):.2f}",
        "theirs_spread": f"{theirs.std(ddof=1):.2f}",
        "difference": f"{difference.mean():+.2f}",
        "interval": f"{half:.2f}",
        "steps_differ": "" if steps is None else f"{100 * steps:.2f}",
        "step_rounds": "" if steps is None else str(step_rounds),
        "weights_differ": "" if weights is None else f"{weights:.0e}",
        "clusters": clusters,
        "our_round_s": f"{result.summary['seconds']['train'] / rounds / len(seeds):.4f}",
        "their_round_s": f"{np.mean([np.mean(each['seconds']) for each, _ in runs]):.4f}",
        "command": "fgl-bench " + " ".join([*line, f"seeds={seeds}"]),
        "commit": commit(options.source),
        "versions": f"fgl-bench {fgl_bench.__version__}, torch {torch.__version__.partition('+')[0]}, Python {platform.python_version()}",
        "remark": matched.get("remark", ""),
    }


def common(options: argparse.Namespace, matched: dict[str, Any], dataset: str) -> list[str]:
    """Return the overrides of all our runs, without rounds and seeds."""
    return [
        f"dataset={dataset}", f"split={options.split}", f"num_clients={options.clients}", "agg_weight=nodes", "mixing_at=[]",
        "scenario=sync", *matched["ours"],
    ]  # fmt: skip


def run_ours(line: list[str]) -> fgl_bench.Result:
    """The run that the command line makes of this line, in a process of its own."""
    folder = tempfile.mkdtemp(dir=SCRATCH.name)
    subprocess.run(
        [sys.executable, "-m", "fgl_bench", *line, f"results_dir={folder}", "progress=false"], check=True, capture_output=True, text=True
    )
    (summary,) = Path(folder).rglob("summary.json")
    return fgl_bench.Result(summary.parent, json.loads(summary.read_text()))


def run_theirs(
    options: argparse.Namespace,
    name: str,
    matched: dict[str, Any],
    line: list[str],
    exact: bool = False,
    threads: int = 1,
    cuda: bool = False,
) -> tuple[dict[str, Any], np.ndarray]:
    """Return the driver's results on the federation of this line with one seed, and the clients' validation and test nodes ``[C, 2]``."""
    with as_command(line) as cfg, tempfile.TemporaryDirectory() as folder:
        spec = resolve(cfg)
        (federation,) = prepare(spec)
        job = Path(folder)
        export(spec, federation, job)
        settings, model = spec.settings, spec.config["model"]
        asked = {
            "method": matched.get("theirs", name), "model": matched.get("model", "gcn"), "dataset": federation.dataset,
            "seed": federation.seed, "clients": federation.num_clients, "rounds": spec.rounds, "local_epochs": settings.local_epochs,
            "lr": settings.lr, "weight_decay": settings.weight_decay, "hidden": model.get("hidden"), "layers": model.get("layers"),
            "dropout": model.get("dropout"), "config": matched.get("config", {}), "change": matched.get("change"), "exact": exact,
            "stream": derive_seed(federation.seed, spec.names["algorithm"]),  # of what our method draws before the first round
            "threads": threads, "cuda": cuda, "task": spec.task.name, "dtype": settings.dtype, "batch_nodes": settings.batch_nodes,
        }  # fmt: skip
        (job / "settings.json").write_text(json.dumps(asked))
        driver = Path(__file__).with_name(f"{options.repository}.py")
        subprocess.run(
            [options.python, driver, job, Path(options.source).resolve()], check=True, capture_output=True, text=True, cwd=folder
        )
        counts = np.array([[client.val.sum(), client.test.sum()] for client in federation.clients])
        theirs = json.loads((job / "theirs.json").read_text())
        if (job / "weights.npz").exists():
            theirs["weights"] = dict(np.load(job / "weights.npz"))
        return theirs, counts


def export(spec: RunSpec, federation: Federation, job: Path) -> None:
    """Clients, the whole graph and our initial weights as arrays.

    Labels and masks are of a client's graphs where it has such (``graph``: of each node), or of pairs of its nodes (``pairs``).
    """

    def dense(features: Any) -> np.ndarray:
        return np.asarray(features.todense() if hasattr(features, "todense") else features, dtype=np.float32)

    nodes = int(federation.notes["nodes"])
    x, y = None, np.zeros(nodes, dtype=np.int64)
    edges = [federation.cross_edges]
    for i, client in enumerate(federation.clients):
        own = dense(client.features)
        x = np.zeros((nodes, own.shape[1]), dtype=np.float32) if x is None else x
        x[client.nodes] = own
        if client.of_nodes:
            y[client.nodes] = client.labels
        edges.append(client.nodes[client.edges])
        more = {part: getattr(client, part) for part in ("train", "val", "test", "graph", "pairs") if hasattr(client, part)}
        np.savez(job / f"client_{i}.npz", x=own, edge_index=client.edges, y=client.labels, nodes=client.nodes, **more)
    np.savez(job / "global.npz", x=x, edge_index=np.concatenate(edges, 1), y=y, num_classes=federation.num_classes)
    model = spec.fresh_algorithm().backbone(network(spec, [federation], torch.device("cpu")))
    layout = model.layout(federation.num_features, federation.num_classes)
    (first,) = initial_models(model, layout, [federation.seed], 1, DTYPES[spec.settings.dtype])
    np.savez(job / "initial.npz", **{name: layout.view(first[None], name)[0].numpy() for name in layout.shapes})


def pooled(theirs: dict[str, Any], counts: np.ndarray, evaluated: str) -> np.ndarray:
    """Validation and test accuracy of all clients together after every round, ``[rounds, 2]``."""
    right = np.array(theirs[evaluated], dtype=float)  # [rounds, C, 2]
    return right.sum(1) / counts.sum(0)


def best(theirs: dict[str, Any], counts: np.ndarray, evaluated: str) -> float:
    """Test accuracy at the first round with the best validation accuracy."""
    curve = pooled(theirs, counts, evaluated)
    return float(curve[curve[:, 0].argmax(), 1])


def largest_difference(ours: fgl_bench.Result, theirs: dict[str, Any], counts: np.ndarray, evaluated: str) -> float:
    """Return the largest difference of the pooled test accuracies after any round."""
    curve = pooled(theirs, counts, evaluated)[:, 1]
    own = ours.curve()[f"test_{evaluated}"].to_numpy()[1:]  # without the initial model's
    return float(np.abs(own - curve).max())


def weights_differ(ours: fgl_bench.Result, theirs: dict[str, np.ndarray]) -> float:
    """Return the largest difference of the trained models' weights ``[C, ...]``, by our names."""
    (models,) = load_models(ours.folder).values()
    return max(
        float(np.abs(models[i]["trained"][name].numpy() - each).max()) for name, all_ in theirs.items() for i, each in enumerate(all_)
    )


def compared_clusters(ours: fgl_bench.Result, theirs: list[list[int]] | None) -> str:
    """Return the rounds in which our clusters are split, and the clusters from then on; both codes' where theirs differ.

    Args:
        theirs: after each round, the number of each client's cluster; None for methods without clusters.
    """
    if theirs is None:
        return ""
    with np.load(ours.folder / "mixing.npz") as file:
        mixing = [file[f"trips_{at}"][0] for at in sorted(int(name.removeprefix("trips_")) for name in file if name.startswith("trips_"))]
    own = [(np.broadcast_to(matrix, 2 * matrix.shape[-1:]) > 0).argmax(1).tolist() for matrix in mixing]  # the first client of each cluster
    return " / ".join(dict.fromkeys([splits(own), splits([[row.index(number) for number in row] for row in theirs])]))


def splits(clusters: list[list[int]]) -> str:
    """``21: 0,3|1,2`` where there are clusters of clients 0 and 3, 1 and 2 from round 21 on; separated by semicolons."""
    new = [i for i, row in enumerate(clusters) if i and row != clusters[i - 1]]
    members = [[",".join(str(i) for i, each in enumerate(row) if each == number) for number in sorted(set(row))] for row in clusters]
    return "; ".join(f"{i + 1}: {'|'.join(members[i])}" for i in new) or "none"


def commit(source: str) -> str:
    """The clone's commit, or what the folder is called where it is none."""
    known = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], capture_output=True, text=True)
    return known.stdout.strip() or Path(source).name


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("repository", choices=REPOSITORIES)
    command.add_argument("--source", default=".", help="your clone of the repository")
    command.add_argument("--python", default=sys.executable, help="the interpreter that has what their code imports")
    command.add_argument("--methods", nargs="+")
    command.add_argument("--datasets", nargs="+", help="else those of the comparison, or cora and citeseer")
    command.add_argument("--split", help="else that of the comparison, or metis")
    command.add_argument("--clients", type=int, help="else as many as in the comparison, or 10")
    command.add_argument("--rounds", type=int, default=100)
    command.add_argument("--step-rounds", type=int, default=10)
    command.add_argument("--seeds", type=int, default=5)
    command.add_argument("--again", action="store_true")
    command.add_argument("--tables-only", action="store_true")
    return command


if __name__ == "__main__":
    sys.exit(main())
