"""What a search is asked: one range per key, and the options of ``fgl-bench tune``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fgl_bench.config.values import plain
from fgl_bench.config.wording import wrong_type
from fgl_bench.errors import UserError, require
from fgl_bench.results.store import PRESENTATION

FOLDER = Path(__file__).parent / "searches"
KINDS = {"integer": "suggest_int", "real": "suggest_float"}


def spaces() -> list[str]:
    """Return the search spaces of the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_space(name: str) -> dict[str, dict[str, Any]]:
    """Read the ranges of a space, by key.

    Raises:
        UserError: the space does not exist, or a range is invalid.
    """
    path = FOLDER / f"{name}.yaml" if name in spaces() else Path(name)
    try:
        space = OmegaConf.to_container(OmegaConf.load(path))  # reads 1e-4 as a number
    except OSError as error:
        absent = f"no such space; give a yaml file, or one of {', '.join(spaces())}"
        raise UserError(f"{name}: {'a space has a line for every key' if path.is_file() else absent}") from error
    except (yaml.YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise UserError(f"{name}: not readable as yaml ({str(error).splitlines()[0]})") from error
    if not isinstance(space, dict) or not space:
        raise UserError(f"{name}: a space has a line for every key, such as algorithm.mu: {{choices: [0.001, 0.01, 0.1]}}")
    for key, bounds in space.items():
        if str(key).lstrip("+~").partition(".")[0] in ("seeds", *PRESENTATION):
            raise UserError(f"{name}: {key!s}: is not searched, for it is no hyperparameter; a search over seeds would choose the luckiest")
        check_range(str(key), bounds)
    return cast(dict[str, dict[str, Any]], space)


def check_range(key: str, bounds: Any) -> None:
    """Raise UserError unless ``bounds`` is ``{choices: [...]}`` or ``{low, high, kind, log}``."""
    known = {"low", "high", "kind", "log"}
    if isinstance(bounds, Mapping) and set(bounds) == {"choices"} and isinstance(bounds["choices"], list) and bounds["choices"]:
        return
    if not isinstance(bounds, Mapping) or not {"low", "high", "kind"} <= set(bounds) <= known or bounds["kind"] not in KINDS:
        raise UserError(f"{key}: a range is {{choices: [...]}} or {{low: ..., high: ..., kind: {' | '.join(KINDS)}, log: true}}")
    low, high = bounds["low"], bounds["high"]
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (low, high)) or not low < high:
        raise UserError(f"{key}: low={low} and high={high} must be numbers, low below high")
    if bounds["kind"] == "integer" and not (isinstance(low, int) and isinstance(high, int)):
        raise UserError(f"{key}: low={low} and high={high} must be integers")
    if bounds.get("log") and low <= 0:
        raise UserError(f"{key}: low={low} must be above 0 with log: true")


def suggested(trial: Any, key: str, bounds: Mapping) -> Any:
    """Sample a value within ``bounds``."""
    if "choices" in bounds:
        return trial.suggest_categorical(key, bounds["choices"])
    return getattr(trial, KINDS[bounds["kind"]])(key, bounds["low"], bounds["high"], log=bool(bounds.get("log")))


def ends(bounds: Mapping) -> tuple[Any, Any]:
    """Return the first and the last value of a range."""
    return (bounds["choices"][0], bounds["choices"][-1]) if "choices" in bounds else (bounds["low"], bounds["high"])


def chosen(params: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Return the parameters of a trial as overrides; keys of a user's class are added if the replaced choice lacks them."""
    own = tuple(f"{text.lstrip('+').partition('._target_=')[0]}." for text in overrides if "._target_=" in text)
    return [f"{'++' if key.startswith(own) else ''}{key}={plain(value)}" for key, value in params.items()]


def short(keys: Sequence[str]) -> list[str]:
    """Return the last parts of the keys if they are distinct."""
    last = [key.rpartition(".")[2] for key in keys]
    return [name if last.count(name) == 1 else key for name, key in zip(last, keys, strict=True)]


def rounded(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else plain(value)


MOST = 2**32 - 1


@dataclass(frozen=True)
class Options:
    """Options of a search.

    Attributes:
        trials: total number of complete trials in the study, including earlier ones.
        seconds: no trial starts after this time; None for no limit.
        model_of: the kind of model whose validation score is maximized.
        pruner: ``median`` ends a trial if the validation score of its first seed is below the median of earlier trials at the same stage;
            ``none`` lets every trial finish.
        sampler_seed: seed of Optuna's sampler; None for a random seed, for concurrent processes.
    """

    trials: int = 20
    seconds: Optional[float] = None  # noqa: UP045 (OmegaConf reads Optional on every version it supports)
    model_of: str = "trained"
    pruner: str = "median"
    sampler_seed: Optional[int] = 0  # noqa: UP045


def read_options(given: Sequence[str]) -> Options:
    """Parse the options of a search; raises UserError."""
    try:
        values = OmegaConf.from_dotlist(list(given))
        options: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Options), values))
    except (OmegaConfBaseException, YAMLError) as error:
        raise UserError(f"{getattr(error, 'full_key', None) or ' '.join(given)}: {wrong_type(error)}") from error
    for key, least in (("trials", 1), ("seconds", 0), ("sampler_seed", 0)):
        value = getattr(options, key)
        require(value is None or least <= value <= MOST, key, value, f"a number from {least} to {MOST}")
    for key, allowed in (("model_of", ("received", "trained")), ("pruner", ("median", "none"))):
        require(getattr(options, key) in allowed, key, getattr(options, key), f"one of {', '.join(allowed)}")
    return options
