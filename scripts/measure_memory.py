#!/usr/bin/env python3
"""What docs/memory.md predicts for a run, and what its training really takes.

    python scripts/measure_memory.py experiment=fedssa/table1 dataset=cora algorithm=adafgl algorithm.federated_rounds=1 rounds=3

Arguments are those of ``fgl-bench``; a few rounds and one seed tell. Nothing is written but the cache of partitions.
"""

from __future__ import annotations

import sys
import tempfile
import warnings

import bench_jobs

DEFAULTS = ["seeds=[0]", "progress=false"]


def main(arguments: list[str]) -> int:
    warnings.filterwarnings("ignore")
    import torch
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    from fgl_bench.errors import UserError
    from fgl_bench.run import chunks, pick_device, prepare, simulate
    from fgl_bench.schema import config_folder, register_all

    torch.set_num_threads(1)  # seeds and programs side by side would add up
    given = {argument.split("=")[0] for argument in arguments}
    with tempfile.TemporaryDirectory() as cache:
        bench_jobs.load({"algorithm": "fedavg", "dataset": "csbm_cora", "device": "cpu", "cache_dir": cache})
        register_all(ConfigStore.instance())
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            defaults = [default for default in (*DEFAULTS, f"cache_dir={cache}") if default.split("=")[0] not in given]
            cfg = compose("config", overrides=[*defaults, *arguments])
        try:
            federations, device = prepare(cfg), pick_device(cfg.device)
            need, plan = chunks(cfg, federations, device)
            memory = bench_jobs.Memory(device)
            simulate(cfg, federations, device, bench_jobs.Marks(cfg.num_clients, lambda: None))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        predicted, taken = need.program(plan.seeds, plan.replicas) / 1e6, (memory.peak() - memory.before) / 1e6
    parts = ", ".join(f"{name} {value / 1e6:,.1f}" for name, value in vars(need).items() if name != "clients")
    print(f"one seed: {parts} MB (kept and step: of each of {need.clients} clients)")
    print(f"predicted {predicted:,.0f} MB, measured {taken:,.0f} MB, ratio {predicted / taken:.2f}; {plan}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
