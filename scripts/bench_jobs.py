"""The benchmark's measurements, one process per job: the engine, the loops, the machine's rates, a profile."""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fgl_bench.results.callbacks import Callback, Report

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [path for path in (str(ROOT / "src"), str(ROOT), str(ROOT / "scripts")) if path not in sys.path]

import bench_floor  # noqa: E402
from bench_loops import LOOPS  # noqa: E402

# How the loop may store node features. The first is what PyG's data sets deliver.
STORAGES = {"loop": ("dense",), "loop_sparse": ("coo", "csr")}
TRIAL_ROUNDS = 3


def measure(job: dict) -> dict:
    """Run one job; see :data:`KINDS`."""
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import torch

    torch.set_num_threads(job["threads"])
    return KINDS[job["kind"]](job)


def composed(job: dict):
    """The job as a configuration of the package."""
    from fgl_bench.config import compose
    from fgl_bench.runner.spec import resolve

    paired = resolve(compose.composed([f"algorithm={job['algorithm']}"])).algorithm.pairing
    overrides = [
        f"algorithm={job['algorithm']}", *(f"{group}={choice}" for group, choice in {"split": "metis", "model": "gcn", **paired}.items()),
        f"dataset={job['dataset']}",
        f"num_clients={job['clients']}", f"seeds={list(job['seeds'])}", f"trips={job['rounds'] * job['clients']}",
        f"device={job['device']}", "progress=false", f"cache_dir={job['cache_dir']}",
        *(f"{key}={value}" for key, value in job.get("changes", {}).items()),
    ]  # fmt: skip
    if not job.get("evaluate", True):  # at the ends only
        overrides.append(f"eval_every={job['rounds'] * job['clients']}")
    return compose.composed(overrides)


def prepared(job: dict):
    """The run, device, a function that waits for it, federations."""
    import torch

    from fgl_bench.runner.devices import pick_devices
    from fgl_bench.runner.run import prepare
    from fgl_bench.runner.spec import resolve

    spec = resolve(composed(job))
    device = pick_devices(spec.settings.device)[0]
    return spec, device, torch.cuda.synchronize if device.type == "cuda" else lambda: None, prepare(spec)


class Memory:
    """How far resident memory (on a GPU: the device's) rises above what it is now."""

    def __init__(self, device):
        from fgl_bench.utils.allocator import return_freed_memory

        self.device = device
        if device.type == "cuda":
            import torch

            torch.cuda.init()  # there are no statistics before
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
            return
        with contextlib.suppress(ImportError):
            import numba  # noqa: F401  # its library, loaded in the first round, is no memory of a run
        gc.collect()
        return_freed_memory()  # what preparation has freed would be taken again, and not be seen to rise
        with contextlib.suppress(OSError):  # Linux forgets the peak so far when told to
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self.before = self._status("VmRSS")

    def peak(self) -> int:
        if self.device.type == "cuda":
            import torch

            return torch.cuda.max_memory_allocated(self.device)
        return self._status("VmHWM")

    def _status(self, field: str) -> int:
        try:
            lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))
        except (OSError, StopIteration):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextlib.contextmanager
def in_one_process() -> Iterator[None]:
    """Programs side by side as threads, whose memory can be measured: processes share what they do not change."""
    from fgl_bench.runner import workers

    forks, workers.forks = workers.forks, lambda: False
    try:
        yield
    finally:
        workers.forks = forks


