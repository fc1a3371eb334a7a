"""Composing configurations as the command line does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

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


def composed(overrides: Iterable[str], folders: Iterable[Path] = ()) -> DictConfig:
    """The configuration of one command."""
    with Composer(folders) as compose:
        return compose(overrides)
