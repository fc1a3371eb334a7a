"""Independent jobs side by side on the cores of one machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar, cast

import torch

from fgl_bench.errors import UserError, raised_by_user
from fgl_bench.results.callbacks import Callbacks, Send
from fgl_bench.utils.allocator import return_freed_memory
from fgl_bench.utils.processes import Stopped, end_with
from fgl_bench.utils.stopping import STOP, combined, note_in_child

T = TypeVar("T")
Job = Callable[[Send], T]  # reports while it works


def groups(jobs: int, at_once: int) -> list[int]:
    """How many jobs to run together, in turn: one a core, and what would be left over with the last of them where ``at_once`` allows.

    Three on two cores take half as long again as two; two and then one take twice as long.
    """
    size = max(1, min(at_once, torch.get_num_threads()))
    full, rest = divmod(jobs, size)
    if full and rest and size + rest <= at_once:
        return [size] * (full - 1) + [size + rest]
    return [size] * full + [rest] * bool(rest)


def side_by_side(jobs: Sequence[Job[T]], at_once: int, inner: int, callbacks: Callbacks) -> list[T]:
    """Call every job and return the results in order, in :func:`groups` that share torch's threads.

    Programs of small tensors scale better over independent jobs than inside one operation. On Linux the jobs of a group whose
    jobs have one thread are forked processes, which do not wait for each other's Python; elsewhere, with a GPU in the machine (whose
    driver a fork breaks) or with more threads (whose pool a fork breaks) they are threads. The threads that a last, smaller
    group leaves idle go to that group.

    Args:
        at_once: most jobs at a time.
        inner: most torch threads inside one job. Small operations lose by more than one, and badly so on a busy machine, where
            they wait for each other.
        callbacks: receive the reports of all jobs.

    Raises:
        Exception: that of the first failing job; UserError where a process was killed.
    """
    total = torch.get_num_threads()
    results: list[T] = []
    try:
        for size in groups(len(jobs), at_once):
            first, threads = len(results), max(1, min(inner, total // size))
            group = [partial(job, callbacks.report) for job in jobs[first : first + size]]
            torch.set_num_threads(threads)
            if size == 1:
                results.append(group[0]())
            elif threads == 1 and forks():
                results += _forked(jobs[first : first + size], callbacks.report)
            else:
                results += run_group(group, threads, callbacks.cancel)
            return_freed_memory()
    finally:
        torch.set_num_threads(total)
    return results


def forks() -> bool:
    """Return True if jobs may be forked processes; children of a pool's process may not fork."""
    alone = threading.current_thread() is threading.main_thread() and len(_running) < 2  # a fork lacks the threads that hold locks
    return sys.platform == "linux" and alone and not torch.cuda.is_available() and not multiprocessing.current_process().daemon


_running: list[int] = []  # torch's threads when each of the runs began that Python code makes at the same time
_lock = threading.Lock()


@contextmanager
def within_python() -> Iterator[None]:
    """Make a run inside a user's program: its modes of gradients and precision ignored, torch's threads restored."""
    with _lock:
        _running.append(torch.get_num_threads())
    try:
        with torch.inference_mode(False), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        with _lock:
            torch.set_num_threads(_running[0])
            _running.pop()


def run_group(jobs: Sequence[Callable[[], T]], threads: int, cancel: Callable[[], None]) -> list[T]:
    """Call every job in its own thread, with a given number of torch threads; if a job fails, call ``cancel`` and raise its exception.

    Jobs that a signal ends are waited for.
    """
    results: list[Any] = [None] * len(jobs)
    errors: list[BaseException] = []
    stopped: list[Stopped] = []

    def work(number: int) -> None:
        torch.set_num_threads(threads)  # of this thread
        try:
            results[number] = jobs[number]()
        except Stopped as told:
            stopped.append(told)
        except BaseException as error:
            errors.append(error)
            cancel()

    workers = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(jobs))]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except BaseException:  # Ctrl-C reaches the main thread only
        cancel()
        for worker in workers:
            worker.join(timeout=5)
        raise
    if errors:
        raise errors[0]
    if stopped:
        raise combined(stopped)
    return results


def _forked(jobs: Sequence[Job[T]], send: Send) -> list[T]:
    """Run the jobs as processes; each one sends its reports and its result through a pipe."""
    context = multiprocessing.get_context("fork")
    workers, waiting = [], {}
    stopped: list[Stopped] = []
    results: dict[int, T] = {}
    try:
        for number, job in enumerate(jobs):
            here, there = context.Pipe(duplex=False)
            workers.append(context.Process(target=_child, args=(job, there, end_with(os.getpid())), daemon=True))
            with warnings.catch_warnings():  # a child that uses neither their locks nor more threads does not miss the others
                warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
                before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # until the child has set its handlers
                workers[-1].start()
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            STOP.children.add(cast(int, workers[-1].pid))
            if STOP.number is not None:  # since the fork
                os.kill(cast(int, workers[-1].pid), signal.SIGUSR1)
            there.close()  # before the next fork: the end of its only holder must close the pipe
            waiting[here] = number
        while waiting:
            for pipe in cast(list[Connection], wait(list(waiting))):
                number = waiting[pipe]
                try:
                    message = pipe.recv()
                except EOFError:
                    workers[number].join()
                    raise UserError(_death(workers[number].exitcode)) from None
                if isinstance(message, _Done):
                    results[number] = message.result
                    del waiting[pipe]
                elif isinstance(message, Stopped):  # it has kept what it had, as the others will
                    stopped.append(message)
                    STOP.note(message.number)
                    del waiting[pipe]
                elif isinstance(message, BaseException):
                    raise message
                else:
                    send(message)
    finally:
        STOP.children.clear()
        for worker in workers:
            worker.kill()  # an end signal might only be noted
            worker.join()
    if stopped:
        raise combined(stopped)
    return [results[number] for number in range(len(jobs))]


class _Done:
    """A job's result."""

    def __init__(self, result: Any):
        self.result = result


def _child(job: Job[T], pipe: Connection, prepare: Callable[[], None]) -> None:
    prepare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends the others
    note_in_child(os.getppid())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    if sys.stderr is sys.__stderr__:  # another thread may have held its lock when this process was forked
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    torch.set_num_threads(1)
    try:
        pipe.send(_Done(job(pipe.send)))
    except BrokenPipeError:  # no reader is left
        os._exit(1)
    except Stopped as stopped:
        pipe.send(stopped)
    except BaseException as error:
        pipe.send(_portable(error))
    os._exit(0)  # skip the parent's exit handlers


def _portable(error: BaseException) -> BaseException:
    """``error`` with its traceback, in a form that can be sent."""
    if not isinstance(error, UserError):
        traceback_text, where = "".join(traceback.format_exception(error)).rstrip(), raised_by_user(error)
        error = UserError(where) if where else error  # the traceback would be lost on the way
        error.add_note(traceback_text)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)).rstrip())
    return error


def _death(code: int | None) -> str:
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
    hint = "; if memory ran out, use a smaller memory_budget_gb or threads=1" if code == -signal.SIGKILL else ""
    return f"a process that trained some of the seeds {how}{hint}"
