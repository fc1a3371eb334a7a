"""A paper's tables as Markdown, LaTeX and tidy csv, with their notes."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.grids import Grid, grids, levels
from fgl_bench.papers.measures import MEASURES, reading
from fgl_bench.papers.plan import Paper, Stored, Table, in_table, look_up
from fgl_bench.papers.published import Printed
from fgl_bench.results.divergence import diverged_seeds, footnote
from fgl_bench.results.latex import escape
from fgl_bench.results.selection import scored_models
from fgl_bench.utils.files import write_whole

# ---- notes below a table

SENT = "*MB* is what a client uploads (without a server: sends to its neighbours) in a trip, in megabytes, on average."


def listed(values: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def provenance(cells: Sequence[Mapping]) -> list[str]:
    """Seeds, devices, dates, versions and commits behind the cells."""
    if not cells:
        return ["Nothing has been run yet."]
    dates = sorted(str(cell["finished"])[:10] for cell in cells)
    packages = {name: None for cell in cells for name in cell["versions"]}
    versions = [f"{name} {listed([c['versions'][name] for c in cells if name in c['versions']])}" for name in packages]
    codes = [cell.get("code") for cell in cells]
    commits = [f"{c['commit'][:10]}{' with changes' * c['dirty']}" if c else "unknown" for c in codes]
    seeds = listed([str(cell["seeds"]) for cell in cells])
    return [
        f"Seeds {seeds}. Device: {listed([cell['device'] for cell in cells])}. "
        f"Run {dates[0] if dates[0] == dates[-1] else f'{dates[0]} to {dates[-1]}'}.",
        f"Versions: {'; '.join(versions)}. Commit: {listed(commits)}.",
    ]


def missing(table: Table, stored: Stored) -> list[str]:
    """The cells that were not run, a line for every row that has some."""
    absent = {row.title: [column.key for column in table.columns if (table.key, row.key, column.key) not in stored] for row in table.rows}
    return [f"{title}: {'; '.join(keys)}" for title, keys in absent.items() if keys]


def notes(
    paper: Paper, table: Table, stored: Stored, targets: Mapping[str, float], changed: Sequence[str] = (), made_by: Sequence[str] = ()
) -> list[str]:
    """The paragraphs below the table.

    Args:
        made_by: commands; by default the one that makes the table.
    """
    cells = in_table(table, stored)
    used = [cell for _, cell in cells]
    paragraphs = [reading(table.measure), *[SENT] * table.with_bytes, *footnote(cells)]
    if "trained" not in scored_models(MODELS, used):
        paragraphs.append("The server scored its own model only: there are no scores of trained models.")
    if table.measure == "trips":
        paragraphs.append("Targets: " + ", ".join(f"{name} {level:g}" for name, level in targets.items()) + ".")
    if table.compared:
        titles = (row.title for row in table.rows if row.key in table.compared)
        paragraphs.append(f"Levels, of {', '.join(titles)}: {'; '.join(f'{name} {level:.4f}' for name, level in targets.items())}.")
    if changed:
        paragraphs.append(f"Not the paper's setting: {' '.join(changed)}.")
    commands = made_by or [f"make reproduce-tables PAPER={paper.name} TABLE={table.key}"]
    return [*paragraphs, *provenance(used), *(f"Made by: {command}" for command in commands)]


# ---- formats


def markdown(title: str, parts: Sequence[Grid], paragraphs: Sequence[str], absent: Sequence[str]) -> str:
    """A heading, the table with the best in bold, a part for each group, and the notes."""
    lines = [f"# {title}"]
    for part in parts:
        head = ["method", *(f"{dataset} {kind}" for dataset, kind in part.columns)]
        lines += [*(["", f"## {part.group}"] if part.group else []), "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for name, row in part.rows:
            shown = (f"**{entry.text}**" if entry.best else entry.text for entry in row)
            lines.append("| " + " | ".join((name, *shown)) + " |")
    for paragraph in paragraphs:
        lines += ["", paragraph]
    if absent:
        lines += ["", "Not run (left empty above):", "", *(f"- {line}" for line in absent)]
    return "\n".join(lines) + "\n"


def latex(title: str, parts: Sequence[Grid], paragraphs: Sequence[str], absent: Sequence[str], label: str) -> str:
    """A ``table*`` with booktabs' rules for each group; the notes are comments."""
    lines = [r"% needs \usepackage{booktabs,graphicx}"]
    for number, part in enumerate(parts):
        caption, name = (f"{title}, {part.group}", f"{label}-{number + 1}") if part.group else (title, label)
        widths: dict[str, int] = {}
        for dataset, _ in part.columns:
            widths[dataset] = widths.get(dataset, 0) + 1
        lines += [r"\begin{table*}", r"\centering", rf"\caption{{{escape(caption)}.}}", rf"\label{{{name}}}"]
        lines += [r"\resizebox{\textwidth}{!}{%", rf"\begin{{tabular}}{{l{'c' * len(part.columns)}}}", r"\toprule"]
        lines.append("".join(rf" & \multicolumn{{{width}}}{{c}}{{{escape(dataset)}}}" for dataset, width in widths.items()) + r" \\")
        lines.append("method" + "".join(f" & {kind}" for _, kind in part.columns) + r" \\")
        lines.append(r"\midrule")
        for title_, row in part.rows:
            shown = (rf"\textbf{{{escape(entry.text)}}}" if entry.best else escape(entry.text) for entry in row)
            lines.append(" & ".join((escape(title_), *shown)) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}}", r"\end{table*}"]
    comments = [*paragraphs, *(["Not run:", *absent] if absent else [])]
    return "\n".join([*lines, *(f"% {line}" for line in comments)]) + "\n"


