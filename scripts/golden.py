"""Freeze what the suite prints and computes, and compare later: the net under a change of structure.

    python scripts/golden.py             # make golden: compare; exit status 1 if anything differs
    python scripts/golden.py --cells     # also run the frozen cells again, which takes minutes
    python scripts/golden.py --write     # freeze what the code says now, after an intended change that the commit names

``tests/golden`` holds it: the history of one small run of every method (float64, equal to 1e-6), what commands print for the stored runs in
``tests/golden/runs``, the data of their report page, a digest of every table in results/tables, and the commands and scores of 60 cells.
Only the public interface is used, so that the script survives what it guards.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

import fgl_bench
from fgl_bench.results.cells import read_cells

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
RUNS = GOLDEN / "runs"
TINY = {
    "dataset__num_nodes": 160, "dataset__num_edges": 400, "dataset__num_features": 24, "dataset__words_per_node": 6, "num_clients": 4,
    "rounds": 5, "lr": 0.05, "seeds": [0, 1], "dtype": "float64", "threads": 1, "overwrite": True,
}  # fmt: skip
SWEEPS = (
    "-m algorithm=local,fedavg,fedgta,fed_pub,fedsa_gcl dataset=csbm,csbm_pubmed split=metis,louvain num_clients=4 rounds=6 "
    "seeds=[0,1,2,3,4]",
    "-m algorithm=fedprox algorithm.mu=0.01,0.1,1 local_epochs=3 dataset=csbm split=metis num_clients=4 rounds=6 seeds=[0,1,2]",
    "algorithm=fedavg optimizer=sgd dataset=csbm split=metis num_clients=3,5 lr=0.1,1e30 rounds=3 seeds=[0,1] metrics=[macro_f1] -m",
    "algorithm=d_psgd dataset=csbm split=metis num_clients=4 rounds=6 seeds=[0,1,2,3,4]",
)
SMALL = (
    "dataset.num_nodes=160", "dataset.num_edges=400", "dataset.num_features=24", "dataset.words_per_node=6", "dtype=float64",
    "progress=false", "threads=1", "tracker=none",
)  # fmt: skip
PAGES = (
    "table RUNS sweep=1", "table RUNS sweep=1 format=md", "table RUNS sweep=1 format=csv", "table RUNS sweep=1 format=tex",
    "table RUNS sweep=1 rows=algorithm,split cols=dataset model_of=trained digits=3", "table RUNS sweep=1 metric=last where=dataset=csbm",
    "table RUNS sweep=1 metric=worst_client cols=dataset where=split=metis", "table RUNS sweep=1 metric=trips_to_0.5 format=tex",
    "table RUNS sweep=2 rows=algorithm.mu cols=none", "table RUNS sweep=3", "table RUNS sweep=3 metric=macro_f1",
    "table RUNS where=split=metis,dataset=csbm,lr=0.01,seeds=[0,1,2,3,4]", "table RUNS sweep=all", "table RUNS",
    "table results/cells/first_question", "table results/cells/first_question format=tex",
    "ls", "ls algorithm", "ls model", "ls experiment",
    "show algorithm/fedsa_gcl", "show experiment/fedgta/table3", "--help",
)  # fmt: skip


def main() -> int:
    options = parser().parse_args()
    os.chdir(ROOT)
    os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    current = dict(everything())
    if options.write:
        freeze(current)
        return 0
    different = [name for name, text in current.items() if not same(name, text)]
    different += [f"{path.name}: no longer made" for path in frozen() if path.name not in current]
    different += rerun(options.jobs) if options.cells else []
    print(f"golden: {len(current)} compared, {len(different)} differ" + "".join(f"\n  {name}" for name in different))
    return int(bool(different))


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--write", action="store_true", help="freeze instead of comparing")
    command.add_argument("--cells", action="store_true", help="also run the frozen cells again")
    command.add_argument("--jobs", type=int, default=2, help="processes at a time (2)")
    return command


def frozen() -> list[Path]:
    return sorted(path for path in GOLDEN.iterdir() if path.is_file() and path.name != "cells.csv")


def everything() -> Iterator[tuple[str, str]]:
    """File names in ``tests/golden`` and their content as the code makes it now."""
    if not RUNS.is_dir():
        make_runs()
    yield "histories.csv", histories()
    with ThreadPoolExecutor(2) as pool:
        yield from zip(map(file_of, PAGES), pool.map(printed, PAGES), strict=True)
    yield "report.json", report(RUNS)
    yield "results_report.txt", digests(json.loads(report(ROOT / "results")))
    yield "tables.txt", tables()


def make_runs() -> None:
    """The runs of the fixed folder; part of no comparison."""
    for line in SWEEPS:
        words = [text for text in shlex.split(line) if text != "-m"]
        flags = ["-m"] if "-m" in line else []
        fgl(*flags, *words, *SMALL, f"results_dir={RUNS.relative_to(ROOT)}")


def fgl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fgl_bench", *words], capture_output=True, text=True)


def printed(page: str) -> str:
    done = fgl(*shlex.split(page.replace("RUNS", str(RUNS.relative_to(ROOT)))))
    return f"status {done.returncode}\n{done.stdout}--- stderr\n{done.stderr}"


def file_of(page: str) -> str:
    return re.sub(r"[^\w.=]+", "_", page) + ".txt"


def histories() -> str:
    """``history.csv`` of one run a method, one below the other; a method that needs another model or split gets what its refusal offers."""
    frames = []
    with tempfile.TemporaryDirectory() as folder:
        for name in fgl("ls", "algorithm").stdout.split("\n"):
            if not name.strip():
                continue
            method = name.split()[0]
            frames.append(history(method, folder).assign(algorithm=method))
    return pd.concat(frames, ignore_index=True).to_csv(index=False)


def history(method: str, folder: str) -> pd.DataFrame:
    pairing: dict[str, str] = {}
    for _ in range(3):
        try:
            return fgl_bench.run(method, "csbm", results_dir=folder, cache_dir=folder, **pairing, **TINY).curve()
        except fgl_bench.UserError as reason:
            offered = re.findall(r"\b(model|split|scenario)=(\w+)", str(reason).rpartition("try: ")[2] if "try: " in str(reason) else "")
            if not offered:
                raise
            pairing |= dict(offered)
    raise SystemExit(f"golden: {method} does not run")


def report(folder: Path) -> str:
    """The data inside a report page, as json."""
    with tempfile.TemporaryDirectory() as scratch:
        done = fgl("report", str(folder.relative_to(ROOT)), "sweep=all", f"out={scratch}/report.html")
        if done.returncode:
            raise SystemExit(f"golden: report: {done.stderr}")
        page = Path(scratch, "report.html").read_text(encoding="utf-8")
    data = max(re.findall(r">\s*([A-Za-z0-9+/=]{1000,})\s*<", page), key=len)
    content = json.loads(gzip.decompress(base64.b64decode(data)))
    return re.sub(r"(\.\./)+[^\"]*?(tests/golden|results)/", r"\2/", json.dumps(content, indent=0, sort_keys=True)) + "\n"


def digests(content: dict) -> str:
    """A digest for every piece of a large page, without the leaderboard: its cells are computed in the background."""
    pieces = {f"{key}.{name}": piece for key, value in content.items() if key != "leaderboard" for name, piece in items(value)}
    return "".join(f"{digest(json.dumps(piece, sort_keys=True))} {name}\n" for name, piece in sorted(pieces.items()))


def items(value: object) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, str):
        return [("text", value)]
    return [(str(each.get("name", number)) if isinstance(each, dict) else str(number), each) for number, each in enumerate(value or [])]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tables() -> str:
    """A digest of every file in results/tables, written from the cells by now's code."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("cells", "published", "settlements", "draws"):
            shutil.copytree(ROOT / "results" / name, Path(scratch, name))
        command = [sys.executable, "scripts/reproduce_tables.py", "--tables-only", "--results", scratch]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"golden: tables: {done.stderr}")
        files = sorted(path for path in Path(scratch, "tables").rglob("*") if path.is_file())
        return "".join(f"{digest(path.read_text(encoding='utf-8'))} {path.relative_to(scratch)}\n" for path in files)


