"""What is compiled and let go leaves no memory behind."""

from __future__ import annotations

import ctypes
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partialmethod
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import offcut as oc
from offcut.backends.cpu.machine import jit
from offcut.backends.cpu.machine.isa import host
from offcut.core.memo import forget, memo
from tests.facade import forget_code, forget_plans

WARM, COUNTED = 3, 6
MANY_WARM, MANY = 300, 300
MOST_BYTES = 4_000  # a kernel, of which islpy loses 32 for each argument that isl takes over; 125,000 where passes are not freed
STRATEGIES = ("auto", "cut", "mask", "guard", "balance", "pad", "shift", "even", "ladder")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    forget_code()
    forget_plans()
    yield
    forget_plans()


def elementwise(number: int) -> None:
    n = oc.dim("n", min=1, max=4096)
    a = oc.placeholder((n, 17 + number), name="A")
    oc.compile(
        oc.compute((n, 17 + number), lambda i, j: a[i, j] * 2.0 + float(number), name="B"),
        [a],
        threads=1,
    )


def dense(number: int) -> None:
    depth, width = 8 + number // 7, 16 + number % 50
    n = oc.dim("n", min=1, max=64 + number)
    a, w = oc.placeholder((n, depth), name="A"), oc.placeholder((depth, width), name="W")
    k = oc.reduce_axis(depth, "k")
    c = oc.compute((n, width), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")
    ones = np.ones((depth, width), "float32")
    oc.compile(c, [a, w], {"W": ones}, strategy=STRATEGIES[number % 9], threads=1)


def reduction(number: int) -> None:
    n = oc.dim("n", min=1, max=64)
    a, k = oc.placeholder((n, 9 + number), name="A"), oc.reduce_axis(9 + number, "k")
    oc.compile(oc.compute((n,), lambda i: oc.sum(a[i, k], axis=k), name="R"), [a], threads=1)


KINDS = (elementwise, dense, reduction)


def count_alive(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how many contexts, engines and pass managers of LLVM live from now on: those that are made, less those that are freed."""
    alive = Counter[str]()
    managers = llvm.newpassmanagers
    for name, made, freed in (
        ("contexts", llvm.context.ContextRef, llvm.context.ContextRef),
        ("engines", llvm.executionengine.ExecutionEngine, llvm.executionengine.ExecutionEngine),
        ("pass managers", managers.ModulePassManager, managers.NewPassManager),
    ):

        def start(one: Any, *given: Any, name: str, begin: Any, kind: Any, **named: Any) -> None:
            begin(one, *given, **named)
            alive[name] += type(one) is kind

        def end(one: Any, name: str, finish: Any) -> None:
            finish(one)
            alive[name] -= 1

        begin = partialmethod(start, name=name, begin=made.__init__, kind=made)
        monkeypatch.setattr(made, "__init__", begin)
        finish = partialmethod(end, name=name, finish=freed._dispose)
        monkeypatch.setattr(freed, "_dispose", finish)
    return alive


def test_llvm_holds_nothing_of_a_kernel_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(WARM):
        KINDS[number % 3](number)
    forget_plans()
    gc.collect()
    alive = count_alive(monkeypatch)
    for number in range(WARM, WARM + COUNTED):
        KINDS[number % 3](number)
    forget_plans()
    gc.collect()

    assert set(alive) == {"contexts", "engines", "pass managers"}
    assert +alive == Counter()


def test_a_builder_of_passes_is_shared_by_modules_that_read_nothing_of_a_run_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    make = llvm.create_pass_builder
    monkeypatch.setattr(llvm, "create_pass_builder", lambda *given: made.append(1) or make(*given))
    builders = jit._Builders(jit._emitting(host()).machine)
    shared = [builders.get("") for _ in range(2 * jit._MAX_RUNS)]
    assert len(made) == len({id(one) for one in shared}) == 2
    assert builders.get("define void @f() noinline optnone {") is not builders.get("")
    assert builders.get("") is builders.get("")
    monkeypatch.setattr(llvm, "llvm_version_info", (99, 0, 0))  # at which nobody looked
    assert builders.get("") is not builders.get("")


def test_modules_and_their_context_go_in_order_even_where_their_text_is_wrong() -> None:
    for text in ("define nothing", "define i32 @f() {\n  ret i64 0\n}"):
        with pytest.raises(oc.InternalError, match="not valid"), jit.parse_ir(text):
            pass
    with jit.parse_ir("declare void @f()") as module:
        with pytest.raises(oc.InternalError, match="not valid"):
            jit.link(module, "define nothing")
        context = module._context
    assert module.closed
    assert context.closed


def test_a_memo_is_empty_before_the_next_program() -> None:
    asked = []

    @memo(8)
    def doubled(value: int) -> int:
        asked.append(value)
        return 2 * value

    assert [doubled(3), doubled(3)] == [6, 6]
    forget()
    assert doubled(3) == 6
    assert asked == [3, 3]


class Heap(ctypes.Structure):
    """What glibc says of its heap: `mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


def heap_bytes() -> int:
    """Bytes that are taken from glibc's heap and were not given back."""
    gc.collect()
    info: Callable[[], Heap] = ctypes.CDLL(None).mallinfo2
    info.restype = Heap  # type: ignore[attr-defined]
    heap = info()
    return int(heap.uordblks + heap.hblkhd)


needs_glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library does not say what it holds"
)


@pytest.mark.slow
@needs_glibc
def test_hundreds_of_kernels_that_are_gone_take_next_to_no_memory() -> None:
    for number in range(MANY_WARM):
        KINDS[number % 3](number)
    before = heap_bytes()
    for number in range(MANY_WARM, MANY_WARM + MANY):
        KINDS[number % 3](number)

    assert heap_bytes() - before < MANY * MOST_BYTES
