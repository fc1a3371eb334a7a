"""What a run was made on: seconds of a CPU and of a GPU say nothing about each other."""

from __future__ import annotations

from collections.abc import Mapping


def on_cpu(run: Mapping) -> bool:
    """Whether a CPU made the run that this summary or stored cell is of; one that does not say came from a CPU."""
    return str(run.get("device", "CPU")).startswith("CPU")


def marked(title: str, run: Mapping) -> str:
    """``title`` of something that is measured in seconds, with the device where it was no CPU."""
    return title if on_cpu(run) else f"{title} (GPU)"
