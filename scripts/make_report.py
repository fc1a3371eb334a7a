"""Write the report page: every table of every paper with our cells beside the printed numbers, in one HTML file.

    python scripts/make_report.py --out results/report.html

The page needs no server and fetches nothing: open the file. It is made from results/cells/ and results/published/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fgl_bench.config.compose import Composer
from fgl_bench.config.parts import Parts
from fgl_bench.reporting.cells import write_whole
from fgl_bench.reporting.plan import load_paper, papers
from fgl_bench.reporting.report import gather, page

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    options = parser().parse_args()
    with Composer() as composer:
        parts = Parts(composer)
        sources = [gather(load_paper(name), options.results, options.published, parts) for name in options.papers]
    write_whole(options.out or options.results / "report.html", page(sources))
    print(f"written: {options.out or options.results / 'report.html'}")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--papers", nargs="+", default=papers(), choices=papers())
    result.add_argument("--results", type=Path, default=Path("results"), help="holds cells/")
    result.add_argument("--published", type=Path, default=ROOT / "results" / "published", help="holds the papers' numbers")
    result.add_argument("--out", type=Path, help="default: report.html in the results folder")
    return result


if __name__ == "__main__":
    main()
