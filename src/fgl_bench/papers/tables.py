"""A paper's tables as Markdown, LaTeX and tidy csv, with their notes."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.grids import Grid, Planned, Stored, grids, levels, look_up, named
from fgl_bench.papers.measures import MEASURES, reading
from fgl_bench.papers.plan import Cell, Paper, Table
from fgl_bench.papers.published import Printed
from fgl_bench.results.divergence import diverged_seeds, footnote
from fgl_bench.results.estimates import Costs, duration
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


def missing(table: Table, planned: Planned, stored: Stored, costs: Costs) -> list[str]:
    """The cells that were not run, a line for every row that has some, with their estimated cost."""
    lines = []
    for row in table.rows:
        cells = [planned[row.key, column.key] for column in table.columns]
        absent = [cell for cell in cells if cell.digest not in stored]
        if not absent:
            continue
        if not absent[0].digest:
            lines.append(f"{row.title}: not available (no algorithm={row.algorithm})")
            continue
        lines.append(f"{row.title}: {'; '.join(f'{cell.column.key} ({duration(costs.of(cell))})' for cell in absent)}")
    return lines


def notes(
    paper: Paper,
    table: Table,
    planned: Planned,
    stored: Stored,
    costs: Costs,
    targets: Mapping[str, float],
    changed: Sequence[str],
) -> tuple[list[str], list[str]]:
    """The paragraphs below the table, and the lines that name what was not run."""
    used = [stored[cell.digest] for cell in planned.values() if cell.digest in stored]
    paragraphs = [reading(table.measure), *[SENT] * table.with_bytes]
    paragraphs += footnote(named(table, planned, stored))
    if "trained" not in scored_models(MODELS, used):
        paragraphs.append("The server scored its own model only: there are no scores of trained models.")
    if table.measure == "trips":
        paragraphs.append("Targets: " + ", ".join(f"{name} {level:g}" for name, level in targets.items()) + ".")
    if table.compared:
        titles = (row.title for row in table.rows if row.key in table.compared)
        paragraphs.append(f"Levels, of {', '.join(titles)}: {'; '.join(f'{name} {level:.4f}' for name, level in targets.items())}.")
    if changed:
        paragraphs.append(f"Not the paper's setting: {' '.join(changed)}.")
    paragraphs += provenance(used)
    paragraphs.append(f"Made by: make reproduce-tables PAPER={paper.name} TABLE={table.key}")
    return paragraphs, missing(table, planned, stored, costs)


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
        lines += [
            "",
            "Not run (left empty above), with the cost estimated from the runs that were made:",
            "",
            *(f"- {line}" for line in absent),
        ]
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


def tidy(table: Table, planned: Planned, stored: Stored, published: Printed, targets: Mapping[str, float]) -> str:
    """One line per row, column and model (or kind of cost), unrounded, the published ones as printed; no ours where not run.

    Accuracies are fractions; ``diverged`` is the number of seeds that have.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, TIDY, lineterminator="\n")
    writer.writeheader()
    measure = MEASURES[table.measure]
    kinds = scored_models(measure.kinds if measure.values else MODELS, (cell for _, cell in named(table, planned, stored)))
    for row in table.rows:
        for column in table.columns:
            run = planned[row.key, column.key]
            cell, their = stored.get(run.digest), look_up(published, table, row, column)
            for model in kinds:
                line: dict[str, Any] = {"table": table.key, "dataset": column.dataset, "group": column.group, "row": row.key}
                line |= {"title": row.title, "model": model, "target": targets.get(column.key)}
                line["num_clients"] = run.config.get("num_clients")
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


def write_table(
    folder: Path,
    paper: Paper,
    table: Table,
    cells: Sequence[Cell],
    stored: Stored,
    published: Printed,
    changed: Sequence[str] = (),
) -> list[Path]:
    """Write ``<folder>/table<key>.{md,csv,tex}``.

    Args:
        cells: the plan; cells of other tables are ignored.
        changed: overrides by which the runs differ from the paper's setting.
    """
    planned = {(cell.row.key, cell.column.key): cell for cell in cells if cell.table == table.key}
    targets = levels(table, planned, stored, published)
    parts = grids(table, planned, stored, published, targets)
    paragraphs, absent = notes(paper, table, planned, stored, Costs(paper, stored.values()), targets, changed)
    title = f"{paper.title}, table {table.key}: {table.title}"
    texts = {
        "md": markdown(title, parts, paragraphs, absent),
        "csv": tidy(table, planned, stored, published, targets),
        "tex": latex(title, parts, paragraphs, absent, f"tab:{paper.name}-{table.key}"),
    }
    paths = [folder / f"table{table.key}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_whole(path, text)
    return paths
