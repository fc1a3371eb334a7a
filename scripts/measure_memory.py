#!/usr/bin/env python3
"""The memory that is predicted for a run from a few of its clients (docs/memory.md), and what its training really takes.

    python scripts/measure_memory.py experiment=fedssa/table1 dataset=cora algorithm=adafgl algorithm.federated_rounds=1 rounds=3

Arguments are those of ``fgl-bench``, here by default with ``seeds=[0]``; a few rounds tell. No results are written.
"""

from __future__ import annotations

import sys
import tempfile
import warnings

import bench_jobs


def main(arguments: list[str]) -> int:
    """Print the parts of the prediction, and the prediction next to the measurement; 2 where the arguments are refused."""
    warnings.filterwarnings("ignore")
    import torch

    from fgl_bench.config.compose import Composer
    from fgl_bench.config.wording import explain
    from fgl_bench.runner.devices import pick_devices
    from fgl_bench.runner.memory import chunks
    from fgl_bench.runner.program import simulate
    from fgl_bench.runner.run import prepare
    from fgl_bench.runner.spec import resolve

    torch.set_num_threads(1)  # programs side by side would add up
    with tempfile.TemporaryDirectory() as cache:
        bench_jobs.load({"algorithm": "fedavg", "dataset": "csbm_cora", "device": "cpu", "cache_dir": cache})
        defaults = {"seeds": "[0]", "progress": "false", "cache_dir": cache}
        given = {argument.split("=")[0] for argument in arguments}
        try:
            composed = Composer()
            cfg = composed([*(f"{key}={value}" for key, value in defaults.items() if key not in given), *arguments])
            spec = resolve(cfg)
            device, federations = pick_devices(cfg.device)[0], prepare(spec)
            need, plan = chunks(spec, federations, device, exact=True)
            memory = bench_jobs.Memory(device)
            with bench_jobs.in_one_process():
                simulate(spec, federations, device, plan=plan)
        except Exception as error:
            line = explain(error)
            if line is None:
                raise
            print(f"error: {line}", file=sys.stderr)
            return 2
        predicted, taken = need.program(plan.seeds, plan.replicas) / 1e6, (memory.peak() - memory.before) / 1e6
    parts = ", ".join(f"{name} {value / 1e6:,.1f}" for name, value in vars(need).items() if name != "clients")
    print(f"one seed: {parts} MB (held: graphs and models of all clients; step: each client that is trained at a time)")
    print(f"predicted {predicted:,.0f} MB, measured {taken:,.0f} MB, ratio {predicted / max(taken, 1e-3):.2f}; {plan}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
