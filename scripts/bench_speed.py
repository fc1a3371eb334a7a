"""Time one federated job twice: by a plain loop over PyTorch Geometric models, and by the engine.

    python scripts/bench_speed.py --size cora physics

The job is FedAvg with GCN on a generated graph: five seeds, twenty METIS clients, one local epoch, both models of every
client evaluated every round. Both sides get the same partitions, masks and initial parameters and run in processes of
their own, so that peak memory is each one's. Before it is timed, each side is tried with every thread count (and the
loop with dense and with sparse features) and then uses what was fastest. Training and evaluation are timed apart;
the first rounds are left out; a figure is the median over the other rounds, with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"cora": "csbm_cora", "physics": "csbm_physics"}
ROUNDS = {"cora": 100, "physics": 30}
WARM_UP = 3
TRIAL_ROUNDS = 9
STORAGES = ("dense", "coo", "csr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", nargs="+", choices=list(SIZES), default=list(SIZES), help="whose counts the generated graph has")
    parser.add_argument("--rounds", type=positive, help="rounds of the timed job; default: 100 for cora, 30 for physics")
    parser.add_argument("--seeds", type=positive, default=5, help="repetitions")
    parser.add_argument("--clients", type=positive, default=20)
    parser.add_argument("--threads", type=positive, nargs="+", default=sorted({1, min(2, os.cpu_count() or 1)}), help="to try")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(json.loads(arguments.child))))
        return
    results = {}
    with tempfile.TemporaryDirectory(prefix="bench-speed-") as scratch:
        for size in arguments.size:
            rounds = max(arguments.rounds or ROUNDS[size], WARM_UP + 2)
            results[size] = compare(arguments, size, rounds, scratch)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def compare(arguments: argparse.Namespace, size: str, rounds: int, scratch: str) -> dict:
    """Try, run and print one size; returns every figure."""
    print(f"\n{SIZES[size]}: fedavg, gcn, {arguments.seeds} seeds, {arguments.clients} metis clients, {rounds} rounds, {arguments.device}")
    common = {"dataset": SIZES[size], "clients": arguments.clients, "device": arguments.device, "cache_dir": scratch}
    choices = {
        "loop": [{"threads": threads, "features": storage} for threads in arguments.threads for storage in STORAGES],
        "engine": [{"threads": threads} for threads in arguments.threads],
    }
    # A seed of the loop costs what any other does; the engine's seeds are trained together.
    trial_seeds = {"loop": 1, "engine": arguments.seeds}
    found = {}
    for side, options in choices.items():
        trials = []
        for option in options:
            trial = in_a_process({**common, **option, "side": side, "rounds": TRIAL_ROUNDS, "seeds": trial_seeds[side]})
            seconds = per_seed_round(trial)
            trials.append((seconds, option))
            print(f"  tried {side:<6} {described(option):<28} {1e3 * seconds:9.2f} ms per seed and round", flush=True)
        best = min(trials, key=lambda entry: entry[0])[1]
        found[side] = in_a_process({**common, **best, "side": side, "rounds": rounds, "seeds": arguments.seeds})
        found[side] |= {"options": best, "trials": trials}
    report(found)
    return found


def described(option: dict) -> str:
    return ", ".join(f"{key}={value}" for key, value in option.items())


def in_a_process(job: dict) -> dict:
    """:func:`measure` in a fresh process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(job)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench_speed: the {job['side']} side failed with {described(job)}")
    return json.loads(done.stdout.splitlines()[-1])


def per_seed_round(result: dict) -> float:
    """Median seconds of training plus evaluation, of one seed and one round."""
    return float(sum(np.median(result[part]) for part in ("train", "evaluate"))) / result["seeds"]


def report(found: dict) -> None:
    from tabulate import tabulate

    rows = []
    for side, result in found.items():
        train, evaluate = (spread(result[part]) for part in ("train", "evaluate"))
        accuracies = [f"{100 * np.mean(result[name]):.2f} ± {100 * np.std(result[name], ddof=min(1, len(result[name]) - 1)):.2f}"
                      for name in ("received", "trained")]  # fmt: skip
        memory = f"{result['peak_mb']:.0f} ({result['prepared_mb']:.0f})"
        rows.append([side, described(result["options"]), train, evaluate, f"{1e3 * per_seed_round(result):.2f}", *accuracies, memory])
    headers = ["side", "fastest with", "training", "evaluation", "per seed", "received %", "trained %", "peak MB"]
    print(tabulate(rows, headers, disable_numparse=True))
    print("ms per round of all seeds, median [quartiles]; test accuracy after the last round, mean ± std over seeds;")
    print("peak resident memory, in brackets its level before the first round")
    ratios = {part: np.median(found["loop"][part]) / np.median(found["engine"][part]) for part in ("train", "evaluate")}
    overall = per_seed_round(found["loop"]) / per_seed_round(found["engine"])
    print(f"engine faster per seed: {overall:.1f} x (training {ratios['train']:.1f} x, evaluation {ratios['evaluate']:.1f} x)", flush=True)


def spread(seconds: list[float]) -> str:
    low, middle, high = 1e3 * np.percentile(seconds, [25, 50, 75])
    return f"{middle:.1f} [{low:.1f}, {high:.1f}]"


# ---- what runs in a process of its own --------------------------------------------------------------------------------


