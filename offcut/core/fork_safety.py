"""What a process that was forked finds of locks: it has one thread, and what another held when it was forked would stay held."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
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
