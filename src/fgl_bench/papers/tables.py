"""A paper's tables: published and our scores as Markdown, LaTeX and tidy csv, with notes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fgl_bench.evaluation.summary import MODELS, spread
from fgl_bench.papers.plan import Column, Paper, Row, Stored, Table, in_table, look_up
from fgl_bench.papers.published import Printed, Published
from fgl_bench.results import render
from fgl_bench.results.provenance import marked, on_cpu
from fgl_bench.results.render import number
from fgl_bench.results.scored import MARK, diverged_seeds, footnote, score_trained, scored_models, scored_seeds
from fgl_bench.utils.files import write_whole

MEAN, PUBLISHED, SENT = "mean", "published", "MB"
Cell = Mapping[str, Any]

# ---- numbers


class Number(NamedTuple):
    """One number of a table.

    Attributes:
        text: as shown; empty if missing.
        rank: larger is better; equal ranks are shown equally. None if it does not compete.
        values: unrounded, by the names of the tidy csv.
        best: True if no entry of its column has a larger rank.
    """

    text: str = ""
    rank: float | None = None
    values: Mapping[str, Any] = {}
    best: bool = False


def accuracy(scores: Mapping[str, Any]) -> Number:
    """Return the accuracy of the scored seeds, with their number if some are missing: omitting failures favors a method that fails."""
    if not scores:
        return Number()  # a run older than this score
    if scores["mean"] is None:
        return Number("no score", values=scores)
    text = render.percent(scores["mean"], 1, scores["ci95"], scores["per_seed"])
    return Number(text, None if None in scores["per_seed"] else round(100 * scores["mean"], 1), scores)


def trips(cell: Cell, model: str, target: float | None) -> Number:
    """Return trips to the target: mean of the seeds that reached it ± interval, their number, and the mean with others at the budget.

    The last mean determines the best entry, since omitting failures favors a method that fails.
    """
    counts = cell["client_trips"]["to_target"].get(f"{target:g}", {}).get(model) if target is not None else None
    if counts is None:
        return Number()
    mean, censored = number(counts["mean"], 0, counts["ci95"]) if counts["reached"] else "never", round(counts["censored_mean"])
    text = f"{mean} ({counts['reached']}/{len(cell['seeds'])}; {censored})"
    return Number(text, -censored if counts["reached"] else None, counts)


def seconds(cell: Cell) -> Number:
    """Return seconds of training and evaluation per round and seed. GPU times are marked and do not compete."""
    if "rounds" not in cell.get("config", {}) or "train" not in cell["seconds"]:
        return Number()
    each = cell["seconds"]["train"] / (cell["config"]["rounds"] * len(cell["seeds"]))
    return Number(marked(f"{each:.3g}", cell), -each if on_cpu(cell) else None, {"mean": each})


# Costs by heading: name in a cell's records, and divisor for the shown unit.
COSTS = {
    "rounds": ("round", 1),
    "embeddings, MB": ("embedding_bytes", 1e6),
    "all, MB": ("bytes", 1e6),
    "seconds": ("communication_seconds", 1),
}


def cost(cell: Cell, kind: str, target: float | None) -> Number:
    """Return the cost of the server's model when its validation score first reached the target.

    Mean of the seeds that reached it ± 95 % interval, with their number if some failed; such entries do not compete.
    """
    if target is None or not cell.get("records"):
        return Number()
    name, unit = COSTS[kind]
    costs = [next((c / unit for v, c in zip(seed["val"], seed[name], strict=True) if v >= target), None) for seed in cell["records"]]
    reached = [value for value in costs if value is not None]
    values: dict[str, Any] = {**spread(reached), "reached": len(reached)}
    if not reached:
        return Number("never", values=values)
    return Number(number(values["mean"], 1, values["ci95"], costs), None if None in costs else -round(values["mean"], 1), values)


def kinds_of(table: Table) -> tuple[str, ...]:
    """Return the kinds of entries that the table shows per run: models, or other measures."""
    return {"seconds": ("ours",), "costs": tuple(COSTS)}.get(table.measure, tuple(MODELS))


def entry_of(table: Table, cell: Cell, kind: str, target: float | None) -> Number:
    """Return our entry, marked if a seed diverged; accuracies for a figure of curves."""
    if kind == "trained" and score_trained(cell) == "never":
        return Number()
    if table.measure in ("accuracy", "curves"):
        entry = accuracy(cell["test"][kind])
    elif table.measure == "trips":
        entry = trips(cell, kind, target)
    elif table.measure == "seconds":
        entry = seconds(cell)
    elif table.measure == "costs":
        entry = cost(cell, kind, target)
    else:  # another metric that the run reported, at the same point
        entry = accuracy(cell.get("metrics", {}).get(table.measure, {}).get(kind, {}))
    return entry._replace(text=f"{entry.text} {MARK}") if entry.text and diverged_seeds(cell) else entry


def common(cells: Sequence[Cell]) -> float | None:
    """Return the highest validation score that every seed of these cells reaches; None for fewer than two cells."""
    best = [max(seed["val"], default=0.0) for cell in cells for seed in cell.get("records") or ()]
    return min(best) if len([cell for cell in cells if cell.get("records")]) > 1 else None


def levels(table: Table, stored: Stored, published: Printed) -> dict[str, float]:
    """Return target validation scores by column key: the published targets, or the highest score that all compared rows reach."""
    printed, result = published.targets(table.key), {}
    for column in table.columns:
        cells = (stored.get((table.key, key, column.key)) for key in table.compared)
        result[column.key] = common([cell for cell in cells if cell]) if table.compared else printed.get(column.dataset)
    return {key: value for key, value in result.items() if value is not None}


# ---- entries of a table


def printed(their: Published | None) -> str:
    if their is None:
        return ""
    return their.text if their.reached is None else f"{their.text} ({their.reached}/5)"


def mean_entry(row: Sequence[Cell | None], model: str) -> Number:
    """Return the unweighted mean over the table's datasets if all have a score; marked if a seed diverged."""
    cells = [cell for cell in row if cell is not None and cell["test"][model]["mean"] is not None]
    if len(cells) < len(row):
        return Number()
    value = sum(100 * cell["test"][model]["mean"] for cell in cells) / len(cells)
    text = f"{value:.1f} {MARK}" if any(diverged_seeds(cell) for cell in cells) else f"{value:.1f}"
    whole = all(scored_seeds(cell["test"][model]) == len(cell["seeds"]) for cell in cells)
    return Number(text, round(value, 1) if whole else None)


