"""Check the claims of FedSSA (Yu et al., arXiv 2601.21589) against their tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audits.printed import Finding, Printed, best_cells, two


def findings(folder: Path) -> Iterator[Finding]:
    paper = Printed(folder, "fedssa")
    won = {table: best_cells(paper.grid(["num_clients", "dataset"], table=table), "fedssa") for table in "1267"}
    yield Finding(
        "outperforms all baselines on all datasets",
        "all",
        ", ".join(f"table {table}: {a} of {b}" for table, (a, b) in won.items())
        + f"; {sum(a for a, _ in won.values())} of {sum(b for _, b in won.values())}",
        "mostly, not always",
    )
    lead = {}
    for table in "1267":
        means = paper.grid(["num_clients", "dataset"], table=table).mean(axis=1)
        lead[table] = means["fedssa"] - means.drop("fedssa").max()
    hetero = paper.grid(["dataset", "num_clients"], table="2")
    rival = hetero.drop("fedssa").mean(axis=1).idxmax()
    by = (hetero.loc["fedssa"] - hetero.loc[rival]).groupby(level="dataset").mean().sort_values(ascending=False)
    yield Finding(
        "mean gain on heterophilic graphs, table 2",
        "2.82",
        f"{two(lead['2'])} over {rival} ({', '.join(f'{name} {two(value)}' for name, value in by.items())})",
        f"{by.iloc[0] / by.sum():.0%} of it is {by.index[0]}, whose metric is AUC; the mean mixes accuracy and AUC",
    )
    yield Finding(
        "mean gains of tables 1, 6 and 7",
        "table 7: 1.40",
        ", ".join(f"table {table}: {two(lead[table])}" for table in "167"),
        "homophilic graphs hardly differ",
    )
    own, ablated = (paper.where(table=table, dataset="tolokers", num_clients=20, method="fedssa") for table in "28")
    yield Finding(
        "Tolokers, 20 clients: FedSSA in table 2 and its full form in table 8",
        "the same run",
        f"{own['mean'].iloc[0]} and {', '.join(ablated['mean']) or 'not printed'}",
        "the printed average of 20 clients is made with the latter, the grand average with the former; a flagged cell",
    )
    spread = paper.where(table="2", method="fedsage_plus")
    flat = spread[(spread["width"] == 0)]
    yield Finding(
        "FedSage+ on heterophilic graphs: spreads of zero over ten runs",
        "",
        f"{len(flat)} of {len(spread)} in table 2, "
        f"{int((paper.where(table='7', method='fedsage_plus')['width'] == 0).sum())} of "
        f"{len(paper.where(table='7', method='fedsage_plus'))} in table 7",
        "single runs, or numbers taken over",
    )
