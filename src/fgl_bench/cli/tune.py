"""Hyperparameter search with Optuna: ``fgl-bench tune SPACE KEY=VALUE...`` (the ``tune`` extra).

A trial is a normal run, so it has a run directory and is not repeated. The objective is the *validation* score at the selected
point; test scores are never read, not even for the best trial. The study is a journal next to the runs. Several processes
on one file system can share it with the same command.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tabulate import tabulate
from yaml import YAMLError

from fgl_bench.config.compose import as_command
from fgl_bench.config.settings import resolve_budget
from fgl_bench.config.values import plain
from fgl_bench.config.wording import wrong_type
from fgl_bench.errors import UserError, require
from fgl_bench.results.console import line_width
from fgl_bench.results.estimates import duration
from fgl_bench.results.question import Question
from fgl_bench.results.result_table import plain_cell
from fgl_bench.results.store import PRESENTATION
from fgl_bench.results.sweeps import record
from fgl_bench.results.tracking import rows_by_seed
from fgl_bench.runner.one import check_one, run_one
from fgl_bench.utils.files import home
from fgl_bench.utils.masking import masked
from fgl_bench.utils.seeding import derive_seed
from fgl_bench.utils.sources import code_sums

USAGE = "fgl-bench tune SPACE [dataset=cora] [trials=20] [KEY=VALUE]"
FOLDER = Path(__file__).parent / "searches"
KINDS = {"integer": "suggest_int", "real": "suggest_float"}
MOST = 2**32 - 1
STAGES = 20  # trials are compared after each of these parts of the budget
SPARED = 4  # first stages without pruning
UNPRUNED = 5  # first trials without pruning
GRACE = 5  # seconds until the journal lock of a killed process is released
MOST_ROWS = 20
LEAST_SCORED = 5  # minimum number of trials for importances


def search(arguments: Sequence[str], folders: Sequence[Path] = ()) -> None:
    """The command; without arguments it lists the spaces. ``folders`` are those of ``--config-dir``.

    Raises:
        UserError: a space or a key is wrong, or Optuna is not installed.
        KeyboardInterrupt: the search was interrupted; finished trials are recorded.
    """
    if not arguments:
        for name in spaces():
            first = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
            print(f"{name:<14} {first.removeprefix('#').strip()}")
        print(f"keys of the search: {', '.join(f'{key}={plain(value)}' for key, value in vars(Options()).items())}")
        return
    own = [text for text in arguments[1:] if text.partition("=")[0] in vars(Options())]
    space, overrides = read_space(arguments[0]), [text for text in arguments[1:] if text not in own]
    current = Search(space, overrides, read_options(own), folders)
    try:
        current.run()
    except KeyboardInterrupt:
        print_outcome(current)
        print("interrupted: give the same command to resume", flush=True)
        raise
    print_outcome(current)


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


@dataclass(frozen=True)
class Options:
    """Options of a search.

    Attributes:
        trials: total number of complete trials in the study, including earlier ones. A space of choices with no more combinations is
            searched completely.
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


