"""Compute the tables of docs/findings.md from the leaderboard's stored cells.

    python scripts/findings.py            write every block of docs/findings.md again
    python scripts/findings.py tuning     print one

A block begins with ``<!-- finding: tuning -->``. What is of version 1 says so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from blocks import filled
from scipy import stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "findings.md"
V1, V2 = ROOT / "results" / "leaderboard" / "v1", ROOT / "results" / "leaderboard" / "v2"
KINDS = ("received", "trained")
METHODS = (
    "fedavg", "fedprox", "scaffold", "moon", "fedper", "fedgta", "fed_pub", "gcfl_plus", "fedasync", "fedbuff", "fedsa_gcl", "d_psgd",
    "dfed_sst",
)  # fmt: skip
GLOBAL = ("fedavg", "fedprox", "scaffold")  # one model for all clients
LOCAL = ("fedper", "fedgta", "fed_pub", "gcfl_plus", "fedsa_gcl", "d_psgd", "dis_pfl", "dfed_sst")  # personalized or decentralized


def cells(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The complete cells of a version by column and entry."""
    read = {(path.parent.name, path.stem): json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("[!.]*/*.json"))}
    return {key: cell for key, cell in read.items() if cell.get("tuned") or len(cell.get("winners", ())) == len(KINDS)}


def validation(kind: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Validation scores of the default and of the best trial in version 1, methods by columns, in points."""
    default: dict[str, dict[str, float]] = {}
    tuned: dict[str, dict[str, float]] = {}
    for (column, entry), cell in cells(V1).items():
        if entry in METHODS:
            scores = [trial["validation"][kind] for trial in cell["trials"] if trial["validation"].get(kind) is not None]
            default.setdefault(column, {})[entry], tuned.setdefault(column, {})[entry] = 100 * scores[0], 100 * max(scores)
    return pd.DataFrame(default), pd.DataFrame(tuned)


def tuning() -> str:
    rows = []
    for kind in KINDS:
        default, tuned = validation(kind)
        spread = [(table.max() - table.min()).mean() for table in (default, tuned)]
        tau = np.mean([stats.kendalltau(default[column], tuned[column]).statistic for column in default])
        rows.append([kind, *(f"{each:.1f}" for each in spread), f"{tau:.2f}"])
    return tabulate(rows, ["model", "spread at the defaults", "spread tuned", "tau of the two orders"], disable_numparse=True)


def gap() -> str:
    (default, tuned), (default_trained, tuned_trained) = (validation(kind) for kind in KINDS)
    rows = [
        [name, f"{apart.to_numpy().mean():.1f}", f"{apart.to_numpy().max():.1f}"]
        for name, apart in (("default", (default - default_trained).abs()), ("tuned", (tuned - tuned_trained).abs()))
    ]
    return tabulate(rows, ["configuration", "mean gap in points", "largest"], disable_numparse=True)


def equivalence() -> str:
    """One-sided 95 % bounds of how far the best personalized or decentralized method is ahead, paired by seed."""
    stored, rows = cells(V1), []
    for column in ("cora-louvain", "cora-metis", "citeseer-louvain", "citeseer-metis"):
        for kind in KINDS:
            scores = {name: np.array(cell["winners"][kind]["scores"]) for (key, name), cell in stored.items() if key == column}
            best = max((name for name in LOCAL if name in scores), key=lambda name: scores[name].mean())
            bounds = []
            for name in GLOBAL:
                ahead = 100 * (scores[best] - scores[name])
                bounds.append(ahead.mean() + stats.t.ppf(0.95, ahead.size - 1) * stats.sem(ahead))
            rows.append([column, kind, best, *(f"{bound:+.1f}" for bound in bounds)])
    return tabulate(rows, ["column", "model", "best other", *GLOBAL], disable_numparse=True)


def untuned() -> str:
    ranks = {kind: validation(kind)[0].rank(ascending=False).mean(axis=1) for kind in KINDS}
    table = pd.DataFrame(ranks).sort_values(list(KINDS)).head(4)
    return tabulate(
        [[name, *(f"{row[kind]:.1f}" for kind in KINDS)] for name, row in table.iterrows()], ["method", *KINDS], disable_numparse=True
    )


def ahead_of_all(column: str, leader: str, title: str) -> str:
    """Every entry of a column in version 2, the best first, and how far ``leader`` is ahead of it."""
    stored = {name: cell for (where, name), cell in cells(V2).items() if where == column and cell["tuned"]}
    scores = {name: 100 * np.array(cell["tuned"]["scores"][cell["tuned"]["model"]]) for name, cell in stored.items()}
    rows = []
    for name in sorted(scores, key=lambda name: -scores[name].mean()):
        ahead = scores[leader] - scores[name]
        half = stats.t.ppf(0.975, ahead.size - 1) * stats.sem(ahead)
        rows.append([name, f"{scores[name].mean():.1f}", "" if name == leader else f"{ahead.mean():+.1f} ± {half:.1f}"])
    return tabulate(rows, ["entry", "test", f"{title} ahead by"], disable_numparse=True)


FINDINGS: dict[str, Callable[[], str]] = {
    "backbone": lambda: ahead_of_all("webkb", "local-mlp", "local MLP"),
    "actor": lambda: ahead_of_all("actor", "fedavg-mlp", "FedAvg on an MLP"),
    "tuning": tuning, "gap": gap, "equivalence": equivalence, "untuned": untuned,
}  # fmt: skip


def main() -> None:
    if len(sys.argv) > 1:
        print("\n\n".join(FINDINGS[name]() for name in sys.argv[1:]))
        return
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(text, "finding", lambda name: ["```text", FINDINGS[name.strip()](), "```"]), encoding="utf-8")


if __name__ == "__main__":
    main()
