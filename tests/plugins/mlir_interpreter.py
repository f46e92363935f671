"""Modules run on numpy arrays: xDSL's interpreter, with what it lacks of memref, vector, scf.parallel and gpu.

A memref is an array of numpy; iterations of ``scf.parallel`` run in a drawn order, threads of a block as threads of Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, func, gpu, math, memref, scf, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, ModuleOp
from xdsl.interpreter import (
    Interpreter,
    InterpreterFunctions,
    ReturnedValues,
    impl,
    impl_terminator,
    register_impls,
)
from xdsl.interpreters.arith import ArithFunctions
from xdsl.interpreters.func import FuncFunctions
from xdsl.interpreters.math import MathFunctions
from xdsl.interpreters.scf import ScfFunctions

Intrinsic = Callable[..., None]
KINDS = {"add": np.add, "maximumf": np.maximum, "maxsi": np.maximum, "minimumf": np.minimum}


def dtype_of(kind: Any) -> Any:
    if isinstance(kind, IndexType):
        return np.int64
    return np.dtype(
        {"i1": "bool", "f32": "float32", "f64": "float64"}.get(
            str(kind), str(kind).replace("i", "int")
        )
    )


class Block(threading.local):
    """Where this thread is in a grid, and where it meets the others of its block."""

    ids: dict[str, int] | None = None
    barrier: Any = None
    shared: Any = None
    lock: Any = None


@register_impls
class Memory(InterpreterFunctions):
    def __init__(self, intrinsics: Mapping[str, Intrinsic], rng: np.random.Generator) -> None:
        super().__init__()
        self.intrinsics, self.rng, self.here = intrinsics, rng, Block()
        self.barriers = 0

    @impl(memref.DimOp)
    def dim(self, _: Interpreter, op: memref.DimOp, args: Any) -> Any:
        return (args[0].shape[args[1]],)

    @impl(memref.AllocOp)
    def alloc(self, _: Interpreter, op: memref.AllocOp, args: Any) -> Any:
        return (self.array(op.memref.type, args),)

    @impl(memref.AllocaOp)
    def alloca(self, _: Interpreter, op: memref.AllocaOp, args: Any) -> Any:
        kind = op.memref.type
        if "3" not in str(kind.memory_space):
            return (self.array(kind, args),)
        with self.here.lock:  # one for all threads of the block
            if op not in self.here.shared:
                self.here.shared[op] = self.array(kind, args)
            return (self.here.shared[op],)

    def array(self, kind: Any, dynamic: Sequence[int]) -> Any:
        given = iter(dynamic)
        shape = [next(given) if n == DYNAMIC_INDEX else n for n in kind.get_shape()]
        assert all(n >= 0 for n in shape), shape
        dtype = dtype_of(kind.element_type)
        poison = np.nan if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind == "i" else True
        return np.full(shape, poison, dtype)

    @impl(memref.DeallocOp)
    def dealloc(self, _: Interpreter, op: memref.DeallocOp, args: Any) -> Any:
        return ()

    @impl(memref.LoadOp)
    def load(self, _: Interpreter, op: memref.LoadOp, args: Any) -> Any:
        array, *index = args
        check(array, index)
        return (array[tuple(index)].item() if array.dtype != np.float32 else array[tuple(index)],)

    @impl(memref.StoreOp)
    def store(self, _: Interpreter, op: memref.StoreOp, args: Any) -> Any:
        value, array, *index = args
        check(array, index)
        array[tuple(index)] = value
        return ()

    @impl(memref.ReinterpretCastOp)
    def view(self, _: Interpreter, op: memref.ReinterpretCastOp, args: Any) -> Any:
        array, offset, *rest = args
        rank = len(rest) // 2
        sizes, strides = rest[:rank], rest[rank:]
        flat = array.reshape(-1)
        assert flat.base is not None or flat is array
        last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        assert 0 in sizes or (offset >= 0 and last < flat.size), (offset, sizes, strides, flat.size)
        bytes_ = [s * array.itemsize for s in strides]
        return (np.lib.stride_tricks.as_strided(flat[offset:], sizes, bytes_),)

    @impl(func.CallOp)
    def call(self, interpreter: Interpreter, op: func.CallOp, args: Any) -> Any:
        self.intrinsics[op.callee.root_reference.data](*args)
        return ()

    @impl(vector.LoadOp)
    def vector_load(self, _: Interpreter, op: vector.LoadOp, args: Any) -> Any:
        array, *index = args
        (count,) = op.result.type.get_shape()
        check(array, (*index[:-1], index[-1] + count - 1))
        check(array, index)
        return (array[tuple(index[:-1])][index[-1] : index[-1] + count].copy(),)

    @impl(vector.StoreOp)
    def vector_store(self, _: Interpreter, op: vector.StoreOp, args: Any) -> Any:
        value, array, *index = args
        check(array, (*index[:-1], index[-1] + len(value) - 1))
        array[tuple(index[:-1])][index[-1] : index[-1] + len(value)] = value
        return ()

    @impl(vector.BroadcastOp)
    def broadcast(self, _: Interpreter, op: vector.BroadcastOp, args: Any) -> Any:
        kind = op.results[0].type
        return (np.full(kind.get_shape(), args[0], dtype_of(kind.element_type)),)

    @impl(vector.ReductionOp)
    def reduction(self, _: Interpreter, op: vector.ReductionOp, args: Any) -> Any:
        return (KINDS[op.kind.data.value].reduce(args[0]),)

    @impl(scf.ParallelOp)
    def parallel(self, interpreter: Interpreter, op: scf.ParallelOp, args: Any) -> Any:
        (lo, hi, step) = args
        for i in self.rng.permutation(range(lo, hi, step)):
            interpreter.run_ssacfg_region(op.body, (int(i),), "parallel")
        return ()

    @impl_terminator(scf.ReduceOp)
    def reduce(self, _: Interpreter, op: scf.ReduceOp, args: Any) -> Any:
        return ReturnedValues(args), ()

    @impl(gpu.LaunchOp)
    def launch(self, interpreter: Interpreter, op: gpu.LaunchOp, args: Any) -> Any:
        grid, block = args[:3], args[3:6]
        assert all(n > 0 for n in args), args
        for number in self.rng.permutation(int(np.prod(grid))):
            ids = np.unravel_index(number, grid[::-1])[::-1]
            self.block(interpreter, op, [int(one) for one in ids], block)
        return ()

    def block(
        self, interpreter: Interpreter, op: gpu.LaunchOp, ids: list[int], block: Sequence[int]
    ) -> None:
        shared: dict[Any, Any] = {}
        count = int(np.prod(block))
        barrier, lock = threading.Barrier(count), threading.Lock()
        failures: list[BaseException] = []

        def run(thread: int) -> None:
            at = np.unravel_index(thread, block[::-1])[::-1]
            self.here.ids = {f"b{a}": v for a, v in zip("xyz", ids, strict=True)}
            self.here.ids |= {f"t{a}": int(v) for a, v in zip("xyz", at, strict=True)}
            self.here.barrier, self.here.shared, self.here.lock = barrier, shared, lock
            try:
                mine = interpreter_of(interpreter.module, self)
                mine._ctx = interpreter._ctx  # values from outside
                mine.run_ssacfg_region(op.body, (0,) * 12, "launch")
            except BaseException as error:
                failures.append(error)
                barrier.abort()

        threads = [
            threading.Thread(target=run, args=(int(k),)) for k in self.rng.permutation(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        if failures:
            raise failures[0]

    @impl(gpu.BlockIdOp)
    def block_id(self, _: Interpreter, op: gpu.BlockIdOp, args: Any) -> Any:
        return (self.here.ids["b" + op.dimension.data.value],)

    @impl(gpu.ThreadIdOp)
    def thread_id(self, _: Interpreter, op: gpu.ThreadIdOp, args: Any) -> Any:
        return (self.here.ids["t" + op.dimension.data.value],)

    @impl(gpu.BarrierOp)
    def barrier(self, _: Interpreter, op: gpu.BarrierOp, args: Any) -> Any:
        self.here.barrier.wait(30)
        return ()

    @impl_terminator(gpu.TerminatorOp)
    def end(self, _: Interpreter, op: gpu.TerminatorOp, args: Any) -> Any:
        return ReturnedValues(args), ()

    @impl(arith.AndIOp)
    def both(self, _: Interpreter, op: arith.AndIOp, args: Any) -> Any:
        return (args[0] & args[1],)

    @impl(arith.XOrIOp)
    def either(self, _: Interpreter, op: arith.XOrIOp, args: Any) -> Any:
        return (args[0] ^ args[1],)

    @impl(math.AbsFOp)
    def size(self, _: Interpreter, op: math.AbsFOp, args: Any) -> Any:
        return (abs(args[0]),)

    @impl(arith.SIToFPOp)
    def real(self, _: Interpreter, op: arith.SIToFPOp, args: Any) -> Any:
        return (float(args[0]),)

    @impl(arith.DivSIOp)
    def div(self, _: Interpreter, op: arith.DivSIOp, args: Any) -> Any:
        a, b = args
        return (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),)


def check(array: Any, index: Sequence[int]) -> None:
    assert all(0 <= i < n for i, n in zip(index, array.shape, strict=True)), (index, array.shape)


def interpreter_of(module: ModuleOp, memory: Memory) -> Interpreter:
    interpreter = Interpreter(module)
    for functions in (ArithFunctions(), MathFunctions(), ScfFunctions(), FuncFunctions(), memory):
        interpreter.register_implementations(functions, override=True)
    return interpreter


def run(
    module: ModuleOp,
    arguments: Sequence[Any],
    intrinsics: Mapping[str, Intrinsic] | None = None,
    seed: int = 0,
) -> list[Any]:
    """Return the arguments after a call of the first function; arrays are copied before."""
    given = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    memory = Memory(intrinsics or {}, np.random.default_rng(seed))
    function = next(op for op in module.body.block.ops if isinstance(op, func.FuncOp))
    interpreter_of(module, memory).call_op(function.sym_name.data, tuple(given))
    return given
