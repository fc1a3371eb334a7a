"""Tensor-level code that knows no method.

Shapes in signatures: ``Float[Tensor, "S C P"]`` is a tensor of real numbers with these dimensions, ``Int`` and ``Bool`` likewise.

S seeds, C clients, B = S C replicas, k of these in a batch, P scalars of a model, n nodes (padded), T training nodes or evaluation
points, F features, Y classes; a number is a length, ``...`` is any dimensions. One dimension is written with a space, ``" P"``,
so that linters do not take it for a name. Nothing checks them when a program runs.
"""

# The notation is jaxtyping's, whose names are these aliases to a type checker too. Without its run-time checks the package adds nothing.
from typing import Annotated as Bool
from typing import Annotated as Float
from typing import Annotated as Int

__all__ = ["Bool", "Float", "Int"]
