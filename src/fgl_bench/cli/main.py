"""The command ``fgl-bench``: compose the configuration with Hydra, validate it, run it, and report errors in one line.

Heavy imports come after the validation of the configuration (types are read from source, see ``config/schema.py``),
so that ``--help`` and errors respond at once.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from fgl_bench.cli import workers
from fgl_bench.cli.arguments import (
    check_overrides,
    config_dirs,
    import_from_here,
    keys_of_swept_groups,
    options_first,
    parsed,
    scan_plugins,
)
from fgl_bench.cli.commands import CHOOSING, COMMANDS
from fgl_bench.cli.commands import USAGE as COMMANDS_USAGE
from fgl_bench.config import groups
from fgl_bench.config.choices import GROUPS, check_readable, choices, config_folder, key_lines, suggest
from fgl_bench.config.compose import mixed_choices
from fgl_bench.config.own_classes import own_choices
from fgl_bench.config.schema import register_all
from fgl_bench.config.wording import explain, plain
from fgl_bench.errors import UserError, raised_by_user
from fgl_bench.results.console import line_width, show
from fgl_bench.results.sweep_notes import FOLDER, Note, current_sweep, leave, note_of, reported_failures
from fgl_bench.runner.one import run_one
from fgl_bench.utils.files import remove_leftovers, scratch
from fgl_bench.utils.masking import masked, masking_hydra
from fgl_bench.utils.processes import JOB, raise_again, stoppable

INTERRUPTED = 130
USAGE_ERROR = 2
PIPE_CLOSED = 141  # 128 + SIGPIPE, as a shell reports other tools
SWEEP = "fgl-bench-sweep-"  # prefix of a folder for Hydra's own output

USAGE = """\
fgl-bench trains and compares federated graph learning methods. One command
composes a dataset, a split, a model, an algorithm and a scenario, runs all
seeds together and writes accuracies, confidence intervals and client trips.
It simulates clients for research: there is no secure aggregation.

  fgl-bench                      the default: a generated graph, no downloads
  fgl-bench algorithm=fedsa_gcl dataset=cora split=metis data_dir=PATH
  fgl-bench algorithm=fedprox algorithm.mu=0.1 rounds=50 seeds=[0,1]
  fgl-bench task=graph dataset=mutag
  fgl-bench -m algorithm=local,fedavg num_clients=10,20
                                 every combination, one after another
  fgl-bench algorithm=my_method.py algorithm.k=3
                                 your own class; so model=, split=, dataset=

Options
  --help, --version       this text; the version
  --cfg job               print the composed configuration as yaml and stop
  -m, --multirun          run every combination of comma-separated values
  --config-dir DIR        add a folder with your own choices:
                          DIR/algorithm/mine.yaml becomes algorithm=mine
  --hydra-help, --info    more about Hydra, which reads the command line
"""


def main() -> None:
    """Entry point of ``fgl-bench``; exits with 0, 1 (an error), 2 (usage), 130 (Ctrl-C) or 128 + the number of another signal."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {' '.join(str(message).split())}\n"  # warnings of libraries on one line
    with streams():
        sys.exit(answer(sys.argv[1:]))


def answer(arguments: list[str]) -> int:
    """Execute the arguments, and print an error; returns the exit status."""
    if "--version" in arguments:
        print(f"fgl-bench {version('fgl-bench')}")
        return 0
    try:
        workers.begin(arguments)
    except UserError as error:
        complain(error)
        return USAGE_ERROR
    with stoppable() as stopped:
        try:
            status = execute(arguments)
        except KeyboardInterrupt as interruption:
            workers.say(f"fgl-bench: {str(interruption) or 'interrupted'}", interruption)
            status = INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as error:
            status = 1
            complain(error)
    return stopped[0].status if stopped else status


