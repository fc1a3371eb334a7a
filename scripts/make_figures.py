"""Draw a paper's figures from the run directories and cells that reproduce_tables.py left.

    python scripts/make_figures.py --paper fedsa_gcl

Methods that were not run are left out. Where a run is gone, its cell has what it kept of curves and matrices; a figure that a stored
result kept nothing for is not drawn. Label distributions need nothing but the data sets, ranks and bytes nothing but the cells.
"""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path

from fgl_bench.errors import UserError
from fgl_bench.papers.figures.inputs import Sources, draw, statistics
from fgl_bench.papers.plan import load_paper, papers
from fgl_bench.papers.published import read_published
from fgl_bench.results.plots.style import save_all
from fgl_bench.runner.run import federations_of

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    options = parser().parse_args()
    try:
        paper = load_paper(options.paper)
        datasets = tuple(options.datasets or dict.fromkeys(name for table in paper.tables for name in table.datasets))
        sources = Sources(paper, datasets, options.results, options.data_dir, federations_of, tuple(options.extra))
        for name, figure in chain(
            draw(sources), statistics(paper, options.results, read_published(options.published / f"{paper.name}.csv"))
        ):
            paths = save_all(figure, options.results / "figures" / options.paper / name, dpi=130)
            print("written:", ", ".join(str(path) for path in paths), flush=True)
    except UserError as error:
        sys.exit(f"make_figures: {error}")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--paper", default="fedsa_gcl", choices=papers())
    result.add_argument("--datasets", nargs="+", default=[], help="of the convergence figures and the label distributions")
    result.add_argument("--results", type=Path, default=Path("results"), help="holds runs/ and cells/; figures/ is written")
    result.add_argument("--published", type=Path, default=ROOT / "results" / "published", help="holds the papers' numbers")
    result.add_argument("--data-dir", help="default: $FGL_BENCH_DATA, or data")
    result.add_argument("--set", dest="extra", nargs="+", default=[], metavar="KEY=VALUE", help="as given to reproduce_tables.py")
    return result


if __name__ == "__main__":
    main()
