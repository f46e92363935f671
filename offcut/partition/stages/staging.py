"""Operands of sums that are computed, not merely read, laid out in memory first.

A microkernel multiplies elements that lie in memory. A factor such as ``where(inside, X[y + r - 1], 0)``
is computed for every term; but it depends on ``y + r - 1`` alone, so it is computed once for each value
of that into scratch, and the sum reads the scratch::

    sum of where(0 <= y + r - 1 < h, X[y + r - 1], 0) * W[r]     P[z] = where(0 <= z - 1 < h, X[z - 1], 0)
                                                                 sum of P[y + r] * W[r]

That is how padding leaves a convolution: each index of the factor becomes an axis of the scratch, as
long as all that index takes. An index that is an axis of the reduction is the last one there: its
terms lie side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Expr,
    Load,
    Unary,
    Var,
    dtype_of,
    rewrite,
    variables,
    walk,
)
from offcut.core.program import Buffer, Kind
from offcut.describe.computation import Computation, Names, Stage, StageAxis
from offcut.partition.stages.staged_value import StagedValue, converted_last, place_of_conversions


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of the scratch: the index part that it stands for is ``at + low``.

    pivot   an axis of the sum that no other part moves along, and its coefficient
    """

    name: str
    part: ix.Linear
    low: Expr
    pivot: tuple[str, int]


def element_copy(
    computation: Computation, position: int, operand: Load, depth: str
) -> StagedValue | None:
    """Return a copy of an operand of a sum with its terms along the reduction axis `depth` adjacent in memory.

    None if the operand does not depend on `depth`, or if its index is not affine in the axes.
    """
    lead = computation.groups[position][0]
    staged = _copy(lead, operand, computation.names(), depth)
    return None if staged is None or depth not in staged.axes else staged


def with_value(computation: Computation, position: int, staged: StagedValue) -> Computation:
    """Return `computation` with the sum of a group reading an array in place of an expression; the same object if it has none.

    A stage before the sum computes the array, unless it is there already. One that converts what the caller gives runs before all
    else; a constant that is to have the name that it has is converted when it is bound.
    """
    lead, *rest = computation.groups[position]
    reader = reading_value(lead, staged)
    if reader is None:
        return computation
    buffers = {buffer.name: buffer for buffer in computation.buffers}
    groups = list(computation.groups)
    groups[position] = (reader, *rest)
    dtype, name, source = dtype_of(staged.value), staged.name, staged.converted_array
    if name == source:
        buffers[name] = replace(buffers[name], dtype=dtype)
    elif name not in buffers:
        shape = extents_of(computation, lead, staged)
        axes = tuple(map(StageAxis, staged.axes, shape, staged.axes))
        is_argument = source is not None and buffers[source].kind in (Kind.INPUT, Kind.CONSTANT)
        place = place_of_conversions(computation) if is_argument else position
        groups.insert(place, (Stage(name, name, axes, (), staged.value),))
        buffers[name] = Buffer(name, dtype, shape, Kind.LOCAL)
    return replace(computation, buffers=tuple(buffers.values()), groups=tuple(groups))


def reordered_array(lead: Stage, staged: StagedValue) -> str | None:
    """Return the array of which `staged` holds all elements, its axes in an order of their own, which no loop of `lead` is; None if it
    holds anything else.

    Every read of the array by `lead` is a read of the copy then, at whatever place.
    """
    loops = {axis.name for axis in (*lead.axes, *lead.reduce_axes)}
    axes = tuple(map(Var, staged.axes))
    if staged.point != axes or loops & {*staged.axes}:
        return None
    match staged.value:
        case Load(array, index) if len(index) == len(axes) and set(index) == set(axes):
            return array
        case _:
            return None


def _places(staged: StagedValue) -> list[int]:
    """Return which axis of the array each axis of a copy in another order is."""
    assert isinstance(staged.value, Load)
    return [staged.value.index.index(Var(axis)) for axis in staged.axes]


