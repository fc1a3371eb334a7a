"""Composes configurations like the command line."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.core.utils import setup_globals
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from fgl_bench.config.choices import check_readable, config_folder
from fgl_bench.config.groups import COMMAND
from fgl_bench.config.own_classes import own_choices
from fgl_bench.config.schema import register_all
from fgl_bench.config.values import check_lengths
from fgl_bench.utils.processes import quoted

COMPOSING = threading.RLock()
"""Held while Hydra composes, since its version base is global."""


class Composer:
    """Composes configurations like the command line, without changing Hydra's global state.

    Args:
        folders: folders of user groups, as in ``--config-dir``.
    """

    def __init__(self, folders: Iterable[Path] = ()):
        check_readable()
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
        """Return the configuration including Hydra's group ``hydra``."""
        overrides = own_choices(mixed_choices(overrides))
        check_lengths(overrides)
        with COMPOSING:
            base = version.getbase()
            version.setbase("1.3")
            try:
                return self.loader.load_configuration("config", [*self.always, *overrides], RunMode.RUN, from_shell=False)
            finally:
                version.VersionBase.instance().version_base = base


def mixed_choices(arguments: Iterable[str]) -> list[str]:
    """Write ``model=[gcn,gat]`` as the choice ``model=gcn+gat``, which is made here: ``model.gcn`` and ``model.gat`` have the keys of each.

    A second ``gcn`` is ``model.gcn_2``.
    """
    written = []
    for text in arguments:
        if text.startswith("model="):
            text = re.sub(r"\[([\w,\s]+)\]", lambda found: re.sub(r"\s*,\s*", "+", found[1].strip()), text)
            for choice in re.findall(r"\w+(?:\+\w+)+", text):
                names = choice.split("+")
                keys = [name if name not in names[:i] else f"{name}_{1 + names[:i].count(name)}" for i, name in enumerate(names)]
                defaults = [{f"/model@{key}": name} for key, name in zip(keys, names, strict=True)]
                node = {"defaults": [*defaults, "_self_"], "_target_": "fgl_bench.models._mixed.mixed"}
                ConfigStore.instance().store(group="model", name=choice, node=node, provider="fgl-bench")
        written.append(text)
    return written


@contextmanager
def as_command(overrides: Sequence[str], folders: Iterable[Path] = (), replaced: Iterable[str] = ()) -> Iterator[DictConfig]:
    """Yield the configuration of ``fgl-bench OVERRIDES``; within the context, choices keep their names in the command.

    Args:
        replaced: groups whose choice will be replaced; it is then named by its class.
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
    """Return the configuration of one command."""
    return Composer(folders)(overrides)
