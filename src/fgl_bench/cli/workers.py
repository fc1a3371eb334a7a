"""The command as one of several workers: worker 0 prints, and the first failing worker reports the error."""

from __future__ import annotations

import os
import signal
import sys

from fgl_bench.cli.arguments import config_dirs
from fgl_bench.cli.commands import COMMANDS
from fgl_bench.errors import UserError, printable
from fgl_bench.utils.processes import Stopped, watched
from fgl_bench.utils.world import Lost, launched, world


def begin(arguments: list[str]) -> None:
    """If a launcher started several workers, continue in a watched child process, silent unless it is worker 0.

    Raises:
        UserError: several workers cannot do what the arguments ask for.
    """
    rank, size = launched()
    if size == 1:
        return
    words, _ = config_dirs(arguments)
    if {"-m", "--multirun"} & set(arguments) or (words and words[0] in COMMANDS):
        raise UserError(f"WORLD_SIZE={size}: several workers make one run together; start sweeps and other commands without them")
    watched(f"worker {rank} of {size}")
    if rank:
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (to the end)


def say(text: str, error: BaseException) -> None:
    """Print a message about ``error`` on stderr, unless another worker does.

    All workers find a mistake before they connect; only worker 0 reports it. Workers terminated by their launcher are silent, since one of
    them failed or the launcher was interrupted. Worker 0 still reports what it saved.
    """
    try:
        rank, size = launched()
    except UserError:
        rank, size = 0, 1
    if size > 1 and isinstance(error, Stopped) and error.number != signal.SIGINT and not (error.saved and rank == 0):
        return
    try:
        reports = world().speaks(error) if world().size > 1 and isinstance(error, Exception) else rank == 0
    except KeyboardInterrupt:  # the launcher ends the other workers; the cause has been reported
        if isinstance(error, Lost):
            sys.exit(1)
        raise
    if reports:
        text = printable(text)
        print(f"{text} (worker {rank})" if rank else text, file=sys.__stderr__ if rank else sys.stderr, flush=True)
