"""How to search: the keys of ``fgl-bench tune`` itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fgl_bench.errors import UserError

MODELS = ("received", "trained")
PRUNERS = ("median", "none")
MOST = 2**32 - 1
OWN = {"trials": "20", "seconds": "null", "model_of": "trained", "pruner": "median", "sampler_seed": "0"}  # with their defaults


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

    trials: int
    seconds: float | None
    model_of: str
    pruner: str
    sampler_seed: int | None


def read_options(given: Mapping[str, str]) -> Options:
    """The keys of the search; raises UserError."""
    texts = {**OWN, **given}
    for key, allowed in (("model_of", MODELS), ("pruner", PRUNERS)):
        if texts[key] not in allowed:
            raise UserError(f"{key}={texts[key]}: must be one of {', '.join(allowed)}")
    try:
        values = {key: None if texts[key] == "null" else float(texts[key]) for key in ("trials", "seconds", "sampler_seed")}
    except ValueError as error:
        raise UserError(f"{error}; trials, seconds and sampler_seed are numbers") from error
    for key, value in values.items():
        if value is not None and not (0 <= value <= MOST and (key == "seconds" or value == int(value))):
            raise UserError(f"{key}={texts[key]}: must be {'a number' if key == 'seconds' else 'an integer'} from 0 to {MOST}")
    trials, seed = values["trials"], values["sampler_seed"]
    if trials is None or trials < 1 or trials != int(trials):
        raise UserError(f"trials={texts['trials']}: must be an integer of at least 1")
    return Options(int(trials), values["seconds"], texts["model_of"], texts["pruner"], None if seed is None else int(seed))