def measure(job: dict) -> dict:
    """Run one side of a job.

    Returns:
        train, evaluate: seconds per round of all seeds, without warm-up. received, trained: pooled test accuracy of each
        seed after the last round. peak_mb, prepared_mb: largest resident memory at the end and before the first round.
    """
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import torch

    from fgl_bench.run import pick_device, prepare

    torch.set_num_threads(job["threads"])
    cfg = composed(job)
    device = pick_device(cfg.device)
    federations = prepare(cfg)
    prepared = resident_mb()
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    sides = {"loop": loop_rounds, "engine": engine_rounds}
    train, evaluate, accuracy = sides[job["side"]](cfg, job, federations, device, Clock(wait))
    return {
        "seeds": len(federations), "train": train, "evaluate": evaluate, "received": accuracy["received"], "trained": accuracy["trained"],
        "prepared_mb": prepared, "peak_mb": resident_mb(),
    }  # fmt: skip


def composed(job: dict):
    """The job as a configuration of the package."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    from fgl_bench.schema import config_folder, register_all

    register_all(ConfigStore.instance())
    overrides = [
        "algorithm=fedavg", "split=metis", "model=gcn", f"dataset={job['dataset']}", f"num_clients={job['clients']}",
        f"seeds={list(range(job['seeds']))}", f"rounds={job['rounds']}", f"device={job['device']}", f"cache_dir={job['cache_dir']}",
    ]  # fmt: skip
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", overrides=overrides)


def resident_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


class Clock:
    """Seconds since the last call, once the device has finished."""

    def __init__(self, wait: Callable[[], None]):
        self.wait, self.last = wait, 0.0

    def __call__(self) -> float:
        self.wait()
        now, before = time.perf_counter(), self.last
        self.last = now
        return now - before


def loop_rounds(cfg, job: dict, federations, device, clock: Clock):
    """The plain loop, one seed after the other: each client its own PyG model and Adam, edges normalised once."""
    from fgl_bench.config import build
    from tests.reference.sync import AGG_WEIGHTS, FedAvg, aggregate, train_all
    from tests.reference.training import make_clients, normalise, pooled_accuracy

    model = build(cfg.model)
    times = np.zeros((len(federations), cfg.rounds, 2))
    accuracy = {"received": [], "trained": []}
    for s, federation in enumerate(federations):
        initial = {name: tensor.to(device) for name, tensor in initial_parameters(model, federation).items()}
        clients = make_clients(
            federation, initial, dropout=cfg.model.dropout, lr=cfg.lr, weight_decay=cfg.weight_decay, seed=federation.seed,
            prenormalized=True, features=job["features"],
        )  # fmt: skip
        shares = normalise([AGG_WEIGHTS[cfg.agg_weight](client) for client in clients])
        for number in range(cfg.rounds):
            clock()
            trained = train_all(clients, FedAvg(), cfg.local_epochs, number)
            times[s, number, 0] += clock()
            trained_counts = [client.count_correct() for client in clients]
            times[s, number, 1] += clock()
            aggregate(clients, FedAvg(), trained, shares)
            times[s, number, 0] += clock()
            received_counts = [client.count_correct() for client in clients]
            times[s, number, 1] += clock()
        accuracy["received"].append(pooled_accuracy(clients, received_counts)[1])
        accuracy["trained"].append(pooled_accuracy(clients, trained_counts)[1])
    train, evaluate = times.sum(axis=0)[WARM_UP:].T.tolist()
    return train, evaluate, accuracy


def initial_parameters(model, federation) -> dict:
    """The engine's own initial parameters of this seed, by name."""
    import torch

    from fgl_bench.seeding import derive_seed

    layout = model.layout(federation.num_features, federation.num_classes)
    generator = torch.Generator().manual_seed(derive_seed(federation.seed, "initial"))
    return {name: tensor.float() for name, tensor in model.initialise(layout, generator).items()}


def engine_rounds(cfg, job: dict, federations, device, clock: Clock):
    """The engine under its own synchronous scenario, all seeds together (as memory allows).

    Evaluation shares work with training there, so it is timed by difference, by a second run that evaluates at its ends only.
    """
    full, accuracy = engine_run(cfg, federations, device, clock, eval_every=cfg.num_clients)
    plain, _ = engine_run(cfg, federations, device, clock, eval_every=cfg.rounds * cfg.num_clients)
    return plain.tolist(), np.maximum(full - np.median(plain), 0.0).tolist(), accuracy


def engine_run(cfg, federations, device, clock: Clock, eval_every: int):
    """Seconds of each round of all seeds (without warm-up and the last, which ends with one more evaluation), and accuracies."""
    from omegaconf import OmegaConf

    from fgl_bench.config import build
    from fgl_bench.engine.memory import available_bytes, plan
    from fgl_bench.run import simulation

    cfg = OmegaConf.merge(cfg, {"eval_every": eval_every})
    model, trips = build(cfg.model), cfg.rounds * cfg.num_clients
    layout = model.layout(federations[0].num_features, federations[0].num_classes)
    widths = [shape[-1] for shape in layout.shapes.values()]
    chunking = plan(federations, layout, widths, 8, 4, device, available_bytes(device), cfg.seeds_per_chunk)
    seconds = np.zeros(cfg.rounds)
    accuracy = {"received": [], "trained": []}
    for start in range(0, len(federations), chunking.seeds):
        part = federations[start : start + chunking.seeds]
        sim = simulation(cfg, part, model, build(cfg.algorithm), device, cfg.rounds, trips, chunking.replicas)
        laps, train = [], sim.trainer.trips

        def timed(*args, laps=laps, train=train, **kwargs):
            laps.append(clock())
            return train(*args, **kwargs)

        sim.trainer.trips = timed  # called once a round, at its beginning
        build(cfg.scenario).run(sim)
        seconds += [*laps[1:], clock()]
        scores = sim.log.read()
        for federation, points in zip(part, sim.points, strict=True):
            test_nodes = sum(int(client.test.sum()) for client in federation.clients)
            for name, correct in accuracy.items():
                correct.append(float(scores[getattr(points[-1], name), 1].sum()) / test_nodes)
    return seconds[WARM_UP:-1], accuracy


if __name__ == "__main__":
    main()
