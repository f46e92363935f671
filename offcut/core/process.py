"""What a process changes for a while: its collector of garbage, and its locks after a fork.

The collector of Python's garbage, where much is made.

What a process that was forked finds of locks: it has one thread, and what another held when it was forked would stay held.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock


def run_in_children(action: Callable[[], object]) -> None:
    """Do something in each process that is forked, before anything else."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


def hold_across_fork(lock: AbstractContextManager[object]) -> None:
    """Let forks wait until no other thread has a lock: what it guards is no use to a child half done."""

    def release() -> None:
        lock.__exit__(None, None, None)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.__enter__, after_in_parent=release, after_in_child=release)


class ForkSafeLock:
    """A lock of a module, which a thread may take several times: in a child, nobody has it but the thread that forked.

    lost  done in a child where another thread had it
    """

    def __init__(self, lost: Callable[[], object] = lambda: None) -> None:
        self._lock, self._lost = RLock(), lost
        run_in_children(self._forked)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()

    def _forked(self) -> None:
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = RLock()
            self._lost()


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
