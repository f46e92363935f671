"""The collector of Python's garbage, where much is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from offcut.core.fork_safety import ForkSafeLock, run_in_children

_lock, _inside = ForkSafeLock(), 0


def _forget() -> None:
    """A child that was forked has no other thread: nothing of it is set aside."""
    global _inside
    if _inside:
        gc.unfreeze()
    _inside = 0


run_in_children(_forget)


@contextmanager
def freeze_gc() -> Iterator[None]:
    """Within it, collections look at what is made there alone, and not at what a process holds already: torch and
    a model are a million objects, and one look at them takes .2 s. What of them becomes garbage meanwhile is freed by the first
    collection behind it.

    Nothing is set aside where somebody has done so already (`gc.freeze`): these are his. What another thread sets aside
    meanwhile is looked at again.
    """
    global _inside
    with _lock:
        mine = bool(_inside) or not gc.get_freeze_count()
        if mine:
            _inside += 1
        if mine and _inside == 1:
            gc.freeze()
    try:
        yield
    finally:
        with _lock:
            if mine:
                _inside -= 1
            if mine and not _inside:
                gc.unfreeze()
