"""Measure the suite on a machine with a GPU that is available for a short time: ``make gpu``.

    python scripts/gpu.py                        every step, in the order of worth, within 25 minutes
    python scripts/gpu.py --device cpu --small   the same steps on a CPU, on small graphs: a rehearsal
    python scripts/gpu.py --openfgl ../OpenFGL   also time a clone of OpenFGL

Each step writes ``results/bench/gpu/<step>.json`` when it ends. A killed call loses the step under way, and the next call continues with
it. ``results/bench/gpu.md`` is the page of all steps that have ended, with the card's name.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("fedavg", "fedgta", "fedsa_gcl", "fedssa", "fedaas", "fediih")
SIZES = {"cora": "csbm", "pubmed": "csbm_pubmed", "physics": "csbm_physics"}
SHORT, LONG = 5, 15  # rounds: a round takes the difference of two runs, without what is done once
TINY = {
    "dataset__num_nodes": 160, "dataset__num_edges": 400, "dataset__num_features": 24, "dataset__words_per_node": 6, "num_clients": 4,
    "rounds": 4, "seeds": [0, 1], "threads": 1,
}  # fmt: skip
HUGE = ("dataset=csbm_25m", "num_clients=500", "split=label_propagation", "model=sgc", "algorithm=fedavg", "seeds=[0]", "rounds=3")
PROCESSES = (1, 2, 4, 8, 16)


class Step(NamedTuple):
    """One measurement.

    Attributes:
        minutes: that it is likely to take; it does not start without them.
        run: returns what is written.
    """

    name: str
    minutes: float
    run: Callable[[argparse.Namespace], dict[str, Any]]


# ---- one run, in a process of its own


def one_run(settings: dict[str, Any]) -> dict[str, Any]:
    """Train once; returns the seconds of training, the largest memory on the device in bytes, and the launches of kernels."""
    import torch

    import fgl_bench

    on_gpu = str(settings["device"]).startswith("cuda")
    launches = settings.pop("launches", False)
    with tempfile.TemporaryDirectory() as folder:
        run = partial(fgl_bench.run, results_dir=folder, cache_dir=folder, **settings)
        if launches and on_gpu:
            from torch.profiler import ProfilerActivity, profile

            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
                run()
            names = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaLaunchKernelExC")
            return {"launches": sum(event.count for event in profiler.key_averages() if event.key in names)}
        summary = run().summary
    memory = torch.cuda.max_memory_reserved() if on_gpu else None
    return {"seconds": summary["seconds"]["train"], "memory": memory, "device": summary["device"]}


def measure_in_process(settings: dict[str, Any], seconds: float = 300) -> dict[str, Any]:
    """:func:`one_run` in a process of its own; ``error`` is its last line where it fails."""
    line = [sys.executable, str(Path(__file__).resolve()), "--one", json.dumps(settings)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {seconds:.0f} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


# ---- the steps


def suite(options: argparse.Namespace) -> dict[str, Any]:
    """The tests that need a GPU; on a CPU, a few of the pretended device."""
    chosen = ["-m", "cuda"] if options.device == "cuda" else ["tests/test_device_clean.py", "-k", "fedavg and not twice"]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "--maxfail=5", *chosen], cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    return {"result": lines[-1] if lines else "", "failed": [line for line in lines if line.startswith(("FAILED", "ERROR"))]}


def equality(options: argparse.Namespace) -> dict[str, Any]:
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


def rounds(options: argparse.Namespace, method: str, size: str) -> dict[str, Any]:
    """Seconds per round, memory and launches of a method at a size: on the CPU, on the device, and there with CUDA graphs."""
    modes = {"cpu": {"device": "cpu"}}
    if options.device == "cuda":
        modes |= {"eager": {"device": "cuda"}, "graphs": {"device": "cuda", "cuda_graphs": True}}
    seeds, few = ([0], (2, 4)) if options.small else ([0, 1, 2, 3, 4], (SHORT, LONG))
    smaller = {"dataset__num_nodes": 240, "dataset__num_edges": 600, "dataset__num_features": 50, "dataset__words_per_node": 6}
    pairing = {"fedaas": {"model": "gat", "split": "iid_server"}, "fedssa": {"model": "unifilter"}, "fediih": {"model": "disengcn"}}
    results = {}
    for mode, where in modes.items():
        settings = {
            "algorithm": method, "dataset": SIZES[size], "num_clients": 20 if not options.small else 4, "seeds": seeds, **where,
            **pairing.get(method, {}), **(smaller if options.small else {}),
        }  # fmt: skip
        short, long = (measure_in_process({**settings, "rounds": count}) for count in few)
        if "error" in long or "error" in short:
            results[mode] = {"error": long.get("error") or short.get("error")}
            continue
        results[mode] = {"seconds per round": (long["seconds"] - short["seconds"]) / (few[1] - few[0]), "memory": long["memory"]}
        if mode != "cpu":
            counts = [measure_in_process({**settings, "rounds": count, "seeds": [0], "launches": True}).get("launches") for count in few]
            if None not in counts:
                results[mode]["launches per round"] = (counts[1] - counts[0]) / (few[1] - few[0])
    if options.openfgl and method == "fedavg":
        line = [sys.executable, str(ROOT / "scripts/bench_peers.py"), f"openfgl={options.openfgl}"]
        done = subprocess.run(line, capture_output=True, text=True)
        results["openfgl"] = {"printed": done.stdout[-2000:], "status": done.returncode}
    return results


def throughput(options: argparse.Namespace) -> dict[str, Any]:
    """Runs per minute by number of processes that share the device, with and without NVIDIA's MPS."""
    small = {"dataset__num_nodes": 240, "dataset__num_edges": 600} if options.small else {}
    settings = {"algorithm": "fedavg", "dataset": "csbm", "seeds": [0], "device": options.device, "overwrite": True, **small}
    settings["rounds"] = 3 if options.small else 100
    most = 2 if options.small else max(count for count in PROCESSES if count <= max(os.cpu_count() or 1, 1))
    rates: dict[str, Any] = {}
    for shared in (False, True):
        if shared and (options.device != "cuda" or not shutil.which("nvidia-cuda-mps-control")):
            continue
        with mps() if shared else open(os.devnull):
            for count in (each for each in PROCESSES if each <= most):
                begin = time.monotonic()
                line = [sys.executable, str(Path(__file__).resolve()), "--one", json.dumps(settings)]
                started = [subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(count)]
                failed = sum(bool(process.wait()) for process in started)
                minutes = (time.monotonic() - begin) / 60
                rates[f"{count} process(es){', MPS' * shared}"] = {"runs per minute": (count - failed) / minutes, "failed": failed}
    return rates


