"""Validation of a configuration: its keys, the chosen classes and the machine."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from fgl_bench.config.choices import NAMED
from fgl_bench.config.groups import ROLES, check_role, imported, label
from fgl_bench.config.own_classes import module_of
from fgl_bench.config.pairing import paired, suited
from fgl_bench.config.settings import Configuration, check_numbers, check_writable, resolve_budget
from fgl_bench.config.values import check_keys, check_name, check_values, plain
from fgl_bench.errors import UserError, one_of, require, require_choice
from fgl_bench.utils.patience import say_once
from fgl_bench.utils.processes import import_torch
from fgl_bench.utils.world import world

if TYPE_CHECKING:
    from fgl_bench.runner.spec import RunSpec

CHOICES = {
    "opt_state": ("persist", "reset"),
    "agg_weight": ("train", "nodes", "uniform"),
    "eval_weight": ("test", "nodes"),
    "selection": ("federation", "client"),
    "average": ("weighted", "macro"),
    "dtype": ("float32", "float64"),
    "feature_dtype": (None, "bfloat16"),
    "keep_models": ("none", "final", "best"),
    "out_of_core": ("auto", True, False),
    "shard": ("auto", "seeds", "clients"),
}
OF_TASK = {"graph": {"dataset": "mutag"}}  # data sets for a task, in error messages
LEAST = {"layers": 1, "hops": 0, "hidden": 1}


def check_configuration(cfg: DictConfig) -> None:
    """Validate everything that needs neither torch nor the chosen classes; raises UserError, see :func:`validate`."""
    for group in ROLES:
        if OmegaConf.select(cfg, group) is None:
            raise UserError(f"{group} is not chosen; write {group.replace('.', '/')}=..., see fgl-bench --help")
        if not isinstance(OmegaConf.select(cfg, group), DictConfig):
            raise UserError(f"{group} is no group of keys; write {group.replace('.', '/')}=CHOICE, see fgl-bench --help")
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise UserError(f"{missing[0]} has no value; write {missing[0]}=...")
    check_keys(cfg, {field.name: field for field in fields(Configuration)})
    check_values(cfg)
    check_numbers(cfg)
    for key, allowed in CHOICES.items():
        require_choice(key, cfg[key], allowed)
    resolve_budget(cfg)
    check_metrics(cfg)
    check_ratios(cfg)
    require(re.fullmatch(r"auto|cpu|cuda(:\d+)?", cfg.device) is not None, "device", cfg.device, "one of auto, cpu, cuda, cuda:N")
    require(not cfg.cuda_graphs or cfg.device.startswith("cuda"), "cuda_graphs", cfg.cuda_graphs, "false unless device=cuda")


def checked_names(cfg: DictConfig) -> dict[str, str]:
    """The name of each group's choice in results; raises UserError if it is not a valid folder name."""
    names = {group: label(cfg, group) for group in NAMED}
    for group, name in names.items():
        check_name(f"{group}.name" if name == cfg[group.partition("/")[0]].get("name") else group, name)
    return names


def validate(cfg: DictConfig) -> RunSpec:
    """The validated run of a configuration.

    Checks the rules that types cannot express: ranges, keys against each other, the method against the scenario.

    Cheap checks come first; only the last import torch and the chosen classes.

    Raises:
        UserError: naming the first key that is wrong and what it may be.
    """
    check_configuration(cfg)
    import_torch()  # the following checks need it
    check_device(cfg.device)
    names = checked_names(cfg)
    if world().rank == 0:  # who alone writes there
        below = Path(names["dataset"], f"{names['split']}-{cfg.num_clients}", names["scenario"], names["algorithm"])
        check_writable(cfg.results_dir, below)
    classes = {group: check_role(group, OmegaConf.select(cfg, group)) for group in ROLES}
    check_model(cfg.model)
    check_server_test(cfg, classes["scenario"])
    from fgl_bench.runner.spec import resolve

    if isinstance(classes["algorithm"], type):
        check_scenario(cfg, classes["algorithm"])
    spec = resolve(cfg)  # the classes' own checks, before any file is read
    if not isinstance(classes["algorithm"], type):  # a function that creates a method
        check_scenario(cfg, type(spec.algorithm))
    check_task(spec)
    check_backbones(spec)
    check_batch_nodes(spec)
    with suited(names["algorithm"], spec.algorithm.pairing, spec.overrides):
        spec.algorithm.check_choices(spec.model, spec.split)
    check_buffer(cfg)
    check_optimizer(spec)
    check_server(spec)
    check_training(spec)
    note_stages(spec)
    check_unseen(spec)
    return spec


