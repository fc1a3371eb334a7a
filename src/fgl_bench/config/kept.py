"""Composed configurations in a file, so that a plan of thousands of runs is composed once and read afterwards."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fgl_bench.config.choices import config_folder
from fgl_bench.utils.files import write_whole

SEPARATOR = "\n"  # no override has one
OLDEST = 8  # files of other states of the package that stay


class Kept:
    """Configurations by their overrides, from ``configurations_<state>.json`` in a folder; without a folder nothing is kept.

    The state covers the package's source and configuration, Hydra's and OmegaConf's versions and the environment that configurations
    refer to. A file that is damaged, or cannot be written, costs the time of composing.
    """

    def __init__(self, folder: Path | None):
        self.path = None if folder is None else folder / f"configurations_{state()}.json"
        self.found: dict[str, Any] = {}
        self.new = False
        if self.path is not None:
            with suppress(OSError, ValueError):
                found = json.loads(self.path.read_text(encoding="utf-8"))
                self.found = found if isinstance(found, dict) else {}

    def get(self, overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]] | None:
        """The resolved configuration and its names; others share them: read only."""
        pair = self.found.get(SEPARATOR.join(overrides))
        return (pair[0], pair[1]) if isinstance(pair, list) and len(pair) == 2 else None

    def add(self, overrides: Sequence[str], plain: Mapping[str, Any], names: Mapping[str, str]) -> None:
        if self.path is not None:
            self.found[SEPARATOR.join(overrides)] = [plain, names]
            self.new = True

    def write(self) -> None:
        """Write what is new; files of earlier states of the package go, but for a few."""
        if self.path is None or not self.new:
            return
        with suppress(OSError, TypeError):  # TypeError: a value that JSON does not know
            text = json.dumps(self.found)
            if json.loads(text) != self.found:  # keys that are numbers
                return
            write_whole(self.path, text)
            others = sorted(self.path.parent.glob("configurations_*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in others[OLDEST:]:
                path.unlink(missing_ok=True)


def state() -> str:
    """Changes with whatever a composed configuration may depend on."""
    content = hashlib.sha256(str([version("hydra-core"), version("omegaconf")]).encode())
    content.update(str(sorted((key, value) for key, value in os.environ.items() if key.startswith("FGL_BENCH_"))).encode())
    package = Path(__file__).parents[1]
    for folder, pattern in ((package, "*.py"), (config_folder(), "*.yaml")):
        for path in sorted(folder.rglob(pattern)):
            content.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()[:16]


def default_folder() -> Path:
    """Where the command line's default ``cache_dir`` is."""
    return Path(os.environ.get("FGL_BENCH_CACHE", "~/.cache/fgl-bench")).expanduser()
