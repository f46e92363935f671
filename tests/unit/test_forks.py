"""Forks while another thread compiles: what that thread held, the child does without."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread

import llvmlite.binding as llvm
import pytest
from compiled import in_child, needs_fork

from offcut.backends.cpu.machine import jit
from offcut.core import process
from offcut.core.memo import lazy_property
from offcut.polyhedral import isl_budget

pytestmark = needs_fork

HELD = 0.2  # seconds, of a lock that a fork waits for


class Slow:
    """An object that another thread may ask."""

    def __init__(self, asked: Callable[[], int]) -> None:
        self._asked = asked

    @lazy_property
    def answer(self) -> int:
        """What it is asked for."""
        return self._asked()


@contextmanager
def in_thread(held: AbstractContextManager[None], release: Event, wait: float) -> Iterator[None]:
    """Another thread holds `held`, at least until the block is left or `wait` seconds are over."""
    inside = Event()

    def hold() -> None:
        with held:
            inside.set()
            release.wait(wait)

    thread = Thread(target=hold)
    thread.start()
    assert inside.wait(20)
    try:
        yield
    finally:
        release.set()
        thread.join()


def in_time(action: Callable[[], None]) -> int:
    """`in_child`, whose child is ended where it waits for ever."""

    def limited() -> None:
        signal.alarm(20)
        action()

    return in_child(limited)


def test_a_fork_waits_until_no_thread_is_in_llvm() -> None:
    assert jit.llvm is llvm  # where it is loaded, forks wait

    def asked() -> None:
        assert llvm.get_process_triple()

    with in_thread(llvm.ffi.lib._lock, Event(), HELD):
        assert in_time(asked) == 0
    asked()


def test_a_child_takes_a_lock_that_another_thread_had() -> None:
    lost: list[str] = []
    lock = process.ForkSafeLock(lost=lambda: lost.append("lost"))

    def asked() -> None:
        with lock:
            assert lost == ["lost"]

    with in_thread(lock, Event(), 60):
        assert in_time(asked) == 0
    assert not lost


def test_a_child_keeps_a_lock_that_it_was_forked_with() -> None:
    lock = process.ForkSafeLock(lost=lambda: pytest.fail("nobody lost it"))
    took: list[bool] = []

    def take() -> None:
        with lock:
            took.append(True)

    def asked() -> None:
        other = Thread(target=take, daemon=True)
        other.start()
        other.join(HELD)
        assert not took
        lock.__exit__(None, None, None)
        other.join(20)
        assert took

    with lock:
        assert in_time(asked) == 0


def test_a_child_asks_isl_without_the_bound_of_another_thread() -> None:
    def asked() -> None:
        assert isl_budget._CONTEXT.get_max_operations() == 0
        with isl_budget.operation_budget(7):
            assert isl_budget._CONTEXT.get_max_operations() >= 7

    with in_thread(isl_budget.operation_budget(5), Event(), 60):
        assert in_time(asked) == 0


def test_a_child_keeps_the_bound_that_it_was_forked_in() -> None:
    with isl_budget.operation_budget(5):
        most = isl_budget._CONTEXT.get_max_operations()

        def asked() -> None:
            assert isl_budget._CONTEXT.get_max_operations() == most

        assert in_time(asked) == 0


def test_a_child_computes_what_another_thread_was_about_to() -> None:
    waiting, release = Event(), Event()

    def wait() -> int:
        waiting.set()
        release.wait(60)
        return 1

    thread = Thread(target=lambda: Slow(wait).answer)
    thread.start()
    assert waiting.wait(20)

    def asked() -> None:
        assert Slow(lambda: 2).answer == 2

    try:
        assert in_time(asked) == 0
    finally:
        release.set()
        thread.join()


def test_threads_that_ask_at_once_get_one_value() -> None:
    made: list[object] = []
    both = [Event(), Event()]

    def make() -> object:
        both[len(made)].set()
        made.append(object())
        assert all(one.wait(20) for one in both)
        return object()

    slow = Slow(make)  # type: ignore[arg-type]
    found: list[object] = []
    threads = [Thread(target=lambda: found.append(slow.answer)) for _ in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is slow.answer
    assert len(made) == 2