TIDY = (
    "table", "dataset", "group", "num_clients", "row", "title", "model", "mean", "ci95", "std", "reached", "censored_mean", "seeds",
    "target", "published_mean", "published_spread", "published_reached", "upload_bytes", "download_bytes", "busiest_bytes", "trips",
    "virtual_time", "seconds", "device", "finished", "commit", "config_hash", "diverged",
)  # fmt: skip


def tidy(table: Table, stored: Stored, published: Printed, targets: Mapping[str, float]) -> str:
    """One line per row, column and model (or kind of cost), unrounded, the published ones as printed; no ours where not run.

    Accuracies are fractions; ``diverged`` is the number of seeds that have.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, TIDY, lineterminator="\n")
    writer.writeheader()
    measure = MEASURES[table.measure]
    kinds = scored_models(measure.kinds if measure.values else MODELS, (cell for _, cell in in_table(table, stored)))
    clients = {key[2]: cell["num_clients"] for key, cell in stored.items() if key[0] == table.key}
    for row in table.rows:
        for column in table.columns:
            cell, their = stored.get((table.key, row.key, column.key)), look_up(published, table, row, column)
            for model in kinds:
                line: dict[str, Any] = {"table": table.key, "dataset": column.dataset, "group": column.group, "row": row.key}
                line |= {"title": row.title, "model": model, "target": targets.get(column.key)}
                line["num_clients"] = cell["num_clients"] if cell else clients.get(column.key, column.where.get("num_clients"))
                if their is not None:
                    line |= {"published_mean": their.mean, "published_spread": their.spread, "published_reached": their.reached}
                if cell is not None:
                    line |= {key: value for key, value in values(table, cell, model, line["target"]).items() if key in TIDY}
                writer.writerow(line)
    return out.getvalue()


def values(table: Table, cell: Mapping, model: str, target: float | None) -> dict:
    """The unrounded values of a stored cell, by column."""
    of_trips = cell["client_trips"]["to_target"].get(f"{target:g}", {}).get(model, {}) if target is not None else {}
    own = MEASURES[table.measure].values
    return {
        **(own(cell, model, target) if own else of_trips if table.measure == "trips" else cell["test"][model]),
        "seeds": " ".join(map(str, cell["seeds"])),
        "trips": cell["client_trips"]["total"],
        "busiest_bytes": cell["bytes"].get("busiest"),
        "upload_bytes": cell["bytes"]["upload"],
        "download_bytes": cell["bytes"]["download"],
        "virtual_time": cell["virtual_time"],
        "seconds": cell["seconds"]["total"],
        "device": cell["device"],
        "finished": cell["finished"],
        "commit": (cell.get("code") or {}).get("commit"),
        "config_hash": cell["config_hash"],
        "diverged": len(diverged_seeds(cell)) if "diverged" in cell else None,
    }


def texts(
    paper: Paper,
    table: Table,
    stored: Stored,
    published: Printed,
    changed: Sequence[str] = (),
    title: str = "",
    label: str = "",
    made_by: Sequence[str] = (),
    name_missing: bool = True,
) -> dict[str, str]:
    """The table as the content of files, by their ending.

    Args:
        changed: overrides by which the runs differ from the paper's setting.
        title, label: in the place of the paper's and the table's own.
        made_by: see :func:`notes`.
        name_missing: list the cells that were not run.
    """
    targets = levels(table, stored, published)
    parts = grids(table, stored, published, targets)
    paragraphs, absent = notes(paper, table, stored, targets, changed, made_by), missing(table, stored) if name_missing else []
    title = title or f"{paper.title}, table {table.key}: {table.title}"
    return {
        "md": markdown(title, parts, paragraphs, absent),
        "csv": tidy(table, stored, published, targets),
        "tex": latex(title, parts, paragraphs, absent, label or f"tab:{paper.name}-{table.key}"),
    }


def write_texts(made: Mapping[str, str], stem: Path) -> list[Path]:
    """Write the :func:`texts` beside each other."""
    for ending, text in made.items():
        write_whole(stem.with_name(f"{stem.name}.{ending}"), text)
    return [stem.with_name(f"{stem.name}.{ending}") for ending in made]