def same(name: str, text: str) -> bool:
    path = GOLDEN / name
    if not path.is_file():
        print(f"{name}: not frozen")
        return False
    frozen_text = path.read_text(encoding="utf-8")
    if name == "histories.csv":
        return same_numbers(*(pd.read_csv(source, dtype={"algorithm": str}) for source in (path, as_file(text))))
    for line in list(difflib.unified_diff(frozen_text.splitlines(), text.splitlines(), f"{name} frozen", "now", lineterm="", n=0))[:20]:
        print(line[:200])
    return frozen_text == text


def as_file(text: str) -> Path:
    path = Path(tempfile.mkdtemp(), "now.csv")
    path.write_text(text, encoding="utf-8")
    return path


def same_numbers(before: pd.DataFrame, now: pd.DataFrame) -> bool:
    for method in sorted({*before["algorithm"]} | {*now["algorithm"]}):
        first, second = (frame[frame["algorithm"] == method].drop(columns="algorithm").dropna(axis=1, how="all") for frame in (before, now))
        close = list(first) == list(second) and len(first) == len(second) and np.allclose(first, second, rtol=0, atol=1e-6, equal_nan=True)
        if not close:
            print(f"histories.csv: {method} differs")
            return False
    return True


def freeze(current: dict[str, str]) -> None:
    for path in frozen():
        path.unlink()
    for name, text in current.items():
        (GOLDEN / name).write_text(text, encoding="utf-8")
    cells().to_csv(GOLDEN / "cells.csv", index=False)


