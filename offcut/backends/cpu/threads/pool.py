"""The threads that kernels run on: one pool a process, made when the first kernel wants it.

`start` compiles the pool (`pool_ir`) once and makes its functions known to the linker, so that the
object code of kernels, cached or not, names them and holds no address. Workers are made when a call
first needs them, and sleep between calls; they run on the processors that the process's first thread
may use at that time, whichever thread makes the call. One call has the pool at a time; a call that
finds it taken runs on its own thread.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache

import llvmlite.binding as llvm

from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.threads.pool_ir import BARRIER, RUN, text
from offcut.backends.host import cache as objects
from offcut.backends.host.thread_pool import MOST, open_pool
from offcut.core import fork_safety
from offcut.core.integers import whole
from offcut.errors import TargetError

_starting = fork_safety.ForkSafeLock()


def resolve_threads(asked: int | None) -> int:
    """The most threads that a call may use.

    asked   1…1024; None: what the environment variable ``OFFCUT_THREADS`` says, else 1

    Raises TargetError for anything else. It is 1 where the pool cannot be made on this system.
    """
    text = os.environ.get("OFFCUT_THREADS", "") if asked is None else ""
    if text.isdecimal():
        asked = int(text)
    elif asked is None and not text:
        asked = 1
    count = whole(asked)
    if count is None or not 1 <= count <= MOST:
        variable = asked is None or bool(text)
        raise TargetError(
            "OFFCUT_THREADS" if variable else "compile",
            f"cannot take {text!r}" if variable else f"cannot run on threads={asked!r}",
            because=f"it is an int in 1…{MOST}: the most threads that one call may use",
            help=("OFFCUT_THREADS=2",) if variable else ("threads=2",),
        )
    return count if is_supported() else 1


def is_supported() -> bool:
    """Whether this system has what the pool is made of: Linux's futex on an x86-64 processor."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")


def start() -> bool:
    """Make the pool's functions known to the linker, once; whether kernels may name them."""
    with _starting:
        return _start()


@cache
def _start() -> bool:
    return is_supported() and _open(isa.host())


def _open(host: isa.Host) -> bool:
    program = text(host.machine.threads)
    name = objects.key("pool", program, host.triple, host.feature_string)
    code = objects.get_or_build(name, lambda: jit.object_code(program, host, passes=False))
    loaded = jit.load([code], host)
    if not open_pool(loaded):
        return False
    for symbol in (RUN, BARRIER):
        llvm.add_symbol(symbol, loaded.address(symbol))
    return True
