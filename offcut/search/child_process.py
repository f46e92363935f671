"""The child's side of `job_runner`: jobs come in by one pipe, answers go out by another.

Messages are those of `multiprocessing.connection`. A job is ``(module:function, pickled argument, seconds, bytes)``;
answers are ``started``, once what it needs is imported, ``said`` while it runs, then one of ``returned``,
``raised`` and ``out_of_memory``, each with a value.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, NoReturn

_C_LIBRARY = ctypes.CDLL(None)
_ON_EXIT: Callable[..., Any] | None = getattr(_C_LIBRARY, "on_exit", None)


def serve(jobs: int, answers: int) -> None:
    """Run jobs until there are no more; the numbers are those of the pipes.

    The child ends by an alarm, a while after a job should have, even where nobody is left to kill it.
    """
    faulthandler.enable()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    with Connection(jobs, writable=False) as read, Connection(answers, readable=False) as written:
        sys.path[:] = read.recv()
        while True:
            try:
                name, argument, seconds, memory = read.recv()
            except EOFError:
                return
            say, limit = _Say(written, seconds), partial(_limit, memory, most)
            answer = _answer(partial(_call_by_name, name, argument), say, limit)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            signal.setitimer(signal.ITIMER_REAL, 0)
            _send_answer(written, answer)


def run_forked(
    work: Callable[[Callable[[Any], None]], Any],
    answers: Connection,
    errors: int,
    seconds: float,
    processor_seconds: float,
    memory: int,
) -> NoReturn:
    """Run one job in a process that was just forked, and leave: nothing of the parent is finalized here.

    answers   the end of the pipe to write answers to
    errors    number of the file for what is printed
    """
    try:
        gc.disable()  # what the parent would clean up is not for this process to clean up
        os.setpgid(0, 0)  # what it starts is ended with it, and Ctrl-C is the parent's
        for number in (1, 2):
            os.dup2(errors, number)
        faulthandler.disable()  # the words on standard error are those of the job
        for number in (signal.SIGALRM, signal.SIGPROF):  # a profiler of the parent has its own
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        _leave_by_exit_at_once()
        with answers:
            say = _Say(answers, seconds, processor_seconds)

            def start() -> Callable[[Callable[[Any], None]], Any]:
                return work

            _send_answer(answers, _answer(start, say, partial(_limit, memory, most)))
    finally:
        os._exit(0)


def _leave_by_exit_at_once() -> None:
    """Let ``exit`` of C leave with its status alone, where the C library can say so.

    What libraries of the parent do at their end waits for threads that a fork does not have: those of OpenMP, or of a pool.
    """
    if _ON_EXIT is not None:  # its functions are called last one first, with the status
        _ON_EXIT(_C_LIBRARY._exit, None)


class _Say:
    """Tells the parent how far a job is, and puts the alarms off.

    seconds             that may pass between two calls, on the wall
    processor_seconds   likewise of the processor; 0: any number
    """

    def __init__(self, answers: Connection, seconds: float, processor_seconds: float = 0.0) -> None:
        self.answers, self.seconds = answers, seconds
        self.processor_seconds = processor_seconds

    def alarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 2 * self.seconds + 10)
        signal.setitimer(signal.ITIMER_PROF, self.processor_seconds)

    def __call__(self, value: Any) -> None:
        self.alarm()
        self.answers.send(("said", value))


def _call_by_name(name: str, argument: bytes) -> Callable[[_Say], Any]:
    """Return the job ``module:function`` on a pickled argument, with all that it needs imported."""
    module, _, function = name.partition(":")
    return partial(getattr(import_module(module), function), pickle.loads(argument))


def _answer(
    job: Callable[[], Callable[[_Say], Any]], say: _Say, limit: Callable[[], None]
) -> tuple[str, Any]:
    """What comes of a job; its limits hold from when it is there, with all that it needs."""
    try:
        run = job()
        say.alarm()
        say.answers.send(("started", None))
        limit()
        return "returned", run(say)
    except MemoryError as error:
        return "out_of_memory", _error_and_traceback(error)
    except Exception as error:
        return "raised", _error_and_traceback(error)


def _send_answer(answers: Connection, answer: tuple[str, Any]) -> None:
    try:
        answers.send(answer)
    except Exception as error:  # what is returned cannot be pickled
        answers.send(("raised", _error_and_traceback(error)))


def _error_and_traceback(error: BaseException) -> tuple[str, str]:
    """Return an exception in a line, and its traceback."""
    line = "".join(traceback.format_exception_only(error)).splitlines()[0]
    return line, "".join(traceback.format_exception(error))


def _limit(memory: int, most: int) -> None:
    """Allow this process `memory` bytes of address space beside what it has, where the system says what that is."""
    try:
        with open("/proc/self/statm", encoding="ascii") as status:
            has = int(status.read().split()[0]) * resource.getpagesize()
    except FileNotFoundError:
        return
    limit = has + memory
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
