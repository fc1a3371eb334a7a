"""Recomputes every count and claim of docs/reproduction.md from the stored files, by csv, json, yaml, numpy and scipy alone.

Nothing of ``fgl_bench.papers`` or ``fgl_bench.results`` is used, nor any of their statistics: an error there does not hide here.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import Counter, defaultdict
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PLANS = ROOT / "results", ROOT / "src/fgl_bench/papers/plans"
PAPERS = ("dfed_sst", "fedaas", "fedgta", "fedsa_gcl", "fedssa")
TITLES = {"DFed-SST": "dfed_sst", "FedAAS": "fedaas", "FedGTA": "fedgta", "FedSA-GCL": "fedsa_gcl", "FedSSA": "fedssa", "all": "all"}
RUNS = {"fedsa_gcl": 5, "dfed_sst": 5, "fedssa": 10, "fedaas": 10, "fedgta": 10}
csv.field_size_limit(sys.maxsize)
pytestmark = pytest.mark.audit


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ---- the stored files


def planned(paper: str) -> dict[tuple[str, str, str], dict]:
    """Cells of a plan by table, row and column: overrides, measure, and where the paper prints them."""
    plan, found = yaml.safe_load((PLANS / f"{paper}.yaml").read_text(encoding="utf-8")), {}
    for key, table in plan["tables"].items():
        for name in table["rows"]:
            row = {"key": name, "overrides": [], **plan["rows"][name]}
            for group in table["columns"]:
                for dataset in group["datasets"]:
                    where, about = group.get("where", {}), {"dataset": dataset, **group.get("where", {})}
                    fitting = [s for s in plan.get("settings", {}).get(row.get("settings"), ()) if fits(s, about)]
                    more = fitting[0]["overrides"] if fitting else []
                    run = [
                        f"experiment={row.get('experiment', table['experiment'])}",
                        f"dataset={dataset}",
                        f"algorithm={row['algorithm']}",
                    ]
                    place = {"table": key, "dataset": dataset, "method": row.get("published"), "variant": "default"}
                    column = f"{dataset}, {group['group']}" if group.get("group") else dataset
                    found[key, row["key"], column] = {
                        "overrides": [*run, *row["overrides"], *group.get("overrides", []), *more],
                        "place": {**place, **table.get("where", {}), **where, **row.get("where", {})},
                        **{"measure": table["measure"], "dataset": dataset},
                    }
    return found


def fits(setting: dict, about: dict) -> bool:
    return all(about.get(key) == value for key, value in setting.items() if key != "overrides")


def filled(paper: str, folder: str, plan: dict) -> dict[tuple, dict[str, str]]:
    path, found = RESULTS / folder / paper / "cells.csv", {}
    for line in lines(path) if path.is_file() else []:
        for table, row, column, overrides in json.loads(line["places"]):
            if (table, row, column) in plan and plan[table, row, column]["overrides"] == overrides:
                found[table, row, column] = line
    return found


def scores(line: dict[str, str], cell: dict, model: str, kind: str = "") -> list[float | None]:
    """Scores by seed in percent, or trips; empty if there are none."""
    if cell["measure"] == "trips":
        text = line[f"client_trips/to_target/{cell['target']:g}/{model}/per_seed"]
        return json.loads(text) if text else []
    if model == "trained" and line["config/split/test"] == "server":
        return []
    prefix = "test" if cell["measure"] == "accuracy" else f"metrics/{cell['measure']}"
    text = line.get(f"{prefix}/{model}/{kind}per_seed") or "[]"
    return [None if value is None else 100 * value for value in json.loads(text)]


@cache
def everything() -> tuple[list[dict], list[dict]]:
    """All registered printed cells, and the measured draws."""
    registered, contradictions = lines(RESULTS / "settlements/registered.csv"), lines(RESULTS / "settlements/contradictions.csv")
    cells, draws = [], []
    for paper in PAPERS:
        plan, printed = planned(paper), [line for line in lines(RESULTS / f"published/{paper}.csv") if line["mean"]]
        stored, drawn = filled(paper, "cells", plan), filled(paper, "draws", plan)
        targets = {
            (p["table"], p["dataset"]): float(p["note"].split("target_accuracy=")[1].split(";")[0])
            for p in printed
            if "target_" in p["note"]
        }
        for entry in (each for each in registered if each["paper"] == paper):
            for (table, row, column), cell in plan.items():
                if (table, row) != (entry["table"], entry["row"]) or (
                    entry["datasets"] and cell["dataset"] not in entry["datasets"].split()
                ):
                    continue
                their = [p for p in printed if all(p[key] == value for key, value in cell["place"].items())]
                if not their:
                    continue
                cell = {**cell, "target": targets.get((table, cell["dataset"]))}
                mark = (paper, table, entry["method"], entry["where"], column)
                bad = any(mark == tuple(c[key] for key in ("paper", "table", "method", "where", "column")) for c in contradictions)
                one = {**entry, "column": column, "cell": cell, "their": their[0], "line": stored.get((table, row, column)), "bad": bad}
                cells.append(one)
        seen = set()
        for (table, row, column), line in drawn.items():
            cell = plan[table, row, column]
            if cell["measure"] == "trips" or line["config_hash"] in seen:
                continue
            seen.add(line["config_hash"])
            for model in ("received", "trained"):
                own = stored.get((table, row, column))
                within = np.var(scores(own, cell, model), ddof=1) if own else 0.0
                values = scores(line, cell, model)
                place = {"paper": paper, "table": table, "row": row, "column": column, "dataset": cell["dataset"], "model": model}
                spread = {
                    "between": max(0.0, np.var(values, ddof=1) - within),
                    "within": within,
                    "values": values,
                    "nodes": nodes_tested(line),
                }
                draws.append({**place, **spread})
    return cells, draws


def nodes_tested(line: dict[str, str]) -> float:
    own = line["config/split/ratios"]
    return float(line["graph/nodes"]) * json.loads(line["config/dataset/ratios"] if own in ("", "null") else own)[2]


def draw_variance(draws: list[dict], own: dict, levels: tuple[tuple[str, ...], ...]) -> tuple[float, int]:
    for keys in levels:
        near = [each for each in draws if all(each[key] == own[key] for key in keys)]
        if near:
            scale = [each["nodes"] / own["nodes"] if len(keys) == 1 else 1.0 for each in near]
            runs = int(np.median([len(each["values"]) for each in near]))
            return float(np.median([each["between"] * by for each, by in zip(near, scale, strict=True)])), runs - 1
    return 0.0, 1


LEVELS = (("paper", "table", "row", "column", "model"), ("paper", "dataset", "model"), ("dataset", "model"), ("model",))


@cache
def numbers(model_of: str = "", kind: str = "") -> list[dict]:
    """The parts of every cell's test: means, variances of the means, degrees of freedom; ``ours`` is None where nothing is stored."""
    cells, draws = everything()
    other = {"received": "trained", "trained": "received"}
    return [number(each, draws, other[each["model"]] if model_of else each["model"], kind) for each in cells]


