"""Train ten methods under noise, sparsity, attacks and partial participation, and write the numbers of docs/robustness.md.

    python scripts/robustness.py --runs results/robustness_runs     run what has no score yet, add the scores and write the page
    python scripts/robustness.py                                    write the page from results/robustness/scores.csv

Runs with scores in results/robustness/scores.csv are not repeated; without that file, everything is run.
Methods have their default hyperparameters. The lists below were fixed before the first run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pandas as pd
from blocks import filled
from scipy import stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "robustness.md"
SCORES = ROOT / "results" / "robustness" / "scores.csv"
KEY = ["graph", "condition", "method", "model", "seed"]

GRAPHS = ("cora", "citeseer", "pubmed", "photo")
METHODS = ("local", "fedavg", "scaffold", "moon", "fedper", "ditto", "fedala", "fed_pub", "fedgta", "gcfl_plus")
CLEAN = "clean"
HARDSHIPS = {
    "label noise": ("scenario/noise=label", "scenario.noise.rate=0.4"),
    "feature noise": ("scenario/noise=feature", "scenario.noise.rate=1"),
    "edge noise": ("scenario/noise=edge", "scenario.noise.rate=1"),
    "feature sparsity": ("scenario/sparsity=feature", "scenario.sparsity.rate=0.5"),
    "label sparsity": ("scenario/sparsity=label", "scenario.sparsity.rate=0.5"),
    "edge sparsity": ("scenario/sparsity=topology", "scenario.sparsity.rate=0.5"),
    "participation": ("participation=0.2",),
}
HONEST = "no attack"  # the two clients that attack elsewhere upload what they trained; they are unscored here too
ATTACKS = {
    HONEST: ("scenario/attack=sign_flip", "scenario.attack.scale=-1"),
    **{name: (f"scenario/attack={name}",) for name in ("label_flip", "sign_flip", "gaussian", "alie")},
}
AGGREGATORS = ("median", "trimmed_mean", "krum", "geometric_median")


def sweeps() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield graph, condition, methods and overrides of every sweep. Local training uploads nothing, so nobody attacks it."""
    attacked = ",".join(method for method in METHODS if method != "local")
    for graph in GRAPHS:
        yield graph, CLEAN, ",".join(METHODS), ()
        for name, overrides in HARDSHIPS.items():
            yield graph, name, ",".join(METHODS), overrides
        for name, overrides in ATTACKS.items():
            yield graph, name, attacked, overrides
            for aggregator in AGGREGATORS:
                yield graph, f"{name}, {aggregator}", "fedavg", (*overrides, f"aggregator={aggregator}")


def folder_of(runs: Path, graph: str, condition: str) -> Path:
    return runs / graph / condition.replace(", ", "-").replace(" ", "_")


def stored() -> pd.DataFrame:
    return pd.read_csv(SCORES) if SCORES.exists() else pd.DataFrame(columns=[*KEY, "score", "validation", "commit", "device", "torch"])


def run(runs: Path, graphs: Collection[str]) -> None:
    """Run every sweep on these graphs; finished runs are not repeated. A refused combination is printed, and its cell stays empty."""
    scored = set(stored()[KEY[:3]].itertuples(index=False, name=None))
    for graph, condition, methods, overrides in sweeps():
        missing = [method for method in methods.split(",") if (graph, condition, method) not in scored]
        if graph not in graphs or not missing:
            continue
        keys = ["experiment=robustness", f"dataset={graph}", f"algorithm={','.join(missing)}", *overrides, "threads=1", "progress=false"]
        command = [sys.executable, "-m", "fgl_bench", "-m", *keys, f"results_dir={folder_of(runs, graph, condition)}"]
        subprocess.run(command, check=False)


def collected(runs: Path) -> pd.DataFrame:
    """Return the stored scores and those of ``runs``: a row per graph, condition, method, kind of model and seed, with its provenance."""
    before = stored()
    tables = [before]
    for graph, condition, _, _ in sweeps():
        for path in sorted(folder_of(runs, graph, condition).rglob("summary.json")):
            summary = json.loads(path.read_text(encoding="utf-8"))
            origin = {"commit": summary["code"]["commit"][:8], "device": summary["device"], "torch": summary["versions"]["torch"]}
            for model, scores in summary["test"].items():
                names = {"graph": graph, "condition": condition, "method": summary["algorithm"], "model": model}
                rows = pd.DataFrame({"seed": summary["seeds"], "score": scores["per_seed"]})
                tables.append(rows.assign(validation=scores["val"]["mean"], **names, **origin))
    rows = pd.concat([table for table in tables if len(table)])[before.columns]
    return rows.round(6).drop_duplicates(KEY).sort_values(KEY)


