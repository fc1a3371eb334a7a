"""Check the claims of FedGTA (Li et al., PVLDB 2023) against their tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from audits.printed import Finding, Printed, best_cells, two

ABLATED = ("default", "without_moments", "without_confidence")


def findings(folder: Path) -> Iterator[Finding]:
    paper = Printed(folder, "fedgta")
    for backbone, printed in (("gcn", "2.33 %"), ("gamlp", "2.54 %")):
        grid = paper.grid(table="3", backbone=backbone, split="louvain").dropna(axis=1)
        rivals = grid.drop("fedgta").max()
        points, relative = (grid.loc["fedgta"] - rivals).mean(), (100 * (grid.loc["fedgta"] / rivals - 1)).mean()
        won, of = best_cells(grid, "fedgta")
        yield Finding(
            f"lead over the second with {backbone.upper()}, table 3",
            printed,
            f"{two(points)} points, {two(relative)} % relative; best optimiser in {won} of {of}",
            "a relative gain, about",
        )
    both = paper.where(table="4").pivot(index="method", columns=["dataset", "backbone"], values="value")
    own = both.loc["fedgta"]
    relative = {
        (dataset, rival): float((100 * (own[dataset] / both.loc[rival, dataset] - 1)).mean())
        for dataset, rival in product(("flickr", "reddit"), ("moon", "feddc"))
    }
    yield Finding(
        "inductive lead over MOON and FedDC",
        "more than 3.5 % and 2.2 %",
        f"Flickr over MOON {two(relative['flickr', 'moon'])} %, Reddit over FedDC {two(relative['reddit', 'feddc'])} % (relative)",
        "holds in that reading",
    )
    own = {v: paper.where(table="5", variant=v).set_index(["method", "dataset"])["value"] for v in ("with_fedgta", "with_fedavg")}
    lead = (own["with_fedgta"] - own["with_fedavg"]).groupby(level="method").mean()
    yield Finding(
        "gain on FedGL and FedSage+, table 5",
        "at least 2.5 %",
        f"{', '.join(f'{name} {two(value)}' for name, value in lead.items())}, mean {two(lead.mean())} (over FedAvg)",
        "holds on average",
    )
    table = {v: paper.where(table="6", variant=v).set_index(["split", "backbone", "dataset"])["value"] for v in ABLATED}
    drop = {v: table["default"] - table[v] for v in ABLATED[1:]}
    yield Finding(
        "ablation, table 6",
        "moments matter more",
        ", ".join(f"{v.replace('_', ' ')}: {two(d.mean())} ({d.min():.1f} to {d.max():.1f})" for v, d in drop.items()),
        "holds",
    )
