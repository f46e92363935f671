"""Every operator of `oc.ops` that integers of the data lead into an array, at −2n, −n−1, −n, −1, 0, n−1, n and the ends of their
type: compiled and interpreted, between pages that may not be touched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compiled import Array
from conftest import slow

import offcut as oc
from offcut import Program, Tensor, ops
from offcut.core.dtypes import INDEX_DTYPES
from tests.guarded import Memory

N = 7
COUNT = 19
"""Indices of a call: a vector, and some."""
BY_INTEGERS = {"indices", "ids", "ends", "lengths"}
"""What operators call integers that lead somewhere."""
RECURRENT = ("gru", "lstm", "rnn")
"""Tested below: their lengths end loops."""
n, m = oc.dim("n", max=64), oc.dim("m", max=64)


class Refused(Exception):
    """A reference has no element at a place."""


@dataclass(frozen=True)
class Case:
    """An operator whose operand `J` holds COUNT integers.

    made    of tensors by name
    wanted  of arrays by name, the integers as int64; raises Refused where a call is refused
    """

    op: str
    made: Callable[..., Tensor | Program]
    wanted: Callable[..., Array]
    shapes: dict[str, tuple[Any, ...]]
    dtypes: tuple[str, ...] = INDEX_DTYPES


def place(number: int, from_end: bool) -> int:
    """The place along an axis of N elements; −1 where there is none."""
    found = number + N if number < 0 and from_end else number
    return found if 0 <= found < N else -1


def taken(a: Array, numbers: Array, from_end: bool) -> Array:
    places = [place(one, from_end) for one in numbers.ravel().tolist()]
    if -1 in places:
        raise Refused
    found: Array = a[np.array(places).reshape(numbers.shape)]
    return found


def scattered(
    a: Array, numbers: Array, updates: Array, from_end: bool, drop: bool, added: bool = False
) -> Array:
    made = a.copy()
    for number, update in zip(numbers.ravel().tolist(), updates, strict=True):
        to = place(number, from_end)
        if to == -1:
            if drop:
                continue
            raise Refused
        made[to] = made[to] + update if added else update
    return made


def grouped(x: Array, w: Array, ends: Array) -> Array:
    made = np.zeros((len(x), w.shape[2]), np.float32)
    for row in range(len(x)):
        group = int((ends <= row).sum())
        if group < len(ends):
            made[row] = x[row] @ w[group]
    return made


def _cases() -> Iterator[Case]:
    row, rows, ids, nd = (n,), (n, 3), (m,), (m, 1)
    for from_end in (True, False):
        end = {"from_end": from_end}
        yield Case("take", lambda X, J, end=end: ops.take(X, J, **end), lambda X, J, e=from_end: taken(X, J, e), {"X": rows, "J": ids})  # fmt: skip
        yield Case("take_along_axis", lambda X, J, end=end: ops.take_along_axis(X, J, 0, **end), lambda X, J, e=from_end: taken(X, J, e), {"X": row, "J": ids})  # fmt: skip
        for drop in (True, False):
            for added in (False, True):
                options = {**end, "drop": drop, "reduction": "add" if added else None}
                way = (from_end, drop, added)
                yield Case("scatter_elements", lambda X, J, U, o=options: ops.scatter_elements(X, J, U, **o), lambda X, J, U, w=way: scattered(X, J, U, *w), {"X": row, "J": ids, "U": ids})  # fmt: skip
                yield Case("scatter_nd", lambda X, J, U, o=options: ops.scatter_nd(X, J, U, **o), lambda X, J, U, w=way: scattered(X, J, U, *w), {"X": rows, "J": nd, "U": (m, 3)})  # fmt: skip
    yield Case("embedding", lambda X, J: ops.embedding(X, J), lambda X, J: taken(X, J, False), {"X": rows, "J": ids}, ("int64", "int32"))  # fmt: skip
    yield Case("one_hot", lambda J: ops.one_hot(J, N), lambda J: (J[:, None] == np.arange(N)).astype(np.float32), {"J": ids})  # fmt: skip
    yield Case("grouped_matmul", lambda X, W, J: ops.grouped_matmul(X, W, J), lambda X, W, J: grouped(X, W, J), {"X": rows, "W": (m, 3, 2), "J": ids}, ("int64", "int32"))  # fmt: skip
    yield Case("index", lambda X, J: oc.compute((m, 3), lambda i, j: X[oc.index(J[i]), j], "R"), lambda X, J: taken(X, J, False), {"X": rows, "J": ids})  # fmt: skip


CASES = [*_cases()]
SAMPLE = {(0, "int32"), (5, "int64"), (10, "int8"), (13, "uint8"), (18, "int64"), (19, "int32")}
GRID = [(number, dtype) for number, case in enumerate(CASES) for dtype in case.dtypes]


def test_no_operator_is_left_out() -> None:
    led = {
        name
        for name in ops.__all__
        if BY_INTEGERS & {*inspect.signature(getattr(ops, name)).parameters}
    }
    elsewhere = {*RECURRENT, "attention"}  # whose lengths have tests of their own
    assert led | {"index"} == {case.op for case in CASES} | elsewhere


def numbers(dtype: str) -> list[int]:
    """What an index may be at the ends of an axis, and of its type."""
    ends = np.iinfo(dtype)
    near = {-2 * N, -N - 1, -N, -1, 0, N - 1, N, 2 * N, ends.min, ends.max}
    return sorted(one for one in near if ends.min <= one <= ends.max)


def drawn(shape: tuple[Any, ...], memory: Memory) -> Array:
    """Small whole numbers: sums of them are exact."""
    extents = tuple({n: N, m: COUNT}.get(one, one) for one in shape)
    made = memory.lying("rows", extents, "float32")
    made[...] = np.arange(made.size).reshape(extents) % 11 + 1
    return made


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("number", "dtype"),
    [one if one in SAMPLE else slow(*one) for one in GRID],
    ids=lambda one: f"{one}-{CASES[one].op}" if isinstance(one, int) else one,
)
def test_an_index_is_a_place_or_refused_or_dropped(number: int, dtype: str) -> None:
    case = CASES[number]
    tensors = {
        name: oc.placeholder(shape, dtype if name == "J" else "float32", name)
        for name, shape in case.shapes.items()
    }
    made = case.made(**tensors)
    order = {} if isinstance(made, Program) else {"inputs": [*tensors.values()]}
    kernels = {target: oc.compile(made, target=target, **order) for target in ("cpu", "interpret")}
    for side in (False, True):
        run(case, kernels, dtype, side)


def run(case: Case, kernels: dict[str, oc.Kernel], dtype: str, side: bool) -> None:
    """Check all calls of a case with its arrays between walls.

    side   whether the first of them lies at the beginning of its pages; each next one lies at the other end
    """
    memory = Memory()
    if side:
        memory.lying("rows", (1,), "int8")
    given = {name: drawn(shape, memory) for name, shape in case.shapes.items() if name != "J"}
    shape = tuple({m: COUNT}.get(one, one) for one in case.shapes["J"])
    given["J"] = memory.lying("rows", shape, dtype)
    for one in numbers(dtype):
        for at in (0, COUNT // 2, COUNT - 1):
            given["J"][...] = (np.arange(COUNT) % N).reshape(shape)
            given["J"].flat[at] = one
            wide = {**given, "J": given["J"].astype(np.int64)}
            calm = case.wanted(**{**wide, "J": np.zeros(shape, np.int64)})
            wanted = None
            with suppress(Refused):
                wanted = case.wanted(**wide)
            for target, kernel in kernels.items():
                arrays = [given[one.name] for one in kernel.signature.inputs]
                out = memory.lying("rows", calm.shape, "float32")
                if wanted is None:
                    with pytest.raises(oc.CallError, match="cannot run on these arrays"):
                        kernel(*arrays, out=out)
                else:
                    kernel(*arrays, out=out)
                    np.testing.assert_array_equal(out, wanted, f"{one} at {at}, {target}")
                memory.check()
                memory.walled.pop()


PARTS = {"rnn": 1, "gru": 3, "lstm": 4}
"""How many columns of a layer's input each of its state has."""


