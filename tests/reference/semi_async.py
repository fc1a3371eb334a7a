"""The event loop of semi-asynchronous training on a virtual clock, one client after the other.

Each upload is trained at the moment it arrives, on its own; nothing is batched and nothing is laid out beforehand.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

from fgl_bench.data.graph import Federation

from .buffered import FedBuff, FedSAGCL, Message, Step, Upload
from .models import Parameters
from .training import make_clients

__all__ = ["Arrival", "Evaluation", "FedBuff", "FedSAGCL", "ServerStep", "Trace", "run_semi_async", "simulate"]

POLICIES = ("wait", "no_wait", "clustercast")
LAG_UNITS = ("trips", "time")


@dataclass
class Arrival:
    """One client trip. ``staleness`` (in versions) is known once the server has used it; None if it never did."""

    time: float
    client: int
    trip: int
    base_version: int
    parameters: Parameters
    report: Any
    staleness: int | None = None


@dataclass(frozen=True)
class ServerStep:
    """The server step that made ``version``: the clients of its batch in order of arrival, and a :class:`Step`."""

    version: int
    batch: tuple[int, ...]
    step: Step


@dataclass(frozen=True)
class Evaluation:
    """(val, test) correct counts per client after ``trips`` uploads, of the model each client's current or, while it
    waits, last trip started from (received) and of the one it trained last (trained); bytes so far."""

    trips: int
    time: float
    received: list[tuple[int, int]]
    trained: list[tuple[int, int]]
    bytes_up: int
    bytes_down: int


@dataclass
class Trace:
    arrivals: list[Arrival] = field(default_factory=list)
    steps: list[ServerStep] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    forced: int = 0
    pushes_used: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    unused: int = 0


def size_of(parameters: Parameters) -> int:
    return sum(tensor.numel() for tensor in parameters.values())


def run_semi_async(
    federation: Federation,
    method: FedBuff | FedSAGCL,
    initial: Parameters,
    *,
    trips: int,
    schedule,
    buffer: int,
    policy: str | None = None,
    lag_unit: str = "time",
    local_epochs: int = 1,
    eval_every: int | None = None,
    **settings,
) -> Trace:
    """Run until ``trips`` uploads have reached the server (an incomplete buffer is dropped) and return the trace.

    Args:
        schedule: has ``slow`` and ``lag`` and ``priority`` (tuples) and ``duration(client, trip)``.
        buffer: uploads per server step, at most the number of clients.
        policy: ``wait``, ``no_wait`` (start again at once from the server's model, FedBuff only) or ``clustercast``
            (start again at once if a message is cached); the method's own by default.
        lag_unit: ``time`` (a slow trip lasts its lag on the clock) or ``trips`` (it lasts lag x C uploads).
        eval_every: uploads between evaluations; the number of clients by default.
        settings: as in :func:`tests.reference.sync.run_sync`.
    """
    clients = make_clients(federation, initial, **settings)
    return simulate(
        clients, method, initial, trips=trips, schedule=schedule, buffer=buffer, policy=policy, lag_unit=lag_unit,
        local_epochs=local_epochs, eval_every=eval_every,
    )  # fmt: skip


def simulate(
    clients: list, method, initial: Parameters, *, trips: int, schedule, buffer: int, policy: str | None = None, lag_unit: str = "time",
    local_epochs: int = 1, eval_every: int | None = None,
) -> Trace:  # fmt: skip
    """The event loop, on anything that behaves like a :class:`tests.reference.training.Client`.

    Bytes are four per number in a method's declared messages: the parameters, a version with every message, and what
    else a report or a push carries.
    """
    count = len(clients)
    policy = policy or method.policy
    assert 1 <= buffer <= count and policy in POLICIES and lag_unit in LAG_UNITS
    answers_cached, answers_at_once = policy == "clustercast", policy == "no_wait"
    eval_every = eval_every or count
    delayed = set(schedule.slow) if lag_unit == "trips" else set()
    model_size = size_of(initial)

    method.start(initial, clients)
    trace = Trace()
    base: list[Message] = [Message(initial, 0)] * count
    inbox: list[Message | None] = [None] * count
    training = [False] * count
    done = [0] * count
    own = [initial] * count
    reports: list[Any] = [None] * count
    clock: list[tuple[float, int, int]] = []
    pending: list[tuple[int, int, int]] = []
    queue: list[tuple[Upload, Arrival]] = []
    now, arrived, version = 0.0, 0, 0

    def start(i: int, message: Message) -> None:
        base[i] = Message(method.begin(message, own[i], reports[i]), message.version)
        training[i] = True
        trace.pushes_used += message.confidence is not None
        if i in delayed:
            pending.append((arrived + schedule.lag[i] * count, schedule.priority[i], i))
        else:
            heapq.heappush(clock, (now + schedule.duration(i, done[i]), schedule.priority[i], i))

    def deliver(message: Message) -> Message:
        push = message.confidence is not None
        trace.bytes_down += 4 * (model_size + method.extra_down + push)
        return message

    def score(parameters: list[Parameters]) -> list[tuple[int, int]]:
        counts = []
        for client, mine in zip(clients, parameters, strict=True):
            client.load(mine)
            counts.append(client.count_correct())
        return counts

    def evaluate() -> None:
        received, trained = score([message.payload for message in base]), score(own)
        trace.evaluations.append(Evaluation(arrived, now, received, trained, trace.bytes_up, trace.bytes_down))

    for i in range(count):
        start(i, deliver(Message(initial, 0)))
    evaluate()
    while arrived < trips:
        due = sorted(entry for entry in pending if entry[0] <= arrived)
        if not due and not clock:
            due = [min(pending)]  # every other client waits for this one
            trace.forced += 1
        for entry in due:
            pending.remove(entry)
            heapq.heappush(clock, (now, *entry[1:]))
        now, _, i = heapq.heappop(clock)

        client = clients[i]
        client.load(base[i].payload)
        client.train(local_epochs, done[i])
        own[i], reports[i] = client.parameters(), method.report(client)
        arrival = Arrival(now, i, done[i], base[i].version, own[i], reports[i])
        trace.arrivals.append(arrival)
        queue.append((Upload(i, base[i], own[i], reports[i]), arrival))
        done[i] += 1
        arrived += 1
        training[i] = False
        trace.bytes_up += 4 * (model_size + method.extra_up)

        if answers_cached and inbox[i] is not None:
            message, inbox[i] = inbox[i], None
            start(i, message)
        if answers_at_once:
            start(i, deliver(Message(method.model, version)))
        if len(queue) >= buffer:
            batch, queue = queue, []
            version += 1
            for upload, used in batch:
                used.staleness = version - 1 - upload.base.version
            step = method.step([upload for upload, _ in batch], version)
            trace.steps.append(ServerStep(version, tuple(upload.client for upload, _ in batch), step))
            for j, message in (step.pushes if answers_at_once else step.replies | step.pushes).items():
                deliver(message)
                if training[j]:
                    inbox[j] = message
                else:
                    start(j, message)
        if arrived % eval_every == 0:
            evaluate()
    trace.unused = len(queue)
    return trace
