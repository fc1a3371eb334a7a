"""Options of ``fgl-bench tune``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fgl_bench.config.wording import wrong_type
from fgl_bench.errors import UserError, require

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
