"""Measure the suite on a machine with a GPU that is available for a short time: ``make gpu``.

    python scripts/gpu.py                        every step, in the order of worth, within 25 minutes
    python scripts/gpu.py --device cpu --small   the same steps on a CPU, on small graphs: a rehearsal
    python scripts/gpu.py --openfgl ../OpenFGL   also time a clone of OpenFGL

Each step writes ``results/bench/gpu/<step>.json`` when it ends. A killed call loses the step under way, and the next call continues with
it. ``results/bench/gpu.md`` is the page of all steps that have ended, with the card's name. The step ``cells`` computes what the papers'
tables and the leaderboard lack; ``fgl-bench import results/bench/gpu`` takes these cells into results/, also on another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts")]

from blocks import filled  # noqa: E402

FOLDER, QUOTING = ROOT / "results/bench/gpu", ROOT / "docs/benchmark.md"
METHODS = ("fedavg", "fedgta", "fedsa_gcl", "fedssa", "fedaas", "fediih")
PAIRINGS: dict[str, dict[str, str]] = {
    "fedaas": {"model": "gat", "split": "iid_server"},
    "fedssa": {"model": "unifilter"},
    "fediih": {"model": "disengcn"},
}
SIZES = {"cora": "csbm", "pubmed": "csbm_pubmed", "physics": "csbm_physics"}
CLIENTS, SEEDS = 20, 5
MEASURED_SECONDS = 2.0  # of the rounds that are timed, about
TINY = {
    "dataset__num_nodes": 160, "dataset__num_edges": 400, "dataset__num_features": 24, "dataset__words_per_node": 6, "num_clients": 4,
    "rounds": 4, "seeds": [0, 1], "threads": 1,
}  # fmt: skip
HUGE = ("dataset=csbm_25m", "num_clients=500", "split=label_propagation", "model=sgc", "algorithm=fedavg", "seeds=[0]", "rounds=3")
WORKERS = ("algorithm=fedavg", "num_clients=20", "seeds=[0]", "rounds=20", "shard=clients", "dtype=float64")
PROCESSES = (1, 2, 4, 8, 16)
GRACE = 20  # seconds that a script has to end after an interruption


class Step(NamedTuple):
    """One measurement.

    Attributes:
        minutes: expected duration; the step does not start without them.
        run: is called with the options and the seconds that the step may take; returns what is written. With ``unfinished`` in it the next
            call continues the step.
    """

    name: str
    minutes: float
    run: Callable[[argparse.Namespace, float], dict[str, Any]]


# ---- processes of their own


def measured(settings: dict[str, Any]) -> dict[str, Any]:
    """Measure one setting in this process: seconds per round of all seeds, and on a GPU peak memory in bytes and launches per round.

    A round is the difference between a long run and a short one, without what a run does once. A first run compiles and warms up.
    """
    import torch

    import fgl_bench

    on_gpu = str(settings["device"]).startswith("cuda")
    with tempfile.TemporaryDirectory() as folder:

        def train(rounds: int) -> float:
            run = fgl_bench.run(results_dir=folder, overwrite=True, progress=False, rounds=rounds, **settings)
            return float(run.summary["seconds"]["train"])

        per_round = train(2) / 2
        more = max(3, min(50, round(MEASURED_SECONDS / max(per_round, 1e-3))))
        short = train(2)
        result: dict[str, Any] = {"seconds per round": (train(2 + more) - short) / more}
        if on_gpu:
            result["memory"] = torch.cuda.max_memory_reserved()
            result["launches per round"] = (
                launches(train, 9) - launches(train, 5)
            ) / 4  # CUDA graphs are replayed from the fourth round on
    return result


def launches(train: Callable[[int], float], rounds: int) -> int:
    """Return the number of kernels and CUDA graphs that a run launches."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        train(rounds)
    names = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaLaunchKernelExC", "cuLaunchKernelEx")
    return sum(event.count for event in profiler.key_averages() if event.key in names)


def trained(settings: dict[str, Any]) -> dict[str, Any]:
    """Train once, as a cell of a table would."""
    import fgl_bench

    with tempfile.TemporaryDirectory() as folder:
        return {"seconds": fgl_bench.run(results_dir=folder, progress=False, **settings).summary["seconds"]["train"]}


