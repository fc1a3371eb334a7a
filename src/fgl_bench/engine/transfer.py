"""From the host to the device, without waiting for it, and back."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def put(values: np.ndarray | Sequence[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """``values`` on the device: small arrays that a round needs, such as indices, weights and masks.

    A plain copy to a GPU waits until it has done everything before. A copy from pinned memory takes its place in the queue, and torch does
    not use the memory again before it is done.
    """
    host = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.as_tensor(values)
    host = host.to(dtype or host.dtype)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def put_all(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Arrays ``[*]`` of int64 on the device; to a GPU they go in one copy."""
    if device.type != "cuda":
        return [put(array, device) for array in arrays]
    return list(put(np.concatenate(arrays), device).split([array.size for array in arrays]))


def copy_(to: Sequence[Tensor], of: Sequence[Tensor]) -> None:
    """Copy every tensor of ``of`` to the corresponding tensor of ``to``; on a GPU in one kernel."""
    if to:
        torch._foreach_copy_(list(to), list(of))


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """``[k, ...]`` tensors by name as arrays; the device is waited for once."""
    if len(tensors) < 2 or len({tensor.dtype for tensor in tensors.values()}) > 1:
        return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
    flat = torch.cat([tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None] for tensor in tensors.values()], 1).cpu().numpy()
    widths = np.cumsum([math.prod(tensor.shape[1:]) for tensor in tensors.values()])[:-1]
    pieces = np.split(flat, widths, axis=1)
    return {name: piece.reshape(tensor.shape) for (name, tensor), piece in zip(tensors.items(), pieces, strict=True)}


def clock(device: torch.device) -> float:
    """Seconds, after synchronizing with the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