def check_metrics(cfg: DictConfig) -> None:
    """metrics, those that the evaluation has and functions of the user's, which are named by their module afterwards; raises UserError."""
    from fgl_bench.data.checks import METRICS

    for position, name in enumerate(cfg.metrics):
        if name not in METRICS and "." not in name:
            own = "or your own function, FILE.py:FUNCTION"
            raise UserError(f"metrics={plain(cfg.metrics)}: must be a list of {one_of(METRICS)}, {own}")
        if name in METRICS:
            continue
        file, _, function = name.partition(":") if ".py" in name else ("", "", "")
        target = f"{module_of(file).__name__}.{function}" if file else name
        imported("metrics", target, f"metrics=[{name}]")
        if target.rpartition(".")[2] in METRICS:
            raise UserError(f"metrics=[{name}]: {function} is the name of a metric already; call the function otherwise")
        cfg.metrics[position] = target


def check_ratios(cfg: DictConfig) -> None:
    """split.ratios and dataset.ratios, where there are such, by the data stage's own rule."""
    for key in ("split.ratios", "dataset.ratios"):
        ratios = OmegaConf.select(cfg, key)
        if ratios is not None:
            from fgl_bench.data.checks import check_ratios as check

            check(list(ratios) if isinstance(ratios, ListConfig) else ratios, key)


def check_device(device: str) -> None:
    """A CUDA device must be one that this machine has; raises UserError."""
    if device.startswith("cuda"):
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = int(device.partition(":")[2] or 0)
        require(index < count, "device", device, f"one of {one_of(['auto', 'cpu', *(f'cuda:{i}' for i in range(count))])} on this machine")


def check_scenario(cfg: DictConfig, method: Any) -> None:
    """The method's class must derive from the base that the chosen scenario names, and have its hooks; raises UserError."""
    from fgl_bench.scenarios.hooks import check_hooks, supported

    check_hooks(method)
    contract = getattr(check_role("scenario", cfg.scenario), "contract", method)
    if not issubclass(method, contract):
        names = one_of(supported(method))
        raise UserError(f"scenario={label(cfg, 'scenario')}: algorithm={label(cfg, 'algorithm')} supports only scenario={names}")


def check_buffer(cfg: DictConfig) -> None:
    """Raise UserError if the server waits for more arrivals than there are clients: it would wait forever."""
    size = cfg.algorithm.get("buffer")
    if isinstance(size, int) and size > cfg.num_clients:
        raise UserError(f"algorithm.buffer={size} does not fit num_clients={cfg.num_clients}; allowed: 1 to {cfg.num_clients}")


def check_optimizer(spec: RunSpec) -> None:
    """A method with an optimizer of its own takes no other; raises UserError."""
    from fgl_bench.optimizers.adam import DEFAULT

    own = spec.algorithm.own_optimizer
    if own is not None and spec.optimizer != DEFAULT:
        names = spec.names
        raise UserError(f"optimizer={names['optimizer']}: algorithm={names['algorithm']} has its own, {own}; leave optimizer=adam")