def line_of(function: Callable[[dict[str, Any]], dict[str, Any]], settings: dict[str, Any]) -> list[str]:
    """Return the command of a process that calls the function and prints what it returns."""
    return [sys.executable, str(Path(__file__).resolve()), "--call", function.__name__, json.dumps(settings)]


def answer(line: Sequence[str], seconds: float) -> dict[str, Any]:
    """Return what a process prints in its last line; ``error`` is the reason if it fails."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {seconds:.0f} s"}
    if done.returncode:
        return {"error": last(done.stderr)}
    return json.loads(done.stdout.strip().splitlines()[-1])


def summary_of(launcher: Sequence[str], words: Sequence[str], seconds: float, folder: Path) -> dict[str, Any]:
    """Run ``fgl-bench`` in a process of its own; returns its summary and its curve, or ``error``."""
    import pandas as pd

    line = [*launcher, "-m", "fgl_bench", *words, f"results_dir={folder}", "progress=false"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {seconds:.0f} s"}
    paths = list(folder.rglob("summary.json"))
    if done.returncode or not paths:
        return {"error": last(done.stderr)}
    summary = json.loads(paths[0].read_text(encoding="utf-8"))
    return {**summary, "curve": pd.read_csv(paths[0].with_name("history.csv")).filter(regex="^(val|test)_")}


def last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][:300]


# ---- the steps


def suite(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """The tests that need a GPU; on a CPU, a few of the pretended device."""
    chosen = ["-m", "cuda"] if options.device == "cuda" else ["tests/test_device_clean.py", "-k", "fedavg and not twice"]
    line = [sys.executable, "-m", "pytest", "-q", "--maxfail=5", *chosen]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    return {"result": lines[-1] if lines else "", "failed": [line for line in lines if line.startswith(("FAILED", "ERROR"))]}


def equality(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """The largest difference of a score between the device and the CPU in double precision, by method and by backbone."""
    import fgl_bench
    from fgl_bench.config.choices import choices

    methods, models = choices("algorithm"), choices("model")
    if options.small:
        methods, models = methods[:3], models[:3]
    differences: dict[str, Any] = {}
    for group, names in (("algorithm", methods), ("model", models)):
        for name in names:
            pairing = {group: name}
            for _ in range(4):
                try:
                    differences[f"{group}={name}"] = difference(options.device, **{"algorithm": "fedavg", **pairing})
                    break
                except fgl_bench.UserError as reason:
                    offered = dict(re.findall(r"\b(model|split|scenario|algorithm)=(\w+)", str(reason).rpartition("try: ")[2]))
                    differences[f"{group}={name}"] = str(reason)
                    if not offered:
                        break
                    pairing |= {**offered, group: name}
    return {"differences": differences}


def difference(device: str, **choices: str) -> float:
    """The largest difference between the histories of a small run on two devices."""
    import fgl_bench

    with tempfile.TemporaryDirectory() as folder:
        both = []
        for name in ("cpu", device):
            result = fgl_bench.run(
                **choices, dataset="csbm", **TINY, dtype="float64", device=name, overwrite=True, results_dir=folder, cache_dir=folder
            )
            both.append(result.curve().filter(regex="^(val|test)_"))
    return float((both[0] - both[1]).abs().max().max())


def rounds(options: argparse.Namespace, seconds: float, method: str, size: str) -> dict[str, Any]:
    """A method at a size: on the CPU, on the device, there with CUDA graphs, and OpenFGL's method where its clone is given."""
    modes = {"cpu": {"device": "cpu"}}
    if options.device == "cuda":
        modes |= {"eager": {"device": "cuda"}, "graphs": {"device": "cuda", "cuda_graphs": True}}
    setting: dict[str, Any] = {
        "algorithm": method, "dataset": SIZES[size], "num_clients": CLIENTS, "seeds": list(range(SEEDS)), **PAIRINGS.get(method, {}),
    }  # fmt: skip
    if options.small:
        smaller = {"dataset__num_nodes": 240, "dataset__num_edges": 600, "dataset__num_features": 50, "dataset__words_per_node": 6}
        setting |= {"num_clients": 4, "seeds": [0], **smaller}
    by_mode = {mode: answer(line_of(measured, {**setting, **where}), seconds) for mode, where in modes.items()}
    for values in by_mode.values():
        if "seconds per round" in values:
            values["seconds per round"] /= len(setting["seeds"])
    if options.openfgl and (theirs := openfgl(options, setting, method)):
        by_mode["OpenFGL"] = theirs
    return {"clients": setting["num_clients"], "seeds": len(setting["seeds"]), "modes": by_mode}


