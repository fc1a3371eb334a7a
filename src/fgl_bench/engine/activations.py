"""What a training step holds of every node. docs/memory.md explains the numbers."""

from __future__ import annotations

from typing import NamedTuple


class Activations(NamedTuple):
    """What one training step holds of every node, in scalars.

    Attributes:
        kept: until the backward pass has used it: of a hidden unit what is activated, its activation, the mask and the product of both.
        passing: the widest result of an operation.
    """

    kept: int
    passing: int


# What a step takes of memory for a scalar that is kept, and for one of the widest result (which has copies, gradients and holes
# around it that no other block fits). Measured, see docs/memory.md.
KEPT, PASSING = 0.8, 6.0


def activation_bytes(nodes: int, activations: Activations, itemsize: int) -> int:
    """Bytes per replica of one training step's activations, their gradients and dropout masks, for n padded nodes."""
    return int(nodes * (KEPT * activations.kept + PASSING * activations.passing) * itemsize)