class mps:
    """NVIDIA's multi-process service, from entering to leaving."""

    def __enter__(self) -> None:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)

    def __exit__(self, *_: object) -> None:
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, check=False)


def huge(options: argparse.Namespace) -> dict[str, Any]:
    """Time and memory of a generated graph of 25 million nodes; of a small one in a rehearsal."""
    words = [text for text in HUGE if not (options.small and text.startswith(("dataset=", "num_clients=")))]
    words += ["dataset=csbm", "num_clients=4"] if options.small else []
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "fgl_bench", *words, f"device={options.device}", f"results_dir={folder}", "progress=false"]
        done = subprocess.run(line, capture_output=True, text=True)
        paths = list(Path(folder).rglob("summary.json"))
        if done.returncode or not paths:
            return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
        summary = json.loads(paths[0].read_text(encoding="utf-8"))
    return {name: summary[name] for name in ("seconds", "device", "graph")}


def steps(options: argparse.Namespace) -> Iterator[Step]:
    """Every step, in the order of worth."""
    yield Step("tests", 4, suite)
    yield Step("equality", 4, equality)
    sizes = list(SIZES)[:1] if options.small else list(SIZES)
    for size in sizes:
        for method in METHODS[:2] if options.small else METHODS:
            yield Step(f"rounds-{method}-{size}", 1.5, partial(rounds, method=method, size=size))
    yield Step("throughput", 3, throughput)
    yield Step("huge", 6, huge)


# ---- the page


def page(folder: Path, about: str) -> str:
    """All steps that have ended, as Markdown."""
    there = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    parts = ["# The suite on a GPU", about]
    if "tests" in there:
        parts += ["## Tests", there["tests"]["result"], *(f"- {line}" for line in there["tests"]["failed"])]
    if "equality" in there:
        differences = there["equality"]["differences"]
        worst = sorted(differences.items(), key=lambda pair: -pair[1] if isinstance(pair[1], float) else -1e9)
        rows = [[name, f"{value:.1e}" if isinstance(value, float) else value] for name, value in worst]
        parts += ["## Equality with the CPU", "Largest difference of a score in float64.", tabulate(rows, ["choice", "difference"], "pipe")]
    rows = [
        [*name.split("-")[1:], mode, *(shown(values, key) for key in ("seconds per round", "memory", "launches per round", "error"))]
        for name, by_mode in there.items()
        if name.startswith("rounds-")
        for mode, values in by_mode.items()
    ]
    if rows:
        heads = ["method", "size", "mode", "seconds per round", "MB", "launches per round", ""]
        parts += ["## Rounds", "Five seeds, 20 clients.", tabulate(rows, heads, "pipe", disable_numparse=True)]
    if "throughput" in there:
        rows = [[name, f"{each['runs per minute']:.1f}", each["failed"]] for name, each in there["throughput"].items()]
        parts += ["## Throughput", tabulate(rows, ["processes", "runs per minute", "failed"], "pipe", disable_numparse=True)]
    if "huge" in there:
        parts += ["## 25 million nodes", f"```json\n{json.dumps(there['huge'], indent=1)}\n```"]
    return "\n\n".join(parts) + "\n"


def shown(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value / 1e6:.0f}" if key == "memory" else f"{value:.4g}"


def card(device: str) -> str:
    """The device's name, versions and the commit."""
    import torch

    from fgl_bench.results.provenance import code_state

    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU {platform.processor() or platform.machine()}"
    commit = (code_state() or {}).get("commit", "unknown")
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"{name}, {os.cpu_count()} CPU cores, torch {torch.__version__}, CUDA {torch.version.cuda}, commit {commit[:10]}, {day}."


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=25, help="start no step that is likely to end later")
    parser.add_argument("--out", type=Path, default=ROOT / "results/bench/gpu", help="a file per step; the page is written next to it")
    parser.add_argument("--small", action="store_true", help="small graphs and few choices")
    parser.add_argument("--openfgl", type=Path, help="a clone of OpenFGL")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(one_run(json.loads(options.one))))
        return
    begin = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    about = card(options.device)
    for step in steps(options):
        path = options.out / f"{step.name}.json"
        left = options.minutes - (time.monotonic() - begin) / 60
        if path.is_file():
            continue
        if left < step.minutes:
            print(f"left out, no time: {step.name}", flush=True)
            continue
        print(f"{step.name} ...", flush=True)
        result = step.run(options)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        draft.rename(path)
        options.out.with_suffix(".md").write_text(page(options.out, about), encoding="utf-8")
    print(f"written: {options.out.with_suffix('.md')}")


if __name__ == "__main__":
    main()
