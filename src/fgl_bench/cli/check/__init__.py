"""Checks the promises of any method, backbone or split on a small generated graph: ``fgl-bench check my_method.py``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fgl_bench.cli.check import backbones, methods, splits
from fgl_bench.cli.check.methods import PROMISES as PROMISES
from fgl_bench.cli.check.subject import find
from fgl_bench.errors import UserError

EXAMINE = {"algorithm": methods.examine, "model": backbones.examine, "split": splits.examine}


def run(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """Check a method, a backbone or a split; exit status 1 if a check fails."""
    if not arguments or "=" in arguments[0]:
        raise UserError("check what? such as fgl-bench check my_method.py, fgl-bench check fedavg, or fgl-bench check model/gat")
    sys.exit(examine(arguments[0], arguments[1:], folders))


def examine(name: str, overrides: Sequence[str], folders: Sequence[Path] = ()) -> int:
    """Run every check on the class in the file ``name`` (``FILE.py`` or ``FILE.py:Class``), or on a choice (``fedavg``, ``model/gat``).

    Args:
        folders: folders of user groups, as in ``--config-dir``.

    Returns:
        0, or 1 if a check fails; prints a line for each.

    Raises:
        UserError: the class or choice does not exist, or a key is wrong.
    """
    subject = find(name, folders)
    with tempfile.TemporaryDirectory(prefix="fgl-bench-") as scratch:
        return EXAMINE[subject.group](subject, [*overrides, f"cache_dir='{scratch}'", f"results_dir='{scratch}'"], folders)
