"""The object files of microkernels: each function is in one, and what a kernel was the first to call is taken by the next."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from offcut.backends.cpu import build
from offcut.backends.cpu.build import Shape, compile_microkernels
from offcut.backends.cpu.lowering.lower import Lowered
from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.microkernels.family import Variant
from tests.facade import forget_code

HOST = isa.host()
FAMILY = next(one for one in families(HOST) if not one.wide)
VARIANT = Variant(unit_depth=True, panels=True)


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    forget_code()
    yield
    forget_code()


def calling(*shapes: Shape) -> Lowered:
    """What a kernel calls."""
    return Lowered("", "", ((FAMILY.microkernel.name, VARIANT, shapes),))


def assert_all_there(objects: list[bytes], *shapes: Shape) -> None:
    """Linked to each other, the files have each function."""
    code = jit.load(objects, HOST)
    assert all(code.address(FAMILY.symbol(VARIANT, *shape)) for shape in shapes)


def test_what_a_kernel_is_the_first_to_call_is_one_file() -> None:
    first = compile_microkernels(calling((1, 1), (2, 1)), HOST)
    assert len(first) == 1
    assert_all_there(first, (1, 1), (2, 1))


def test_the_next_kernel_takes_it_and_adds_what_it_lacks() -> None:
    first = compile_microkernels(calling((1, 1), (2, 1)), HOST)
    second = compile_microkernels(calling((2, 1), (3, 1)), HOST)
    assert second[0] is first[0]
    assert len(second) == 2
    assert_all_there(second, (1, 1), (2, 1), (3, 1))


def test_kernels_that_are_compiled_beside_each_other_have_no_function_twice() -> None:
    shapes = [(rows, 1) for rows in range(1, 5)]
    with ThreadPoolExecutor(4) as pool:
        asked = [shapes[k : k + 2] for k in range(3)] * 3
        list(pool.map(lambda some: compile_microkernels(calling(*some), HOST), asked))
    assert_all_there(compile_microkernels(calling(*shapes), HOST), *shapes)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_child_compiles_that_was_forked_while_another_thread_did() -> None:
    with build._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # a lock that nobody holds any more would last for ever
            os._exit(0 if compile_microkernels(calling((1, 1)), HOST) else 1)
    assert os.waitpid(child, 0)[1] == 0
