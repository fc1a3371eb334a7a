"""Hyperparameter search with Optuna: ``fgl-bench tune SPACE KEY=VALUE...`` (the ``tune`` extra).

A trial is an ordinary run, so it has a run directory and is not repeated. The objective is the *validation* score at the selected
point; test scores are never read, not even the best trial's. The study is a journal beside the runs. Several processes
on one file system can share it: give each the same command.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fgl_bench.config.compose import composed
from fgl_bench.errors import UserError
from fgl_bench.runner.one import run_one
from fgl_bench.utils.masking import masked

FOLDER = Path(__file__).parent / "searches"
MODELS = ("received", "trained")
MOST = 2**32 - 1
KINDS = {"integer": "suggest_int", "real": "suggest_float"}
OWN = {"trials": "20", "seconds": "null", "model_of": "trained", "sampler_seed": "0"}  # keys of the search itself, with their defaults


@dataclass(frozen=True)
class Options:
    """How to search.

    Attributes:
        trials: number of complete trials that the study has in the end, earlier ones included.
        seconds: start no trial after this time; None for no limit.
        model_of: which model's validation score is maximized.
        sampler_seed: of Optuna's sampler; None draws another seed in every process; use it for several processes at once.
    """

    trials: int
    seconds: float | None
    model_of: str
    sampler_seed: int | None


def spaces() -> list[str]:
    """The search spaces of the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_space(name: str) -> dict[str, dict[str, Any]]:
    """The ranges of a space, by key.

    Raises:
        UserError: there is no such space, or a range is not valid.
    """
    path = FOLDER / f"{name}.yaml" if name in spaces() else Path(name)
    try:
        space = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{name}: no such space; give a yaml file, or one of {', '.join(spaces())}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: not readable as yaml ({str(error).splitlines()[0]})") from error
    if not isinstance(space, dict) or not space:
        raise UserError(f"{name}: a space has a line for every key, such as algorithm.mu: {{choices: [0.001, 0.01, 0.1]}}")
    for key, bounds in space.items():
        check_range(str(key), bounds)
    return space


def check_range(key: str, bounds: Any) -> None:
    """Whether ``bounds`` is ``{choices: [...]}`` or ``{low, high, kind, log}``; raises UserError."""
    known = {"low", "high", "kind", "log"}
    if isinstance(bounds, Mapping) and set(bounds) == {"choices"} and isinstance(bounds["choices"], list) and bounds["choices"]:
        return
    if not isinstance(bounds, Mapping) or not {"low", "high", "kind"} <= set(bounds) <= known or bounds["kind"] not in KINDS:
        raise UserError(f"{key}: a range is {{choices: [...]}} or {{low: ..., high: ..., kind: {' | '.join(KINDS)}, log: true}}")
    low, high = bounds["low"], bounds["high"]
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (low, high)) or not low < high:
        raise UserError(f"{key}: low={low} and high={high} must be numbers, low below high")