def number(each: dict, draws: list[dict], model: str, kind: str = "") -> dict:
    their, cell, line, trips = each["their"], each["cell"], each["line"], each["cell"]["measure"] == "trips"
    reached = int(their["note"].split("reached_target=")[1].split()[0]) if "reached_target=" in their["note"] else RUNS[each["paper"]]
    spread = float(their["spread"])
    if their["spread_kind"] == "ci95":
        variance = (spread / stats.t.ppf(0.975, reached - 1)) ** 2 if reached > 1 else math.nan
    else:
        variance = (spread if their["spread_kind"] == "var" else spread**2) / reached if reached > 1 else math.nan
    found = {**each, "printed": float(their["mean"]), "their_variance": variance, "their_runs": reached, "trips": trips, "ours": None}
    values = scores(line, cell, model, kind) if line and (not kind or cell["measure"] == "accuracy") else []
    if not values:
        return found
    whole = [value for value in values if value is not None]
    fixed = "masks" not in json.loads(line["config/split/per_seed"])
    same = each["paper"] == "fedgta" and cell["dataset"] in ("cora", "citeseer")
    sides = 0 if trips or same else (each["paper"] != "fedaas") + fixed
    own = {**each, "dataset": cell["dataset"], "nodes": nodes_tested(line), "model": model}
    between, freedom = draw_variance(draws, own, LEVELS)
    missing = len(whole) < 2 or (not trips and len(whole) < len(values))
    return {
        **found,
        **{"ours": float(np.mean(whole)) if whole else math.nan, "missed": trips and not whole, "runs": len(whole), "seeds": len(values)},
        **{"variance": math.nan if missing else float(np.var(whole, ddof=1)) / len(whole), "sides": sides, "values": whole, "own": own},
        **{"draw": sides * between if sides else 0.0, "draw_freedom": freedom, "fixed": fixed},
    }