def reading_value(lead: Stage, staged: StagedValue) -> Stage | None:
    """Return `lead` reading an array in place of its expression; None if `lead` does not compute that."""
    array = reordered_array(lead, staged)
    if array is not None:
        places = _places(staged)

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer != array:
                return None
            index = tuple(rewrite(node.index[place], rule) for place in places)
            return Load(staged.name, index, node.dtype)

        body = rewrite(lead.body, rule)
        return None if body == lead.body else replace(lead, body=body)
    before = lead.body if staged.converted_array is not None else _apart(lead)
    body = staged.read_in(before)
    return None if body == before else replace(lead, body=body)


def extents_of(computation: Computation, lead: Stage, staged: StagedValue) -> tuple[Expr, ...]:
    """Return the extents of an array that `lead` reads: as many values as are read, or all of an array that is converted, or copied in
    another order of its axes.

    Raises PartitionError for an axis of no sum of loops that begins at 0 or above.
    """
    if staged.converted_array is not None:
        return computation.buffer(staged.converted_array).shape
    array = reordered_array(lead, staged)
    if array is not None:
        shape = computation.buffer(array).shape
        return tuple(shape[place] for place in _places(staged))
    axes = (*lead.axes, *lead.reduce_axes)
    ranges = {axis.name: (ix.const(0), ix.sub(axis.extent, 1)) for axis in axes}
    return staged.shape(lead.buffer, ranges)


def _apart(lead: Stage) -> Expr:
    """Return the body of a stage; of a negated product, ``-(a * b)``, with the negation in a factor: ``(-a) * b``."""
    match lead.value:
        case Unary("neg", Binary("*", a, b)) if lead.reducer == "sum":
            value, separated = lead.value, Binary("*", Unary("neg", a), b)
            return rewrite(lead.body, lambda node: separated if node == value else None)
        case _:
            return lead.body


def factor_copies(computation: Computation, position: int, narrow: bool) -> list[StagedValue]:
    """Return the factors of the sum of a group that are more than a load, each as an array.

    narrow   whether the scratch is of the type that is read, and converted by the sum
    """
    lead, names = computation.groups[position][0], computation.names()
    value = lead.value
    match value:
        case Unary("neg", Binary("*", a, b)):
            value = Binary("*", Unary("neg", a), b)
    if lead.reducer != "sum" or not isinstance(value, Binary) or value.op != "*":
        return []
    copies: list[StagedValue] = []
    for factor in dict.fromkeys((value.a, value.b)):
        late = converted_last(factor) if narrow else factor
        inner = late.a if isinstance(late, Cast) else late
        staged = None if isinstance(inner, Load) else _copy(lead, inner if narrow else late, names)
        copies += [] if staged is None else [staged]
    return copies


def _copy(lead: Stage, factor: Expr, names: Names, depth: str = "") -> StagedValue | None:
    """Return the array of a factor, with one element for each value of its indices; `depth`, if it is one of them, is the last axis."""
    loads = {node for node in walk(factor) if isinstance(node, Load)}
    if len(loads) != 1:
        return None
    load = loads.pop()
    extents = {axis.name: axis.extent for axis in (*lead.axes, *lead.reduce_axes)}
    own = Names(names.taken)
    axes: list[_Axis] = []
    for position, part in enumerate(load.index):
        form = ix.to_linear(part)
        moving = [(atom, factor) for atom, factor in form.terms if variables(atom) & extents.keys()]
        if not all(isinstance(atom, Var) for atom, _ in moving):
            return None
        if not moving:
            continue
        others = [other for k, other in enumerate(load.index) if k != position]
        shared = set().union(*(variables(other) for other in others))
        free = [
            (atom.name, c)
            for atom, c in moving
            if isinstance(atom, Var) and atom.name not in shared
        ]
        if not free:
            return None
        plain = isinstance(part, Var) and part.name
        name = plain or own.fresh(f"z{position}")
        axes.append(_Axis(name, form, _lowest(form, extents), free[0]))
    reduced = [axis.name for axis in lead.reduce_axes]
    axes.sort(key=lambda axis: (axis.name in reduced, axis.name == depth))
    value = rewrite(factor, lambda node: _in_scratch_axes(node, axes, extents))
    if variables(value) & extents.keys() - {axis.name for axis in axes}:
        return None
    point = tuple(ix.simplify(ix.sub(axis.part.expr(), axis.low)) for axis in axes)
    name = names.fresh(f"{load.buffer}_staged")
    return StagedValue(name, tuple(axis.name for axis in axes), point, value)


