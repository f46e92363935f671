"""The pool of threads of some machine code, which it brings along, made ready for calls in this process and in those forked from it."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from offcut.core import fork_safety

MOST = 1024
"""Threads of a job."""
OPEN, FORGET = "offcut_pool_open", "offcut_pool_forget"
_NO_MEMORY, _SURVIVES_FORK = 1, 2
_opened = set[int]()


def open_pool(code: Any) -> bool:
    """Return whether the pool of some code could be made; done once for the code at an address.

    code  loaded: it gives addresses by symbols, and lives as long as the process from here on, since workers run it
    """
    address = code.address(OPEN)
    if address in _opened:
        return True
    answer = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(address)(usable_processors())
    if answer == _NO_MEMORY:
        return False
    _opened.add(address)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    if answer == _SURVIVES_FORK:
        fork_safety.run_in_children(ctypes.CFUNCTYPE(None)(code.address(FORGET)))
    return True


def usable_processors() -> int:
    """Return how many threads of this process can run at once."""
    return min(len(os.sched_getaffinity(os.getpid())), MOST)
