"""Composing many configurations that have parts in common, such as the thousands of runs of the papers' tables.

Hydra takes a tenth of a second for a configuration. Those of a plan differ in the choice of a group or in a few values. So every part (what
stands below ``algorithm``, ``model``, ``split`` and so on, and the single keys at the top) is composed by Hydra once for each choice, and
values are set in a copy of it as Hydra sets them. What cannot be taken apart for certain is composed by Hydra as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fgl_bench.config.choices import GROUPS, config_folder
from fgl_bench.config.compose import Composer
from fgl_bench.config.groups import label
from fgl_bench.config.schema import paper_of
from fgl_bench.errors import UserError

ROOTS = tuple(group for group in GROUPS if "/" not in group and group != "experiment")
REFUSALS = (UserError, HydraException, OmegaConfBaseException)  # what composing raises
TOP = ""  # the part of the single keys
BY_DATASET = "by_dataset"
OF_METHOD = "override /scenario@_global_.scenario"  # the one choice outside of its own group that a file may make


class Entangled(Exception):
    """A configuration that cannot be taken apart by groups."""


@dataclass(frozen=True)
class Configured:
    """A composed configuration, resolved.

    Attributes:
        plain: nested dictionaries and lists. Other configurations share them: read only.
        names: what each group's choice is called, see :func:`fgl_bench.config.groups.label`.
    """

    plain: Mapping[str, Any]
    names: Mapping[str, str]

    @property
    def settings(self) -> SimpleNamespace:
        """The single keys."""
        return SimpleNamespace(**{key: value for key, value in self.plain.items() if key not in ROOTS})


@dataclass(frozen=True)
class Said:
    """What the file of a choice says outside of its own place.

    Attributes:
        roots: the groups whose choices or keys a preset sets.
        scenario: what a method is made for.
        same: the choice of the preset that this one repeats, word by word.
    """

    roots: frozenset[str] = frozenset()
    scenario: str | None = None
    same: str | None = None


Key = tuple[str | None, ...]  # what a part depends on besides values: its group, the preset where it sets something of it, choices


class Parts:
    """Composes what its ``composer`` would, every part once; files are read once."""

    def __init__(self, composer: Composer):
        self.composer = composer
        composer.remember_files()
        self.composed: dict[Key, DictConfig] = {}
        self.changed: dict[tuple[Key, tuple[str, ...]], tuple[Any, str]] = {}
        self.said: dict[tuple[str, str], Said] = {}

    def __call__(self, overrides: Sequence[str]) -> Configured:
        """The configuration that ``fgl-bench OVERRIDES`` has."""
        return self._made(overrides)

    def _made(self, overrides: Sequence[str]) -> Configured:
        try:
            choices, values = apart(overrides)
            keys = self._keys(choices)
            if not all(key in self.composed for key in keys.values()):
                self._compose(choices)
            parts = {root: self._with(root, key, tuple(values[root])) for root, key in keys.items()}
        except (Entangled, OmegaConfBaseException):  # Hydra composes it, or says what is wrong
            return whole(self.composer(overrides))
        plain = {**parts[TOP][0], **{root: parts[root][0] for root in ROOTS}}
        return Configured(plain, {root: parts[root][1] for root in ROOTS})

    def expect(self, many: Iterable[Sequence[str]]) -> None:
        """Compose what these configurations are made of, in as few compositions as can be told."""
        wanted: dict[tuple[Key, ...], dict[str, list[str]]] = {}
        free: dict[str, dict[Key, list[str]]] = {root: {} for root in ROOTS}
        for overrides in many:
            with suppress(Entangled, HydraException):
                choices, _ = apart(overrides)
                keys = self._keys(choices)
                wanted[tuple(keys.values())] = choices
                for root in ROOTS:
                    if keys[root][1] is None:
                        free[root][keys[root]] = choices.get(root, [])
        for choices in wanted.values():
            with suppress(Entangled, HydraException):
                keys = self._keys(choices)
                if all(key in self.composed for key in keys.values()):
                    continue
                for root, others in free.items():  # in the place of a part that is there already, one that is not
                    missing = (texts for key, texts in others.items() if key not in self.composed)
                    if keys[root][1] is None and keys[root] in self.composed and (texts := next(missing, None)) is not None:
                        choices = {**choices, root: texts}
                self._compose(choices)

    def _keys(self, choices: Mapping[str, Sequence[str]]) -> dict[str, Key]:
        """What each part depends on."""
        preset: str | None = None
        touched: frozenset[str] = frozenset()
        for text in choices.get("experiment", ()):
            said = self._said_by(text)
            preset, touched = said.same or text, said.roots
        goes_along, also = self._with_dataset(choices)
        of_choices = {root: [self._said_by(text) for text in choices.get(root, ())] for root in ROOTS}
        made_for = tuple(said.scenario for said in of_choices["algorithm"]) if "algorithm" in choices else ("", preset)
        presets = {root: preset if root in (TOP, *touched) else None for root in (TOP, *ROOTS)}
        presets |= {root: f"{presets[root]} {goes_along}" for root in also}
        keys: dict[str, Key] = {root: (root, presets[root], *choices.get(root, ())) for root in (TOP, *ROOTS)}
        return {**keys, "scenario": (*keys["scenario"], *made_for)}

    def _with_dataset(self, choices: Mapping[str, Sequence[str]]) -> tuple[str, frozenset[str]]:
        """The file of ``by_dataset`` that the paper has for the data set, and the parts that depend on it; none without such a file."""
        presets = [str(parsed(text).value()) for text in choices.get("experiment", ())]
        folder = config_folder() / BY_DATASET / paper_of(presets[-1] if presets else None)
        if not folder.is_dir():
            return "", frozenset()
        if "dataset" not in choices:
            raise Entangled("the data set is the default")
        name = str(parsed(choices["dataset"][-1]).value())
        if not (folder / f"{name}.yaml").is_file():
            return "", frozenset()
        return f"{folder.name}/{name}", self._said(BY_DATASET, f"{folder.name}/{name}").roots | {TOP, "dataset"}

    def _compose(self, choices: Mapping[str, Sequence[str]]) -> None:
        """Let Hydra compose these choices and take its configuration apart."""
        texts = [text for part in choices.values() for text in part]
        cfg = self.composer.whole(texts)
        for group, choice in cfg.hydra.runtime.choices.items():
            if group.partition("@")[0] in GROUPS and choice is not None:
                self._said(group.partition("@")[0], choice)
        for root, key in self._keys(choices).items():
            # A masked copy would forget the types of single keys, which stand in the configuration's own schema.
            part = OmegaConf.masked_copy(cfg, root) if root else cfg.copy()
            OmegaConf.set_struct(part, False)
            for name in () if root else (*ROOTS, "hydra"):
                del part[name]
            OmegaConf.set_struct(part, True)
            self.composed[key] = part

    def _said_by(self, text: str) -> Said:
        override = parsed(text)
        return self._said(override.key_or_group, str(override.value()))

    def _said(self, group: str, choice: str) -> Said:
        if (group, choice) not in self.said:
            self.said[group, choice] = of_file(group, choice)
        return self.said[group, choice]

    def _with(self, root: str, key: Key, values: tuple[str, ...]) -> tuple[Any, str]:
        """A part with these values set, resolved, and its name."""
        if (key, values) not in self.changed:
            cfg = self.composed[key].copy()
            for text in values:
                OmegaConf.update(cfg, parsed(text).key_or_group, parsed(text).value(), merge=True)
            plain = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))
            self.changed[key, values] = (plain[root], label(cfg, root)) if root else (plain, "")
        return self.changed[key, values]


def apart(overrides: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Overrides that choose and overrides that set a value, by group; raises Entangled where one does something else."""
    choices: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {root: [] for root in (TOP, *ROOTS)}
    for text in overrides:
        key = parsed(text).key_or_group
        if key in GROUPS:
            choices.setdefault(key.partition("/")[0], []).append(text)
        else:
            root = key.partition(".")[0]
            values[root if root in ROOTS else TOP].append(text)
    return choices, values


