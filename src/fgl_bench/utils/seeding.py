"""Named random axes: every stochastic choice draws from its own stream, hashed from (seed, axis names)."""

from __future__ import annotations

import hashlib

import numpy as np


def derive_seed(seed: int, *axis: str | int) -> int:
    """A 63-bit seed for the stream called ``axis`` of the repetition ``seed``.

    Hashing keeps neighboring main seeds apart (METIS, for one, treats its seeds 0 and 1 alike) and makes streams
    independent of how many draws another one has made.
    """
    text = "/".join(str(part) for part in (int(seed), *axis))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *axis: str | int) -> np.random.Generator:
    """A numpy generator for the stream called ``axis`` of the repetition ``seed``."""
    return np.random.default_rng(derive_seed(seed, *axis))