def printed_mean(row: Sequence[Published | None]) -> str:
    """Return the unweighted mean of the published cells; the published "Overall" is not always the mean of its row."""
    means = [float(cell.mean) for cell in row if cell is not None]
    return "" if len(means) < len(row) else f"{sum(means) / len(means):.1f}"


def sent(cell: Cell) -> str:
    """Return the mean megabytes uploaded per client trip."""
    return f"{cell['bytes']['upload'] / cell['client_trips']['total'] / 1e6:.3g}"


class ColumnGroup(NamedTuple):
    """The part of a table with one group of columns.

    Attributes:
        group: its heading; empty if the table has one part.
        heads: (dataset, kind: ``received`` | ``trained`` | ``published`` | ...).
        rows: title and entries; our best entry is marked in every column.
    """

    group: str
    heads: list[tuple[str, str]]
    rows: list[tuple[str, list[Number]]]


def parts(table: Table, stored: Stored, published: Printed, targets: Mapping[str, float]) -> Iterator[ColumnGroup]:
    """Yield the table's entries by group of columns.

    Args:
        targets: validation accuracy by column key, see :func:`levels`.
    """
    ours = scored_models(kinds_of(table), (cell for _, cell in in_table(table, stored)))
    kinds = (*ours, *[PUBLISHED] * (table.measure != "costs"), *[SENT] * table.with_bytes)
    for group in dict.fromkeys(column.group for column in table.columns):
        shown = [column for column in table.columns if column.group == group]
        with_mean = table.measure == "accuracy" and len(shown) > 1
        heads = [(column.dataset, kind) for column in shown for kind in kinds]
        heads += [(MEAN, kind) for kind in (*ours, PUBLISHED)] * with_mean
        rows = [(row.title, entries(table, row, shown, kinds, with_mean, stored, published, targets)) for row in table.rows]
        top = [max((rank for _, row in rows if (rank := row[i].rank) is not None), default=None) for i in range(len(heads))]
        best = [(name, [e._replace(best=e.rank is not None and e.rank == t) for e, t in zip(row, top, strict=True)]) for name, row in rows]
        yield ColumnGroup(group, heads, best)


