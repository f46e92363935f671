"""Functions of TVM that its own LoopPartition leaves guards in, and what counts them."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

HINT = "pragma_loop_partition_hint"


@I.ir_module(check_well_formed=False)
class Product:
    """``C = A @ W`` for any number of rows."""

    @T.prim_func(s_tir=True)
    def main(a: T.handle, w: T.handle, c: T.handle):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        n = T.int64()
        A = T.match_buffer(a, (n, 12), "float32")
        W = T.match_buffer(w, (12, 21), "float32")
        C = T.match_buffer(c, (n, 21), "float32")
        for i, j, k in T.grid(n, 21, 12):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * W[vk, vj]


@I.ir_module(check_well_formed=False)
class Scaled:
    """``C = 2 A`` for arrays of any two extents."""

    @T.prim_func(s_tir=True)
    def main(a: T.handle, c: T.handle):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        n = T.int64()
        m = T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        C = T.match_buffer(c, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2)


@I.ir_module(check_well_formed=False)
class Fixed:
    """``C = 2 A`` for rows of 21."""

    @T.prim_func(s_tir=True)
    def main(a: T.handle, c: T.handle):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        A = T.match_buffer(a, (21,), "float32")
        C = T.match_buffer(c, (21,), "float32")
        for i in T.serial(21):
            with T.sblock("C"):
                vi = T.axis.remap("S", [i])
                C[vi] = A[vi] * T.float32(2)


def split(module: Any, *sizes: int, hint: bool = False) -> Any:
    """The outermost loops of `module` split by `sizes`; with TVM's hint to partition them or without."""
    schedule = s_tir.Schedule(module)
    loops = schedule.get_loops(schedule.get_sblock("C", func_name="main"))
    for loop, size in zip(loops, sizes, strict=False):
        outer, _ = schedule.split(loop, [None, size])
        if hint:
            schedule.annotate(outer, HINT, 1)
    return schedule.mod


def tvms(module: Any, constant: bool = False) -> Any:
    """`module` after TVM's own LoopPartition.

    constant  whether loops of constant extents are partitioned, too
    """
    passes = s_tir.transform
    lowering = [
        passes.CanonicalizeLoop(),
        passes.LowerInitBlock(),
        passes.PlanAndUpdateBufferAllocationLocation(),
        passes.ConvertBlocksToOpaque(),
        passes.LowerMatchBuffer(),
        passes.StmtSimplify(),
        passes.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        passes.LoopPartition(),
        passes.StmtSimplify(),
    ]
    with tvm.transform.PassContext(
        config={"s_tir.LoopPartition": {"partition_const_loop": constant}}
    ):
        return tvm.ir.transform.Sequential(lowering)(module)


def guards(module: Any) -> int:
    """The conditions that are asked inside of loops."""
    return _guards(module["main"].body, False)


def _guards(stmt: Any, inside: bool) -> int:
    match stmt:
        case tirx.SeqStmt():
            return sum(_guards(one, inside) for one in stmt.seq)
        case tirx.For():
            return _guards(stmt.body, True)
        case tirx.stmt.AttrStmt():
            return _guards(stmt.body, inside)
        case tirx.IfThenElse():
            other = 0 if stmt.else_case is None else _guards(stmt.else_case, inside)
            return inside + _guards(stmt.then_case, inside) + other
        case _:
            return 0
