"""What a table may show of a run, and how to read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fgl_bench.evaluation.summary import MODELS, spread
from fgl_bench.results.divergence import MARK, diverged_seeds, scored_seeds
from fgl_bench.results.hardware import marked, on_cpu
from fgl_bench.results.selection import score_trained, selected


@dataclass(frozen=True)
class Entry:
    """One number of a table.

    Attributes:
        text: as shown; empty where there is none.
        rank: larger is better; equal ranks are equal as shown. None does not compete.
        best: whether no other entry of its column has a larger rank.
    """

    text: str = ""
    rank: float | None = None
    best: bool = False


def number(value: float, digits: int, half: float | None) -> str:
    return f"{value:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")


def accuracy(cell: Mapping, model: str, target: float | None) -> Entry:
    """Percent at the best validation point, mean over seeds ± 95 % interval."""
    return percent(cell["test"][model])


def percent(scores: Mapping) -> Entry:
    """Of the seeds that have a score, and how many have where not all do: leaving failures out favors a method that fails."""
    if scores["mean"] is None:
        return Entry("no score")
    text = number(100 * scores["mean"], 1, None if scores["ci95"] is None else 100 * scores["ci95"])
    count, seeds = scored_seeds(scores), len(scores["per_seed"])
    return Entry(text, round(100 * scores["mean"], 1)) if count == seeds else Entry(f"{text} ({count}/{seeds})")


def trips(cell: Mapping, model: str, target: float | None) -> Entry:
    """Trips to the target: mean of the seeds that got there ± interval, how many did, mean with the others at the whole budget.

    The last decides which entry is best, since leaving failures out favors a method that fails.
    """
    counts = cell["client_trips"]["to_target"].get(f"{target:g}", {}).get(model)
    if counts is None:
        return Entry()
    mean = number(counts["mean"], 0, counts["ci95"]) if counts["reached"] else "never"
    censored = round(counts["censored_mean"])
    return Entry(f"{mean} ({counts['reached']}/{len(cell['seeds'])}; {censored})", -censored if counts["reached"] else None)


def seconds(cell: Mapping, model: str, target: float | None) -> Entry:
    """Seconds of training and evaluation per round and seed; those of a GPU say so and do not compete."""
    each = per_round(cell, model, target).get("mean")
    return Entry() if each is None else Entry(marked(f"{each:.3g}", cell), -each if on_cpu(cell) else None)


def per_round(cell: Mapping, model: str, target: float | None) -> Mapping:
    """As :func:`seconds`, unrounded."""
    if "rounds" not in cell.get("config", {}) or "train" not in cell["seconds"]:
        return {}
    return {"mean": cell["seconds"]["train"] / (cell["config"]["rounds"] * len(cell["seeds"]))}


# What has been spent, by heading: its name in a cell's records, and how many of it make one of what is shown.
COSTS = {
    "rounds": ("round", 1),
    "embeddings, MB": ("embedding_bytes", 1e6),
    "all, MB": ("bytes", 1e6),
    "seconds": ("communication_seconds", 1),
}


def common(cells: Sequence[Mapping]) -> float | None:
    """The highest validation score that every seed of these cells reaches; None for fewer than two cells."""
    best = [max(seed["val"], default=0.0) for cell in cells for seed in cell.get("records") or ()]
    return min(best) if len([cell for cell in cells if cell.get("records")]) > 1 else None


def spent(cell: Mapping, kind: str, target: float | None) -> dict:
    """What the server's model had cost, in each seed, when its validation score first reached the target."""
    if target is None or not cell.get("records"):
        return {}
    name, unit = COSTS[kind]
    found = [next((c / unit for v, c in zip(seed["val"], seed[name], strict=True) if v >= target), None) for seed in cell["records"]]
    reached = [value for value in found if value is not None]
    return {**spread(reached), "reached": len(reached)}


def cost(cell: Mapping, kind: str, target: float | None) -> Entry:
    """Mean of the seeds that got to the target ± 95 % interval, and how many did where not all; those that fail do not compete."""
    found = spent(cell, kind, target)
    if not found:
        return Entry()
    count, seeds = found["reached"], len(cell["records"])
    if not count:
        return Entry("never")
    text = number(found["mean"], 1, found["ci95"])
    return Entry(text, -round(found["mean"], 1)) if count == seeds else Entry(f"{text} ({count}/{seeds})")


