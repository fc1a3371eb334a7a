"""How to search: the keys of ``fgl-bench tune`` itself."""

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
    """How to search.

    Attributes:
        trials: number of complete trials that the study has in the end, earlier ones included.
        seconds: start no trial after this time; None for no limit.
        model_of: which model's validation score is maximized.
        pruner: ``median`` ends a trial whose first seed has a validation score below the median of earlier trials at the same time;
            ``none`` lets every trial finish.
        sampler_seed: of Optuna's sampler; None draws another seed in every process; use it for several processes at once.
    """

    trials: int = 20
    seconds: Optional[float] = None  # noqa: UP045 (OmegaConf reads Optional on every version it supports)
    model_of: str = "trained"
    pruner: str = "median"
    sampler_seed: Optional[int] = 0  # noqa: UP045


def read_options(given: Sequence[str]) -> Options:
    """The keys of the search; raises UserError."""
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