def whole(cfg: DictConfig) -> Configured:
    """A configuration that Hydra has composed."""
    plain = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))
    return Configured(plain, {root: label(cfg, root) for root in ROOTS})


@cache
def parsed(text: str) -> Override:
    """An override that chooses from a group or sets a value; raises Entangled where it does something else."""
    override = OverridesParser.create().parse_override(text)
    simple = override.type is OverrideType.CHANGE and not override.is_sweep_override() and not override.is_hydra_override()
    if not simple or "${" in text or (override.package is not None and override.key_or_group not in GROUPS):
        raise Entangled(text)
    if override.key_or_group in GROUPS and not isinstance(override.value(), str):
        raise Entangled(text)
    return override


def of_file(group: str, choice: str) -> Said:
    """What a choice's file, and those that it is made from, say of other parts.

    Raises:
        Entangled: more than can be kept apart.
    """
    path = config_folder() / group / f"{choice}.yaml"
    if not path.is_file():
        raise Entangled(f"{group}={choice}")
    text = path.read_text(encoding="utf-8")
    content = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    roots, scenario = {key for key in content if key in ROOTS}, None
    if group not in ("experiment", BY_DATASET) and "@package" in text:
        raise Entangled(f"{group}={choice}")
    for entry in content.get("defaults", []):
        if isinstance(entry, str):
            if entry != "_self_":
                roots |= of_file(group, entry.removeprefix(f"/{group}/")).roots
            continue
        [(key, value)] = entry.items()
        if group == "experiment" and key.startswith("override /"):
            roots.add(key.removeprefix("override /").partition("@")[0].partition("/")[0])
        elif group == "algorithm" and key == OF_METHOD:
            scenario = value
        elif value is not None:
            raise Entangled(f"{group}={choice}")
    parents = [entry for entry in content.get("defaults", []) if entry != "_self_"]
    repeats = group == "experiment" and list(content) == ["defaults"] and len(parents) == 1 and isinstance(parents[0], str)
    return Said(frozenset(roots), scenario, (of_file(group, parents[0]).same or f"{group}={parents[0]}") if repeats else None)
