"""Functions that run in a process of their own, which may crash, hang, or ask for all memory.

A child is a fresh interpreter in a session of its own, so that a signal of the terminal does not reach
it and all that it starts is killed with it. It takes one job after the other, since imports last a
second; after a failure there is another child. Only what is said crosses: the name of a function,
a pickled argument, a pickled result.

What cannot be named, such as an address, is called in a fork of this process (`run_in_fork`), where it is what it is here.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from offcut.core.process import ForkSafeLock
from offcut.errors import OffcutError, error_line
from offcut.search.child_process import run_forked

_SERVE = "import sys; from offcut.search.child_process import serve; serve(int(sys.argv[1]), int(sys.argv[2]))"
_LAST_WORDS = 4096
_STARTING = 60.0  # seconds until a job has imported what it needs, at most
_SOON = 5.0
_NO_MEMORY = ("out of memory", "bad_alloc", "MemoryError", "Cannot allocate memory")
_UNASKED = "; the system sends it where memory is short"
_FROM_OUTSIDE = {
    getattr(signal, name)
    for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGPWR")
    if hasattr(signal, name)
}
"""Signals that others send to a process; what it does itself ends it by others, or by leaving."""


class JobStatus(Enum):
    """How a job ended."""

    RETURNED = "returned"
    RAISED = "raised"  # an exception; the child lives on
    CRASHED = "crashed"  # by a signal, or by leaving
    HUNG = "hung"  # silent for longer than it may be, and killed
    OUT_OF_MEMORY = "out_of_memory"  # it asked for more than it may have


@dataclass(frozen=True, slots=True)
class JobResult:
    """What became of a job.

    value         what the function returned
    because       why it did not, in a line
    details       a traceback, or the last words on standard error
    last_message  the last that it said; None if it said nothing
    signal        that ended its process; 0 if none did
    """

    status: JobStatus
    value: Any = None
    because: str = ""
    details: str = field(default="", repr=False)
    last_message: Any = None
    signal: int = 0


@dataclass(frozen=True, slots=True)
class _Forked:
    """A process that was forked."""

    pid: int

    def wait(self) -> int:
        """Wait for its end; how it ended, as `subprocess` says it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass(slots=True)
class _Child:
    """A process with the pipes to it.

    jobs   None: it has its one job already
    """

    process: subprocess.Popen[bytes] | _Forked
    jobs: Connection | None
    answers: Connection
    errors: IO[bytes]

    def answer(self, until: float) -> tuple[str, Any]:
        """Return the next message: its kind and its value.

        Raises TimeoutError where it is not there in time, EOFError where the child has gone.
        """
        seconds_left = until - time.monotonic()
        if seconds_left <= 0 or not select.select([self.answers], [], [], seconds_left)[0]:
            raise TimeoutError
        try:
            kind, value = self.answers.recv()
        except OSError:  # it went within a message
            raise EOFError from None
        return kind, value

    def error_bytes(self) -> int:
        """Bytes of what it wrote to standard error."""
        return os.fstat(self.errors.fileno()).st_size

    def last_words(self, since: int) -> str:
        """Return the end of what it wrote to standard error, behind the first `since` bytes."""
        start = max(since, self.error_bytes() - _LAST_WORDS)
        return os.pread(self.errors.fileno(), _LAST_WORDS, start).decode(errors="replace")

    def end(self) -> int:
        """Kill it and all that it started; how it ended, if it had, else by SIGKILL."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        if self.jobs is not None:
            with suppress(OSError):
                self.jobs.close()
        self.errors.close()
        self.answers.close()
        return status

    def leave(self) -> None:
        """Wait for the end of a child that has closed its pipe, which is soon, and leave its status."""
        until = time.monotonic() + _SOON
        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, self.process.pid, how) is None and time.monotonic() < until:
            time.sleep(0.005)


class JobRunner:
    """Runs jobs in a child, one at a time; a context manager that leaves no process behind.

    memory       bytes of address space that a job may take beside what the interpreter has
    environment  variables that the child has beside those of this process
    """

    def __init__(self, memory: int, environment: Mapping[str, str] | None = None) -> None:
        self.memory, self.environment = memory, environment or {}
        self._child: _Child | None = None
        self._end: Callable[[], int | None] = lambda: None

    def __enter__(self) -> JobRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> int:
        """End the child, and how it ended; the next job has another."""
        code, self._child = self._end(), None
        return code or 0

    def run(
        self,
        function: str,
        argument: Any,
        seconds: float,
        report: Callable[[Any], None] = lambda value: None,
    ) -> JobResult:
        """What becomes of ``function(argument, say)`` in the child.

        function  ``module:name``, importable from this process's `sys.path`
        seconds   that the job may be silent, on the wall: from its start, and after each ``say(value)``
        report    called here with each value, those of both runs where there are two

        A job whose child is ended from outside, by the killer of a system that is short of memory, say, runs once
        more, in another child: only what ends it twice is taken to be its own.

        Raises OffcutError for an argument that cannot be pickled.
        """
        refused = f"cannot send a {type(argument).__name__} to another process"
        job = (function, pickle_for_process(argument, "run", refused), seconds, self.memory)
        return _once_more(lambda: self._run_once(job, report))

    def _run_once(
        self, job: tuple[str, bytes, float, int], report: Callable[[Any], None]
    ) -> JobResult:
        """Return what becomes of a job in one child."""
        with self._stop_on_interrupt():
            child = self._child or self._start()
            assert child.jobs is not None
            before = child.error_bytes()
            with suppress(BrokenPipeError):  # it is dead: there will be no answer
                child.jobs.send(job)
            return _follow(child, job[2], report, before, self.close)

    @contextmanager
    def _stop_on_interrupt(self) -> Iterator[None]:
        """A child whose job is left is ended."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _start(self) -> _Child:
        (theirs_in, jobs), (answers, theirs_out) = Pipe(duplex=False), Pipe(duplex=False)
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the child
        ends = theirs_in.fileno(), theirs_out.fileno()
        search_path = os.pathsep.join(filter(None, sys.path))
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, *map(str, ends)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=ends,
                start_new_session=True,
                env={**os.environ, **self.environment, "PYTHONPATH": search_path},
            )
        except BaseException:
            for opened in (jobs, answers, errors):
                opened.close()
            raise
        finally:
            theirs_in.close()
            theirs_out.close()
        child = _Child(process, jobs, answers, errors)
        self._child, self._end = child, weakref.finalize(self, child.end)
        with suppress(BrokenPipeError):
            jobs.send(sys.path)
        return child


