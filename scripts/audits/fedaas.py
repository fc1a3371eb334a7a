"""Check the claims of FedAAS (Li et al.) against their tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audits.printed import Finding, Printed, best_cells, gains, two


def findings(folder: Path) -> Iterator[Finding]:
    paper = Printed(folder, "fedaas")
    for metric in ("accuracy", "f1", "auc"):
        won, of = best_cells(paper.grid(["split", "dataset"], metric=metric), "fedaas")
        yield Finding(f"best {metric}", "almost all", f"{won} of {of}", "holds for accuracy" if won == of else "less than the text says")
    grid = paper.grid(["split", "dataset"], metric="accuracy")
    every, rival = gains(grid, "fedaas")
    difference = (grid.loc["fedaas"] - grid.drop("fedaas")).unstack()
    largest = difference.idxmax()
    cross = grid.loc["fedaas", ("iid", "yelp")] - grid.loc["fedcross", ("iid", "yelp")]
    yield Finding(
        "accuracy gained",
        "up to 5.12 (abstract), 5.12 on average (introduction)",
        f"{two(every)} over all baselines, {two(rival)} over the best of each column; "
        f"largest {two(difference.max())} ({', '.join(largest)}); "
        f"Yelp iid over FedCross {two(cross)}",
        "5.12 is one cell, neither the mean nor the maximum",
    )