def openfgl(options: argparse.Namespace, setting: dict[str, Any], method: str) -> dict[str, Any] | None:
    """Seconds per round of OpenFGL's method on the same clients, on the device; None if ``scripts/cross_check`` matches none with ours."""
    sys.path[:0] = [str(ROOT / "scripts/cross_check")]
    import compare
    import openfgl as driver

    if method not in driver.MATCHED:
        return None
    matched, rounds = driver.MATCHED[method], 3 if options.small else 10
    asked = argparse.Namespace(
        repository="openfgl", source=options.openfgl, python=options.python, split="metis", clients=setting["num_clients"]
    )
    sizes = [f"{key.replace('__', '.')}={value}" for key, value in setting.items() if key.startswith("dataset__")]
    line = [*compare.common(asked, matched, setting["dataset"]), *sizes, f"rounds={rounds}", "seeds=[0]"]
    try:
        theirs, _ = compare.run_theirs(asked, method, matched, line, cuda=options.device == "cuda")
    except subprocess.CalledProcessError as error:
        return {"error": last(error.stderr)}
    return {"seconds per round": median(theirs["seconds"][1:])}


def throughput(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Runs per minute by number of processes that share the device, with and without NVIDIA's MPS."""
    small = {"dataset__num_nodes": 240, "dataset__num_edges": 600} if options.small else {}
    settings = {"algorithm": "fedavg", "dataset": "csbm", "seeds": [0], "device": options.device, "threads": 1, **small}
    settings["rounds"] = 3 if options.small else 100
    most = 2 if options.small else max(os.cpu_count() or 1, 1)
    with_mps = options.device == "cuda" and shutil.which("nvidia-cuda-mps-control") is not None
    rates = []
    for shared in (False, True) if with_mps else (False,):
        with mps() if shared else nullcontext():
            for count in (each for each in PROCESSES if each <= most):
                begin = time.monotonic()
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                started = [subprocess.Popen(line_of(trained, settings), **quiet) for _ in range(count)]
                failed = sum(bool(process.wait()) for process in started)
                minutes = (time.monotonic() - begin) / 60
                rates.append({"processes": count, "mps": shared, "runs per minute": (count - failed) / minutes, "failed": failed})
    return {"measured": rates, "mps": "measured" if with_mps else "not measured: there is no nvidia-cuda-mps-control here"}


class mps:
    """NVIDIA's multi-process service, from entering to leaving."""

    def __enter__(self) -> None:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)

    def __exit__(self, *_: object) -> None:
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, check=False)