def judge(ours: dict, theirs: dict) -> str:
    """One of three labels, by two one-sided tests."""
    parts = (
        (ours["variance"], ours["runs"] - 1),
        (theirs["their_variance"], theirs["their_runs"] - 1),
        (ours["draw"], ours["draw_freedom"]),
    )
    if ours["missed"]:
        return "different" if theirs["their_runs"] > 1 else "inconclusive"
    total = sum(value for value, _ in parts)
    if math.isnan(total):
        return "inconclusive"
    difference, margin = ours["ours"] - theirs["printed"], 0.2 * theirs["printed"] if ours["trips"] else 1.5
    below = sum(value**2 / freedom for value, freedom in parts if value > 0)
    half = stats.t.ppf(0.95, total**2 / below) * math.sqrt(total) if total > 0 else 0.0
    if abs(difference) + half < margin:
        return "equivalent"
    return "different" if abs(difference) - half > margin else "inconclusive"


def verdict(each: dict) -> str:
    if each["bad"]:
        return "contradictory"
    if each["ours"] is None:
        return "not run"
    found = judge(each, each)
    return "under-specified" if found == "different" and each["open"] else found


def run(cells: list[dict]) -> list[dict]:
    return [each for each in cells if not each["bad"] and each["ours"] is not None]


# ---- verdicts and counts


def test_every_verdict_is_what_the_stored_files_give() -> None:
    mine = {(c["paper"], c["table"], c["method"], c["where"], c["column"]): verdict(c) for c in numbers()}
    stored = {(c["paper"], c["table"], c["method"], c["where"], c["column"]): c["verdict"] for c in lines(RESULTS / "tables/verdicts.csv")}
    assert stored == mine


def test_every_count_is_what_the_stored_files_give() -> None:
    for line in lines(RESULTS / "tables/counts.csv"):
        part = [each for each in numbers() if line["paper"] in (each["paper"], "all")]
        number_of = Counter(map(verdict, part))
        names = ("equivalent", "inconclusive", "different", "under-specified", "contradictory", "not run")
        assert {name: int(line[name]) for name in names} == {name: number_of[name] for name in names}
        assert (int(line["printed"]), int(line["tested"])) == (len(part), len(run(part)))


@cache
def permuted(repetitions: int = 60) -> dict[str, np.ndarray]:
    """Shares of the three labels by paper with the printed rows of a table permuted, by another stream of random numbers."""
    generator, counts = np.random.default_rng(12345), defaultdict(lambda: np.zeros((repetitions, 3)))
    tables = defaultdict(dict)
    for each in run(numbers()):
        tables[each["paper"], each["table"]][f"{each['method']} {each['where']}", each["column"]] = each
    for (paper, _), cells in tables.items():
        rows = sorted({row for row, _ in cells})
        for repetition in range(repetitions):
            source = dict(zip(rows, generator.permutation(rows), strict=True))
            for (row, column), each in cells.items():
                if (other := cells.get((source[row], column))) is not None:
                    counts[paper][repetition, ("equivalent", "inconclusive", "different").index(judge(each, other))] += 1
    counts["all"] = sum(counts.values())
    return {paper: 100 * found / found.sum(1, keepdims=True) for paper, found in counts.items()}


