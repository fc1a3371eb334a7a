"""Shared settings: one thread, since small tensors lose time to more."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
