"""The oracle of the plan: where a configuration that was composed whole is stored."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from fgl_bench.config.parts import whole
from fgl_bench.papers.plan import placed


def located(cfg: DictConfig) -> tuple[str, Path, dict]:
    """As :func:`fgl_bench.papers.plan.placed`."""
    return placed(whole(cfg))