class Marks(Callback):
    """Notes when, by ``clock``, each of the programs had done how many trips."""

    PAUSE_ON_GPU = 0.05  # seconds between waits for a GPU, which would else never run ahead

    def __init__(self, clients: int, wait: Callable[[], None], pause: float = 0.0, clock: Callable[[], float] = time.perf_counter):
        self.clients, self.wait, self.pause, self.clock = clients, wait, pause, clock
        self.marks: dict[tuple[int, ...], list[tuple[int, float]]] = {}

    def report(self, report: Report) -> None:
        marks = self.marks.setdefault(report.seeds, [])
        if not marks or marks[-1][0] != report.trips:  # once more at the end, after the last evaluation
            self.wait()
            marks.append((report.trips, self.clock()))

    def per_round(self, warm_up: int) -> float:
        """Seconds for each seed and round, without the first ``warm_up`` rounds of every program.

        Programs run side by side, so what counts is the time during which at least one was past its warm-up.
        """
        spans, trips = [], 0
        for marks in self.marks.values():
            warm = next((mark for mark in marks if mark[0] >= warm_up * self.clients), marks[0])
            if marks[-1][0] > warm[0]:
                spans.append((warm[1], marks[-1][1]))
                trips += marks[-1][0] - warm[0]
        return united(spans) / (trips / self.clients)


