"""Checks the promises of any method."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from fgl_bench.algorithms.base import Algorithm
from fgl_bench.cli.check.recording import Interrupted, Recorded, simulated, watch
from fgl_bench.cli.check.subject import CLIENTS, ROUNDS, Broken, Cases, Subject, Untried, composed, tried
from fgl_bench.config.groups import check_node
from fgl_bench.data.federation import ServerFederation
from fgl_bench.data.graph import ClientGraph, Federation
from fgl_bench.errors import UserError
from fgl_bench.runner.checkpoints import Checkpoints
from fgl_bench.runner.run import prepare
from fgl_bench.runner.spec import RunSpec, resolve
from fgl_bench.scenarios.base import Trained
from fgl_bench.scenarios.checkpoint import Unstorable
from fgl_bench.scenarios.simulation import Simulation
from fgl_bench.scenarios.sync import Sync
from fgl_bench.utils.seeding import generator

SMALL = (f"num_clients={CLIENTS}", f"rounds={ROUNDS}", f"mixing_at=[{','.join(str(CLIENTS * n) for n in range(1, ROUNDS + 1))}]")
# Some clients are absent, and some participants are late.
PARTIAL = {"participation": 0.75, "scenario": {"slow_fraction": 0.5, "lag": [2, 5], "jitter": 0.0, "deadline": 1.5}}


class Small(NamedTuple):
    """The small configuration of a method and its run, its class, its federations, and a joint simulation of all seeds."""

    cfg: DictConfig
    spec: RunSpec
    method: type[Algorithm]
    federations: list[Federation]
    run: Recorded


def examine(subject: Subject, overrides: Sequence[str], folders: Sequence[Path] = ()) -> int:
    """Check every promise of a method; returns 0, or 1 if one is broken."""
    cfg = composed(subject, overrides, SMALL, folders)
    scenario, method = cfg.scenario._target_.rpartition(".")[2], check_node(cfg.algorithm)[0]
    print(f"{subject.name}: {cfg.num_clients} clients, {len(cfg.seeds)} seeds, {ROUNDS} rounds, scenario={scenario}", flush=True)
    watch(cfg)
    spec = resolve(cfg)
    federations = prepare(spec)
    run = simulated(spec, federations)
    status = tried(subject.name, PROMISES, Small(cfg, spec, method, federations, run))
    if moving := without_gradient(run):
        why = "weight decay is added after correct_gradient(); list constant parameters in the attribute frozen"
        print(f"  warning: {', '.join(moving)}: correct_gradient() leaves no gradient, yet the parameter changes ({why})")
    return status


def without_gradient(run: Recorded) -> list[str]:
    """Return the names of parameters that change in training although the method removed their gradient."""
    layout, largest = run.method.setting.layout, run.gradients
    if largest is None or largest.shape[1] != layout.size:
        return []
    removed = [name for name in layout.shapes if layout.view(largest, name).flatten(1).amax(1).gt(0).tolist() == [True, False]]
    pairs = [torch.stack(pair) for trips in run.trips.values() for pair in trips]
    return [name for name in removed if any(torch.ne(*layout.view(pair, name)).any() for pair in pairs)]


# ---- the promises


def finite(small: Small) -> None:
    for (seed, client), trips in small.run.trips.items():
        for number, pair in enumerate(trips):
            if not all(torch.isfinite(model).all() for model in pair):
                raise Broken(f"client {client} of seed {seed} has a model that is not finite after {number + 1} trip(s)")
    if not small.run.trips:
        raise Broken("no client has trained")


def scored(small: Small) -> None:
    if not small.run.answered:
        raise Broken("predict() gives logits that are not finite")
    for history in small.run.outcome.histories:
        for model in history.scores:
            if history.diverged(model).any():
                raise Broken(f"a score of a {model} model is not finite")


def repeatable(small: Small) -> None:
    differ(small.run, simulated(small.spec, small.federations), 0.0, "the same run gives another model")


def alone(small: Small) -> None:
    differ(simulated(small.spec, small.federations[-1:]), small.run, CLOSE, "alone, the seed gives another model")


def chunked(small: Small) -> None:
    for replicas in (1, 3):
        run = simulated(small.spec, small.federations, replicas)
        differ(run, small.run, CLOSE, f"trained {replicas} client(s) at a time, the model differs")


def resumed(small: Small) -> None:
    """A run that is interrupted in its middle resumes in a fresh instance."""
    with tempfile.TemporaryDirectory() as scratch, redirect_stderr(StringIO()):
        checkpoints = partial(Checkpoints, Path(scratch, "run"), "check", 0.0, small.method.__name__, strict=True)
        try:
            simulated(small.spec, small.federations, checkpoints=checkpoints(), share=0.5)
        except Interrupted:
            pass
        except Unstorable as reason:
            raise Broken(f"{reason} cannot be saved; list attributes that prepare() sets and nothing changes in `rebuilt`") from None
        rest = simulated(small.spec, small.federations, checkpoints=checkpoints())
    tail = {key: trips[len(trips) - len(rest.trips.get(key, [])) :] for key, trips in small.run.trips.items()}
    differ(rest, replace(small.run, trips=tail), 0.0, "after an interruption the model differs")


def unlabeled(small: Small) -> None:
    """Test labels are never read; validation labels only if the method declares it."""
    kinds: list[tuple[Sequence[str], str, str]] = [(("train", "val"), "test nodes", "")]
    if not small.method.uses_validation:
        kinds.append((("train",), "validation nodes", "; a method that may read them says uses_validation = True"))
    for masks, words, hint in kinds:
        run = simulated(small.spec, [relabeled(federation, masks) for federation in small.federations])
        differ(run, small.run, 0.0, f"with other labels of {words} the model differs{hint}")


def absent(small: Small) -> None:
    """The state of an absent client affects no other client."""
    if not issubclass(check_node(small.cfg.scenario)[0], Sync):
        raise Untried("the scenario has no server that averages absent clients")
    cfg = small.cfg.copy()
    cfg.merge_with(PARTIAL)
    Undisturbed.rounds.clear()
    try:
        for scenario in (Undisturbed, Disturbed):
            cfg.scenario._target_ = f"{scenario.__module__}.{scenario.__name__}"
            simulated(resolve(cfg), small.federations)
    except UserError as error:
        raise Untried(f"the method does not run with absent clients: {error}") from error


def stochastic(small: Small) -> None:
    rows = list(small.run.rows)
    if not issubclass(check_node(small.cfg.scenario)[0], Sync):  # with a server, the weights of mix() if any client arrived
        rows += [torch.from_numpy(np.asarray(matrix)) for matrix in small.run.outcome.mixing.values()]
    for weights in (rows_ for rows_ in rows if rows_.numel()):
        off = (weights.double().sum(-1) - 1).abs().max().item()
        if not off < 1e-6:
            raise Broken(f"a row of an average sums to {1 + off:.6g} or {1 - off:.6g}")
        if weights.min().item() < -1e-9:
            raise Broken(f"an average has the negative weight {weights.min().item():.3g}")


def counted(small: Small) -> None:
    mixes = any(not np.allclose(matrix, np.eye(matrix.shape[-1])) for matrix in small.run.outcome.mixing.values())
    for history in small.run.outcome.histories:
        for way in ("upload", "download"):
            count = getattr(history, way)
            if (np.diff(count) < 0).any() or (count < 0).any():
                raise Broken(f"{way}ed bytes go down: {count.tolist()}")
            if mixes and not count[-1] > 0:
                raise Broken(f"models are mixed, yet nothing is {way}ed; see traffic()")
    trips, needed = sum(len(trips) for trips in small.run.trips.values()), small.run.uploaded
    summed = sum(float(history.upload[-1]) for history in small.run.outcome.histories)
    declared = max(summed, trips * small.run.method.traffic().bytes[0])  # clients may send less than traffic() declares
    if declared < needed - 1:
        raise Broken(
            f"clients upload {round(needed / trips):,} bytes a trip (models and reports), traffic() declares {round(declared / trips):,}; "
            "list reports that stay on the client in `unsent`"
        )


def differ(actual: Recorded, reference: Recorded, tolerance: float, words: str) -> None:
    """Raise ``Broken`` if a trip in ``some`` differs from the one in ``others``."""
    for (seed, client), trips in actual.trips.items():
        expected = reference.trips.get((seed, client), [])
        if len(expected) != len(trips):
            raise Broken(f"{words}: client {client} of seed {seed} makes {len(trips)} trips, not {len(expected)}")
        for number, (pair, other) in enumerate(zip(trips, expected, strict=True)):
            for model, x, y in zip(("received", "trained"), pair, other, strict=True):
                off = (x - y).abs().max().item() if x.shape == y.shape else float("inf")
                if not off <= tolerance * max(1.0, y.abs().max().item()) and not torch.equal(x, y):
                    raise Broken(f"{words} (seed {seed}, client {client}, trip {number + 1}, {model}: off by {off:.2g})")


def relabeled(federation: Federation, known: Sequence[str]) -> Federation:
    """Return the federation with changed labels of all nodes outside the masks ``known``."""

    def other(client: ClientGraph) -> ClientGraph:
        free = ~np.any([getattr(client, mask) for mask in known], axis=0) & (client.strata >= 0)
        labels = client.labels.copy()
        if labels.ndim > 1:
            labels[free] = 1 - labels[free]
        else:
            shift = generator(federation.seed, "relabelled").integers(1, max(2, federation.num_classes), int(free.sum()))
            labels[free] = (labels[free] + shift) % federation.num_classes
        return replace(client, labels=labels)

    clients = tuple(map(other, federation.clients))
    observed = clients if federation.observed is federation.clients else tuple(map(other, federation.observed))
    if isinstance(federation, ServerFederation):
        federation = replace(federation, server=other(federation.server))
    return replace(federation, clients=clients, observed=observed)


PROMISES: Cases = {
    "models stay finite": finite,
    "scores are finite": scored,
    "a repeated run gives the same numbers": repeatable,
    "a seed alone equals the seed among others": alone,
    "chunks of clients change nothing": chunked,
    "a run resumed from a checkpoint gives the same numbers": resumed,
    "labels outside training change nothing": unlabeled,
    "absent clients change nothing": absent,
    "rows of averages sum to one, none is negative": stochastic,
    "bytes are counted": counted,
}


CLOSE = 1e-9


@dataclass
class Undisturbed(Sync):
    """Synchronous rounds that record what every client receives.

    Class attributes:
        rounds: by round, what every client receives ``[S, C, P]``.
    """

    rounds: ClassVar[list[Tensor]] = []

    def aggregate(self, sim: Simulation, done: Trained) -> tuple[Tensor, Callable[[], Tensor]]:
        received, matrix = super().aggregate(sim, done)
        self.rounds.append(received.clone())
        return received, matrix


@dataclass
class Disturbed(Sync):
    """The same rounds; during aggregation, all absent clients except one have perturbed models, uploads and labels.

    Absent clients do not take part in the round, or are late. Their last uploads and reports do not change. The model that an absent client
    receives may depend on its own model, so it continues with the model of the unperturbed round.
    """

    def aggregate(self, sim: Simulation, done: Trained) -> tuple[Tensor, Callable[[], Tensor]]:
        disturbed, labels = others(done.arrived, done.number), sim.setting.batch.labels
        before, rows = labels.clone(), disturbed.flatten()
        labels[rows] = 1 - labels[rows] if labels.ndim > 2 else (labels[rows] + 1) % sim.setting.num_classes
        uploaded, trained = (torch.where(disturbed[..., None], models + 1, models) for models in (done.uploaded, done.trained))
        try:
            received, matrix = super().aggregate(sim, done._replace(uploaded=uploaded, trained=trained))
        finally:
            labels.copy_(before)
        expected = Undisturbed.rounds[done.number]
        off = (received - expected).abs().amax(-1)
        changed = ~disturbed & ~(off <= CLOSE * expected.abs().amax(-1).clamp(min=1))
        if changed.any():
            seed, client = changed.nonzero()[0].tolist()
            raise Broken(
                f"client {client} of seed {sim.setting.seeds[seed]} receives state of absent clients in round {done.number + 1} "
                f"(off by {off[seed, client]:.2g}); see `arrived`"
            )
        return torch.where(disturbed[..., None], expected, received), matrix


def others(arrived: Tensor, number: int) -> Tensor:
    """Return the absent clients, ``[S, C]`` bool. Of several, one is left out, a different one per round."""
    absent = ~arrived
    for row in absent:
        neighbors = row.nonzero()[:, 0]
        if len(neighbors) > 1:
            row[neighbors[number % len(neighbors)]] = False
    return absent