@pytest.mark.parametrize("op", ["rnn", slow("gru"), slow("lstm")])
@pytest.mark.parametrize("dtype", ["int32", slow("int64")])
def test_a_length_beyond_the_steps_is_all_of_them_and_one_below_0_none(op: str, dtype: str) -> None:
    width, parts = 4, PARTS[op]
    x = oc.placeholder((n, m, parts * width), name="X")
    r, lengths = oc.placeholder((parts * width, width), name="R"), oc.placeholder((m,), dtype, "L")
    made, each = getattr(ops, op)(x, r, lengths=lengths), numbers(dtype)
    for target in ("cpu", "interpret"):
        kernel, memory = oc.compile(made, target=target), Memory()
        given = {
            "X": memory.lying("rows", (N, len(each), parts * width), "float32"),
            "R": memory.lying("rows", (parts * width, width), "float32"),
            "L": memory.lying("rows", (len(each),), dtype),
        }
        for name in "XR":
            given[name][...] = np.sin(np.arange(given[name].size)).reshape(given[name].shape)
        results = []
        for own in (each, np.clip(each, 0, N)):
            given["L"][...] = own
            states, first = (len(each), width), made.results[0].name
            shapes = [(N, *states) if o.name == first else states for o in kernel.signature.outputs]
            outs = [memory.lying("rows", shape, "float32") for shape in shapes]
            kernel(*(given[i.name] for i in kernel.signature.inputs), out=tuple(outs))
            memory.check()
            results.append([one.copy() for one in outs])
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)
