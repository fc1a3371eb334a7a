"""The tables of docs/cross_check.md, from the rows of results/cross_check."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from blocks import filled  # noqa: E402

HEAD = ["method", "data", "model", "theirs", "ours", "difference", "steps", "theirs, s a round", "ours"]


def write_page(rows: Path, page: Path) -> None:
    """Fill every block ``<!-- rows: REPOSITORY -->`` of the page."""
    text = filled(page.read_text(encoding="utf-8"), "rows", lambda name: ["", table(rows / f"{name}.csv"), ""])
    page.write_text(text, encoding="utf-8")


def table(file: Path) -> str:
    """One repository: its commit, what ran, and a line for each comparison."""
    if not file.exists():
        return "Nothing has been run."
    frame = pd.read_csv(file, keep_default_na=False, dtype=str)
    commits, versions = (" and ".join(sorted(set(frame[name]))) for name in ("commit", "versions"))
    settings = frame.groupby(["split", "clients"], sort=False).size().index
    where = "`split={} num_clients={}`".format(*settings[0]) + (" unless a row says otherwise" if len(settings) > 1 else "")
    lines = [f"Commit {commits}; {versions}; {where}.", "", f"| {' | '.join(HEAD)} |", "|---" * 3 + "|--:" * 6 + "|"]
    notes: list[str] = []
    for row in frame.to_dict("records"):
        mark = ""
        if row["remark"]:
            notes += [] if row["remark"] in notes else [row["remark"]]
            mark = f" ({notes.index(row['remark']) + 1})"
        cells = [
            f"{row['method']}{mark}",
            row["dataset"]
            if (row["split"], row["clients"]) == settings[0]
            else f"{row['dataset']}, {row['split']}, {row['clients']} clients",
            f"{row['evaluated']}, {row['rounds']} rounds",
            f"{row['theirs']} ± {row['theirs_spread']}",
            f"{row['ours']} ± {row['ours_spread']}",
            f"{float(row['difference']) + 0.0:+.2f} ± {row['interval']}",  # and no minus before a zero
            "; ".join(filter(None, (row["steps_differ"], row.get("weights_differ")))) or "random",
            row["their_round_s"],
            row["our_round_s"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, *([""] + [f"{number}. {note}" for number, note in enumerate(notes, 1)] if notes else [])])
