"""Guards for index values that may be negative: code that is proved for sizes runs only if they are not.

A program's sizes are never negative, a value of type index may be. Where such a value only ends
loops that start at 0 or later, and is used in these alone, 0 does for a negative one. Otherwise the
cut program stands in an ``scf.if`` beside the loops as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, Region, SSAValue

from offcut.ir import Const, For, Program, Stmt, Var, blocks, expressions, free
from offcut.plugins.hosts import HostProgram
from offcut.plugins.mlir.export_scf import EmittedNest, export_nest
from offcut.plugins.mlir.nest import Nest
from offcut.plugins.mlir.scalars import constant


def guard_nest(nest: Nest, program: Program | HostProgram) -> EmittedNest:
    """Return operations that compute what `nest.op` does by `program`, at negative sizes too.

    program  what `nest.program` was partitioned to, or what a schedule made of it
    """
    ends = {name for name in nest.signed_sizes if _is_only_loop_end(nest.program.body, name)}
    open_ = [name for name in nest.signed_sizes if name not in ends]
    head: list[Operation] = []
    sizes = dict(nest.sizes)
    zero = constant(0, "index")
    if nest.signed_sizes:
        head.append(zero)
    for name in nest.signed_sizes:
        value = sizes[name]
        assert isinstance(value, SSAValue)
        if name in ends:
            positive = arith.CmpiOp(value, zero, "sgt")
            clamped = arith.SelectOp(positive, value, zero)
            head += [positive, clamped]
            sizes[name] = clamped.result
    exported = export_nest(replace(nest, sizes=sizes), program)
    if not open_:
        return replace(exported, operations=(*head, *exported.operations))
    holds: SSAValue | None = None
    for name in open_:
        value = sizes[name]
        assert isinstance(value, SSAValue)
        natural = arith.CmpiOp(value, zero, "sge")
        head.append(natural)
        if holds is None:
            holds = natural.result
        else:
            conjunction = arith.AndIOp(holds, natural)
            head.append(conjunction)
            holds = conjunction.result
    assert holds is not None
    other = nest.op.clone()
    regions = [
        _region_yielding(exported.operations, exported.results),
        _region_yielding((other,), tuple(other.results)),
    ]
    choice = scf.IfOp(holds, [value.type for value in exported.results], *regions)
    return EmittedNest((*head, choice), tuple(choice.output), exported.functions)


def _region_yielding(operations: Sequence[Operation], results: Sequence[SSAValue]) -> Region:
    return Region(Block([*operations, scf.YieldOp(*results)]))


def _is_only_loop_end(body: Sequence[Stmt], name: str) -> bool:
    """Return whether a negative size can be replaced by 0: no statement that uses it runs then."""
    for stmt in body:
        match stmt:
            case For(_, Const(lo), hi) if lo >= 0 and hi == Var(name):
                continue
        if any(name in free(expr) for expr in expressions(stmt)):
            return False
        if not all(_is_only_loop_end(block, name) for block in blocks(stmt)):
            return False
    return True
