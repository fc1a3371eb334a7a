"""Runs FedAvg of the Flower framework on an exported federation; started by ``compare.py`` or ``bench_peers.py``.

Flower has no graphs: its clients train the two-layer GCN of PyTorch Geometric here, as a user would write them. Its simulation engine
runs them on Ray, and its strategy averages. Clients keep no optimizer between rounds.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from driving import Scores, drive
from gcn import begin, loaded, network, right

MATCHED: dict[str, dict[str, Any]] = {
    "fedavg": {"ours": ["algorithm=fedavg", "opt_state=reset"]},
    "fedavg_received": {"theirs": "fedavg", "ours": ["algorithm=fedavg", "opt_state=reset", "local_epochs=3"], "evaluated": "received"},
}


def train(settings: dict[str, Any], job: Path, folder: Path) -> Scores:
    """Every round's right answers of each client's trained model, and of the server's model at each client."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()

    def answer(message: Message, model: torch.nn.Module, data: Any, number: int, arrays: bool) -> Message:
        metrics = {"num-examples": data.num_nodes, "client": number, **right(model, data)}
        content = {"metrics": MetricRecord(metrics), **({"arrays": ArrayRecord(model.state_dict())} if arrays else {})}
        return Message(content=RecordDict(content), reply_to=message)

    def begun(message: Message, context: Context) -> tuple[torch.nn.Module, Any, int]:
        torch.set_num_threads(1)  # clients run side by side
        number = int(context.node_config["partition-id"])
        data = loaded(job, number)
        model = network(settings, data)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        return model, data, number

    @client.train()
    def fit(message: Message, context: Context) -> Message:
        model, data, number = begun(message, context)
        optimizer = torch.optim.Adam(model.parameters(), settings["lr"], weight_decay=settings["weight_decay"])
        model.train()
        for _ in range(settings["local_epochs"]):
            optimizer.zero_grad()
            output = model(data.x, data.edge_index)
            torch.nn.functional.cross_entropy(output[data.train_mask], data.y[data.train_mask]).backward()
            optimizer.step()
        return answer(message, model, data, number, arrays=True)

    @client.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return answer(message, *begun(message, context), arrays=False)

    scores: Scores = {"seconds": [], "trained": [], "received": []}
    last = time.perf_counter()

    def keep(name: str, records: list[RecordDict]) -> MetricRecord:
        nonlocal last
        rows = sorted((record["metrics"]["client"], record["metrics"]["val"], record["metrics"]["test"]) for record in records)
        scores[name].append([list(row[1:]) for row in rows])
        if name == "received":
            scores["seconds"].append(time.perf_counter() - last)
            last = time.perf_counter()
        return MetricRecord({"clients": len(rows)})

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        model = network(settings, loaded(job, 0))
        begin(model, job)
        strategy = FedAvg(
            min_available_nodes=settings["clients"],
            train_metrics_aggr_fn=lambda records, _: keep("trained", records),
            evaluate_metrics_aggr_fn=lambda records, _: keep("received", records),
        )
        strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=settings["rounds"])

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}, "init_args": {"num_cpus": settings["threads"]}}
    run_simulation(server, client, settings["clients"], backend_config=resources)
    return scores


if __name__ == "__main__":
    drive(train)
