"""The least time that a seed's round can take: bytes that must move and operations that must be done, over measured rates.

A round is cut into passes, none of which can begin before the one it depends on has ended: products, the optimizer, the
average. A pass reads each of its operands once and writes its result once, and repeated reads of gathered rows are free
(a perfect cache), element-wise work is fused into its neighbors. A pass takes the longer of its bytes over the copy
rate and its operations over the matrix product's rate. The floor is their sum. Sparse products cannot reach the rate of a
dense one and gather rows from memory, so a distance of several times is the price of sparsity, not waste.

With C clients of n nodes in all, x features that are not zero (all of them where features are dense), e entries of the
adjacency with self loops, h hidden units, Y classes, P parameters, b bytes a scalar and four bytes an index:

    pass                        operations    bytes
    X W0                        2 x h         x (4 + b) + C P b + n h b           read X and the weights, write
    A (X W0), bias              2 e h         e (4 + b) + 2 n h b
    ReLU, dropout, H W1         2 n h Y       2 n h b + n Y b                     H is kept for the backward pass
    A (H W1), loss              2 e Y         e (4 + b) + 2 n Y b
    backward of the two         4 n h Y + 2 e Y    e (4 + b) + 3 n Y b + 3 n h b  dW1 needs H, dH is written
    backward of A (X W0)        2 e h         e (4 + b) + 2 n h b
    backward of X W0            2 x h         x (4 + b) + n h b + C P b           write the gradient
    Adam                        12 C P        7 C P b                             read four stacks, write three
    evaluating what was received  2 n h Y + 2 e Y   n h b + e (4 + b) + 3 n Y b   the first layer is shared with training
    evaluating what was trained   2 x h + 2 e h + 2 n h Y + 2 e Y   both layers' forward bytes
    average (rank one)          2 C P         2 C P b                             read what was trained, write what is received
    average (C x C)             2 C C P       2 C P b
    reports                     k propagations of n Y labels, 2 e Y operations and e (4 + b) + 2 n Y b bytes each

A semi-asynchronous server keeps every upload and sends every client's model by itself: C P b more to write and to read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Sizes of one seed's round; the letters are the ones above, ``epochs`` the local epochs."""

    clients: int
    nodes: int
    features: int
    entries: int
    hidden: int
    classes: int
    parameters: int
    dense: bool = False
    itemsize: int = 4
    epochs: int = 1


@dataclass(frozen=True)
class Pass:
    name: str
    flops: float
    bytes: float

    def seconds(self, copy_rate: float, flop_rate: float) -> float:
        return max(self.bytes / copy_rate, self.flops / flop_rate)


def training(s: Sizes) -> list[Pass]:
    """The passes of one local epoch, optimizer included."""
    b, nh, ny, weights = s.itemsize, s.nodes * s.hidden, s.nodes * s.classes, s.clients * s.parameters * s.itemsize
    matrix, features = s.entries * (4 + b), s.features * (b if s.dense else 4 + b)
    return [
        Pass("X W0", 2 * s.features * s.hidden, features + weights + nh * b),
        Pass("A (X W0)", 2 * s.entries * s.hidden, matrix + 2 * nh * b),
        Pass("H W1", 2 * nh * s.classes, 2 * nh * b + ny * b),
        Pass("A (H W1), loss", 2 * s.entries * s.classes, matrix + 2 * ny * b),
        Pass("backward of A (H W1)", 4 * nh * s.classes + 2 * s.entries * s.classes, matrix + 3 * ny * b + 3 * nh * b),
        Pass("backward of A (X W0)", 2 * s.entries * s.hidden, matrix + 2 * nh * b),
        Pass("backward of X W0", 2 * s.features * s.hidden, features + nh * b + weights),
        Pass("Adam", 12 * s.clients * s.parameters, 7 * weights),
    ]


def evaluation(s: Sizes) -> list[Pass]:
    """Scoring both models of every client."""
    b, nh, ny = s.itemsize, s.nodes * s.hidden, s.nodes * s.classes
    second = Pass("second layer, received", 2 * nh * s.classes + 2 * s.entries * s.classes, nh * b + s.entries * (4 + b) + 3 * ny * b)
    forward = training(s)[:4]
    return [second, *(Pass(f"{p.name}, trained", p.flops, p.bytes) for p in forward)]


def average(s: Sizes, dense: bool) -> list[Pass]:
    rows = s.clients if dense else 1
    return [Pass("average", 2 * rows * s.clients * s.parameters, 2 * s.clients * s.parameters * s.itemsize)]


def reports(s: Sizes, steps: int) -> list[Pass]:
    ny = s.nodes * s.classes
    return [Pass("report", steps * 2 * s.entries * s.classes, steps * (s.entries * (4 + s.itemsize) + 2 * ny * s.itemsize))]


def uploads(s: Sizes) -> list[Pass]:
    return [Pass("uploads", 0, 2 * s.clients * s.parameters * s.itemsize)]


# What a method does besides training and evaluating; a method not named here is given the cheapest, a rank-one average.
EXTRAS: dict[str, Callable[[Sizes], list[Pass]]] = {
    "fedavg": lambda s: average(s, dense=False),
    "fedgta": lambda s: average(s, dense=True) + reports(s, steps=5),
    "fedsa_gcl": lambda s: average(s, dense=True) + reports(s, steps=6) + uploads(s),
}


def passes(algorithm: str, s: Sizes, evaluate: bool = True) -> list[Pass]:
    """Everything that one seed's round must do."""
    return s.epochs * training(s) + EXTRAS.get(algorithm, EXTRAS["fedavg"])(s) + (evaluation(s) if evaluate else [])


def floor(algorithm: str, s: Sizes, copy_rate: float, flop_rate: float, evaluate: bool = True) -> float:
    """Seconds."""
    return sum(step.seconds(copy_rate, flop_rate) for step in passes(algorithm, s, evaluate))


def copy_rate(size: int, device, wait: Callable[[], None], budget: float = 0.3) -> float:
    """Bytes read plus bytes written per second, copying ``size`` bytes; a stack that fits the cache is copied from there."""
    import torch

    source = torch.ones(max(size // 4, 1024), device=device)  # pages of zeros need not exist
    target = torch.ones_like(source)
    return 2 * source.numel() * 4 / best(lambda: target.copy_(source), wait, budget)


def flop_rate(device, wait: Callable[[], None], n: int = 1024, budget: float = 0.5) -> float:
    """Operations per second of a dense ``n x n`` product in single precision."""
    import torch

    a, c = torch.ones(n, n, device=device), torch.empty(n, n, device=device)
    return 2 * n**3 / best(lambda: torch.mm(a, a, out=c), wait, budget)


def best(work: Callable[[], object], wait: Callable[[], None], budget: float) -> float:
    """Seconds of the quickest of as many calls of ``work`` as fit ``budget`` seconds: a floor takes the machine at its best."""
    seconds, end = [], time.perf_counter() + budget
    work()
    wait()
    while len(seconds) < 10 or time.perf_counter() < end:
        begin = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
