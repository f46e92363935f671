"""Each operator with its results in each order of axes, and what it reads by rows, transposed, with gaps, repeated and in reverse:
as kernels and in graphs, everything between pages that may not be touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice, permutations
from typing import Any

import numpy as np
import pytest

from offcut import ops
from offcut.backends.host import arrays as host
from offcut.core import index as ix
from offcut.core.expr import variables
from offcut.graph.program_operators import PROGRAMS
from offcut.graph.views import VIEWS
from offcut.ir import Binary
from tests.agree import agree, of_peer
from tests.compiled import Array
from tests.facade import Builder, MemoryBlocks, Ref, compile_graph, interpret_graph
from tests.guarded import LAYOUTS, Memory
from tests.operator_cases import CASES, SIZES, Case, Input

VARIANTS = 6
"""Pairs of an order of results and a layout of inputs: all orders of three axes."""


def named(case: Case) -> str:
    """Return what a test calls a case."""
    return f"{CASES.index(case)}-{case.op}"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """What models allocate meanwhile lies between walls."""
    found = Memory()
    monkeypatch.setattr(host, "allocate", found.allocated)
    monkeypatch.setattr(MemoryBlocks, "take", lambda _, count: found.arena(count))
    return found


def laid(case: Case, layout: str, memory: Memory) -> dict[str, Array]:
    """The arrays of a case, in a layout."""
    given = {}
    for name, array in case.arrays().items():
        given[name] = memory.lying(layout, array.shape, array.dtype.name)
        given[name][...] = array[:1] if layout == "expanded" and array.ndim else array
    return given


def order_of(rank: int, variant: int) -> tuple[int, ...]:
    """An order of axes for each variant; all of them up to three axes."""
    every = [*permutations(range(rank))]
    return every[variant * max(len(every) // VARIANTS, 1) % len(every)]


def outs_lie(variant: int) -> Iterator[str]:
    """The layouts of results, in turn."""
    return islice(cycle(("rows", "sliced", "reversed")), variant, None)


def same(found: Array, expected: Array) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
    else:
        agree(found, of_peer(expected))


def test_every_operator_has_a_case() -> None:
    assert {case.op for case in CASES} == {*ops.__all__, *PROGRAMS, *VIEWS}


@pytest.mark.every(80)
@pytest.mark.parametrize("case", [c for c in CASES if c.op not in VIEWS], ids=named)
def test_a_kernel_reads_and_writes_any_layout(case: Case, memory: Memory) -> None:
    kernel, bound = case.kernel(), case.bound()
    names = [one.name for one in kernel.signature.inputs]
    assert sorted(names) == sorted(case.inputs)
    for layout in LAYOUTS:
        given = laid(case, layout, memory)
        expected = [*interpret_graph(bound, given, **sizes_of(case)).values()]
        for variant in range(VARIANTS):
            outs = [
                memory.in_order(order_of(e.ndim, variant), e.shape, e.dtype.name, out_layout)
                for e, out_layout in zip(expected, outs_lie(variant), strict=False)
            ]
            kernel(*(given[name] for name in names), out=tuple(outs) if len(outs) > 1 else outs[0])
            for found, exact in zip(outs, expected, strict=True):
                same(found, exact)
        memory.check()
        memory.walled.clear()


def sizes_of(case: Case) -> dict[str, int]:
    """The sizes that no input of a case shows."""
    shown = {extent for one in case.inputs.values() for extent in one.shape}
    return {name: size for name, size in SIZES.items() if name not in shown}


@pytest.mark.every(180)
@pytest.mark.parametrize("variant", range(VARIANTS))
@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_graph_stores_its_results_in_any_order(case: Case, variant: int, memory: Memory) -> None:
    layout = LAYOUTS[variant % len(LAYOUTS)]
    made = Builder(case.op)
    sizes = {name: made.size(name, 0, 64) for name in SIZES}
    inputs, given = {}, {}
    for name, one in case.inputs.items():
        inputs[name], given[name] = viewed(made, name, one, layout, sizes, case)
    results = case.results(made, inputs)
    made.output(*results)
    orders = {one.name: order_of(len(made.shape(one)), variant) for one in results}
    model = compile_graph(made.bound, threads=1, orders=orders)
    shown = {name for one in made.bound.graph.inputs for e in one.shape for name in variables(e)}
    known = {name: size for name, size in SIZES.items() if name not in shown}
    placed = {}
    for name, array in given.items():
        placed[name] = memory.lying("rows", array.shape, array.dtype.name)
        placed[name][...] = array
    found = model(placed, **known)
    memory.check()
    for name, exact in interpret_graph(made.bound, given, **known).items():
        same(found[name], exact)
        assert found[name].transpose(orders[name]).flags.c_contiguous


def viewed(
    made: Builder, name: str, one: Input, layout: str, sizes: dict[str, Any], case: Case
) -> tuple[Ref, Array]:
    """An input of a graph as a view of what a call gives, and that."""
    array = case.arrays()[name]
    shape = [sizes.get(e, e) for e in one.shape]  # type: ignore[call-overload]
    rank = len(shape)
    match layout:
        case "transposed":
            x = made.input(name, one.dtype, tuple(reversed(shape)))
            back = tuple(range(rank - 1, -1, -1))
            return made.node("transpose", x, axes=back), np.ascontiguousarray(array.T)
        case "sliced":
            wide = [Binary("*", ix.const(2), ix.index(e)) for e in shape]
            x = made.input(name, one.dtype, tuple(wide))
            held = np.zeros([2 * e for e in array.shape], array.dtype)
            for axis, extent in enumerate(wide):
                x = made.node("slice", x, axis, 0, extent, 2)
            held[(slice(None, None, 2),) * rank] = array
            return x, held
        case "expanded" if rank:
            x = made.input(name, one.dtype, (1, *shape[1:]))
            return made.node("broadcast_to", x, tuple(shape)), array[:1]
        case "reversed" if rank:
            x = made.input(name, one.dtype, tuple(shape))
            return made.node("flip", x), np.ascontiguousarray(np.flip(array))
        case _:
            return made.input(name, one.dtype, tuple(shape)), array
