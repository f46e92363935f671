"""Values that may be negative where sizes are not: what is proved of sizes runs where it holds.

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
from offcut.plugins.hosts import Said
from offcut.plugins.mlir.emitting import constant
from offcut.plugins.mlir.nest import Nest
from offcut.plugins.mlir.writing import EmittedNest, export_nest


def guarded(nest: Nest, program: Program | Said) -> EmittedNest:
    """`program`, which `nest.program` was cut to, or a schedule made of it, as operations that compute what `nest.op` does."""
    ends = {name for name in nest.signed if _only_ends(nest.program.body, name)}
    open_ = [name for name in nest.signed if name not in ends]
    head: list[Operation] = []
    sizes = dict(nest.sizes)
    zero = constant(0, "index")
    if nest.signed:
        head.append(zero)
    for name in nest.signed:
        value = sizes[name]
        assert isinstance(value, SSAValue)
        if name in ends:
            positive = arith.CmpiOp(value, zero, "sgt")
            clamped = arith.SelectOp(positive, value, zero)
            head += [positive, clamped]
            sizes[name] = clamped.result
    inside = export_nest(replace(nest, sizes=sizes), program)
    if not open_:
        return replace(inside, operations=(*head, *inside.operations))
    holds: SSAValue | None = None
    for name in open_:
        value = sizes[name]
        assert isinstance(value, SSAValue)
        natural = arith.CmpiOp(value, zero, "sge")
        head.append(natural)
        if holds is None:
            holds = natural.result
        else:
            both = arith.AndIOp(holds, natural)
            head.append(both)
            holds = both.result
    assert holds is not None
    other = nest.op.clone()
    regions = [
        _yielding(inside.operations, inside.results),
        _yielding((other,), tuple(other.results)),
    ]
    choice = scf.IfOp(holds, [value.type for value in inside.results], *regions)
    return EmittedNest((*head, choice), tuple(choice.output), inside.functions)


def _yielding(operations: Sequence[Operation], results: Sequence[SSAValue]) -> Region:
    return Region(Block([*operations, scf.YieldOp(*results)]))


def _only_ends(body: Sequence[Stmt], name: str) -> bool:
    """Whether 0 does for a negative value of a size: nothing runs then that asks for it."""
    for stmt in body:
        match stmt:
            case For(_, Const(lo), hi) if lo >= 0 and hi == Var(name):
                continue
        if any(name in free(expr) for expr in expressions(stmt)):
            return False
        if not all(_only_ends(block, name) for block in blocks(stmt)):
            return False
    return True