@contextmanager
def reading(journal: Path) -> Iterator[None]:
    """Convert Optuna's errors on a damaged journal to one line.

    Raises:
        UserError: the journal is damaged.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, RecursionError) as error:
        raise UserError(f"{journal} is damaged; remove the file to search again: complete runs are not repeated") from error


class Search:
    """A study and the settings of its trials.

    Attributes:
        study: Optuna's study, a journal in ``searches/`` next to the runs.
        path: path of the journal, without extension.
        seed: first seed, used to compare running trials.

    Raises:
        UserError: the configuration is wrong, or Optuna is not installed.
    """

    def __init__(self, space: Mapping[str, Mapping], overrides: Sequence[str], options: Options, folders: Sequence[Path] = ()):
        try:
            import optuna
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
        except ImportError as error:
            raise UserError("tune needs Optuna: pip install 'fgl-bench[tune]'") from error

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space, self.overrides, self.options, self.folders = space, list(overrides), options, folders
        with as_command(self.overrides, folders) as cfg:
            self.results, self.seed = home("results_dir", cfg.results_dir), cfg.seeds[0]
            code = code_sums(cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True)))
        where = self.results.parent / "searches"
        asked = sorted(text for text in overrides if not text.startswith(("results_dir=", "device=", "progress=")))
        identity = json.dumps([space, asked, options.model_of, [str(Path(folder).resolve()) for folder in folders], code])
        self.path = where / hashlib.sha256(identity.encode()).hexdigest()[:12]
        journal = Path(f"{self.path}.journal")
        if not journal.exists():
            self.check()
        where.mkdir(parents=True, exist_ok=True)
        pruners = {"none": optuna.pruners.NopPruner(), "median": optuna.pruners.MedianPruner(UNPRUNED, n_warmup_steps=SPARED)}
        grid = {key: bounds["choices"] for key, bounds in space.items() if "choices" in bounds}
        combinations = math.prod(map(len, grid.values())) if len(grid) == len(space) else math.inf
        self.exhaustive, self.most = combinations <= options.trials, int(min(combinations, options.trials))
        with reading(journal):
            self.study = optuna.create_study(
                sampler=optuna.samplers.GridSampler(grid, seed=options.sampler_seed) if self.exhaustive else None,
                study_name=self.path.name,
                storage=JournalStorage(JournalFileBackend(str(journal), JournalFileOpenLock(str(journal), GRACE))),
                pruner=pruners[options.pruner],
                direction="maximize",
                load_if_exists=True,
            )
            self.study.get_trials(deepcopy=False)

    def check(self) -> None:
        """Raise UserError if the first and last values fail with the same error: it concerns a key that no trial changes."""
        refusals = set()
        for end in (0, -1):
            params = {key: ends(bounds)[end] for key, bounds in self.space.items()}
            try:
                with as_command([*self.overrides, *chosen(params, self.overrides)], self.folders) as cfg:
                    check_one(cfg)
                return
            except UserError as error:
                refusals.add(str(error))
        if len(refusals) == 1:
            raise UserError(refusals.pop())

    def run(self) -> None:
        """Run trials until the study has enough."""
        before, begin, most = self.done(), time.monotonic(), self.most
        every = "; the space has no other combinations" if self.exhaustive else ""
        print(f"study {self.path}.journal: {before} of {most} trials made{every}", flush=True)

        def report(study: Any, trial: Any) -> None:
            done = self.done()
            left = (time.monotonic() - begin) / max(done - before, 1) * (most - done)
            print(f"{self.outcome(trial)}{f'; {duration(left)} left' if left > 0 else ''}", flush=True)
            if done >= most:
                study.stop()

        if before < most:
            self.study.optimize(self.validation, timeout=self.options.seconds, catch=UserError, callbacks=[report])
        if self.done() < most:
            print(f"stopped after {time.monotonic() - begin:.0f} s: {self.done()} of {most} trials made", flush=True)

    def outcome(self, trial: Any) -> str:
        """Describe a finished trial: its score, or the reason for not having one, and its parameters."""
        text = str(trial.user_attrs.get("reason", "")).partition(":")[0]
        if trial.state.name == "COMPLETE":
            text = f"validation {100 * trial.value:.2f}"
        elif trial.state.name == "PRUNED":
            best = 100 * trial.intermediate_values[trial.last_step]
            text = f"pruned at {100 * trial.last_step / STAGES:.0f} % of its trips, seed {self.seed} at validation {best:.2f},"
        values = zip(short(list(trial.params)), trial.params.values(), strict=True)
        return f"trial {trial.number}: {text} with {' '.join(f'{key}={rounded(value)}' for key, value in values)}"

    def validation(self, trial: Any) -> float:
        """Run a trial, or read its stored run, and return the mean validation score over seeds at the selected point.

        NaN if a seed has no score (it diverged before any selectable point), which the mean of the others would hide.

        Raises:
            UserError: the run is invalid.
            TrialPruned: the trial was pruned.
        """
        import optuna

        seed = self.options.sampler_seed
        if not self.exhaustive:  # depends on the number of earlier trials, so that a killed search repeats its last proposal
            self.study.sampler = optuna.samplers.TPESampler(seed=None if seed is None else derive_seed(seed, "trial", self.done()) % 2**32)
        params = {key: suggested(trial, key, bounds) for key, bounds in self.space.items()}
        try:
            with as_command([*self.overrides, *chosen(params, self.overrides)], self.folders) as cfg:
                watch = self.watch(trial, resolve_budget(cfg)[1])
                run = run_one(cfg, watch)
                trial.set_user_attr("run", str(run.folder))
                if run.again:
                    for row in rows_by_seed(run.folder / "history.csv").get(self.seed, []):
                        watch({"seed": self.seed, **row}, prunes=False)
        except UserError as error:
            trial.set_user_attr("reason", f"refused: {error}")
            print(f"refused: {error}", file=sys.stderr, flush=True)
            raise
        test = run.summary["test"][self.options.model_of]
        if None in test["per_seed"]:
            trial.set_user_attr("reason", "no score")
            return math.nan
        return float(test["val"]["mean"])

    def watch(self, trial: Any, budget: int) -> Callable[..., None]:
        """Return a callback for evaluation points that compares the trial with earlier ones at the end of each stage.

        It compares the best validation score so far of the first seed, for which all trials have the same clients and masks.
        """
        import optuna

        column, last, best = f"val_{self.options.model_of}", 0, -math.inf

        def point(row: Mapping[str, Any], prunes: bool = True) -> None:
            nonlocal last, best
            if row["seed"] != self.seed or row.get(column) is None:
                return
            best = max(best, row[column])
            stage = int(STAGES * row["trip"] / budget)
            if stage == last:
                return
            last = stage
            trial.report(best, stage)
            if prunes and stage < STAGES and trial.should_prune():
                raise optuna.TrialPruned

        return point

    def done(self) -> int:
        """Count trials with a score, pruned or rejected."""
        return sum(trial.state.is_finished() for trial in self.study.get_trials(deepcopy=False))


def print_outcome(search: Search) -> None:
    """Print the trials, best first, the importances of the keys and the command of the best run; write all trials to a csv.

    Raises:
        UserError: no trial could be run.
    """
    trials = sorted(search.study.get_trials(deepcopy=False), key=rank)
    ended = [trial for trial in trials if trial.state.is_finished()]
    if not ended:
        return
    write(search, ended)
    runs = [Path(trial.user_attrs["run"]) for trial in ended if "run" in trial.user_attrs]
    if runs:
        record(search.results, runs, masked(shlex.join(["fgl-bench", *sys.argv[1:]])), Question(tuple(search.space), ()), search=True)
    scored: list[Any] = [trial for trial in ended if trial.state.name == "COMPLETE"]
    if not scored:
        raise UserError("no trial could be run to its end; the refusals above say why")
    print(f"\n{table(search, ended)}")
    print(f"validation in %, of {search.options.model_of} models, mean over seeds at the selected points")
    print(f"all {len(ended)} trials: {search.path}.csv")
    print(importances(search, len(scored)))
    line = ["fgl-bench", *(word for folder in search.folders for word in ("--config-dir", str(folder))), *search.overrides]
    line += chosen(scored[0].params, search.overrides)
    print(f"best of {len(scored)}: validation {100 * float(scored[0].value):.2f}\n  {masked(shlex.join(line))}", flush=True)


def rank(trial: Any) -> tuple[int, float, int]:
    """Sort key: scored trials by score, ties by number; then pruned trials, latest first."""
    if trial.state.name == "COMPLETE":
        return 0, -float(trial.value), trial.number
    return (1, -(trial.last_step or 0), trial.number) if trial.state.name == "PRUNED" else (2, 0.0, trial.number)


def table(search: Search, ended: Sequence[Any]) -> str:
    """Format the best trials, one line each, cut to the terminal's width."""
    names, width = short(list(search.space)), line_width()
    rows = [[score(trial), *(rounded(trial.params.get(key)) for key in search.space), trial.number, fate(trial)] for trial in ended]
    lines = tabulate(rows[:MOST_ROWS], headers=["validation", *names, "trial", ""], disable_numparse=True).splitlines()
    return "\n".join(line.rstrip() if len(line.rstrip()) <= width else f"{line[: width - 1]}…" for line in lines)


