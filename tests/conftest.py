"""Shared settings: one thread, since small tensors lose time to more; no deadline for examples, since machines differ."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
