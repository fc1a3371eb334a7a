"""Converts errors of Hydra and OmegaConf to one line with the key, the error and the allowed values."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError
from yaml import MarkedYAMLError, YAMLError

from fgl_bench.config.choices import choices, config_folder, group_of, own_file, suggest
from fgl_bench.errors import UserError, raised_by_user

MOST_LINES = 6
STRATEGY = "algorithm@algorithm.strategy"
TECHNICAL = re.compile(r"^\s*(full_key|object_type|reference_type|ref_type)\s*[:=]")
LAUNCHERS = {"hydra/launcher/joblib": "joblib", "hydra/launcher/submitit_local": "slurm", "hydra/launcher/submitit_slurm": "slurm"}
NO_LIST = "must be a list"
KINDS = {"Float": "a number", "Integer": "an integer", "Boolean": "true or false", "String": "a string", "bool": "true or false"}


def explain(error: BaseException) -> str | None:
    """Return the message for an error that a user can fix, or None for a bug.

    The message describes the innermost known error among the causes.
    """
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ValueError) and is_hydras(error):
        return f"{error}; a group takes the name of one of its choices, such as dataset=cora" if "group" in str(error) else str(error)
    if (fault := fault_of_file(error)) is not None:
        return fault
    if not isinstance(error, (HydraException, OmegaConfBaseException)):
        return raised_by_user(error) or surroundings(error)
    override = re.match(r"Error merging override (.*)", str(error))
    for cause in reversed(list(causes(error))):
        for kind, say in WORDINGS.items():
            if isinstance(cause, kind):
                key = override[1] if override else str(getattr(cause, "full_key", None) or "")
                text = say(cause)
                if override and text == NO_LIST:
                    name, _, value = key.partition("=")
                    text += f", such as {name}=[{value}]"
                return f"{key}: {text}" if key and say in (wrong_type, plain) else text
    return plain(error)


def is_hydras(error: BaseException) -> bool:
    """Return True if Hydra raised the error; it uses a bare ValueError for some bad arguments."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return any(Path(frame.filename).parent.parts[-2:] == ("hydra", "_internal") for frame in last)


def fault_of_file(error: BaseException) -> str | None:
    """Return the reason why a configuration file cannot be read: ``conf/algorithm/mine.yaml, line 3: found character '\\t' ...``."""
    frames = [frame for cause in causes(error) for frame, _ in traceback.walk_tb(cause.__traceback__)]
    path = next((frame.f_locals.get("full_path") for frame in reversed(frames) if frame.f_code.co_name == "load_config"), None)
    fault = next((cause for cause in causes(error) if isinstance(cause, YAMLError | UnicodeDecodeError | RecursionError)), None)
    if path is None or not (fault or isinstance(error, OSError | ValueError | HydraException)):
        return None
    if isinstance(fault, MarkedYAMLError) and fault.problem_mark is not None:
        return f"{path}, line {fault.problem_mark.line + 1}: {fault.problem}"
    return f"{path}: cannot be read as yaml ({one_line(fault or error)})"


def surroundings(error: BaseException) -> str | None:
    """Return the message for an error of the machine, the disk or the installation; None for other errors."""
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "CUDA out of memory" in str(error):
        return f"there is not enough memory ({one_line(error)}); use less data, a smaller model or a smaller memory_budget_gb"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else one_line(error)
    if isinstance(error, ModuleNotFoundError):
        return f"{one_line(error)}; is it installed?"
    return None


def one_line(error: BaseException) -> str:
    """Return the error's message, or its type if it is empty."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def missing_choice(error: MissingConfigException) -> str:
    """Return ``dataset=nope: there is no such dataset; allowed: ...``."""
    path = str(error.missing_cfg_file or "")
    if path in LAUNCHERS:
        return f"hydra/launcher: {path.rpartition('/')[2]} is not installed: pip install 'fgl-bench[{LAUNCHERS[path]}]'"
    if path.startswith("schema/"):
        return f"/{path}: there are no schemas to name; take the line out of 'defaults', types are those of the class in _target_"
    group = group_of(path)
    name = path[len(group) + 1 :]
    if not group:
        return plain(error)
    known = {*choices(group), *(option for option in error.options or () if "+" not in option)}  # without lists of this command
    hint = own_file(group, name) or suggest(name, known)
    return f"{group}={name}: there is no such {group}{hint}" + (f" fgl-bench ls {group} lists all" if hint.endswith("?") else "")


def unknown_key(error: OmegaConfBaseException) -> str:
    """Return ``algorithm.mue: unknown key of FedProx; did you mean mu? allowed: ...``."""
    parent = error.parent_node
    allowed = [str(name) for name in parent if name not in ("hydra", "_target_", "defaults")] if isinstance(parent, DictConfig) else []
    key = str(error.full_key or error.key)
    path = str(parent.get("_target_") or "") if isinstance(parent, DictConfig) else ""
    own = path and not path.startswith("fgl_bench.")
    how = f"; with {key.partition('.')[0]}=FILE.py the keys are the fields of your class" if own and not allowed else ""
    owner = f" of {path.rpartition('.')[2]}" if path else ""
    return f"{key}: unknown key{owner}{how}{suggest(str(error.key), allowed)}"


def wrong_type(error: Exception) -> str:
    """Rephrase OmegaConf's first line."""
    text = next(iter(str(error).splitlines()), "")
    match = re.match(r"Value '(.*)' (?:of type '\w+' could not be converted to|is not a valid) (\w+)", text)
    if match:
        return f"'{match[1]}' is not {KINDS.get(match[2], match[2])}"
    if "is not a ListConfig" in text:
        return NO_LIST
    return "may not be null" if "is not Optional" in text or text.startswith("Incompatible value 'None'") else text


def unreadable(error: OverrideParseException) -> str:
    """Return the user's argument and the grammar that Hydra expects."""
    key, given, value = str(error.override).partition("=")
    example = f'{key}="{value}"' if given and '"' not in value and re.fullmatch(r"[+~\w@/.]+", key) else 'key="a b"'
    return f"cannot read '{error.override}': expected key=value (quote a value with special characters: '{example}')"


def plain(error: BaseException) -> str:
    """Return the messages of the error and its causes, without OmegaConf's technical lines, cut to a few lines."""
    if f"Could not override '{STRATEGY}'" in str(error):
        paths = [config_folder() / "algorithm" / f"{name}.yaml" for name in choices("algorithm")]
        takers = [path.stem for path in paths if path.is_file() and "/algorithm@strategy" in path.read_text(encoding="utf-8")]
        return f"{STRATEGY}: this algorithm takes no strategy; allowed with {', '.join(takers)}"
    lines = [line.strip() for part in causes(error) for line in str(part).splitlines() if line.strip() and not TECHNICAL.match(line)]
    return "\n".join(dict.fromkeys(lines[:MOST_LINES]))


WORDINGS: dict[type[BaseException], Callable[[Any], str]] = {
    MissingConfigException: missing_choice,
    OverrideParseException: unreadable,
    ConfigKeyError: unknown_key,
    ConfigAttributeError: unknown_key,
    ValidationError: wrong_type,
    OmegaConfBaseException: plain,
}