def test_permuting_the_methods_gives_the_floor() -> None:
    for line in lines(RESULTS / "tables/counts.csv"):
        mine = permuted()[line["paper"]]
        for i, name in enumerate(("equivalent", "inconclusive", "different")):
            assert float(line[f"{name}_floor"]) == pytest.approx(mine[:, i].mean(), abs=4 * mine[:, i].std() / math.sqrt(60) + 0.3)


def test_other_draws_of_our_own_runs_give_the_ceiling() -> None:
    generator, (_, draws) = np.random.default_rng(54321), everything()
    counts: dict[str, Counter] = defaultdict(Counter)
    for each in run(numbers()):
        if each["runs"] < 2 or math.isnan(each["variance"]):
            continue
        near = next((n for keys in LEVELS if (n := [d for d in draws if all(d[k] == each["own"][k] for k in keys)])), [])
        for _ in range(40):
            if each["sides"] and near:
                source = near[generator.integers(len(near))]
                one, other = generator.choice(source["values"], 2, replace=False)
                move = (one - other) * math.sqrt(each["draw"] / each["sides"] / source["between"]) if source["between"] else 0.0
            else:
                move = np.subtract(*(generator.choice(each["values"], len(each["values"])).mean() for _ in range(2)))
            own = {"printed": each["ours"] - move, "their_variance": each["variance"], "their_runs": each["runs"]}
            for paper in (each["paper"], "all"):
                counts[paper][judge(each, own)] += 1
    for line in lines(RESULTS / "tables/counts.csv"):
        found = counts[line["paper"]]
        for name in ("equivalent", "inconclusive", "different"):
            assert float(line[f"{name}_ceiling"]) == pytest.approx(100 * found[name] / found.total(), abs=2.5)


# ---- claims


def fair(each: dict) -> tuple[float, float]:
    """Print and ours, larger is better: trips with the runs that missed the target at the full budget."""
    if not each["trips"]:
        return each["printed"], each["ours"]
    planned_runs = RUNS[each["paper"]]
    theirs = (each["printed"] * each["their_runs"] + 2000 * (planned_runs - each["their_runs"])) / planned_runs
    return -theirs, -((sum(each["values"]) + 2000 * (each["seeds"] - each["runs"])) / each["seeds"])


def margins() -> dict[tuple[str, str, str], list[dict]]:
    _, draws = everything()
    pairs = []
    groups = defaultdict(list)
    for each in draws:
        groups[each["paper"], each["table"], each["column"], each["model"]].append(each)
    for group in groups.values():
        for one, other in combinations(group, 2):
            difference = np.subtract(one["values"], other["values"])
            pairs.append({**one, "between": max(0.0, np.var(difference, ddof=1) - one["within"] - other["within"])})
    columns, found = defaultdict(list), defaultdict(list)
    for each in numbers():
        conditions = dict(pair.split("=") for pair in each["where"].split())
        if each["ours"] is not None and each["method"] != "global":
            entry = f"{each['method']} {conditions.get('variant', '')}".strip()
            columns[each["paper"], each["table"], conditions.get("backbone", ""), each["column"]].append({**each, "entry": entry})
    for (paper, table, backbone, _), cells in columns.items():
        own, others = [c for c in cells if c["entry"] == paper], [c for c in cells if c["entry"] != paper]
        if len(own) != 1 or len(others) < 2:
            continue
        rival = max(others, key=lambda c: fair(c)[1])
        draw = 0.0 if own[0]["trips"] or paper == "fedaas" else draw_variance(pairs, own[0]["own"], LEVELS[1:])[0]
        error = sum(c["variance"] for c in (own[0], rival) if not math.isnan(c["variance"])) + draw
        printed, ours = fair(own[0])[0] - max(fair(c)[0] for c in others), fair(own[0])[1] - fair(rival)[1]
        tau = stats.kendalltau(*zip(*map(fair, cells), strict=True)).statistic
        found[paper, table, backbone].append({"printed": printed, "ours": ours, "error": error, "tau": tau})
    return found


