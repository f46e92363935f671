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
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    dtype_of,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.program import Buffer, Kind
from offcut.describe.computation import Computation, Names, Stage, StageAxis


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of the scratch: the index part that it stands for is ``at + low``.

    pivot   an axis of the sum that no other part moves along, and its coefficient
    """

    name: str
    part: ix.Linear
    low: Expr
    extent: Expr
    pivot: tuple[str, int]


@dataclass(frozen=True, slots=True)
class ValueCopy:
    """A part of the term of a sum that is computed before it, in an array of its own.

    what   the part
    stage  that computes it
    load   what is read instead of it: an index for each axis of the stage
    node   in the term, what is replaced
    by     the same with `load`
    """

    what: Expr
    stage: Stage
    load: Load
    node: Expr
    by: Expr

    def named(self, name: str, axes: Sequence[str]) -> ValueCopy:
        """It, its array called `name`, with axes of these names."""
        renamed = dict(zip((axis.name for axis in self.stage.axes), axes, strict=True))
        stage = replace(
            self.stage,
            buffer=name,
            label=name,
            axes=tuple(
                replace(axis, name=renamed[axis.name], label=renamed[axis.name])
                for axis in self.stage.axes
            ),
            body=substitute(self.stage.body, {old: Var(new) for old, new in renamed.items()}),
        )
        load = replace(self.load, buffer=name)
        by = rewrite(self.by, lambda node: load if node == self.load else None)
        return replace(self, stage=stage, load=load, by=by)


def with_scratch(computation: Computation, position: int, narrow: bool) -> Computation:
    """`computation` with the computed factors of the sum of a group in scratch of their own; itself
    where no factor is computed.

    narrow   whether scratch is of the type that is read, and converted by the sum
    """
    for copy in factor_copies(computation, position, narrow):
        computation = with_value(computation, position, copy)
        position += 1
    return computation


def with_copy(computation: Computation, position: int, operand: Load, depth: str) -> Computation:
    """`computation` with an element that the sum of a group multiplies copied before it, its terms along
    the reduction axis `depth` side by side; itself where the element does not move along it, or its
    place is no sum of axes.
    """
    made = element_copy(computation, position, operand, depth)
    return computation if made is None else with_value(computation, position, made)


def element_copy(
    computation: Computation, position: int, operand: Load, depth: str
) -> ValueCopy | None:
    """An element that the sum of a group multiplies, its terms along the reduction axis `depth` side by side;
    None where it does not move along it, or its place is no sum of axes.
    """
    lead = computation.groups[position][0]
    made = _copy(lead, operand, computation.names(), depth)
    if made is None or all(axis.name != depth for axis in made[0].axes):
        return None
    stage, load = made
    return ValueCopy(operand, stage, load, operand, load)


def with_value(computation: Computation, position: int, copy: ValueCopy) -> Computation:
    """`computation` whose sum of a group reads what a stage before it computes."""
    lead = computation.groups[position][0]
    body = rewrite(_apart(lead), lambda node: copy.by if node == copy.node else None)
    return _with_copies(computation, position, replace(lead, body=body), [copy.stage])


def _apart(lead: Stage) -> Expr:
    """The body of a stage, the product that it negates as a product of which one factor is negated."""
    match lead.value:
        case Unary("neg", Binary("*", a, b)) if lead.reducer == "sum":
            value, made = lead.value, Binary("*", Unary("neg", a), b)
            return rewrite(lead.body, lambda node: made if node == value else None)
        case _:
            return lead.body


def _with_copies(
    computation: Computation, position: int, lead: Stage, copies: Sequence[Stage]
) -> Computation:
    """`computation` with `lead` at the head of a group, behind the stages that fill what it reads."""
    group = computation.groups[position]
    scratch = tuple(
        Buffer(copy.buffer, dtype_of(copy.body), tuple(a.extent for a in copy.axes), Kind.LOCAL)
        for copy in copies
    )
    groups = (
        *computation.groups[:position],
        *((copy,) for copy in copies),
        (lead, *group[1:]),
        *computation.groups[position + 1 :],
    )
    return replace(computation, buffers=(*computation.buffers, *scratch), groups=groups)


def factor_copies(computation: Computation, position: int, narrow: bool) -> list[ValueCopy]:
    """The factors of the sum of a group that are computed, each in scratch.

    narrow   whether the scratch is of the type that is read, and converted by the sum
    """
    lead, names = computation.groups[position][0], computation.names()
    value = lead.value
    match value:
        case Unary("neg", Binary("*", a, b)):
            value = Binary("*", Unary("neg", a), b)
    if lead.reducer != "sum" or not isinstance(value, Binary) or value.op != "*":
        return []
    copies: list[ValueCopy] = []
    for factor in dict.fromkeys((value.a, value.b)):
        late = converted_last(factor) if narrow else factor
        inner = late.a if isinstance(late, Cast) else late
        what = inner if narrow else late
        made = None if isinstance(inner, Load) else _copy(lead, what, names)
        if made is not None:
            stage, load = made
            by = Cast(load, late.dtype) if isinstance(late, Cast) and narrow else load
            copies.append(ValueCopy(what, stage, load, factor, by))
    return copies


def converted_last(factor: Expr) -> Expr:
    """Return ``where(c, float(x), 0)`` as ``float(where(c, x, 0))``."""
    match factor:
        case Select(condition, Cast(a, dtype), Const(0)):
            return Cast(Select(condition, a, Const(0, dtype_of(a))), dtype)
        case _:
            return factor


def _copy(lead: Stage, factor: Expr, names: Names, depth: str = "") -> tuple[Stage, Load] | None:
    """The stage that computes a factor for every value of its indices, and what is read of it; `depth`
    is its last axis where the factor has it.
    """
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
        low, extent = _range(form, extents)
        plain = isinstance(part, Var) and part.name
        axes.append(_Axis(plain or own.fresh(f"z{position}"), form, low, extent, free[0]))
    reduced = [axis.name for axis in lead.reduce_axes]
    axes.sort(key=lambda axis: (axis.name in reduced, axis.name == depth))
    body = rewrite(factor, lambda node: _restated(node, axes, extents))
    if variables(body) & extents.keys() - {axis.name for axis in axes}:
        return None
    name = names.fresh(f"{load.buffer}_staged")
    point = tuple(ix.simplify(ix.sub(axis.part.expr(), axis.low)) for axis in axes)
    stage_axes = tuple(StageAxis(axis.name, axis.extent, axis.name) for axis in axes)
    return Stage(name, name, stage_axes, (), body), Load(name, point, dtype_of(factor))


def _range(form: ix.Linear, extents: Mapping[str, Expr]) -> tuple[Expr, Expr]:
    """The least value of an index, and how many it takes at most."""
    low, extent = ix.const(form.const), ix.const(1)
    lowest: Expr = low
    count: Expr = extent
    for atom, factor in form.terms:
        if not (isinstance(atom, Var) and atom.name in extents):
            lowest = ix.add(lowest, ix.mul(atom, factor))
            continue
        steps = ix.sub(extents[atom.name], 1)
        count = ix.add(count, ix.mul(steps, abs(factor)))
        if factor < 0:
            lowest = ix.add(lowest, ix.mul(steps, factor))
    return lowest, count


def _restated(node: Expr, axes: Sequence[_Axis], extents: Mapping[str, Expr]) -> Expr | None:
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


def turned(
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
    held: dict[str, str] = {}
    copies: list[tuple[Stage, ...]] = []
    for stage in group:
        kept = buffers[stage.buffer]
        name, kind = kept.name, kept.kind
        shape = tuple(kept.shape[place] for place in places)
        if kind is not Kind.PRIVATE:
            free = called if called is not None and stage is group[0] else f"{kept.name}_turned"
            name, kind = names.fresh(free), Kind.LOCAL
            point = tuple(Var(axis) for axis in order)
            body = Load(name, point, kept.dtype)
            copies.append((Stage(kept.name, f"{stage.label} in order", stage.axes, (), body),))
        held[kept.name] = name
        buffers[name] = Buffer(name, kept.dtype, shape, kind)

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer not in held:
            return None
        index = tuple(node.index[place] for place in places)
        return Load(held[node.buffer], index, node.dtype)

    made = tuple(
        replace(
            stage,
            buffer=held[stage.buffer],
            axes=tuple(stage.axes[place] for place in places),
            body=rewrite(stage.body, rule),
        )
        for stage in group
    )
    before, after = computation.groups[:position], computation.groups[position + 1 :]
    return replace(
        computation,
        buffers=tuple(buffers.values()),
        groups=(*before, made, *copies, *after),
    )
