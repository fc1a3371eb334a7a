"""The figures of FedGTA: 1 (labels and curves on Cora), 3 (aggregation weights, Photo), 4 (curves), 5 (seconds), 6 (participation)."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from fgl_bench.evaluation.summary import MODELS
from fgl_bench.papers.figures import pictures
from fgl_bench.papers.figures.inputs import Sources, both, compared, convergence, lines, seconds
from fgl_bench.papers.plan import load_paper
from fgl_bench.results.plots import figures
from fgl_bench.results.provenance import marked

SPLIT = "Louvain, 10 clients"
BACKBONES = {"gcn": "GCN", "gamlp": "GAMLP"}
SHOWN = ("global", "local", "fedavg", "fedprox", "scaffold", "moon", "feddc", "gcfl_plus", "fedgta")
WEIGHTS_AT = (10, 100, 500, 1000)


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    tables = {table.key: table for table in load_paper("fedgta").tables}
    curves, mixing, cells = sources.curves("3"), sources.matrices("mixing", "3"), sources.cells("3", "figure6")
    titles = {row.key: row.title for row in tables["3"].rows}

    for figure, dataset, what in (("figure1", "cora", "Labels of every client"), ("figure3a", "photo", "Labels of every client, Photo")):
        for name, federation in sources.federations("fedgta/table3", [d for d in (dataset,) if d in sources.datasets]):
            counts = {name: {"louvain": pictures.label_counts(federation)}}
            yield f"{figure}_labels_{name}", pictures.label_distributions(counts, what)

    for backbone, title in BACKBONES.items():
        keys = [key for key in (*(f"{backbone}_{name}" for name in SHOWN), "fedgl", "fedsage_plus") if key in titles]
        named = {key: titles[key].removeprefix(f"{title}, ") for key in keys}
        spent: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for dataset in sources.datasets:
            number = "figure1" if (dataset, backbone) == ("cora", "gcn") else "figure4"
            name = f"{number}_convergence_{dataset}_{backbone}"
            shown_lines = lines(name, {named[key]: ("3", key, dataset) for key in keys}, curves)
            if shown_lines:
                yield name, figures.lines(convergence({dataset: shown_lines}), f"{dataset}, {title}, {SPLIT}", 2)
            for key in keys:
                if cell := cells.get(("3", key, dataset)):
                    spent.setdefault(dataset, {})[marked(named[key], cell)] = seconds(cell)
        name = f"figure5_seconds_{backbone}"
        if timed := compared(name, spent):
            yield name, figures.bars(timed, [""], "seconds per round and seed", f"Time of a round, {title}, {SPLIT}")

    name = "figure3b_weights_photo"
    matrices = lines(name, {title: ("3", f"{key}_fedgta", "photo") for key, title in BACKBONES.items()}, mixing, 1)
    if matrices:
        what = "weight of a client (column) in another's model"
        yield name, pictures.heatmaps(matrices, WEIGHTS_AT, "Aggregation weights of FedGTA, Photo", what)

    shares: dict[str, dict] = {}
    for column in tables["figure6"].columns:
        for row in tables["figure6"].rows:
            if cell := cells.get(("figure6", row.key, column.key)):
                shares.setdefault(column.group, {})[row.title] = cell["test"]
    if panels := compared("figure6_participation", shares):
        title = "A share of the clients in every round, Computers, Louvain, 50 clients"
        shown = {share: both(tests) for share, tests in panels.items()}
        yield "figure6_participation", figures.bars(shown, MODELS, "test accuracy in %", title)
