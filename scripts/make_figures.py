"""Draw a paper's figures from the run directories that reproduce_tables.py left.

    python scripts/make_figures.py --paper fedsa_gcl

Lines and heatmaps whose runs are not there are left out, and a figure without any is not drawn; label distributions need nothing
but the data sets.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fgl_bench.errors import UserError
from fgl_bench.reporting.drawings.base import Sources, draw, drawings
from fgl_bench.reporting.figures import save
from fgl_bench.reporting.plan import load_paper


def main() -> None:
    options = parser().parse_args()
    try:
        paper = load_paper(options.paper)
        datasets = tuple(options.datasets or dict.fromkeys(name for table in paper.tables for name in table.datasets))
        sources = Sources(paper, datasets, options.results, options.data_dir, tuple(options.extra))
        for name, figure in draw(sources):
            paths = save(figure, options.results / "figures" / options.paper / name)
            print("written:", ", ".join(str(path) for path in paths), flush=True)
    except UserError as error:
        sys.exit(f"make_figures: {error}")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--paper", default="fedsa_gcl", choices=drawings())
    result.add_argument("--datasets", nargs="+", default=[], help="of the convergence figures and the label distributions")
    result.add_argument("--results", type=Path, default=Path("results"), help="holds runs/ and cells/; figures/ is written")
    result.add_argument("--data-dir", help="default: $FGL_BENCH_DATA, or data")
    result.add_argument("--set", dest="extra", nargs="+", default=[], metavar="KEY=VALUE", help="as given to reproduce_tables.py")
    return result


if __name__ == "__main__":
    main()