def cells() -> pd.DataFrame:
    """The cheapest cells, one a method and data set in turn, 60 in all."""
    rows = []
    for cell in (cell for folder in sorted((ROOT / "results/cells").iterdir()) for cell in read_cells(folder)):
        about = {key: cell[key] for key in ("algorithm", "dataset", "device", "command")}
        about |= {"seconds": cell["seconds"]["total"], "seeds": str(cell["seeds"]).replace(" ", "")}
        rows.append(about | {model: " ".join(map(str, scores["per_seed"])) for model, scores in cell["test"].items()})
    frame = pd.DataFrame(rows).sort_values("seconds").query("not device.str.startswith('NVIDIA')")
    frame["turn"] = frame.groupby("algorithm").cumcount()
    return frame.sort_values(["turn", "seconds"]).head(60).drop(columns=["turn", "device"]).round({"seconds": 1})


def rerun(jobs: int) -> list[str]:
    """The frozen cells whose runs give other scores, by more than 0.2 points at a seed (processors round differently)."""
    frame = pd.read_csv(GOLDEN / "cells.csv", dtype=str)
    with ThreadPoolExecutor(jobs) as pool:
        return [text for text in pool.map(rerun_one, frame.to_dict("records")) if text]


def rerun_one(cell: dict[str, str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        done = fgl(*shlex.split(cell["command"])[1:], f"seeds={cell['seeds']}", f"results_dir={folder}", "progress=false", "threads=1")
        if done.returncode:
            return f"{cell['command']}: {done.stderr.strip().splitlines()[-1]}"
        [path] = Path(folder).rglob("summary.json")
        test = json.loads(path.read_text(encoding="utf-8"))["test"]
    for model in ("received", "trained"):
        frozen_scores, now = (np.array([np.nan if each in ("None", None) else float(each) for each in scores], dtype=float)
                     for scores in (str(cell[model]).split(), test[model]["per_seed"]))  # fmt: skip
        if str(cell[model]) != "nan" and not np.allclose(frozen_scores, now, rtol=0, atol=0.002, equal_nan=True):
            return f"{cell['command']}: {model} {now}, frozen {frozen_scores}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