def score(trial: Any) -> str:
    return f"{100 * trial.value:.2f}" if trial.state.name == "COMPLETE" else "-"


def fate(trial: Any) -> str:
    """Describe the end of a trial without a score."""
    if trial.state.name == "PRUNED":
        return f"pruned at {100 * (trial.last_step or 0) / STAGES:.0f} %"
    return str(trial.user_attrs.get("reason", "")).partition(":")[0]


def importances(search: Search, scored: int) -> str:
    """Return the share of the scores' variance explained by each key."""
    if scored < LEAST_SCORED or len({trial.value for trial in search.study.get_trials(deepcopy=False) if trial.value is not None}) < 2:
        return f"importances: need {LEAST_SCORED} trials with different scores"
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    try:
        shares = get_param_importances(search.study, evaluator=FanovaImportanceEvaluator(seed=0))
    except ImportError:
        return "importances: need scikit-learn, pip install 'fgl-bench[tune]'"
    return f"importances (fANOVA, {scored} trials): {', '.join(f'{key} {share:.2f}' for key, share in shares.items())}"


def write(search: Search, ended: Sequence[Any]) -> None:
    """Write all trials to ``<study>.csv``, best first."""
    with open(f"{search.path}.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["trial", "state", "validation", *search.space, "reason"])
        for trial in ended:
            value = trial.value if trial.state.name == "COMPLETE" else ""
            values = [plain(trial.params[key]) if key in trial.params else "" for key in search.space]
            texts = map(plain_cell, (*values, trial.user_attrs.get("reason", "")))
            writer.writerow([trial.number, trial.state.name.lower(), value, *texts])