def points(scores: pd.DataFrame) -> pd.DataFrame:
    """Return test scores in points, seeds by (graph, method, condition), of the model that validates better without hardship."""
    validation = scores[scores["condition"] == CLEAN].groupby(["graph", "method", "model"])["validation"].first()
    better = validation.groupby(["graph", "method"]).idxmax()
    rows = scores[pd.MultiIndex.from_frame(scores[["graph", "method", "model"]]).isin(better)]
    return 100 * rows.pivot_table(index="seed", columns=["graph", "method", "condition"], values="score", dropna=False)


def interval(values: pd.Series) -> str:
    """Return the mean over seeds and half the width of its 95 % t-interval; nothing if a seed has no score."""
    if values.isna().any():
        return ""
    return f"{values.mean():.1f} ± {stats.t.ppf(0.975, len(values) - 1) * stats.sem(values):.1f}"


def complete(table: pd.DataFrame) -> list[str]:
    """Return the graphs with runs of every sweep."""
    known = set(table.columns[table.notna().any()])
    needed = {(graph, method, condition) for graph, condition, methods, _ in sweeps() for method in methods.split(",")}
    return [graph for graph in GRAPHS if all(cell in known for cell in needed if cell[0] == graph)]


def lost(table: pd.DataFrame, method: str, condition: str, reference: str) -> str:
    """Return the points that a method loses to its own score under ``reference``, paired by seed and averaged over the complete graphs."""
    graphs = complete(table)
    after = table.reindex(columns=[(graph, method, condition) for graph in graphs])
    before = table.reindex(columns=[(graph, method, reference) for graph in graphs])
    return interval((before - after.to_numpy()).mean(axis=1, skipna=False))


def clean(table: pd.DataFrame) -> str:
    scores = table.reindex(columns=[(graph, method, CLEAN) for graph in GRAPHS for method in METHODS])
    rows = [[method, *(interval(scores[graph, method, CLEAN]) for graph in GRAPHS)] for method in METHODS]
    return tabulate(rows, ["method", *GRAPHS], disable_numparse=True)


def hardships(table: pd.DataFrame) -> str:
    rows = [[method, *(lost(table, method, name, CLEAN) for name in HARDSHIPS)] for method in METHODS]
    return tabulate(rows, ["method", *(name.replace(" ", "\n") for name in HARDSHIPS)], disable_numparse=True)


def attacks(table: pd.DataFrame) -> str:
    names = [name for name in ATTACKS if name != HONEST]
    rows = [[method, *(lost(table, method, name, HONEST) for name in names)] for method in METHODS if method != "local"]
    return tabulate(rows, ["method", *names], disable_numparse=True)


def defenses(table: pd.DataFrame) -> str:
    rows = [
        [name, lost(table, "fedavg", name, HONEST), *(lost(table, "fedavg", f"{name}, {each}", HONEST) for each in AGGREGATORS)]
        for name in ATTACKS
    ]
    return tabulate(rows, ["attack", "mean", *AGGREGATORS], disable_numparse=True)


TABLES: dict[str, Callable[[pd.DataFrame], str]] = {"clean": clean, "hardships": hardships, "attacks": attacks, "defenses": defenses}


def page(text: str, scores: pd.DataFrame) -> str:
    """Return the page with every block ``robustness`` filled in."""
    table = points(scores)
    graphs = f"complete graphs: {', '.join(complete(table))}"
    return filled(text, "robustness", lambda name: ["```text", graphs, "", TABLES[name](table), "```"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Train methods under noise, sparsity, attacks and partial participation.")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="the runs; missing ones are added")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=GRAPHS, help="run these only, for example one part per core")
    parser.add_argument("--collect-only", action="store_true", help="run nothing")
    options = parser.parse_args()
    if options.runs:
        if not options.collect_only:
            run(options.runs, options.graphs)
        SCORES.parent.mkdir(parents=True, exist_ok=True)
        collected(options.runs).to_csv(SCORES, index=False)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), pd.read_csv(SCORES)), encoding="utf-8")


if __name__ == "__main__":
    main()
