"""The figures of FedGTA: 1 (labels and curves on Cora), 3 (who is aggregated, Photo), 4 (curves), 5 (seconds), 6 (participation)."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from fgl_bench.papers.figures import figures
from fgl_bench.papers.figures.base import Place, Sources, compared, lines
from fgl_bench.papers.plans.fedgta import BACKBONES, PAPER
from fgl_bench.results.hardware import marked

SPLIT = "Louvain, 10 clients"
SHOWN = ("global", "local", "fedavg", "fedprox", "scaffold", "moon", "feddc", "gcfl_plus", "fedgta")
WEIGHTS_AT = (10, 100, 500, 1000)


def draw(sources: Sources) -> Iterator[tuple[str, Figure]]:
    tables = {table.key: table for table in PAPER.tables}
    kept, mixing, cells = sources.curves("3"), sources.matrices("mixing", "3"), sources.cells("3", "figure6")
    titles = {row.key: row.title for row in tables["3"].rows}

    def places(dataset: str, backbone: str) -> dict[str, Place]:
        keys = [*(f"{backbone}_{name}" for name in SHOWN), "fedgl", "fedsage_plus"]
        return {titles[key].removeprefix(f"{BACKBONES[backbone]}, "): ("3", key, dataset) for key in keys if key in titles}

    for figure, dataset, what in (("figure1", "cora", "Labels of every client"), ("figure3a", "photo", "Labels of every client, Photo")):
        for name, federation in sources.federations("fedgta/table3", [d for d in (dataset,) if d in sources.datasets]):
            counts = {name: {"louvain": figures.label_counts(federation)}}
            yield f"{figure}_labels_{name}", figures.label_distributions(counts, what)
    for backbone in ("gcn", "gamlp"):
        for dataset in sources.datasets:
            number = "figure1" if (dataset, backbone) == ("cora", "gcn") else "figure4"
            name = f"{number}_convergence_{dataset}_{backbone}"
            found = lines(name, places(dataset, backbone), kept)
            if found:
                yield name, figures.curves({dataset: found}, f"{dataset}, {BACKBONES[backbone]}, {SPLIT}")

    name, shown = "figure3b_weights_photo", {BACKBONES[key]: ("3", f"{key}_fedgta", "photo") for key in ("gcn", "gamlp")}
    matrices = lines(name, shown, mixing, 1)
    if matrices:
        title = "Aggregation weights of FedGTA, Photo"
        yield name, figures.heatmaps(matrices, WEIGHTS_AT, title, "weight of a client (column) in another's model")

    for backbone in ("gcn", "gamlp"):
        seconds: dict[str, dict[str, float]] = {}
        for dataset in sources.datasets:
            for name in (*SHOWN, "fedgl", "fedsage_plus"):
                key = name if name in titles else f"{backbone}_{name}"
                cell = cells.get(("3", key, dataset))
                if cell:
                    each = cell["seconds"]["train"] / (cell["config"]["rounds"] * len(cell["seeds"]))
                    title = titles[key].removeprefix(f"{BACKBONES[backbone]}, ")
                    seconds.setdefault(dataset, {})[marked(title, cell)] = each
        name = f"figure5_seconds_{backbone}"
        if panels := compared(name, seconds):
            picture = figures.simple_bars(panels, "seconds per round and seed", f"Time of a round, {BACKBONES[backbone]}, {SPLIT}")
            yield name, picture

    shares: dict[str, dict] = {}
    for column in tables["figure6"].columns:
        for row in tables["figure6"].rows:
            cell = cells.get(("figure6", row.key, column.key))
            if cell:
                shares.setdefault(column.group, {})[row.title] = cell["test"]
    if tests := compared("figure6_participation", shares):
        yield "figure6_participation", figures.bars(tests, "A share of the clients in every round, Computers, Louvain, 50 clients")