def search(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """The command; without arguments it lists the spaces. ``folders`` are those of ``--config-dir``.

    Raises:
        UserError: a space or a key is wrong, or Optuna is not installed.
    """
    if not arguments:
        for name in spaces():
            first = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
            print(f"{name:<14} {first.removeprefix('#').strip()}")
        print(f"keys of the search: {', '.join(f'{key}={value}' for key, value in OWN.items())}")
        return
    space, overrides = read_space(arguments[0]), [text for text in arguments[1:] if text.partition("=")[0] not in OWN]
    options = read_options(dict(text.split("=", 1) for text in arguments[1:] if text.partition("=")[0] in OWN))
    with contextlib.suppress(KeyboardInterrupt):
        study = optimize(space, overrides, options, folders)
        tell(study, overrides, folders)


def read_options(given: Mapping[str, str]) -> Options:
    """The keys of the search; raises UserError."""
    texts = {**OWN, **given}
    try:
        values = {key: None if text == "null" else float(text) for key, text in texts.items() if key != "model_of"}
    except ValueError as error:
        raise UserError(f"{error}; trials, seconds and sampler_seed are numbers") from error
    for key in ("trials", "seconds", "sampler_seed"):
        value = values[key]
        if value is not None and not (0 <= value <= MOST and (key == "seconds" or value == int(value))):
            raise UserError(f"{key}={texts[key]}: must be {'a number' if key == 'seconds' else 'an integer'} from 0 to {MOST}")
    if texts["model_of"] not in MODELS:
        raise UserError(f"model_of={texts['model_of']}: must be one of {', '.join(MODELS)}")
    trials, seed = values["trials"], values["sampler_seed"]
    if trials is None or trials < 1 or trials != int(trials):
        raise UserError(f"trials={texts['trials']}: must be an integer of at least 1")
    return Options(int(trials), values["seconds"], texts["model_of"], None if seed is None else int(seed))


def optimize(space: Mapping[str, Mapping], overrides: list[str], options: Options, folders: Sequence[Path] = ()) -> Any:
    """Run trials until the study has enough; returns the study."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise UserError("tune needs Optuna: pip install 'fgl-bench[tune]'") from error

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    where = Path(composed(overrides, folders).results_dir).expanduser().parent / "searches"
    what = json.dumps([space, sorted(text for text in overrides if not text.startswith(("results_dir=", "device="))), options.model_of])
    what += "".join(str(Path(folder).resolve()) for folder in folders)
    name = hashlib.sha256(what.encode()).hexdigest()[:12]
    where.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name=name,
        storage=JournalStorage(JournalFileBackend(str(where / f"{name}.journal"))),
        sampler=optuna.samplers.TPESampler(seed=options.sampler_seed),
        direction="maximize",
        load_if_exists=True,
    )
    done = count(study)
    print(f"study {where / name}.journal: {done} of {options.trials} trials made", flush=True)

    def objective(trial: Any) -> float:
        chosen = [f"{key}={shown(suggested(trial, key, bounds))}" for key, bounds in space.items()]
        score = validation([*overrides, *chosen], options.model_of, folders)
        print(f"trial {trial.number}: validation {100 * score:.2f} with {' '.join(chosen)}", flush=True)
        return score

    def enough(study: Any, _: Any) -> None:
        if count(study) >= options.trials:
            study.stop()

    if done < options.trials:
        # A trial that cannot run (a combination that the method refuses) is reported and pruned.
        study.optimize(objective, timeout=options.seconds, callbacks=[enough], catch=(UserError,))
    return study


def count(study: Any) -> int:
    """Trials that ended with a score or an error."""
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))


def suggested(trial: Any, key: str, bounds: Mapping) -> Any:
    """A value within ``bounds``."""
    if "choices" in bounds:
        return trial.suggest_categorical(key, bounds["choices"])
    return getattr(trial, KINDS[bounds["kind"]])(key, bounds["low"], bounds["high"], log=bool(bounds.get("log")))


def shown(value: Any) -> str:
    """A value as Hydra reads it."""
    plain = {None: "null", True: "true", False: "false"}
    return plain[value] if value is None or isinstance(value, bool) else str(value)


def validation(overrides: Sequence[str], model: str, folders: Sequence[Path] = ()) -> float:
    """Mean over the seeds of the validation score at the selected point, of a run that is made now or stored already.

    NaN if a seed diverged before any selectable point: the mean of the others would hide it.

    Raises:
        UserError: the run is refused.
    """
    cfg = composed([*overrides, "progress=false"], folders)
    try:
        test = run_one(cfg).summary["test"][model]
    except UserError as error:
        print(f"refused: {error}", file=sys.stderr, flush=True)
        raise
    return math.nan if None in test["per_seed"] else float(test["val"]["mean"])


def tell(study: Any, overrides: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """Print the best trial and the command that makes its run."""
    scored = [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]
    if not scored:
        raise UserError("no trial could be run; the refusals above say why")
    best = study.best_trial
    chosen = [f"{key}={shown(value)}" for key, value in best.params.items()]
    overrides = [*(f"--config-dir {folder}" for folder in folders), *overrides]
    print(f"best of {len(scored)}: validation {100 * best.value:.2f}\n  fgl-bench {masked(' '.join([*overrides, *chosen]))}")
