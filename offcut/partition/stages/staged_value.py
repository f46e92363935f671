"""Values in arrays of their own, which a stage reads in place of an expression: staged, or converted once.

``where(0 <= y + r - 1 < h, X[y + r - 1], 0)`` has one value for each value of ``y + r``: an array of an axis z holds
``where(0 <= z - 1 < h, X[z - 1], 0)``, and is read at ``y + r``.

Operands of sums in the type that is multiplied in: converted once, and not in every term.

``sum of float32(A[i, k]) * float32(B[k, j])`` converts an element of A for every column. Where a
microkernel multiplies float32, A is converted in a stage of its own, before its reader; an operand
that the caller gives, before all else; and a constant that nothing else reads, when it is packed.
Which operands a microkernel wants converted, its back end says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import (
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Select,
    Var,
    all_loads,
    children,
    dtype_of,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.intervals import Ends, ends
from offcut.core.memo import lazy_property, memo
from offcut.core.program import Buffer, Kind
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Names, Stage
from offcut.errors import PartitionError


@dataclass(frozen=True)
class StagedValue:
    """An array of the values of an expression.

    name   of the array
    axes   of the array, in order
    point  what stands for each of them in a stage that reads it
    value  over the axes, and the sizes
    """

    name: str
    axes: tuple[str, ...]
    point: tuple[Expr, ...]
    value: Expr

    @property
    def load(self) -> Load:
        """Return what is read in place of the expression."""
        return Load(self.name, self.point, dtype_of(self.value))

    @property
    def expression(self) -> Expr:
        """Return the expression as a stage that reads the array would compute it."""
        return substitute(self.value, dict(zip(self.axes, self.point, strict=True)))

    @property
    def converted_array(self) -> str | None:
        """Return the array whose elements it converts, each in its place; None if it does anything else."""
        match self.value:
            case Cast(Load(array, index)) if index == tuple(map(Var, self.axes)):
                return array
            case _:
                return None

    @lazy_property
    def normal_form(self) -> object:
        """Return the `normal_form` of the expression, computed once."""
        return normal_form(self.expression)

    def rename(self, name: str, axes: Sequence[str]) -> StagedValue:
        """Return the value with `name` as the name of its array, and `axes` as the names of its axes."""
        by_name: dict[str, Expr] = {old: Var(new) for old, new in zip(self.axes, axes, strict=True)}
        return replace(self, name=name, axes=tuple(axes), value=substitute(self.value, by_name))

    def read_in(self, expr: Expr) -> Expr:
        """Return `expr` with the array read in place of the expression; one that is converted last, where padding is converted too."""
        dtype, load = dtype_of(self.value), self.load

        def rule(node: Expr) -> Expr | None:
            last = converted_last(node)
            if isinstance(last, Cast) and dtype_of(last.a) == dtype and self.is_equal(last.a):
                return Cast(load, last.dtype)
            return load if dtype_of(node) == dtype and self.is_equal(node) else None

        return rewrite(expr, rule)

    def is_equal(self, expr: Expr) -> bool:
        """Return whether a stage that reads the array computes `expr` there, by its form."""
        return normal_form(expr) == self.normal_form

    def shape(self, reader: str, ranges: Mapping[str, Ends]) -> tuple[Expr, ...]:
        """Return how many values each axis has, from 0.

        reader  the stage that reads the array
        ranges  the least and the greatest value of its loops

        Raises PartitionError for an axis of no sum of loops that begins at 0 or above.
        """
        shape = list[Expr]()
        for axis, part in zip(self.axes, self.point, strict=True):
            extremes = ends(part, ranges)
            late = extremes is not None and bool(set(ranges) & variables(extremes[1]))
            if extremes is None or late or (ix.literal_value(extremes[0]) or 0) < 0:
                raise PartitionError(
                    "stage_value",
                    f"cannot stage {format_expr(self.value)} along {axis} = {format_expr(part)}",
                    at=f"stage {reader}",
                    because="that is not a sum of loops that begins at 0 or above, and ends at one place at each size",
                    help=(f"loops of {reader}: {', '.join(ranges)}",),
                )
            shape.append(ix.add(extremes[1], 1))
        return tuple(shape)


def converted_last(factor: Expr) -> Expr:
    """Return ``where(c, float(x), 0)`` as ``float(where(c, x, 0))``."""
    match factor:
        case Select(condition, Cast(a, dtype), Const(0)):
            return Cast(Select(condition, a, Const(0, dtype_of(a))), dtype)
        case _:
            return factor


@memo(1 << 14)
def normal_form(expr: Expr) -> object:
    """Return a key that is equal for expressions which differ only in the order of sums of indices."""
    match expr:
        case Compare(op, a, b) if dtype_of(a) == "index":
            difference = ix.to_linear(ix.sub(a, b))
            if op in (">", ">="):
                difference, op = ix.to_linear(ix.sub(b, a)), {">": "<", ">=": "<="}[op]
            if op == "<=":
                difference, op = ix.to_linear(ix.sub(difference.expr(), 1)), "<"
            return op, difference.const, frozenset((repr(atom), k) for atom, k in difference.terms)
        case Load(buffer, index, _):
            return buffer, tuple(map(normal_form, index))
        case Logic("and"):
            return "and", frozenset(map(normal_form, conjuncts(expr)))
        case Lookup(values, index):
            return values, normal_form(index)
    if dtype_of(expr) == "index":
        form = ix.to_linear(expr)
        return form.const, frozenset((repr(atom), k) for atom, k in form.terms)
    inner = children(expr)
    if not inner:
        return repr(expr)
    own = type(expr).__name__, getattr(expr, "op", getattr(expr, "dtype", ""))
    return own, tuple(map(normal_form, inner))


def conversion_value(computation: Computation, node: Cast, names: Names) -> StagedValue:
    """Return the array that holds the elements of a conversion.

    It is the constant itself if that is converted when it is bound, else the copy that `computation` has, else a new one.

    node   a conversion of one element
    names  that are taken; that of a new array is added
    """
    load = node.a
    assert isinstance(load, Load)
    source = computation.buffer(load.buffer)
    name, axes = source.name, tuple(f"x{k}" for k in range(len(source.shape)))
    if source.kind is not Kind.CONSTANT or not is_read_once(computation, source.name):
        copies = (group[0] for group in computation.groups if _is_copy(group, source, node.dtype))
        copy = next(copies, None)
        if copy is not None:
            name, axes = copy.buffer, tuple(axis.name for axis in copy.axes)
        else:
            name = names.fresh(f"{source.name}_{node.dtype}")
            axes = tuple(map(Names(names.taken).fresh, axes))
    element = Load(source.name, tuple(map(Var, axes)), source.dtype)
    return StagedValue(name, axes, load.index, Cast(element, node.dtype))


def place_of_conversions(computation: Computation) -> int:
    """Return the position of the first group that does not convert an argument or a constant."""
    arguments = [b for b in computation.buffers if b.kind in (Kind.INPUT, Kind.CONSTANT)]
    for position, group in enumerate(computation.groups):
        if not any(_is_copy(group, one, dtype_of(group[0].body)) for one in arguments):
            return position
    return len(computation.groups)


def _is_copy(group: Sequence[Stage], source: Buffer, dtype: str) -> bool:
    """Whether a group converts the whole of a buffer, and nothing else."""
    if len(group) != 1:
        return False
    point = tuple(Var(axis.name) for axis in group[0].axes)
    return group[0].body == Cast(Load(source.name, point, source.dtype), dtype)


def conversions(lead: Stage) -> tuple[Cast, ...]:
    """The elements that a stage reads in another type than their own, each once."""
    nodes = (node for node in walk(lead.value) if isinstance(node, Cast))
    return tuple(dict.fromkeys(node for node in nodes if isinstance(node.a, Load)))


def reading(lead: Stage, done: Collection[Cast]) -> Stage:
    """`lead` as if the operands of some of its conversions had the type that they are converted to."""

    def rule(node: Expr) -> Expr | None:
        if node not in done:
            return None
        assert isinstance(node, Cast)
        assert isinstance(node.a, Load)
        return replace(node.a, dtype=node.dtype)

    return replace(lead, body=rewrite(lead.body, rule)) if done else lead


def is_read_once(computation: Computation, buffer: str) -> bool:
    """Whether one load of all stages reads a buffer."""
    stages = (stage for group in computation.groups for stage in group)
    read = (load for stage in stages for load in all_loads(stage.value))
    return sum(load.buffer == buffer for load in read) == 1
