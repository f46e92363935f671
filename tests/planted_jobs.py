"""Jobs for children that end in every way there is."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Say = Callable[[Any], None]


def double(given: Any, say: Say) -> Any:
    say(given)
    return given * 2


def process(given: Any, say: Say) -> int:
    return os.getpid()


def session(given: Any, say: Say) -> tuple[int, int]:
    return os.getsid(0), os.getpgid(0)


def abort(given: Any, say: Say) -> None:
    say("about to")
    os.abort()


def wait_where_first(given: Path, say: Say) -> str:
    """Wait to be ended in the first process that runs it, by a file in a folder; in the next one, return."""
    first = not (given / "first").exists()
    (given / "first").touch()
    say(os.getpid())
    if first:
        ctypes.PyDLL(None).pause()
    return "done"


def read_nowhere(given: Any, say: Say) -> None:
    ctypes.string_at(8)


def leave(given: Any, say: Say) -> None:
    os._exit(3)


def hang(given: Any, say: Say) -> None:
    say("still here")
    ctypes.CDLL(None).pause()  # holds Python's lock no more than a compiled loop does


def hang_by_name(given: Any, say: Say) -> None:
    say(os.getpid())
    ctypes.PyDLL(None).pause()


def spin(given: Any, say: Say) -> None:
    ctypes.PyDLL(None).pause()  # holds it


def talk(given: Any, say: Say) -> str:
    for part in range(given):
        say(part)
    return "done"


def take(given: Any, say: Say) -> None:
    bytearray(given)


def take_as_c(given: Any, say: Say) -> None:
    """As LLVM does where there is no memory left."""
    os.write(2, b"LLVM ERROR: out of memory\n")
    os.abort()


def fail(given: Any, say: Say) -> None:
    raise ValueError("no\nnever")


def give_what_cannot_be_sent(given: Any, say: Say) -> Any:
    return lambda: None


def shout(given: Any, say: Say) -> str:
    os.write(1, b"\0" * 100_000)
    sys.stdout.write("what a candidate prints is no answer")
    sys.stdout.flush()
    return "heard"


def hang_with_a_child(given: Path, say: Say) -> None:
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    say(started.pid)
    time.sleep(1000)