@dataclass(frozen=True)
class Measure:
    """What a table shows: an entry of ours for each of ``kinds``, and whether means over datasets make sense.

    Attributes:
        values: what the csv holds of each kind; None: the test scores of both models.
        printed: whether papers print such numbers.
    """

    entry: Callable[[Mapping, str, float | None], Entry]
    kinds: tuple[str, ...] = tuple(MODELS)
    with_mean: bool = False
    values: Callable[[Mapping, str, float | None], Mapping] | None = None
    printed: bool = True

    def shown(self, cell: Mapping, kind: str, target: float | None) -> Entry:
        """The entry, marked where a seed of the run has diverged."""
        if kind == "trained" and score_trained(cell) == "never":
            return Entry()
        entry = self.entry(cell, kind, target)
        return replace(entry, text=f"{entry.text} {MARK}") if entry.text and diverged_seeds(cell) else entry


def measure_of(values: Callable[[Mapping, str, float | None], Mapping], with_mean: bool = False) -> Measure:
    """Percent of these scores; empty for runs from before they were stored."""

    def entry(cell: Mapping, model: str, target: float | None) -> Entry:
        found = values(cell, model, target)
        return percent(found) if found else Entry()

    return Measure(entry, with_mean=with_mean, values=values)


def otherwise(selection: str, average: str) -> Measure:
    """Accuracy by another selection of the evaluation point or mean over clients."""
    return measure_of(lambda cell, model, target: selected(cell["test"][model], selection, average) or {}, with_mean=True)


def other(name: str) -> Measure:
    """Another metric that the run reported (``metrics``), at the same point."""
    return measure_of(lambda cell, model, target: cell.get("metrics", {}).get(name, {}).get(model, {}))


SELECTED = {
    "accuracy_macro": ("federation", "macro"), "accuracy_client": ("client", "weighted"), "accuracy_client_macro": ("client", "macro"),
}  # fmt: skip
MEASURES = {
    "accuracy": Measure(accuracy, with_mean=True),
    **{name: otherwise(*choice) for name, choice in SELECTED.items()},
    "trips": Measure(trips),
    "seconds": Measure(seconds, ("ours",), values=per_round),
    "macro_f1": other("macro_f1"),
    "auc_ovr": other("auc_ovr"),
    "costs": Measure(cost, tuple(COSTS), values=spent, printed=False),
}


WHICH = (
    "*received* is the model that a client gets from the server, *trained* what it makes of it in its local epoch; *published* is the "
    "paper's number, which does not say which of the two it is."
)
COMMON, OWN = "the evaluation point with the best validation accuracy of the whole federation", "each client's own best validation point"
WEIGHTED, MACRO = "clients weighted by test nodes", "unweighted mean over clients"
READING = {
    "seconds": (
        "Ours: seconds per round and seed, training and both evaluations, as measured while the table was made; several runs may have "
        "shared the machine. (GPU): on one; not compared with those of CPUs."
    ),
    "accuracy": (
        f"Ours: test accuracy at {COMMON} (earliest of equals), {WEIGHTED}, mean over seeds ± half-width of the 95 % t-interval. "
        f"{WHICH} Best of ours in bold, for received and trained models apart. *mean* is the unweighted mean of a row's cells, "
        "worked out anew for the published ones; the paper's Overall is not the mean of its cells everywhere and is not used."
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


def reading(measure: str) -> str:
    """How to read a table; of another metric than accuracy as of accuracy."""
    if measure in SELECTED:
        selection, average = SELECTED[measure]
        text = READING["accuracy"].replace(COMMON, OWN) if selection == "client" else READING["accuracy"]
        return text.replace(WEIGHTED, MACRO) if average == "macro" else text
    other = READING["accuracy"].replace("Ours: test accuracy at", f"Ours: test {measure.replace('_', ' ')} in % at")
    return READING.get(measure, other)