def entries(
    table: Table,
    row: Row,
    columns: Sequence[Column],
    kinds: Sequence[str],
    with_mean: bool,
    stored: Stored,
    published: Printed,
    targets: Mapping[str, float],
) -> list[Number]:
    """Return the entries of a row in one part."""
    cells = [stored.get((table.key, row.key, column.key)) for column in columns]
    theirs = [look_up(published, table, row, column) for column in columns]
    result = []
    for column, cell, their in zip(columns, cells, theirs, strict=True):
        for kind in kinds:
            if kind == PUBLISHED:
                result.append(Number(printed(their)))
            elif cell is None:
                result.append(Number())
            else:
                result.append(Number(sent(cell)) if kind == SENT else entry_of(table, cell, kind, targets.get(column.key)))
    if with_mean:
        result += [mean_entry(cells, kind) for kind in kinds if kind not in (PUBLISHED, SENT)] + [Number(printed_mean(theirs))]
    return result


# ---- notes below a table

WHICH = (
    "*received* is the model that a client gets from the server, *trained* what it makes of it in its local epoch; *published* is the "
    "paper's number, which does not say which of the two it is."
)
READING = {
    "seconds": (
        "Ours: seconds per round and seed, training and both evaluations, as measured while the table was made; several runs may have "
        "shared the machine. (GPU): on one; not compared with those of CPUs."
    ),
    "accuracy": (
        "Ours: test accuracy at the evaluation point with the best validation accuracy of the whole federation (earliest of equals), "
        "clients weighted by test nodes, mean over seeds ± half-width of the 95 % t-interval. "
        f"{WHICH} Best of ours in bold, for received and trained models apart. *mean* is the unweighted mean of a row's cells, "
        "recomputed for the published ones; the paper's Overall is not the mean of its cells everywhere and is not used."
    ),
    "costs": (
        "What had been spent when the validation accuracy of the server's (*received*) model first reached the level named below: in every "
        "setting the highest that all seeds of the compared methods reach. *rounds*; bytes of embeddings and ids, sent and received, in "
        "MB; *all*: models besides; *seconds* on the wire by the bandwidth and latency of the configuration (computing is not "
        "in them). Mean over seeds ± half-width of the 95 % t-interval; (n/m): only n of m seeds got there, and the mean is theirs."
    ),
    "trips": (
        "Ours: client trips (download, one local epoch, upload) at the first evaluation point whose validation accuracy reaches the "
        "target: mean of the seeds that reached it ± half-width of the 95 % t-interval (how many did; mean with the others counted "
        f"as the whole budget). Best in bold by the last. {WHICH} It averages the runs that reached the target; how many did was worked "
        "out from the paper's totals. The paper labels a synchronous round by the trips before it, we by those after it (20 more)."
    ),
}
MEGABYTES = "*MB* is what a client uploads (without a server: sends to its neighbours) in a trip, in megabytes, on average."


def reading(measure: str) -> str:
    """Explain a table; other metrics use the text for accuracy."""
    other = READING["accuracy"].replace("Ours: test accuracy at", f"Ours: test {measure.replace('_', ' ')} in % at")
    return READING.get(measure, other)


