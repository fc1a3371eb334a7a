"""Composing configurations as the command line does."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf, read_write

from fgl_bench.config.choices import config_folder
from fgl_bench.config.schema import register_all


class Composer:
    """Composes configurations as the command line would; a context manager, since Hydra keeps its state globally.

    Args:
        folders: groups of a user's own, as ``--config-dir`` names them.
    """

    def __init__(self, folders: Iterable[Path] = ()):
        urls = ",".join(f"'file://{Path(folder).resolve()}'" for folder in folders)
        self.search = [f"hydra.searchpath=[{urls}]"] if urls else []

    def __enter__(self) -> Composer:
        register_all(ConfigStore.instance())
        GlobalHydra.instance().clear()
        initialize_config_dir(version_base="1.3", config_dir=str(config_folder()))
        return self

    def __exit__(self, *_: object) -> None:
        GlobalHydra.instance().clear()

    def __call__(self, overrides: Iterable[str]) -> DictConfig:
        return compose("config", [*self.search, *overrides])

    def remember_files(self) -> None:
        """Read every file once, for many compositions: Hydra reads them anew in each."""
        loader = GlobalHydra.instance().config_loader()
        loader.repository = Remembering(loader.get_search_path())  # type: ignore[attr-defined]  # of Hydra's only loader


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
    known = HydraConfig.instance()
    with Composer(folders) as composer:
        earlier = known.cfg
        whole = compose("config", [*composer.search, *overrides], return_hydra_config=True)
        with read_write(whole):
            whole.hydra.runtime.choices.update(dict.fromkeys(replaced))
        known.set_config(whole)
        try:
            yield OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])
        finally:
            known.cfg = earlier


def composed(overrides: Iterable[str], folders: Iterable[Path] = ()) -> DictConfig:
    """The configuration of one command."""
    with Composer(folders) as compose:
        return compose(overrides)