@contextmanager
def streams() -> Iterator[None]:
    """Make standard streams accept any text; exit with status 1 if output cannot be written.

    Output to a closed stream is discarded, unsupported characters are escaped, and a closed pipe (``| head``) ends the command quietly.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (to the end)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # prevents an error message at interpreter exit
        if not isinstance(error, BrokenPipeError):
            complain(UserError(f"standard output cannot be written ({error.strerror})"))
            sys.exit(1)


def execute(arguments: list[str]) -> int:
    """Print the help, run a command, or let Hydra read the arguments; returns the exit status."""
    check_readable()
    words, folders = config_dirs(arguments)
    command = words[0] if words and words[0] in COMMANDS else ""
    if {"--help", "-h"} & set(arguments):
        print(usage(command) if command else help_text(folders))
        return 0
    scan_plugins()
    import_from_here()
    if words and not command and re.fullmatch(r"[a-z]+", words[0]):
        raise UserError(f"{words[0]}: there is no such command{suggest(words[0], COMMANDS)}")
    if command:
        run_command(command, words[1:], folders)
        return 0
    arguments = own_choices(mixed_choices(arguments))
    try:
        sys.argv[1:] = keys_of_swept_groups(options_first(arguments))
        options = parsed(sys.argv[1:])
    except UserError as error:
        complain(error)
        return USAGE_ERROR
    check_overrides(options)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises errors instead of printing them
    register_all(ConfigStore.instance())
    if not (options.multirun or any("hydra" in text for text in options.overrides)):
        return composed_runs()
    where = Path(tempfile.gettempdir())
    remove_leftovers(SWEEP, where)
    with scratch(SWEEP, where) as folder:
        os.environ.setdefault(FOLDER, str(folder))
        try:
            return composed_runs()
        finally:
            if os.environ[FOLDER] == str(folder):
                del os.environ[FOLDER]


def composed_runs() -> int:
    """Let Hydra compose the configurations of ``sys.argv`` and run each; returns the exit status."""
    finished: list[Path] = []
    failures: list[Exception] = []
    failed_before = reported_failures()

    def job(cfg: DictConfig) -> str | None:
        raise_again()
        command = HydraConfig.get()
        several, sweep = command.mode is RunMode.MULTIRUN, current_sweep()
        number = command.job.num if several else 0
        if several and sweep is None:  # bars of several processes would overwrite each other
            cfg.progress = False
            os.environ[JOB] = str(number)
        before = groups.COMMAND.set(command)  # through its module: launchers pickle this function, and a ContextVar cannot be pickled
        try:
            run = run_one(cfg, title=f"[{sweep.done + 1}/{sweep.total}] " if sweep else "")
        except BrokenPipeError:
            raise
        except (Exception, SystemExit) as raised:
            called = raised_by_user(raised) or f"the run called sys.exit({raised})"
            error = raised if isinstance(raised, Exception) else UserError(called)
            failures.append(error)
            if not several:
                complain(error)
                return None
            report_run(Note(number, True, "failed", complaint(error, " ".join(command.overrides.task))))
            raise error from None  # a launcher in another process sees a failure only through the exception
        finally:
            groups.COMMAND.reset(before)
        finished.append(run.folder)
        if several:
            report_run(note_of(number, run.summary, run.folder, run.again, cfg.selection, cfg.average))
        else:
            show(run.summary, run.folder, run.again, cfg.selection, cfg.average)
        return str(run.folder)

    command = hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")(job)
    try:
        with masking_hydra():
            command()
    except KeyboardInterrupt as interruption:
        workers.say(
            f"fgl-bench: {str(interruption) or 'interrupted'}; {saved_text(finished, getattr(interruption, 'saved', ''))}", interruption
        )
        return INTERRUPTED
    except BrokenPipeError:  # fgl-bench -m ... | head: remaining runs are dropped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:  # raised by Hydra or a class that it loads
        if error not in failures and reported_failures() == failed_before:
            complain(error, plainly=True)
        failures.append(error)
    return 1 if failures else 0


def report_run(note: Note) -> None:
    """Report a finished run to the sweep of this process, else through the sweep's folder, else on stdout and stderr."""
    sweep = current_sweep()
    if sweep is not None:
        sweep.report(note)
    elif not leave(note.number, note):
        print(note.text, flush=True)
        print(note.problem, end="\n" * bool(note.problem), file=sys.stderr, flush=True)


def run_command(name: str, arguments: list[str], folders: list[Path]) -> None:
    """Run one of ``COMMANDS``."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"--config-dir {folder}: there is no such folder")
    function = resolve_name(COMMANDS[name])
    try:
        function(arguments, folders) if name in CHOOSING else function(arguments)
    except SystemExit as error:
        where = raised_by_user(error)
        if where is None:  # the command's own status
            raise
        raise UserError(where) from error


def complain(error: BaseException, plainly: bool = False) -> None:
    """Print :func:`complaint` on stderr."""
    workers.say(complaint(error, plainly=plainly), error)


def complaint(error: BaseException, about: str = "", plainly: bool = False) -> str:
    """Return the message about an error that the user can fix; a traceback comes before it if it is a bug.

    Args:
        about: the overrides of a job.
        plainly: the message alone, for any type of error.
    """
    text = explain(error) or (plain(error) or type(error).__name__ if plainly else None)
    trace = "".join(traceback.format_exception(error)) if text is None or os.environ.get("FGL_BENCH_DEBUG") == "1" else ""
    where = f" in the job '{about}'" if about else ""
    return masked(f"{trace}fgl-bench: error{where}: {text or type(error).__name__}")


def saved_text(finished: list[Path], unfinished: str = "") -> str:
    """Describe the results that survive an interruption: complete runs, and ``unfinished`` for the current run."""
    if not finished and not unfinished:
        return "kept: nothing of this run since it was started; earlier runs and checkpoints are untouched"
    runs = [f"{len(finished)} finished run(s), the last in {finished[-1]}"] if finished else []
    return f"kept: {', '.join([*runs, *filter(None, [unfinished])])}; give the same command to resume"


def usage(command: str) -> str:
    """Return the text of ``fgl-bench COMMAND --help``."""
    blocks = re.findall(r"^  (?=\S).*\n(?: {20,}.*\n)*", COMMANDS_USAGE, flags=re.MULTILINE)
    text = "".join(block for block in blocks if block.split()[0] == command)
    module = import_module(COMMANDS[command].partition(":")[0])
    line = "" if module.__name__ == "fgl_bench.cli.commands" else getattr(module, "USAGE", "")
    keys = yaml.safe_load(Path(__file__).with_name("help.yaml").read_text(encoding="utf-8"))[command]
    width = max(map(len, keys)) + 2
    lines = [row for key, meaning in keys.items() for row in wrapped(f"  {key:<{width}}", meaning)]
    return "\n".join([text.rstrip(), *(wrapped("usage: ", line) if line else ()), "", *lines])


def help_text(folders: Sequence[Path] = ()) -> str:
    """Return the text of ``--help``: usage, the groups with their choices, the top-level keys with the comments of config.yaml."""
    lines = [USAGE, COMMANDS_USAGE, "Groups (GROUP=CHOICE); what a choice can set is shown by --cfg job"]
    for group in GROUPS:
        lines += wrapped(f"  {group:<18} ", ", ".join(choices(group, folders)) or "(none yet)")
    lines += ["", "Keys (KEY=VALUE); those of a choice are set as algorithm.mu=0.1"]
    for key, value, comment in key_lines((config_folder() / "config.yaml").read_text(encoding="utf-8")):
        lines += wrapped(f"  {key:<18} ", f"{comment} [{value}]")
    return "\n".join(lines)


def wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, line_width(), initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)


if __name__ == "__main__":
    main()
