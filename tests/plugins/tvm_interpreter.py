"""Functions of TVM run on numpy arrays, node by node: blocks and parallel loops in a drawn order, threads of a block as threads of Python.

What TVM compiles for a processor it runs itself; this is for grids, and for calls of external functions.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Min": min,
    "Max": max,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}


class Address:
    """The address of an element."""

    def __init__(self, array: Any, index: tuple[int, ...]) -> None:
        self.array, self.index = array, index

    def view(self, sizes: Sequence[int], strides: Sequence[int]) -> Any:
        flat = self.array.reshape(-1)
        offset = int(np.ravel_multi_index(self.index, self.array.shape))
        last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        assert last < flat.size, (self.index, self.array.shape, sizes, strides)
        bytes_ = [s * flat.itemsize for s in strides]
        return np.lib.stride_tricks.as_strided(flat[offset:], sizes, bytes_)


class Thread:
    """One run through a function: `values` of variables; of a thread of a grid, what it shares with the others."""

    def __init__(self, calls: Mapping[str, Callable[..., Any]], rng: Any) -> None:
        self.calls, self.rng = calls, rng
        self.values: dict[Any, Any] = {}
        self.shared: dict[Any, Any] | None = None
        self.lock: Any = threading.Lock()
        self.barrier: Any = None

    def stmt(self, node: Any) -> None:
        match type(node).__name__:
            case "SeqStmt":
                for one in node.seq:
                    self.stmt(one)
            case "For":
                self.loop(node)
            case "IfThenElse":
                if self.expr(node.condition):
                    self.stmt(node.then_case)
                elif node.else_case is not None:
                    self.stmt(node.else_case)
            case "BufferStore":
                array, index = self.values[node.buffer], self.index(node.indices)
                check(array, index)
                array[index] = self.expr(node.value)
            case "AllocBuffer":
                self.allocate(node.buffer)
            case "Evaluate":
                self.expr(node.value)
            case kind:
                raise NotImplementedError(kind)

    def allocate(self, buffer: Any) -> None:
        shape = [self.expr(extent) for extent in buffer.ty.shape]
        make = lambda: np.full(shape, np.nan, str(buffer.ty.dtype))  # noqa: E731
        if self.shared is None or str(buffer.scope()) != "shared":
            self.values[buffer] = make()
            return
        with self.lock:
            self.values[buffer] = self.shared.setdefault(buffer, make())

    def loop(self, node: Any) -> None:
        if tirx.ForKind(node.kind) == tirx.ForKind.THREAD_BINDING:
            self.grid(node)
            return
        count = range(int(self.expr(node.extent)))
        parallel = tirx.ForKind(node.kind) == tirx.ForKind.PARALLEL
        for i in self.rng.permutation(count) if parallel else count:
            self.values[node.loop_var] = int(self.expr(node.min)) + int(i)
            self.stmt(node.body)

    def grid(self, node: Any) -> None:
        loops = []
        while type(node).__name__ == "For" and node.thread_binding is not None:
            loops.append((node.loop_var, node.thread_binding.thread_tag, self.expr(node.extent)))
            node = node.body
        assert len({tag for _, tag, _ in loops}) == len(loops)
        assert all(extent > 0 for _, _, extent in loops), loops
        blocks = [one for one in loops if one[1].startswith("blockIdx")]
        threads = [one for one in loops if one[1].startswith("threadIdx")]
        for at in self.rng.permutation(list(np.ndindex(*(n for *_, n in blocks)))):
            self.block(node, dict(zip((v for v, *_ in blocks), map(int, at), strict=True)), threads)

    def block(self, body: Any, place: Mapping[Any, int], threads: Sequence[Any]) -> None:
        points = list(np.ndindex(*(n for *_, n in threads)))
        barrier, lock, shared = threading.Barrier(len(points)), threading.Lock(), {}
        failures: list[BaseException] = []

        def run(point: Sequence[int]) -> None:
            one = Thread(self.calls, np.random.default_rng(0))
            one.values = {**self.values, **place}
            one.values |= zip((v for v, *_ in threads), map(int, point), strict=True)
            one.shared, one.lock, one.barrier = shared, lock, barrier
            try:
                one.stmt(body)
            except BaseException as error:
                failures.append(error)
                barrier.abort()

        running = [
            threading.Thread(target=run, args=(points[k],))
            for k in self.rng.permutation(len(points))
        ]
        for one in running:
            one.start()
        for one in running:
            one.join(30)
        if failures:
            raise failures[0]

    def index(self, parts: Sequence[Any]) -> tuple[int, ...]:
        return tuple(int(self.expr(part)) for part in parts)

    def expr(self, node: Any) -> Any:
        kind = type(node).__name__
        match kind:
            case "int" | "float":
                return node
            case "IntImm" | "FloatImm":
                return node.value
            case "Var":
                return self.values[node]
            case "TensorLoad":
                array, index = self.values[node.source], self.index(node.indices)
                check(array, index)
                return array[index]
            case "Cast":
                return np.dtype(str(node.ty.dtype)).type(self.expr(node.value))
            case "And":
                return self.expr(node.a) and self.expr(node.b)
            case "Or":
                return self.expr(node.a) or self.expr(node.b)
            case "Not":
                return not self.expr(node.a)
            case "Select":
                return self.expr(node.true_value if self.expr(node.condition) else node.false_value)
            case "Call":
                return self.call(node)
        return BINARY[kind](self.expr(node.a), self.expr(node.b))

    def call(self, node: Any) -> Any:
        op = node.op.name.rpartition(".")[2]
        if op == "if_then_else":
            condition, then, other = node.args
            return self.expr(then if self.expr(condition) else other)
        if op == "address_of":
            load = node.args[0]
            return Address(self.values[load.source], self.index(load.indices))
        if op == "tvm_storage_sync":
            return self.barrier.wait(30)
        if op == "call_extern":
            name, *given = node.args
            return self.calls[name.value](*map(self.expr, given))
        raise NotImplementedError(op)


def check(array: Any, index: Sequence[int]) -> None:
    assert all(0 <= i < n for i, n in zip(index, array.shape, strict=True)), (index, array.shape)


def run(
    function: Any,
    arrays: Sequence[Any],
    calls: Mapping[str, Callable[..., Any]] | None = None,
    seed: int = 0,
) -> None:
    """Run a function on arrays, which it changes."""
    thread = Thread(calls or {}, np.random.default_rng(seed))
    for parameter, array in zip(function.params, arrays, strict=True):
        thread.values[parameter] = array
        for extent, n in zip(parameter.ty.shape, array.shape, strict=True):
            if type(extent).__name__ == "Var":
                thread.values[extent] = n
            else:
                assert extent.value == n
    thread.stmt(function.body)