def listed(values: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def provenance(cells: Sequence[Mapping]) -> list[str]:
    """Return seeds, devices, dates, versions and commits of the cells."""
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
    """Return the missing cells, one line per row."""
    absent = {row.title: [column.key for column in table.columns if (table.key, row.key, column.key) not in stored] for row in table.rows}
    return [f"{title}: {'; '.join(keys)}" for title, keys in absent.items() if keys]


def notes(
    paper: Paper, table: Table, stored: Stored, targets: Mapping[str, float], changed: Sequence[str] = (), made_by: Sequence[str] = ()
) -> list[str]:
    """Return the paragraphs below the table.

    Args:
        made_by: commands to show; by default the command of the table.
    """
    cells = in_table(table, stored)
    used = [cell for _, cell in cells]
    paragraphs = [reading(table.measure), *[MEGABYTES] * table.with_bytes, *footnote(cells)]
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


def markdown(title: str, parts: Sequence[ColumnGroup], paragraphs: Sequence[str], absent: Sequence[str]) -> str:
    """Return a heading, the table by group with the best in bold, and the notes."""
    lines = [f"# {title}"]
    for part in parts:
        heads = ["method", *(f"{dataset} {kind}" for dataset, kind in part.heads)]
        rows = [(name, *(render.marked("md", entry.text, entry.best) for entry in row)) for name, row in part.rows]
        lines += [*(["", f"## {part.group}"] if part.group else []), "", render.markdown(heads, rows)]
    for paragraph in paragraphs:
        lines += ["", paragraph]
    if absent:
        lines += ["", "Not run (left empty above):", "", *(f"- {line}" for line in absent)]
    return "\n".join(lines) + "\n"


def latex(title: str, parts: Sequence[ColumnGroup], paragraphs: Sequence[str], absent: Sequence[str], label: str) -> str:
    """Return one float per group; the notes are comments."""
    lines = [r"% needs \usepackage{booktabs,graphicx}"]
    for number_, part in enumerate(parts, 1):
        caption, name = (f"{title}, {part.group}.", f"{label}-{number_}") if part.group else (f"{title}.", label)
        rows = [(row_title, [render.marked("tex", entry.text, entry.best) for entry in row]) for row_title, row in part.rows]
        lines += render.latex("method", part.heads, rows, caption, name)
    comments = [*paragraphs, *(["Not run:", *absent] if absent else [])]
    return "\n".join([*lines, *(f"% {line}" for line in comments)]) + "\n"


TIDY = (
    "table", "dataset", "group", "num_clients", "row", "title", "model", "mean", "ci95", "std", "reached", "censored_mean", "seeds",
    "target", "published_mean", "published_spread", "published_reached", "upload_bytes", "download_bytes", "busiest_bytes", "trips",
    "virtual_time", "seconds", "device", "finished", "commit", "config_hash", "diverged",
)  # fmt: skip


def tidy(table: Table, stored: Stored, published: Printed, targets: Mapping[str, float]) -> str:
    """Return one line per row, column and model (or kind of cost): our unrounded and the published score; ours empty if not run.

    Accuracies are fractions; ``diverged`` is the number of diverged seeds.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, TIDY, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    kinds = scored_models(kinds_of(table), (cell for _, cell in in_table(table, stored)))
    clients = {key[2]: cell["num_clients"] for key, cell in stored.items() if key[0] == table.key}
    for row in table.rows:
        for column in table.columns:
            cell, their = stored.get((table.key, row.key, column.key)), look_up(published, table, row, column)
            about: dict[str, Any] = {"table": table.key, "dataset": column.dataset, "group": column.group, "row": row.key}
            about |= {"title": row.title, "target": targets.get(column.key)}
            about["num_clients"] = cell["num_clients"] if cell else clients.get(column.key, column.where.get("num_clients"))
            if their is not None:
                about |= {"published_mean": their.mean, "published_spread": their.spread, "published_reached": their.reached}
            for kind in kinds:
                ours = {} if cell is None else {**entry_of(table, cell, kind, about["target"]).values, **values(cell)}
                writer.writerow({**about, **ours, "model": kind})
    return out.getvalue()


def values(cell: Cell) -> dict[str, Any]:
    """Return further csv columns of a stored cell."""
    return {
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
    """Return the table as file contents by extension.

    Args:
        changed: overrides by which the runs differ from the paper's setting.
        title, label: replace those of the paper and table.
        made_by: see :func:`notes`.
        name_missing: list the missing cells.
    """
    targets = levels(table, stored, published)
    shown = list(parts(table, stored, published, targets))
    paragraphs, absent = notes(paper, table, stored, targets, changed, made_by), missing(table, stored) if name_missing else []
    title = title or f"{paper.title}, table {table.key}: {table.title}"
    return {
        "md": markdown(title, shown, paragraphs, absent),
        "csv": tidy(table, stored, published, targets),
        "tex": latex(title, shown, paragraphs, absent, label or f"tab:{paper.name}-{table.key}"),
    }


def write_texts(contents: Mapping[str, str], stem: Path) -> list[Path]:
    """Write the :func:`texts` to files with a common stem."""
    for ending, text in contents.items():
        write_whole(stem.with_name(f"{stem.name}.{ending}"), text)
    return [stem.with_name(f"{stem.name}.{ending}") for ending in contents]