def check_server(spec: RunSpec) -> None:
    """Attacks on uploads and rules of aggregation need a server that receives the uploads; raises UserError."""
    from fgl_bench.algorithms.base import Peers, SemiAsyncServer, ServerRounds
    from fgl_bench.algorithms.local import Alone

    names, contract = spec.names, getattr(spec.scenario, "contract", None)
    attack = f"scenario/attack={names['scenario/attack']}"
    shares_no_model = isinstance(spec.algorithm, Alone) and type(spec.algorithm).traffic is not Alone.traffic
    if spec.attack.forges and shares_no_model:
        raise UserError(
            f"{attack}: forges the model that a client uploads, and algorithm={names['algorithm']} uploads none; use label_flip"
        )
    if spec.attack.forges and contract is Peers:
        raise UserError(f"{attack}: is an attack on a server, and scenario={names['scenario']} has none; use label_flip")
    if spec.attack.colludes and contract is SemiAsyncServer:
        raise UserError(
            f"{attack}: malicious clients know the uploads of their round, and scenario=semi_async has no rounds; use sign_flip"
        )
    for group, default in {"aggregator": "mean", "privacy": "none"}.items():
        if names[group] != default and contract is not ServerRounds:
            raise UserError(f"{group}={names[group]}: scenario={names['scenario']} has no rounds of a server; use {default}")
    if names["privacy"] != "none" and names["aggregator"] != "mean":
        raise UserError(f"privacy={names['privacy']}: its noise is made for a mean; use aggregator=mean")
    spec.privacy.check_installed()


def note_stages(spec: RunSpec) -> None:
    """Say it if no round is left for the second stage of a method."""
    from fgl_bench.algorithms.powers import Staging

    first = getattr(spec.algorithm, "federated_rounds", 0)
    if isinstance(spec.algorithm, Staging) and 0 < spec.rounds <= first:
        say_once(f"note: algorithm.federated_rounds={first} leaves none of rounds={spec.rounds} for what follows")


def check_training(spec: RunSpec) -> None:
    """patience, lr_schedule and clip_gradient need rounds and the trainer's own steps; raises UserError."""
    from fgl_bench.algorithms.base import Algorithm
    from fgl_bench.engine.hooks import JointTraining
    from fgl_bench.scenarios.base import Rounds

    names, settings, joint = spec.names, spec.settings, isinstance(spec.algorithm, JointTraining)
    schedule = f"lr_schedule={names['lr_schedule']}" if names["lr_schedule"] != "constant" else ""
    clip = f"clip_gradient={settings.clip_gradient:g}" if settings.clip_gradient is not None else ""
    patience = f"patience={settings.patience}" if settings.patience is not None else ""
    if (schedule or patience) and not isinstance(spec.scenario, Rounds):
        raise UserError(f"{schedule or patience}: scenario={names['scenario']} has no rounds; use sync or decentralized")
    if schedule and settings.cuda_graphs:
        raise UserError(f"{schedule}: CUDA graphs repeat steps with one learning rate; use cuda_graphs=false")
    own = joint or type(spec.algorithm).optimizer is not Algorithm.optimizer
    if (schedule and own) or (clip and joint):
        raise UserError(f"{schedule or clip}: the clients of algorithm={names['algorithm']} take steps of their own; leave it out")


def check_unseen(spec: RunSpec) -> None:
    """Unseen clients need a model of a server that a client without a history can use; raises UserError."""
    from fgl_bench.algorithms.base import Algorithm, ServerRounds
    from fgl_bench.algorithms.local import Alone
    from fgl_bench.algorithms.powers import Federating, JointTraining, Regraphing, Staging, TrainedScore

    share, names, method = spec.settings.unseen_clients, spec.names, spec.algorithm
    if spec.num_clients == spec.settings.num_clients:
        return
    if getattr(spec.scenario, "contract", None) is not ServerRounds:
        raise UserError(f"unseen_clients={share}: scenario={names['scenario']} has no server whose model they could receive; use sync")
    if spec.split.test != "clients":
        raise UserError(f"unseen_clients={share}: clients are scored on test nodes of their own; use split.test=clients")
    if isinstance(method, Alone):
        raise UserError(f"unseen_clients={share}: algorithm={names['algorithm']} has no server's model to receive; use another method")
    special = isinstance(method, Federating | JointTraining | Regraphing | Staging | TrainedScore)
    if special or type(method).predict is not Algorithm.predict or method.backbone(spec.model) is not spec.model:
        why = "needs more than the backbone's parameters, which a client outside of training lacks"
        raise UserError(f"unseen_clients={share}: a model of algorithm={names['algorithm']} {why}; use another method")


