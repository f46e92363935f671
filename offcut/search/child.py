"""The child's side of `children`: jobs come in by one pipe, answers go out by another.

A message is a pickle behind its length. A job is ``(module:function, pickled argument, seconds, bytes)``;
answers are ``started``, once what it needs is imported, ``said`` while it runs, then one of ``returned``,
``raised`` and ``out_of_memory``, each with a value.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, BinaryIO

_LENGTH = struct.Struct("!Q")
_PART = 1 << 20


def send(file: BinaryIO, message: Any) -> None:
    """Write a message."""
    data = pickle.dumps(message)
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def receive(read: Callable[[int], bytes]) -> Any:
    """Read a message by a function that gives at most so many bytes, and none at the end.

    Raises EOFError where the other side has gone.
    """
    (length,) = _LENGTH.unpack(_exactly(read, _LENGTH.size))
    return pickle.loads(_exactly(read, length))


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = read(min(count - len(data), _PART))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def serve(jobs: int, answers: int) -> None:
    """Run jobs until there are no more; the numbers are those of the pipes.

    The child ends by an alarm, a while after a job should have, even where nobody is left to kill it.
    """
    faulthandler.enable()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    with os.fdopen(jobs, "rb") as read, os.fdopen(answers, "wb") as written:
        sys.path[:] = receive(read.read)
        while True:
            try:
                name, argument, seconds, memory = receive(read.read)
            except EOFError:
                return
            answer = _answer(name, argument, _Say(written, seconds), partial(_limit, memory, most))
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            signal.setitimer(signal.ITIMER_REAL, 0)
            try:
                send(written, answer)
            except Exception as error:  # what is returned cannot be pickled
                send(written, ("raised", _told(error)))


class _Say:
    """Tells the parent how far a job is, and puts the alarm off."""

    def __init__(self, file: BinaryIO, seconds: float) -> None:
        self.file, self.seconds = file, seconds

    def alarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 2 * self.seconds + 10)

    def __call__(self, value: Any) -> None:
        self.alarm()
        send(self.file, ("said", value))


def _answer(name: str, argument: bytes, say: _Say, limit: Callable[[], None]) -> tuple[str, Any]:
    """What comes of a job; its limits hold from when all that it needs is imported."""
    try:
        module, _, function = name.partition(":")
        run, given = getattr(import_module(module), function), pickle.loads(argument)
        say.alarm()
        send(say.file, ("started", None))
        limit()
        return "returned", run(given, say)
    except MemoryError as error:
        return "out_of_memory", _told(error)
    except Exception as error:
        return "raised", _told(error)


def _told(error: BaseException) -> tuple[str, str]:
    """An exception in a line, and its traceback."""
    line = "".join(traceback.format_exception_only(error)).splitlines()[0]
    return line, "".join(traceback.format_exception(error))


def _limit(memory: int, most: int) -> None:
    """Allow this process `memory` bytes of address space beside what it has, where the system says what that is."""
    try:
        with open("/proc/self/statm", encoding="ascii") as held:
            has = int(held.read().split()[0]) * resource.getpagesize()
    except FileNotFoundError:
        return
    wanted = has + memory
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, most))