def cells(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Cells that the papers' tables and the leaderboard lack, the most expensive first, for the seconds that are left.

    The folder gets a copy of what is stored already, which the two scripts complete. They share the best number of processes of
    :func:`throughput`, and leave out what would not end in time by the stored rates of CPUs and the :func:`speedup` of this device.
    """
    from fgl_bench.papers.plan import papers

    for name in () if options.small else (*(f"cells/{paper}" for paper in papers()), "leaderboard/v2"):
        if not (options.out / name).is_dir():
            draft = options.out / ".copied"
            shutil.copytree(ROOT / "results" / name, draft, dirs_exist_ok=True)
            (options.out / name).parent.mkdir(exist_ok=True)
            draft.rename(options.out / name)
    before, until = stored(options.out), time.monotonic() + seconds
    (jobs, shared), longest = best_number(options.out), seconds / 3600 * speedup(options.out)
    with mps() if shared else nullcontext():
        lines = [table_cells(options, jobs, longest), leaderboard_cells(options, jobs, longest, seconds)]
        logs = [options.out / f"{name}.log" for name in ("tables", "leaderboard")]
        started = [logged(line, log) for line, log in zip(lines, logs, strict=True)]
        while any(process.poll() is None for process in started) and time.monotonic() < until:
            time.sleep(0.2)
        unfinished = any(process.poll() is None for process in started)
        for process in started:
            interrupt(process)
    after = stored(options.out)
    lines_of_logs = [line for log in logs for line in log.read_text(encoding="utf-8").splitlines()]
    notes = [
        line for line in lines_of_logs if re.match(r"left out: |failed: (?!.* after \d+ s \(exit)|leaderboard: |reproduce_tables: ", line)
    ]
    new = {name: after[name] - before[name] for name in after}
    return {"new": new, "notes": notes, **({"unfinished": "time was up"} if unfinished else {})}


def logged(line: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process that writes to a file."""
    with log.open("wb") as file:
        return subprocess.Popen(line, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """End a process as Ctrl-C does, or after :data:`GRACE` seconds for good, with its children. Its finished runs are stored."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")  # a long operation lets them ignore the script's end
            running = children.read_text(encoding="ascii").split() if children.is_file() else []
            for number in (process.pid, *map(int, running)):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.wait()


def table_cells(options: argparse.Namespace, jobs: int, longest: float) -> list[str]:
    """Return the command that computes what the papers' tables lack, into the folder; one short run in a rehearsal."""
    line = [sys.executable, "scripts/reproduce_tables.py", "--results", str(options.out), "--device", options.device, "--threads", "1"]
    if options.small:
        narrow = ["--paper", "fedsa_gcl", "--tables", "3", "--datasets", "csbm", "--methods", "fedavg", "--seeds", "[0]"]
        return [
            *line,
            *narrow,
            "--set",
            "trips=40",
            *(f"{key.replace('__', '.')}={TINY[key]}" for key in TINY if key.startswith("dataset")),
        ]
    return [*line, "--slowest", "--longest", f"{longest:.3f}", "--jobs", str(jobs)]


def leaderboard_cells(options: argparse.Namespace, jobs: int, longest: float, seconds: float) -> list[str]:
    """Return the command that computes what the leaderboard lacks, into the folder; one cell that trains nothing in a rehearsal."""
    line = [sys.executable, "scripts/leaderboard.py", "--results", str(options.out / "leaderboard" / "v2"), "--device", options.device]
    line += ["--hours", f"{seconds / 3600:.3f}"]
    if options.small:
        return [*line, "--methods", "majority", "--columns", "webkb"]
    return [*line, "--slowest", "--longest", f"{longest:.3f}", "--jobs", str(jobs)]


def best_number(out: Path) -> tuple[int, bool]:
    """Return how many processes each of two scripts starts, and whether under MPS: half of the best number that was measured, or one."""
    path = out / "throughput.json"
    if not path.is_file():
        return 1, False
    best = max(json.loads(path.read_text(encoding="utf-8"))["result"]["measured"], key=lambda each: each["runs per minute"])
    return max(1, best["processes"] // 2), best["mps"]


def speedup(out: Path) -> float:
    """Return how many times as fast the device is as the CPU, the median over :func:`rounds`; 1 if nothing was measured."""
    factors = []
    for path in out.glob("rounds-*.json"):
        modes = json.loads(path.read_text(encoding="utf-8"))["result"]["modes"]
        cpu, device = (modes.get(mode, {}).get("seconds per round") for mode in ("cpu", "eager"))
        factors += [cpu / device] if cpu and device else []
    return median(factors) if factors else 1.0


def stored(folder: Path) -> dict[str, int]:
    """Return how many cells of papers and of the leaderboard are in a folder."""
    from fgl_bench.results.cells import read_cells

    papers = sum(len(read_cells(path.parent)) for path in folder.glob("cells/*/cells.csv"))
    return {"tables": papers, "leaderboard": len(list((folder / "leaderboard").rglob("*.json")))}


def huge(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Time of a generated graph of 25 million nodes; of a small one in a rehearsal."""
    words = [text for text in HUGE if not (options.small and text.startswith(("dataset=", "num_clients=")))]
    words += ["dataset=csbm", "num_clients=4"] if options.small else []
    with tempfile.TemporaryDirectory() as folder:
        summary = summary_of([sys.executable], [*words, f"device={options.device}"], seconds, Path(folder))
    return summary if "error" in summary else {name: summary[name] for name in ("seconds", "device", "graph")}


def two_workers(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """One seed whose clients two workers share, by NCCL on two GPUs or by gloo in a rehearsal, and the same run in one process."""
    import torch

    if options.device == "cuda" and torch.cuda.device_count() < 2:
        return {"left out": f"{torch.cuda.device_count()} GPU in this machine"}
    words = [*WORKERS, f"dataset={'csbm' if options.small else 'csbm_physics'}", f"device={options.device}"]
    launchers = {1: [sys.executable], 2: [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]}
    by_count, curves = {}, []
    for count, launcher in launchers.items():
        with tempfile.TemporaryDirectory() as folder:
            summary = summary_of(launcher, words, seconds / 2, Path(folder))
        if "error" in summary:
            return {"error": f"{count} worker(s): {summary['error']}"}
        by_count[str(count)] = {"seconds": summary["seconds"]["train"], "bytes": summary["worker_bytes"], "device": summary["device"]}
        curves.append(summary["curve"])
    return {"workers": by_count, "difference": float((curves[0] - curves[1]).abs().max().max())}


def steps(options: argparse.Namespace) -> Iterator[Step]:
    """Every step, in the order of worth."""
    yield Step("tests", 4, suite)
    yield Step("equality", 4, equality)
    sizes = list(SIZES)[:1] if options.small else list(SIZES)
    for size in sizes:
        for method in METHODS[:2] if options.small else METHODS:
            yield Step(f"rounds-{method}-{size}", 1, partial(rounds, method=method, size=size))
    yield Step("throughput", 3, throughput)
    yield Step("cells", 2, cells)
    yield Step("huge", 6, huge)
    yield Step("workers", 2, two_workers)


# ---- the page


def page(folder: Path, left: Sequence[str] = ()) -> str:
    """All steps that have ended, as Markdown.

    Args:
        left: names of the steps that have not.
    """
    stored = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    there = {name: each["result"] for name, each in stored.items()}
    parts = ["# The suite on a GPU", *dict.fromkeys(each["about"] for each in stored.values())]
    if left:
        parts += [f"Not measured yet: {', '.join(left)}."]
    if "tests" in there:
        parts += ["## Tests", there["tests"]["result"], *(f"- {line}" for line in there["tests"]["failed"])]
    if "equality" in there:
        differences = there["equality"]["differences"]
        worst = sorted(differences.items(), key=lambda pair: -pair[1] if isinstance(pair[1], float) else -1e9)
        rows = [[name, f"{value:.1e}" if isinstance(value, float) else value] for name, value in worst]
        parts += ["## Equality with the CPU", "Largest difference of a score in float64.", tabulate(rows, ["choice", "difference"], "pipe")]
    parts += rounds_section(there)
    if "throughput" in there:
        rows = [
            [each["processes"], "MPS" if each["mps"] else "", f"{each['runs per minute']:.1f}", each["failed"]]
            for each in there["throughput"]["measured"]
        ]
        heads = ["processes", "", "runs per minute", "failed"]
        parts += ["## Throughput", tabulate(rows, heads, "pipe", disable_numparse=True), f"MPS: {there['throughput']['mps']}."]
    if "cells" in there:
        new, notes = there["cells"]["new"], there["cells"]["notes"]
        parts += ["## Cells", f"New: {new['tables']} of the papers' tables, {new['leaderboard']} of the leaderboard."]
        parts += ["More are missing: the next call continues."] * ("unfinished" in there["cells"]) + [f"- {line}" for line in notes]
    if "huge" in there:
        parts += ["## 25 million nodes", f"```json\n{json.dumps(there['huge'], indent=1)}\n```"]
    if "workers" in there:
        parts += ["## Two workers", f"```json\n{json.dumps(there['workers'], indent=1)}\n```"]
    return "\n\n".join(parts) + "\n"


def quoted(folder: Path) -> list[str]:
    """The lines of the block ``gpu`` of docs/benchmark.md: the table of :func:`rounds`, and where it was measured."""
    stored = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("rounds-*.json"))}
    if not stored:
        return ["", "Not run yet: no machine with a GPU has been available since `make gpu` measures these.", ""]
    _, text, table = rounds_section({name: each["result"] for name, each in stored.items()})
    return ["", *dict.fromkeys(each["about"] for each in stored.values()), text, "", table, ""]


def rounds_section(there: dict[str, Any]) -> list[str]:
    """The table of :func:`rounds`."""
    rows = [
        [*name.split("-")[1:], mode, *(shown(values, key) for key in ("seconds per round", "memory", "launches per round", "error"))]
        for name, each in there.items()
        if name.startswith("rounds-")
        for mode, values in each["modes"].items()
    ]
    if not rows:
        return []
    heads = ["method", "size", "mode", "ms per round and seed", "MB", "launches per round", ""]
    first = next(each for name, each in there.items() if name.startswith("rounds-"))
    text = f"{first['clients']} clients; {first['seeds']} seed(s) in one call, OpenFGL one. Memory and launches are measured on the device."
    return ["## Rounds", text, tabulate(rows, heads, "pipe", disable_numparse=True)]


def shown(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value / 1e6:.0f}" if key == "memory" else f"{1000 * value if key == 'seconds per round' else value:.4g}"


def card(device: str) -> str:
    """The device's name, versions and the commit."""
    import torch

    from fgl_bench.results.provenance import code_state

    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU {platform.processor() or platform.machine()}"
    state = code_state() or {"commit": "unknown", "dirty": False}
    commit = f"{str(state['commit'])[:10]}{' with changes' if state['dirty'] else ''}"
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"{name}, {os.cpu_count()} CPU cores, torch {torch.__version__}, CUDA {torch.version.cuda}, commit {commit}, {day}."


# ---- the command


def ended(path: Path) -> bool:
    """Return True if a step is complete."""
    return path.is_file() and "unfinished" not in json.loads(path.read_text(encoding="utf-8"))["result"]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if options.call:
        name, settings = options.call
        print(json.dumps({function.__name__: function for function in (measured, trained)}[name](json.loads(settings))))
        return
    until = time.monotonic() + 60 * options.minutes
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    about = card(options.device)
    todo = [step for step in steps(options) if not ended(options.out / f"{step.name}.json")]
    left = [step.name for step in todo]
    for number, step in enumerate(todo):
        seconds = until - time.monotonic() - 60 * sum(each.minutes for each in todo[number + 1 :])
        if until - time.monotonic() < 60 * step.minutes:
            print(f"left out, no time: {step.name}", flush=True)
            continue
        print(f"{step.name} ...", flush=True)
        result = step.run(options, max(60 * step.minutes, seconds))
        path = options.out / f"{step.name}.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"about": about, "result": result}, indent=1) + "\n", encoding="utf-8")
        draft.rename(path)
        if ended(path):
            left.remove(step.name)
        options.out.with_suffix(".md").write_text(page(options.out, left), encoding="utf-8")
        if options.out == FOLDER:
            QUOTING.write_text(filled(QUOTING.read_text(encoding="utf-8"), "gpu", lambda _: quoted(FOLDER)), encoding="utf-8")
    print(f"written: {options.out.with_suffix('.md')}")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    result.add_argument("--minutes", type=float, default=25, help="start no step that is likely to end later")
    result.add_argument("--out", type=Path, default=FOLDER, help="a file per step; the page is written next to it")
    result.add_argument("--small", action="store_true", help="small graphs and few choices")
    result.add_argument("--openfgl", type=Path, help="a clone of OpenFGL")
    result.add_argument("--python", default=sys.executable, help="the interpreter that has what OpenFGL imports")
    result.add_argument("--call", nargs=2, help=argparse.SUPPRESS)
    return result


if __name__ == "__main__":
    main()
