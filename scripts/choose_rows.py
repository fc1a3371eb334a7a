#!/usr/bin/env python3
"""Choose, by one rule, which row and model of ours every printed row is compared with (fgl_bench.papers.matched_rows).

    python scripts/choose_rows.py                 print the choices
    python scripts/choose_rows.py --write         keep them in results/settlements/choices.csv too

Names in results/settlements/<paper>.yaml follow the choice, or say in `why` what else decides: the authors' code or the paper's text.
Choose before the other columns are run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts")]

import reproduce_tables  # noqa: E402

from fgl_bench.papers.matched_rows import FILE, candidates, choose, table_of  # noqa: E402
from fgl_bench.utils.files import write_whole  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write results/settlements/{FILE}")
    options = parser.parse_args()
    choices = {}
    for work in reproduce_tables.Reproduction(reproduce_tables.parser().parse_args([])).works:
        if work.paper.basis is None:
            continue
        work.read()
        ranked = candidates(work.paper.basis, work.tables, work.stored, work.published)
        choices[work.paper.name] = choose(ranked)
    text = table_of(choices)
    print(text, end="")
    if options.write:
        write_whole(ROOT / "results" / "settlements" / FILE, text)


if __name__ == "__main__":
    main()
