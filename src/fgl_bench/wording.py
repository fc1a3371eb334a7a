"""Turning the errors of Hydra and OmegaConf into one line that says what is wrong, which key, and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException, ValidationError

from fgl_bench.errors import UserError

MOST_LINES = 6
NOISE = re.compile(r"^\s*(full_key|object_type|reference_type|ref_type)\s*[:=]")


def explain(error: BaseException) -> str | None:
    """The message for an error that a person can fix, or None for one that is a fault of the program.

    The error's causes are looked at too, the innermost that is understood wins.
    """
    if isinstance(error, UserError):
        return str(error)
    if not isinstance(error, (HydraException, OmegaConfBaseException)):
        return None
    override = re.match(r"Error merging override (.*)", str(error))
    for cause in reversed(list(causes(error))):
        for kind, say in WORDINGS.items():
            if isinstance(cause, kind):
                text = say(cause)
                return f"{override[1]}: {text}" if override and isinstance(cause, ValidationError) else text
    return plain(error)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def missing_choice(error: MissingConfigException) -> str:
    """``dataset=nope: there is no such dataset; choose one of ...``."""
    group, _, name = str(error.missing_cfg_file or "").rpartition("/")
    if not group:
        return plain(error)
    options = [option for option in error.options or () if not option.startswith(("schema", "README"))]
    nested = [option for option in nested_choices(group) if option not in options]
    return f"{group}={name}: there is no such {group}{suggest(name, [*options, *nested])}"


def nested_choices(group: str) -> list[str]:
    """Choices of ``group`` that lie in folders of it (``experiment=<paper>/<table>``)."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.object_type import ObjectType

    if not GlobalHydra.instance().is_initialized():
        return []
    loader = GlobalHydra.instance().config_loader()
    folders = [folder for folder in loader.get_group_options(group, ObjectType.GROUP) if folder != "sparsity"]  # a group itself
    return [f"{folder}/{name}" for folder in folders for name in loader.get_group_options(f"{group}/{folder}")]


def unknown_key(error: ConfigKeyError) -> str:
    """``algorithm.mue: unknown key; did you mean mu? allowed: ...``."""
    parent = error.parent_node
    key = str(error.full_key or error.key)
    allowed = [str(name) for name in parent if name != "hydra"] if isinstance(parent, DictConfig) else []
    return f"{key}: unknown key{suggest(str(error.key), allowed)}"


def suggest(name: str, allowed: Iterable[str]) -> str:
    """``; did you mean x? allowed: a, b, x`` as far as there is something to say."""
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1)
    return (f"; did you mean {near[0]}?" if near else ";" if names else "") + (f" allowed: {', '.join(names)}" if names else "")


def wrong_type(error: ValidationError) -> str:
    """OmegaConf's first line, in a reader's words."""
    text = next(iter(str(error).splitlines()), "")
    text = re.sub(r"^Value '(.*)' of type '(\w+)' could not be converted to (\w+)$", r"'\1' is not of type \3", text)
    text = re.sub(r"of type (Float|Integer|Boolean|String)$", lambda found: "a valid " + KINDS[found[1]], text).replace("not a valid", "not")
    key = str(error.full_key or "")
    return text if not key or key in text else f"{text} (key {key})"


KINDS = {"Float": "a number", "Integer": "an integer", "Boolean": "true or false", "String": "a string"}


def unreadable(error: OverrideParseException) -> str:
    """What the person typed, and what Hydra's grammar wants."""
    return f"cannot read '{error.override}': expected key=value (quote a value with special characters: 'key=\"a b\"')"


def plain(error: BaseException) -> str:
    """The error's own words and its cause's, without OmegaConf's technical lines, cut to a few lines."""
    lines = [line.strip() for part in causes(error) for line in str(part).splitlines() if line.strip() and not NOISE.match(line)]
    return "\n".join(dict.fromkeys(lines[:MOST_LINES]))


def interpolation(error: OmegaConfBaseException) -> str:
    return f"{error.full_key}: {plain(error)}" if error.full_key else plain(error)


WORDINGS = {
    UserError: str,
    MissingConfigException: missing_choice,
    OverrideParseException: unreadable,
    ConfigKeyError: unknown_key,
    ValidationError: wrong_type,
    OmegaConfBaseException: interpolation,
}