def check_server_test(cfg: DictConfig, scenario: Any) -> None:
    """A server with validation and test nodes needs a scenario of rounds, after which it scores its model; raises UserError."""
    if OmegaConf.select(cfg, "split.test") == "server":
        from fgl_bench.scenarios.base import Rounds

        if not (isinstance(scenario, type) and issubclass(scenario, Rounds)):
            raise UserError(f"split.test=server: scenario={label(cfg, 'scenario')} has no rounds after which a server scores; use sync")


def check_model(model: DictConfig, path: str = "model") -> None:
    """Check the ranges of common backbone keys, by name; raises UserError."""
    for key, value in model.items():
        name = str(key)
        if isinstance(value, DictConfig):  # one of several backbones
            check_model(value, f"{path}.{name}")
        elif name.endswith("dropout") and isinstance(value, int | float):
            require(0 <= value <= 1, f"{path}.{name}", value, "between 0 and 1")
        elif name in LEAST and isinstance(value, int):
            require(value >= LEAST[name], f"{path}.{name}", value, f"an integer of at least {LEAST[name]}")


def check_task(spec: RunSpec) -> None:
    """Raise UserError, with a command that works, if the data set or the method is not for this task."""
    from fgl_bench.scenarios.base import Rounds

    task, names = spec.task, spec.names
    if task.name not in spec.dataset.tasks:
        other = OF_TASK.get(task.name, {"task": spec.dataset.tasks[0]})
        command = shlex.join(["fgl-bench", *paired(spec.overrides, other)])
        raise UserError(f"dataset={names['dataset']}: is for task={one_of(spec.dataset.tasks)}, not for task={task.name}; try: {command}")
    if task.name not in spec.algorithm.tasks:
        command = shlex.join(["fgl-bench", *paired(spec.overrides, {"algorithm": "fedavg"})])
        raise UserError(f"algorithm={names['algorithm']}: is defined for task={one_of(spec.algorithm.tasks)} only; try: {command}")
    if spec.split.personal_ends and not (isinstance(spec.scenario, Rounds) and not getattr(spec.algorithm, "refines", False)):
        needs = "a method whose server only averages, in rounds"
        raise UserError(
            f"split={names['split']}: clients have their own input and output layers, which needs {needs}; use algorithm=fedavg"
        )
    task.check(spec.split, spec.sparsity, spec.settings.out_of_core)
    if task.name != "node" and names["scenario/noise"] != "none":
        raise UserError(f"scenario/noise={names['scenario/noise']}: is defined for task=node only, not for task={task.name}; use none")


def check_backbones(spec: RunSpec) -> None:
    """Clients with backbones of their own need a method in which no model travels; raises UserError."""
    from fgl_bench.algorithms.local import Alone
    from fgl_bench.algorithms.powers import Federating
    from fgl_bench.models._mixed import Mixed

    names = spec.names
    if not isinstance(spec.model, Mixed):
        return
    if not isinstance(spec.algorithm, Alone) or isinstance(spec.algorithm, Federating):
        needs = f"algorithm={names['algorithm']} needs one backbone for all clients"
        raise UserError(f"model={names['model']}: {needs}; use a method in which no model travels, such as algorithm=fedproto")
    if spec.settings.batch_nodes is not None:
        raise UserError(f"model={names['model']}: batch_nodes={spec.settings.batch_nodes} needs one backbone; use batch_nodes=null")
    if spec.split.test == "server":
        raise UserError(f"model={names['model']}: there is no one model for split.test=server to score; use split.test=clients")


def check_batch_nodes(spec: RunSpec) -> None:
    """batch_nodes needs a network and a method that treat examples one by one; raises UserError."""
    size, names = spec.settings.batch_nodes, spec.names
    if size is None:
        return
    if spec.model.needs_neighbors:
        raise UserError(
            f"batch_nodes={size}: model={names['model']} needs a node's neighbors at run time; "
            "use batch_nodes=null, or a model without propagation between its layers (mlp, sgc, s2gc, sign, gbp, gamlp)"
        )
    if not spec.algorithm.node_batches:
        raise UserError(
            f"batch_nodes={size}: the local objective of algorithm={names['algorithm']} needs all nodes of a client; use batch_nodes=null"
        )
