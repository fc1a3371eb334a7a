"""Recompute what the papers conclude from their own tables, and write docs/audit.md.

    python scripts/audit_papers.py

Every recomputed figure comes from the cells in results/published/; other numbers (averages over a table, claims
of the text) are copied as printed. Percentages are points, except where relative is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from audits import dfed_sst, fedaas, fedgta, fedsa_gcl, fedssa
from audits.printed import Finding

from fgl_bench.evaluation.summary import half_width

ROOT = Path(__file__).resolve().parents[1]
HEAD = (
    "# The papers' own arithmetic",
    "",
    "The papers' statements about their tables, recomputed from the printed cells (`results/published/`) by",
    "`scripts/audit_papers.py`, which writes this page. It is no verdict on the methods: it says which aggregates can be",
    "quoted and which cannot.",
)
PAPERS: dict[str, Callable[[Path], Iterator[Finding]]] = {
    "FedSA-GCL": fedsa_gcl.findings,
    "DFed-SST": dfed_sst.findings,
    "FedSSA": fedssa.findings,
    "FedAAS": fedaas.findings,
    "FedGTA": fedgta.findings,
}


def page(folder: Path) -> str:
    """The whole page."""
    lines = list(HEAD)
    for title, findings in PAPERS.items():
        lines += ["", f"## {title}", "", "| looked at | printed | from the cells | so |", "|---|---|---|---|"]
        lines += [f"| {f.about} | {f.printed} | {f.recomputed} | {f.follows} |" for f in findings(folder)]
    lines += ["", f"Spreads: with five runs the half-width of the 95 % t-interval is {half_width(1, 5):.2f} standard deviations."]
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--published", type=Path, default=ROOT / "results" / "published", help="holds the papers' cells")
    options.add_argument("--out", type=Path, default=ROOT / "docs" / "audit.md")
    given = options.parse_args()
    given.out.write_text(page(given.published), encoding="utf-8")
    print(f"written: {given.out}")


if __name__ == "__main__":
    main()
