"""Kernels of a model that other processes compile before they are asked for: what they make lies in the cache.

A kernel takes a core for a second or less, and a model has dozens. So where the code of several is not in the cache yet, helpers are
started, as many as there are further cores: each takes jobs from the end of the list while the model takes them from its front, and
waits for one that a helper has begun. A helper that fails, does not answer, or cannot be started, costs time alone: the model compiles
what it does not find. Whoever has something to do for seconds before the jobs are known, starts the first one then: `helper_in_advance`.

``OFFCUT_PROCESSES`` says how many may compile at once, the model's own among them; by default as many as the process may use cores.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple

import numpy as np

import offcut
from offcut import debug
from offcut.backends.host import cache
from offcut.backends.target import Target
from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.errors import InternalError, OffcutError, TargetError
from offcut.pipeline import compile

LEAST = 3
"""Kernels for which a helper is started: to import offcut takes it as long as one, and the model makes others meanwhile."""
LONGEST = 120
"""Seconds after which a helper that has not answered is ended: a hundred times what a kernel takes."""
MOST = 8
"""Processes, where nobody says how many: models have few kernels that take long."""
_DONE = b"\n"


class Compilation(NamedTuple):
    """A kernel that is to be compiled.

    key        of its text
    output, inputs, threads, target  as `offcut.compile` has them
    constants  the element type and the shape of each
    """

    key: str
    output: Sequence[Tensor] | Program
    inputs: Sequence[Tensor] | None
    constants: Mapping[str, tuple[Any, tuple[int, ...]]]
    threads: int | None
    target: str | Target

    @property
    def mark(self) -> str:
        """The name of what says in the cache that its code is there."""
        return cache.key("ahead", self.key, repr(self.threads), repr(self.target))

    def run(self) -> None:
        """Compile it, with zeros for constants.

        Raises what `offcut.compile` does.
        """
        zeros = {name: np.zeros(shape, dtype) for name, (dtype, shape) in self.constants.items()}
        compile(self.output, self.inputs, zeros, threads=self.threads, target=self.target)


class CompilePool:
    """Jobs, some of which helpers do."""

    def __init__(self, jobs: Sequence[Compilation], count: int) -> None:
        """Start as many helpers as are worth it.

        count  of processes that may compile, this one among them
        """
        self._missing = dict[str, Compilation]()
        self._begun = dict[str, threading.Event]()
        self._left, self._lock = dict[str, Compilation](), threading.Lock()
        self._helpers: list[subprocess.Popen[bytes]] = []
        if not jobs or not _may_help(count):
            return
        self._missing = {job.key: job for job in jobs if cache.read(job.mark) is None}
        self._left = dict(self._missing)
        for _ in range(min(count - 1, len(self._missing) // LEAST)):
            with suppress(OSError):
                self._start()

    @contextmanager
    def making(self, key: str) -> Iterator[None]:
        """While the kernel of that text is made here: no helper begins it, and one that has is waited for."""
        job = self._missing.get(key)
        if job is not None:
            with self._lock:
                self._left.pop(key, None)
                event = self._begun.get(key)
            if event is not None and not event.wait(LONGEST):
                self._end()
        yield
        if job is not None:
            cache.write(job.mark, b"")

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *exception: object) -> None:
        """End the helpers: what they had begun is there, or nobody asks for it any more."""
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._left.clear()
            for helper in self._helpers:
                helper.kill()

    def _start(self) -> None:
        try:
            helper = _waiting.pop()
        except IndexError:
            helper = _start_helper()
        self._helpers.append(helper)
        threading.Thread(target=self._feed, args=(helper,), daemon=True).start()

    def _feed(self, helper: subprocess.Popen[bytes]) -> None:
        """Give a helper one job after the other, until there is none or it ends."""
        assert helper.stdin is not None
        assert helper.stdout is not None
        there = helper.stdout.readline() == _DONE  # nothing waits for it while it imports
        while there:
            with self._lock:
                if not self._left:
                    break
                key, job = self._left.popitem()
                event = self._begun[key] = threading.Event()
            try:
                _send(helper.stdin, job)
                if helper.stdout.readline() != _DONE:
                    break
            except (OSError, ValueError, TypeError, AttributeError, pickle.PicklingError):
                break  # it was ended, or what it would be sent cannot be
            finally:
                event.set()
        with suppress(OSError):
            helper.stdin.close()
        helper.wait()


_waiting: list[subprocess.Popen[bytes]] = []
"""Helpers that import what they need, and that no model has taken."""


@contextmanager
def helper_in_advance(kernels: int) -> Iterator[None]:
    """Where a model of so many kernels is about to be traced, and compiled then: a helper imports meanwhile. One that no model has
    taken is ended.
    """
    helpers: list[subprocess.Popen[bytes]] = []
    if kernels >= LEAST and _may_help(max_processes()):
        with suppress(OSError):
            helpers.append(_start_helper())
    _waiting.extend(helpers)
    try:
        yield
    finally:
        for helper in helpers:
            try:
                _waiting.remove(helper)
            except ValueError:  # it was taken
                continue
            helper.kill()
            helper.communicate()


def _may_help(count: int) -> bool:
    """Whether helpers may be started: what they make is found in the cache, and nobody looks at how it is made."""
    is_observed = any(os.environ.get(name) for name in ("OFFCUT_DEBUG", "OFFCUT_DUMP"))
    return count > 1 and cache.cache_dir() is not None and not debug.verifies() and not is_observed


def _start_helper() -> subprocess.Popen[bytes]:
    """A helper.

    Raises OSError where it cannot be started.
    """
    roots = [os.path.dirname(os.path.dirname(offcut.__file__)), *sys.path]
    code = f"import sys; sys.path[:] = {roots!r}; from {__name__} import helper; helper()"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def max_processes() -> int:
    """How many processes may compile at once.

    Raises TargetError where ``OFFCUT_PROCESSES`` is no number from 1 on.
    """
    text = os.environ.get("OFFCUT_PROCESSES", "")
    if not text:
        own = getattr(os, "sched_getaffinity", None)
        return min(MOST, len(own(0)) if own else os.cpu_count() or 1)
    if not text.isdecimal() or int(text) < 1:
        raise TargetError(
            "OFFCUT_PROCESSES",
            f"cannot compile in {text!r} processes",
            because="it is not a number from 1 on",
            help=("OFFCUT_PROCESSES=1 starts none",),
        )
    return int(text)


def helper() -> None:
    """Say that it is there, do the jobs that come in, and answer each when it is done, well or not."""
    jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a compiler prints is no answer
    answers.write(_DONE)
    answers.flush()
    while True:
        try:
            job: Compilation = pickle.load(jobs)
        except EOFError:
            return
        with suppress(OffcutError, InternalError):
            job.run()
        answers.write(_DONE)
        answers.flush()


def _send(to: IO[bytes], job: Compilation) -> None:
    to.write(pickle.dumps(job))
    to.flush()
