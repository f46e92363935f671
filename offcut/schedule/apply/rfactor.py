"""A reduction in two: over what is inside a loop, for each of its iterations, then over the loop: rfactor."""

from __future__ import annotations

from dataclasses import replace

from offcut.core import index as ix
from offcut.core.dtypes import identity, reduction_start
from offcut.core.expr import (
    Compare,
    Const,
    Load,
    Select,
    Var,
    dtype_of,
    substitute,
)
from offcut.core.program import Buffer, Kind, Store
from offcut.core.text.printer import format_stmt
from offcut.errors import PartitionError
from offcut.schedule.apply.axes import Target, check_new
from offcut.schedule.apply.reading import read_nest
from offcut.schedule.apply.staged_form import Nests, Rewrite, Root, in_loops, point_of
from offcut.schedule.decisions import RFactor, SplitPair
from offcut.schedule.diagnostics import split_advice


def rfactor(target: Target, step: RFactor) -> Nests:
    """Return the schedule with a reduction in two: over what is inside `axis`, for each value of it; then over `axis`.

    With ``k = 8*ko + ki`` and ``axis = ko``: ``CF[ko, i] = sum over ki``, ``C[i] = sum over ko``.
    """
    step = replace(step, axis=target.axis("rfactor", step.axis))
    check_new("rfactor", f"stage {target.buffer}", target.nests.names(), step.name)
    check_rfactor(target, step.axis)
    return build_rfactor(target, step)


def _reduction(target: Target) -> tuple[Store, Store, tuple[str, ...]] | None:
    """Start and update of a stage that is one reduction, and its reduction axes."""
    nest = target.nest
    stores = [store for part in nest.parts for store in part.stores]
    point = point_of(nest, target.buffer)
    if len(stores) != 2 or point is None or any(len(part.body) != 1 for part in nest.parts):
        return None
    start, update = stores
    if start.reduce is not None or update.reduce is None:
        return None
    return start, update, tuple(r.name for r in nest.roots if r.name not in point)


def check_rfactor(target: Target, axis: str) -> None:
    """Theorem: the reduction is declared (``sum``, ``max``, ``min``), so its terms may be grouped;
    `axis` is one of its own, and groups them.
    """
    nest, reduction = target.nest, _reduction(target)
    because, help_ = "", tuple[str, ...]()
    relation = nest.made_by(axis)
    if reduction is None:
        because = f"{target.buffer} is not one reduction with its start"
    elif not set(nest.origins(axis)) <= set(reduction[2]):
        because = f"{axis} is not a reduction axis of {target.buffer}"
        help_ = (f"reduction axes: {', '.join(reduction[2])}",)
    elif relation is None and len(reduction[2]) == 1:
        because = f"nothing is reduced inside {axis}"
        help_ = (split_advice(target.stage, axis, 8),)
    elif (
        (relation is not None and (not isinstance(relation, SplitPair) or len(nest.relations) > 1))
        or nest.at is not None
        or nest.covered is not None
        or nest.marks
    ):
        because = "its loops are scheduled already"
        help_ = ("split the reduction axis, then rfactor, then the rest",)
    if because:
        raise PartitionError(
            "rfactor",
            f"cannot factor {axis} out of {target.buffer}",
            at=f"stage {target.buffer}",
            because=because,
            help=help_,
        )


def build_rfactor(target: Target, step: RFactor) -> Nests:
    """Return the schedule with two stages where there was one, their loops as described."""
    nests, nest, buffer = target.nests, target.nest, target.buffer
    axis, name = step.axis, step.name
    reduction, original = _reduction(target), nests.buffer(target.buffer)
    point = point_of(nest, buffer)
    assert reduction is not None
    assert point is not None
    start, update, reduced = reduction
    relation = nest.made_by(axis)
    value, inner = update.value, [nest.root(r) for r in reduced if r != axis]
    loops = [r for r in inner if r is not None]
    mine = nest.root(axis)
    extent = ix.sub(mine.hi, mine.lo) if mine is not None else ix.const(0)
    if mine is not None:
        value = substitute(value, {axis: ix.add(Var(axis), mine.lo)})
    if isinstance(relation, SplitPair):
        root = nest.root(relation.axis)
        assert root is not None
        length = ix.sub(root.hi, root.lo)
        blocks = ix.ceildiv(length, relation.factor)
        offset = ix.add(ix.mul(relation.factor, Var(relation.outer)), Var(relation.inner))
        value = ix.fold_indices(substitute(value, {root.name: ix.add(root.lo, offset)}))
        if ix.literal_value(ix.mod(length, relation.factor)) != 0:
            dtype = dtype_of(value)
            nothing = Const(identity(str(update.reduce), dtype), dtype)
            value = Select(Compare("<", offset, length), value, nothing)
        other_loop = relation.inner if axis == relation.outer else relation.outer
        extent = blocks if axis == relation.outer else ix.const(relation.factor)
        reach = ix.const(relation.factor) if axis == relation.outer else blocks
        loops = [
            Root(other_loop, other_loop, ix.const(0), reach) if r.name == root.name else r
            for r in loops
        ]
    point_vars = tuple(Var(p) for p in point)
    wide = (Var(axis), *point_vars)
    dtype = original.dtype
    begin = Const(reduction_start(str(update.reduce), dtype), dtype)
    terms = in_loops(loops, (Store(name, wide, value, update.reduce),))
    outer = [nest.root(p) for p in point]
    outer_loops = [r for r in outer if r is not None]
    groups = Root(axis, axis, ix.const(0), extent)
    factored = in_loops((groups, *outer_loops), (Store(name, wide, begin), *terms))
    last = Store(buffer, point_vars, Load(name, wide, dtype), update.reduce)
    finish = in_loops(outer_loops, (start, *in_loops((groups,), (last,))))
    local = Buffer(name, dtype, (extent, *original.shape), Kind.LOCAL)
    two = read_nest(factored, name), replace(read_nest(finish, nest.name))
    new_nests = tuple(new for n in nests.nests for new in (two if n.name == nest.name else (n,)))
    result = replace(nests, buffers=(*nests.buffers, local), nests=new_nests)
    of, equation = f"rfactor({target.buffer}, {axis})", f"{format_stmt(update)}, grouped by {axis}"
    return result.rewritten(Rewrite(of, equation, None, groups=update.reduce == "sum"))