def _lowest(form: ix.Linear, extents: Mapping[str, Expr]) -> Expr:
    """Return the least value of an index over the iterations of a stage."""
    lowest: Expr = ix.const(form.const)
    for atom, factor in form.terms:
        if not (isinstance(atom, Var) and atom.name in extents):
            lowest = ix.add(lowest, ix.mul(atom, factor))
        elif factor < 0:
            lowest = ix.add(lowest, ix.mul(ix.sub(extents[atom.name], 1), factor))
    return lowest


def _in_scratch_axes(node: Expr, axes: Sequence[_Axis], extents: Mapping[str, Expr]) -> Expr | None:
    """A comparison or an access of the factor by the axes of the scratch."""
    match node:
        case Load(buffer, index, dtype):
            return Load(buffer, tuple(_by(part, axes, extents) for part in index), dtype)
        case Compare(op, a, b) if dtype_of(a) == "index":
            difference = _by(ix.sub(a, b), axes, extents)
            return ix.compare(op, difference, ix.const(0))
        case _:
            return None


def _by(value: Expr, axes: Sequence[_Axis], extents: Mapping[str, Expr]) -> Expr:
    """An index by the axes of the scratch, as far as these determine it."""
    for axis in axes:
        name, step = axis.pivot
        times, rest = divmod(dict(ix.to_linear(value).terms).get(Var(name), 0), step)
        if times and not rest:
            part = ix.mul(axis.part.expr(), times)
            here = ix.mul(ix.add(Var(axis.name), axis.low), times)
            value = ix.add(ix.sub(value, part), here)
    return ix.simplify(value)


def reorder_storage(
    computation: Computation, position: int, order: Sequence[str], called: str | None = None
) -> Computation:
    """`computation` with a group computed into scratch whose axes have another order, then copied.

    order   the axes of the group, as the scratch has them
    called  the scratch of its first stage; None: a name that is free
    """
    names = computation.names()
    group = computation.groups[position]
    buffers = {buffer.name: buffer for buffer in computation.buffers}
    places = [[axis.name for axis in group[0].axes].index(name) for name in order]
    turned_names: dict[str, str] = {}
    copies: list[tuple[Stage, ...]] = []
    for stage in group:
        buffer = buffers[stage.buffer]
        name, kind = buffer.name, buffer.kind
        shape = tuple(buffer.shape[place] for place in places)
        if kind is not Kind.PRIVATE:
            free = called if called is not None and stage is group[0] else f"{buffer.name}_turned"
            name, kind = names.fresh(free), Kind.LOCAL
            point = tuple(Var(axis) for axis in order)
            body = Load(name, point, buffer.dtype)
            copies.append((Stage(buffer.name, f"{stage.label} in order", stage.axes, (), body),))
        turned_names[buffer.name] = name
        buffers[name] = Buffer(name, buffer.dtype, shape, kind)

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer not in turned_names:
            return None
        index = tuple(node.index[place] for place in places)
        return Load(turned_names[node.buffer], index, node.dtype)

    turned_group = tuple(
        replace(
            stage,
            buffer=turned_names[stage.buffer],
            axes=tuple(stage.axes[place] for place in places),
            body=rewrite(stage.body, rule),
        )
        for stage in group
    )
    before, after = computation.groups[:position], computation.groups[position + 1 :]
    return replace(
        computation,
        buffers=tuple(buffers.values()),
        groups=(*before, turned_group, *copies, *after),
    )
