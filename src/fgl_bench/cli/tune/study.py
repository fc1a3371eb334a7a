"""A search under way: trials are proposed, run, pruned and kept, and a search that was killed goes on where it was."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from fgl_bench.cli.tune.options import Options
from fgl_bench.cli.tune.space import chosen, ends, rounded, short, suggested
from fgl_bench.config.compose import as_command
from fgl_bench.config.settings import resolve_budget
from fgl_bench.errors import UserError
from fgl_bench.results.estimates import duration
from fgl_bench.results.tracking import rows_by_seed
from fgl_bench.runner.one import check_one, run_one
from fgl_bench.utils.files import home
from fgl_bench.utils.seeding import derive_seed
from fgl_bench.utils.sources import code_sums

STAGES = 20  # of a run's budget, at whose ends trials are compared
SPARED = 4  # first stages in which none is pruned
UNPRUNED = 5  # first trials that are not
GRACE = 5  # seconds after which the journal's lock is taken from a process that was killed


@contextmanager
def reading(journal: Path) -> Iterator[None]:
    """Turn whatever Optuna raises on a damaged journal into one line.

    Raises:
        UserError: the journal is damaged.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, RecursionError) as error:
        raise UserError(f"{journal} is damaged; remove the file to search again: complete runs are not repeated") from error


class Search:
    """A study and what its trials are made of.

    Attributes:
        study: Optuna's, a journal in ``searches/`` beside the runs.
        path: of the journal, without its ending.

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

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.overrides, self.options, self.folders = space, list(overrides), options, folders
        with as_command(self.overrides, folders) as cfg:
            results = home("results_dir", cfg.results_dir)
            code = code_sums(cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True)))
        where = results.parent / "searches"
        asked = sorted(text for text in overrides if not text.startswith(("results_dir=", "device=", "progress=")))
        what = json.dumps([space, asked, options.model_of, [str(Path(folder).resolve()) for folder in folders], code])
        self.path = where / hashlib.sha256(what.encode()).hexdigest()[:12]
        journal = Path(f"{self.path}.journal")
        if not journal.exists():
            self.check()
        where.mkdir(parents=True, exist_ok=True)
        pruners = {"none": optuna.pruners.NopPruner(), "median": optuna.pruners.MedianPruner(UNPRUNED, n_warmup_steps=SPARED)}
        with reading(journal):
            self.study = optuna.create_study(
                study_name=self.path.name,
                storage=JournalStorage(JournalFileBackend(str(journal), JournalFileOpenLock(str(journal), GRACE))),
                pruner=pruners[options.pruner],
                direction="maximize",
                load_if_exists=True,
            )
            self.study.get_trials(deepcopy=False)

    def check(self) -> None:
        """Refuse a search whose first and last values are refused with the same words: these are about a key that no trial changes."""
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
        """Make trials until the study has enough."""
        print(f"study {self.path}.journal: {self.done()} of {self.options.trials} trials made", flush=True)
        begin, before = time.monotonic(), self.done()
        while (done := self.done()) < self.options.trials:
            spent = time.monotonic() - begin
            if self.options.seconds is not None and spent >= self.options.seconds:
                print(f"stopped after {spent:.0f} s: {done} of {self.options.trials} trials made", flush=True)
                return
            outcome = self.make(done)
            left = (time.monotonic() - begin) / (done + 1 - before) * (self.options.trials - done - 1)
            print(f"{outcome}{f'; {duration(left)} left' if left else ''}", flush=True)

    def make(self, done: int) -> str:
        """Make one trial after ``done`` others; returns its outcome."""
        import optuna
        from optuna.trial import TrialState

        seed = self.options.sampler_seed
        # By the number of earlier trials, so that a search that was killed proposes again what it was at.
        self.study.sampler = optuna.samplers.TPESampler(seed=None if seed is None else derive_seed(seed, "trial", done) % 2**32)
        trial = self.study.ask()
        params = {key: suggested(trial, key, bounds) for key, bounds in self.space.items()}
        line, named = chosen(params, self.overrides), f"trial {trial.number}"
        said = " ".join(f"{key}={rounded(value)}" for key, value in zip(short(list(params)), params.values(), strict=True))
        try:
            score = self.validation(line, trial)
        except optuna.TrialPruned as pruned:
            self.study.tell(trial, state=TrialState.PRUNED)
            return f"{named}: pruned {pruned} with {said}"
        except UserError as error:
            trial.set_user_attr("reason", f"refused: {error}")
            self.study.tell(trial, state=TrialState.FAIL)
            print(f"refused: {error}", file=sys.stderr, flush=True)
            return f"{named}: refused with {said}"
        if math.isnan(score):
            trial.set_user_attr("reason", "no score")
            self.study.tell(trial, state=TrialState.FAIL)
            return f"{named}: no score with {said}"
        self.study.tell(trial, score)
        return f"{named}: validation {100 * score:.2f} with {said}"

    def validation(self, line: Sequence[str], trial: Any) -> float:
        """Mean over the seeds of the validation score at the selected point, of a run that is made now or stored already.

        NaN if a seed has no score (it diverged before any selectable point): the mean of the others would hide it.

        Raises:
            UserError: the run is refused.
            TrialPruned: the trial is hopeless.
        """
        with as_command([*self.overrides, *line], self.folders) as cfg:
            watch = self.watch(trial, cfg)
            run = run_one(cfg, watch)
            if run.again:
                for row in rows_by_seed(run.folder / "history.csv").get(cfg.seeds[0], []):
                    watch({"seed": cfg.seeds[0], **row}, prunes=False)
        test = run.summary["test"][self.options.model_of]
        return math.nan if None in test["per_seed"] else float(test["val"]["mean"])

    def watch(self, trial: Any, cfg: DictConfig) -> Callable[..., None]:
        """What is called with every evaluation point: at the end of a stage the trial is compared with earlier ones.

        What is compared is the best validation score so far of the first seed, of which all trials have the same clients and masks.
        """
        import optuna

        first, column, budget = cfg.seeds[0], f"val_{self.options.model_of}", resolve_budget(cfg)[1]
        last, best = 0, -math.inf

        def point(row: Mapping[str, Any], prunes: bool = True) -> None:
            nonlocal last, best
            if row["seed"] != first or row.get(column) is None:
                return
            best = max(best, row[column])
            stage = int(STAGES * row["trip"] / budget)
            if stage == last:
                return
            last = stage
            trial.report(best, stage)
            if prunes and stage < STAGES and trial.should_prune():
                raise optuna.TrialPruned(f"at {100 * stage / STAGES:.0f} % of its trips, seed {first} at validation {100 * best:.2f},")

        return point

    def done(self) -> int:
        """Trials that ended with a score, pruned or refused."""
        return sum(trial.state.is_finished() for trial in self.study.get_trials(deepcopy=False))