def united(spans: list[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, end = 0.0, -np.inf
    for low, high in sorted(spans):
        total += max(0.0, high - max(low, end))
        end = max(end, high)
    return total


def engine(job: dict) -> dict:
    """``fgl_bench.runner.program.simulate``, as a user's run calls it, ``repeats`` times.

    Returns:
        seconds: for each seed and round, one figure a repeat. received, trained: each seed's test accuracy at the end.
        increase, predicted, peak: bytes of memory: rise in a run before the timed ones, what docs/memory.md says, level.
        floor, sizes: of the first seed, with the job's rates.
    """
    from fgl_bench.results.callbacks import Callbacks
    from fgl_bench.runner.memory import chunks
    from fgl_bench.runner.program import simulate
    from fgl_bench.runner.workers import groups

    spec, device, wait, federations = prepared(job)
    load(job)
    need, plan = chunks(spec, federations, device, exact=True)
    memory, seconds = Memory(device), []
    with in_one_process():
        simulate(spec, federations, device)
    increase, peak = memory.peak() - memory.before, memory.peak()
    for _ in range(job["repeats"]):
        marks = Marks(job["clients"], wait, Marks.PAUSE_ON_GPU if device.type == "cuda" else 0.0)
        outcome = simulate(spec, federations, device, Callbacks([marks]))
        seconds.append(marks.per_round(job["warm_up"]))
    programs = max(groups(-(-len(federations) // plan.seeds), plan.programs))
    result = {
        "seconds": seconds,
        **{model: [float(history.pooled(model)[-1, 1]) for history in outcome.histories] for model in ("received", "trained")},
        "increase": increase, "predicted": programs * need.program(plan.seeds, plan.replicas), "peak": peak,
        "programs": programs, "threads": plan.threads,
    }  # fmt: skip
    if "rates" in job and job["algorithm"] in bench_floor.EXTRAS:
        sizes = sizes_of(spec, federations[0], device)
        rate = job["rates"]["copy_cached"] if 4 * sizes.clients * sizes.parameters < job["rates"]["cached"] else job["rates"]["copy"]
        result["floor"] = bench_floor.floor(job["algorithm"], sizes, rate, job["rates"]["flops"], job.get("evaluate", True))
    return result


def load(job: dict) -> None:
    """A tiny run, so that the libraries' own memory and their first calls are not the job's."""
    from fgl_bench.runner.program import simulate

    tiny = {"dataset.num_nodes": 300, "dataset.num_edges": 600, "dataset.num_features": 100, "dataset.words_per_node": 6.0}
    tiny = {"dataset": "csbm_cora", "clients": 4, "rounds": 2, "seeds": [0, 1], "changes": tiny, "evaluate": True}
    tiny = {**job, "algorithm": "fedavg", **tiny}
    spec, device, wait, federations = prepared(tiny)
    simulate(spec, federations, device)


def sizes_of(spec, federation, device) -> bench_floor.Sizes:
    """Return the sizes from which the floor is computed."""
    from fgl_bench.engine.batch import is_dense

    layout = spec.model.layout(federation.num_features, federation.num_classes)
    blocks = [client.features for client in federation.observed]
    dense = is_dense(blocks, device)
    filled = sum(b.shape[0] * b.shape[1] if dense else b.nnz if hasattr(b, "nnz") else np.count_nonzero(b) for b in blocks)
    nodes = sum(client.num_nodes for client in federation.observed)
    entries = nodes + sum(client.edges.shape[1] for client in federation.observed)
    return bench_floor.Sizes(
        federation.num_clients, nodes, int(filled), entries, spec.model.hidden, federation.num_classes, layout.count, dense,
        epochs=spec.settings.local_epochs,
    )  # fmt: skip


def loop(job: dict) -> dict:
    """The per-client loop over PyG models of ``tests/reference``, one seed after the other.

    Every storage of ``kind`` and number of threads is tried for a few rounds; the fastest is timed.

    Returns:
        seconds: for each seed and round: the timed rounds in ``repeats`` blocks, one figure a block. The rest as :func:`engine`.
    """
    import torch

    import tests.reference.semi_async  # noqa: F401  (PyTorch Geometric's own memory is not the loop's)

    spec, device, wait, federations = prepared(job)
    run, trials = LOOPS[job["algorithm"]], {}
    memory = Memory(device)
    for storage in STORAGES[job["kind"]]:
        for threads in job["tries"]:
            torch.set_num_threads(threads)
            times, *_ = run(spec, federations[0], device, wait, storage, TRIAL_ROUNDS)
            trials[f"{storage}, {threads} thread(s)"] = float(np.median(times[1:])), storage, threads
    name, (_, storage, threads) = min(trials.items(), key=lambda item: item[1][0])
    torch.set_num_threads(threads)
    rounds, accuracies = [], []
    for federation in federations:
        times, received, trained = run(spec, federation, device, wait, storage, job["rounds"])
        rounds.append(times[job["warm_up"] :])
        accuracies.append((received, trained))
    blocks = np.array_split(np.mean(rounds, 0), min(job["repeats"], len(rounds[0])))
    return {
        "seconds": [float(np.mean(block)) for block in blocks],
        "received": [a[0] for a in accuracies], "trained": [a[1] for a in accuracies],
        "increase": memory.peak() - memory.before, "peak": memory.peak(), "best": name, "trials": {k: v[0] for k, v in trials.items()},
    }  # fmt: skip


def rates(job: dict) -> dict:
    """Bytes per second of a large copy and of one that fits the cache, and operations per second of a large matrix product."""
    import torch

    from fgl_bench.runner.devices import pick_devices

    device = pick_devices(job["device"])[0]
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    cached, threads = 8_000_000, torch.get_num_threads()
    budget = job.get("budget", 0.5)
    torch.set_num_threads(1)
    alone = bench_floor.copy_rate(cached // 2, device, wait, budget)
    torch.set_num_threads(threads)
    programs = threads if device.type == "cpu" else 1  # each copies in its own cache
    return {
        "copy": bench_floor.copy_rate(job.get("size", 400_000_000), device, wait, budget),
        "copy_cached": programs * alone, "cached": cached,
        "flops": bench_floor.flop_rate(device, wait, job.get("n", 2048), budget),
    }  # fmt: skip


def profile(job: dict) -> dict:
    """Where the engine's time goes: share of each operation's own time in one seed's rounds, the largest first."""
    import torch
    from torch.profiler import ProfilerActivity

    from fgl_bench.runner.program import simulate

    spec, device, wait, federations = prepared(job)
    federations = federations[:1]
    simulate(spec, federations, device)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with torch.profiler.profile(activities=activities) as profiler:
        simulate(spec, federations, device)
    field = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    spent = {event.key: getattr(event, field) for event in profiler.key_averages()}
    total = sum(spent.values()) or 1.0
    return {"shares": {name: value / total for name, value in sorted(spent.items(), key=lambda item: -item[1])[:10]}}


KINDS = {"engine": engine, "loop": loop, "loop_sparse": loop, "rates": rates, "profile": profile}