def _follow(
    child: _Child,
    seconds: float,
    report: Callable[[Any], None],
    before: int,
    close: Callable[[], int],
) -> JobResult:
    """Return what becomes of the job of a child, which is closed unless it can take another.

    before   bytes that the child had written to standard error before the job
    """
    last: Any = None
    until = time.monotonic() + _STARTING + seconds
    try:
        while True:
            kind, value = child.answer(until)
            if kind not in ("started", "said"):
                break
            if kind == "said":
                last = value
                report(value)
            until = time.monotonic() + seconds
    except TimeoutError:
        words = child.last_words(before)
        close()
        return JobResult(JobStatus.HUNG, None, f"silent for {seconds:g} s", words, last)
    except (EOFError, pickle.UnpicklingError):
        child.leave()
        words = child.last_words(before)
        short = any(sign in words for sign in _NO_MEMORY)
        status = JobStatus.OUT_OF_MEMORY if short else JobStatus.CRASHED
        code = close()
        return JobResult(status, None, _exit_text(code), words, last, max(-code, 0))
    if kind == JobStatus.RETURNED.value:
        return JobResult(JobStatus.RETURNED, value, last_message=last)
    if kind == JobStatus.OUT_OF_MEMORY.value:
        close()
    because, words = value
    return JobResult(JobStatus(kind), None, because, words, last)


def _once_more(
    run: Callable[[], JobResult], is_blocked: Callable[[JobResult], bool] = lambda ended: False
) -> JobResult:
    """Return what becomes of a job, by a second run where its process was ended from outside in the first, or blocked."""

    def is_by_chance(result: JobResult) -> bool:
        return result.signal in _FROM_OUTSIDE or is_blocked(result)

    result = run()
    if is_by_chance(result):
        result = run()
        if is_by_chance(result):
            return replace(result, because=f"{result.because}, and so was a second run")
    return result


_forking = ForkSafeLock()


def run_in_fork(
    work: Callable[[Callable[[Any], None]], Any],
    seconds: float,
    processor_seconds: float,
    memory: int,
) -> JobResult:
    """Return what becomes of ``work(say)`` in a fork of this process, which has one thread.

    work      any callable; what it needs should be imported already, and what it returns can be pickled
    seconds   that the job may be silent, on the wall: from its start, and after each ``say(value)``
    processor_seconds   likewise, of the processor's time
    memory    bytes of address space that it may take beside what this process has

    A fork that is ended from outside is followed by one more, as with `JobRunner.run`, and so is one that is silent before
    its first ``say``: a lock that another thread had when it was forked stays locked there.
    """

    def is_blocked(result: JobResult) -> bool:
        silent = result.status is JobStatus.HUNG and result.because.startswith("silent")
        return silent and result.last_message is None

    return _once_more(
        lambda: _run_in_one_fork(work, seconds, processor_seconds, memory), is_blocked
    )


def _run_in_one_fork(
    work: Callable[[Callable[[Any], None]], Any],
    seconds: float,
    processor_seconds: float,
    memory: int,
) -> JobResult:
    """Return what becomes of a job in one fork."""
    with (
        _forking,
        tempfile.TemporaryFile() as errors,
    ):  # one at a time: a fork has the pipes of others
        answers, theirs = Pipe(duplex=False)
        with warnings.catch_warnings():
            # Python warns where there are threads: they may hold locks, for which the child waits in vain until its time is over.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if not process:
            run_forked(work, theirs, errors.fileno(), seconds, processor_seconds, memory)
        theirs.close()
        with suppress(OSError):  # the child does so as well, whichever is first
            os.setpgid(process, process)
        child, status = _Child(_Forked(process), None, answers, errors), list[int]()

        def close() -> int:
            if not status:
                status.append(child.end())
            return status[0]

        try:
            result = _follow(child, seconds, lambda value: None, 0, close)
        finally:
            close()
    if result.because == _exit_text(-signal.SIGPROF):
        because = f"busy for {processor_seconds:g} s of the processor's time"
        return replace(result, status=JobStatus.HUNG, because=because)
    return result


def _exit_text(code: int) -> str:
    """Return how a process ended, in words.

    code  as `subprocess` says it: below 0 the signal
    """
    if code >= 0:
        return f"it left with status {code}"
    name = signal.Signals(-code).name
    return f"ended by {name}{_UNASKED if -code == signal.SIGKILL else ''}"


def pickle_for_process(value: Any, op: str, refused: str) -> bytes:
    """Return the pickle of a value for another process.

    Raises OffcutError of `op`, which says what was `refused`, for what cannot be pickled.
    """
    try:
        return pickle.dumps(value)
    except Exception as error:
        help = ("functions and classes of an importable module can be sent",)
        raise OffcutError(op, refused, because=error_line(error), help=help) from error


__all__ = ["JobResult", "JobRunner", "JobStatus", "pickle_for_process", "run_in_fork"]
