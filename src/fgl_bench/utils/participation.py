"""How many clients take part in a round."""

from __future__ import annotations


def participants(participation: float, clients: int) -> int:
    """``participation`` times ``clients``, rounded, and at least one."""
    return max(1, round(participation * clients))
