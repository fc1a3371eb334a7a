"""Composing configurations as the command line does."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.utils import setup_globals
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from fgl_bench.config.choices import config_folder
from fgl_bench.config.groups import COMMAND
from fgl_bench.config.schema import register_all
from fgl_bench.config.values import check_lengths
from fgl_bench.utils.processes import quoted

COMPOSING = threading.RLock()
"""Held while Hydra composes: its version base is one for the whole process."""


class Composer:
    """Composes configurations as the command line would, without Hydra's global state: other applications of Hydra keep theirs.

    Args:
        folders: groups of a user's own, as ``--config-dir`` names them.
    """

    def __init__(self, folders: Iterable[Path] = ()):
        self.folders = [Path(folder).resolve() for folder in folders]
        urls = ",".join(quoted(f"file://{folder}") for folder in self.folders)
        self.always = ["hydra.job.name=fgl-bench", *([f"hydra.searchpath=[{urls}]"] if urls else [])]
        with COMPOSING:
            setup_globals()
            register_all(ConfigStore.instance())
            self.loader = ConfigLoaderImpl(create_config_search_path(str(config_folder())))

    def __call__(self, overrides: Iterable[str]) -> DictConfig:
        cfg = self.whole(overrides)
        with open_dict(cfg):
            del cfg["hydra"]
        return cfg

    def whole(self, overrides: Iterable[str]) -> DictConfig:
        """The configuration with Hydra's own group ``hydra``."""
        overrides = list(overrides)
        check_lengths(overrides)
        with COMPOSING:
            base = version.getbase()
            version.setbase("1.3")
            try:
                return self.loader.load_configuration("config", [*self.always, *overrides], RunMode.RUN, from_shell=False)
            finally:
                version.VersionBase.instance().version_base = base

    def remember_files(self) -> None:
        """Read every file once, for many compositions: Hydra reads them anew in each."""
        self.loader.repository = Remembering(self.loader.get_search_path())


class Remembering(ConfigRepository):
    """Hydra's files, each read once. Hydra copies the repository for every composition; the copies share what was read."""

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        super().initialize_sources(config_search_path)
        self.read: dict[str, ConfigResult | None] = {}
        self.found: dict[tuple[str, ObjectType | None], ConfigSource | None] = {}

    def __deepcopy__(self, memo: object) -> Remembering:
        return copy.copy(self)

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self.read:
            self.read[config_path] = super().load_config(config_path)
        return copy.deepcopy(self.read[config_path])  # which Hydra changes while it composes

    def _find_object_source(self, config_path: str, object_type: ObjectType | None) -> ConfigSource | None:
        if (config_path, object_type) not in self.found:
            self.found[config_path, object_type] = super()._find_object_source(config_path, object_type)
        return self.found[config_path, object_type]


@contextmanager
def as_command(overrides: Sequence[str], folders: Iterable[Path] = (), replaced: Iterable[str] = ()) -> Iterator[DictConfig]:
    """The configuration that ``fgl-bench OVERRIDES`` has; while it is in use, choices are called what they are called there.

    Args:
        replaced: groups whose choice is going to be another one, which is called by its class.
    """
    whole = Composer(folders).whole(overrides)
    with read_write(whole):
        whole.hydra.runtime.choices.update(dict.fromkeys(replaced))
    before = COMMAND.set(whole.hydra)
    try:
        yield OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])
    finally:
        COMMAND.reset(before)


def composed(overrides: Iterable[str], folders: Iterable[Path] = ()) -> DictConfig:
    """The configuration of one command."""
    return Composer(folders)(overrides)