def test_every_claim_is_what_the_stored_files_give() -> None:
    mine = margins()
    stored = lines(RESULTS / "tables/claims.csv")
    assert {(line["paper"], line["table"], line["backbone"]) for line in stored} == set(mine)
    for line in stored:
        columns = mine[line["paper"], line["table"], line["backbone"]]
        mean, half = np.mean([c["ours"] for c in columns]), 1.96 * math.sqrt(sum(c["error"] for c in columns)) / len(columns)
        assert [int(line[k]) for k in ("columns", "best_printed", "best_ours", "beaten")] == [
            len(columns),
            sum(c["printed"] > 0 for c in columns),
            sum(c["ours"] > 0 for c in columns),
            sum(c["ours"] + 1.96 * math.sqrt(c["error"]) < 0 for c in columns),
        ]
        expected = [np.mean([c["printed"] for c in columns]), mean, mean - half, mean + half, np.nanmean([c["tau"] for c in columns])]
        assert [float(line[k]) for k in ("printed_margin", "margin", "low", "high", "tau")] == pytest.approx(expected, abs=2e-3)
        if line["tau_low"]:
            assert float(line["tau_low"]) <= float(line["tau"]) <= float(line["tau_high"])


def test_every_change_under_sparsity_is_what_the_stored_files_give() -> None:
    clean_of = {("dfed_sst", "3"): "2", ("dfed_sst", "4"): "2", ("fedsa_gcl", "4"): "3", ("fedsa_gcl", "5"): "3"}
    for line in lines(RESULTS / "tables/sparsity.csv"):
        cells = [c for c in numbers() if c["paper"] == line["paper"] and c["ours"] is not None and not c["column"].endswith(", 20 clients")]
        clean = {(c["method"], c["cell"]["dataset"]): c for c in cells if c["table"] == clean_of[line["paper"], line["table"]]}
        both = [(c, clean[key]) for c in cells if c["table"] == line["table"] and (key := (c["method"], c["cell"]["dataset"])) in clean]
        printed, ours = ([a[name] - b[name] for a, b in both] for name in ("printed", "ours"))
        same = sum((a["their"]["mean"], a["their"]["spread"]) == (b["their"]["mean"], b["their"]["spread"]) for a, b in both)
        assert [int(line[k]) for k in ("cells", "printed_raised", "raised", "same_print")] == [
            len(both), sum(d > 0 for d in printed), sum(d > 0 for d in ours), same,
        ]  # fmt: skip
        assert [float(line["printed_change"]), float(line["change"])] == pytest.approx([np.mean(printed), np.mean(ours)], abs=1e-3)


# ---- the appendix


@pytest.mark.parametrize(
    ("reading", "model_of", "kind"),
    [
        ("registered", "", ""),
        ("other model", "other", ""),
        ("last round", "", "last/"),
        ("clients alike", "", "selected/federation/macro/"),
        ("each client's best round", "", "selected/client/weighted/"),
    ],
)
def test_every_reading_is_what_the_stored_files_give(reading: str, model_of: str, kind: str) -> None:
    mine = defaultdict(Counter)
    for each in run(numbers(model_of, kind)):
        mine[each["paper"]][verdict(each)] += 1
    stored = {line["paper"]: line for line in lines(RESULTS / "tables/readings.csv") if line["reading"] == reading}
    assert set(stored) == set(mine)
    for paper, counts in mine.items():
        names = ("equivalent", "inconclusive", "different", "under-specified")
        assert {name: int(stored[paper][name]) for name in names} == {name: counts[name] for name in names}
        assert int(stored[paper]["tested"]) == counts.total()


# ---- what the page says


def test_the_tables_of_the_page_have_these_numbers() -> None:
    page = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    block = page.partition("<!-- numbers: counts -->")[2].partition("<!-- /numbers")[0]
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if line.startswith("|"))
    shown = {title: cells for title, *cells in rows}
    for title, paper in TITLES.items():
        part = [each for each in numbers() if paper in (each["paper"], "all")]
        found = Counter(map(verdict, part))
        names = ("equivalent", "inconclusive", "different", "under-specified", "contradictory", "not run")
        assert [shown[title][0], *shown[title][2:]] == list(map(str, [len(part), len(run(part)), *(found[name] for name in names)]))
