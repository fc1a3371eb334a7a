"""Write the numbers that docs/reproduction.md and docs/benchmark.md quote, from the tables in results/tables/.

    python scripts/quote_results.py

A block of a page begins with a line such as

    <!-- numbers: fedsa_gcl/table3 columns=cora,photo rows=local,fedavg -->

and ends with ``<!-- /numbers -->``; the lines between them are replaced. A column is a data set. Where a table has several for a data set,
``/`` and the number of clients or the first letters of the group choose one (``cora/20``, ``pubmed/iid``). ``<!-- numbers: agreement -->``
sums results/tables/agreement.md by paper, ``<!-- numbers: findings -->`` is its part on single cells, and ``<!-- numbers: outlook -->`` is
results/tables/outlook.md.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from blocks import filled  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("reproduction.md", "benchmark.md")
OPTION = re.compile(r"(columns|rows)=(\S+)")


def page(text: str, tables: Path) -> str:
    """``text`` with every block filled in from the folder ``tables``."""
    return filled(text, "numbers", lambda asked: ["", *numbers(asked, tables), ""])


def numbers(asked: str, tables: Path) -> list[str]:
    """The lines of one block."""
    name, *options = asked.split()
    if name == "agreement":
        return agreement((tables / "agreement.md").read_text(encoding="utf-8"))
    if name == "findings":
        _, _, findings = (tables / "agreement.md").read_text(encoding="utf-8").partition("## Findings\n\n")
        return [line for line in findings.splitlines() if not line.startswith("##")]
    if name == "outlook":
        return (tables / "outlook.md").read_text(encoding="utf-8").splitlines()[1:]
    chosen = {key: names.split(",") for key, names in (OPTION.fullmatch(option).groups() for option in options)}  # type: ignore[union-attr]
    with (tables / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    titles = {cell["row"]: cell["title"] for cell in cells}
    lines = [f"| method | {' | '.join(chosen['columns'])} |", "|---" * (1 + len(chosen["columns"])) + "|"]
    for row in chosen["rows"]:
        if row not in titles:
            raise SystemExit(f"quote_results: {name} has no row {row}")
        of_row = [cell for cell in cells if cell["row"] == row]
        lines.append(f"| {titles[row]} | {' | '.join(scores(of_row, column) for column in chosen['columns'])} |")
    return lines


def scores(cells: list[dict[str, str]], column: str) -> str:
    """``received/trained (printed)`` in %; empty where there was no run."""
    dataset, _, part = column.partition("/")
    here = [cell for cell in cells if cell["dataset"] == dataset]
    if part.isdigit():
        here = [cell for cell in here if cell["num_clients"] == part]
    elif part:
        here = [cell for cell in here if cell["group"].lower().startswith(part.lower())]
    by_model = {cell["model"]: cell for cell in here}
    if len(by_model) != len(here) or not here:
        raise SystemExit(f"quote_results: {len(here) // 2} columns are called {column}; name the clients or the group of one")
    if not by_model["received"]["mean"]:
        return ""
    ours = "/".join(f"{100 * float(by_model[model]['mean']):.1f}" for model in ("received", "trained") if model in by_model)
    printed = by_model["received"]["published_mean"]
    return f"{ours} ({float(printed):.1f})" if printed else ours


def agreement(text: str) -> list[str]:
    """Verdicts by paper, summed over its tables."""
    sums: dict[str, list[int]] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.strip("|").split("|")]
        if len(fields) == 7 and re.match(r"\d+ of \d+$", fields[2]):
            counts = [int(number) for field in (fields[2], fields[3], fields[5]) for number in re.findall(r"\d+", field)]
            sums[fields[0]] = [sum(pair) for pair in zip(sums.get(fields[0], [0] * len(counts)), counts, strict=True)]
    lines = ["| paper | cells run | received: within/higher/lower | trained: within/higher/lower |", "|---|---|---|---|"]
    for paper, (run, planned, *verdicts) in sums.items():
        received, trained = ("/".join(map(str, part)) for part in (verdicts[:3], verdicts[3:]))
        lines.append(f"| {paper} | {run} of {planned} | {received} | {trained} |")
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pages", type=Path, nargs="+", default=[ROOT / "docs" / name for name in PAGES])
    options.add_argument("--tables", type=Path, default=ROOT / "results" / "tables")
    options.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is not up to date")
    given = options.parse_args()
    for path in given.pages:
        before = path.read_text(encoding="utf-8")
        after = page(before, given.tables)
        if before == after:
            continue
        if given.check:
            sys.exit(1)
        path.write_text(after, encoding="utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
