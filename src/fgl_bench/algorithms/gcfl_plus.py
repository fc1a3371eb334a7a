"""GCFL+."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fgl_bench.algorithms.base import Setting, Traffic
from fgl_bench.algorithms.gcfl import ClusteredAveraging, Evidence
from fgl_bench.engine.mixing import Mixing
from fgl_bench.engine.trips import LocalStep, Trips
from fgl_bench.errors import Range, at_least


@dataclass
class GCFLPlus(ClusteredAveraging):
    """GCFL with cuts along the clients' series of gradient norms (Xie et al., NeurIPS 2021).

    Client i also reports the gradient norm of its last step. The server computes dynamic-time-warping distances of the last d norms;
    ``w_ij = max(DTW) - DTW_ij`` inside the cluster. No cluster is split before every client has d norms, and a split clears all
    series of the seed (so at most one cluster is split per round).

    Resolutions: DTW is the root of the least sum of squares along a monotone path; equal series give no weights, and the cluster
    stays; the gradient excludes weight decay. An absent client keeps its series.

    Attributes:
        sequence: d, number of norms to compare.
        standardize: divide every series by its standard deviation (a constant one stays).
    """

    by_clients: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {"sequence": at_least(1)}

    sequence: int
    standardize: bool

    def prepare(self, setting: Setting) -> None:
        super().prepare(setting)
        self._norm: Tensor  # norm of every client's last gradient
        # The last d norms, the newest last; padded with NaN.
        shape = (len(setting.seeds), setting.num_clients, self.sequence)
        self.series = torch.full(shape, torch.nan, dtype=torch.float64, device=setting.batch.device)

    def correct_gradient(self, step: LocalStep, gradient: Tensor) -> Tensor:
        norm = self.part(gradient).norm(dim=1)
        # With mini-batches, some clients take no part in the last steps.
        self._norm = torch.where(step.batch.valid.any(1), norm, self._norm) if step.epoch else norm
        return gradient

    def report(self, trips: Trips) -> dict[str, Tensor]:
        return {**super().report(trips), "norm": self._norm}

    def evidence(self, reports: dict[str, Tensor], arrived: Tensor) -> dict[str, Tensor]:
        return {**super().evidence(reports, arrived), "series": self.series}

    def mix(self, reports: dict[str, Tensor], arrived: Tensor) -> Mixing:
        longer = torch.cat([self.series[..., 1:], reports["norm"].double()[..., None]], 2)
        self.series = torch.where(arrived[..., None], longer, self.series)
        return super().mix(reports, arrived)

    def likeness(self, members: np.ndarray, evidence: Evidence) -> np.ndarray | None:
        if np.isnan(evidence["series"]).any():
            return None
        series = evidence["series"][members]
        if self.standardize:
            spread = series.std(1, keepdims=True)
            series = series / np.where(spread > 0, spread, 1.0)
        distance = warping_distances(series)
        return distance.max() - distance

    def after_split(self, seed: int) -> bool:
        self.series[seed] = torch.nan
        return False

    def traffic(self) -> Traffic:
        upload, download, _ = super().traffic()
        return Traffic({**upload, "norm": 1}, download)


def warping_distances(series: np.ndarray) -> np.ndarray:
    """Return dynamic-time-warping distances ``[n, n]`` of ``series [n, d]``: the root of the least sum of squares on a monotone path."""
    n, length = series.shape
    cost = (series[:, None, :, None] - series[None, :, None, :]) ** 2
    total = np.full((length + 1, length + 1, n, n), np.inf)
    total[0, 0] = 0.0
    for a in range(length):
        for b in range(length):
            total[a + 1, b + 1] = cost[:, :, a, b] + np.minimum(np.minimum(total[a, b], total[a, b + 1]), total[a + 1, b])
    return np.sqrt(total[length, length])
