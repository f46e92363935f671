"""Compute the maximum of an index by isl; the largest values in 32 bits, and the bytes that windows take, by it.

The range of a quotient of sizes is found by isl too, an upper bound of a maximum by interval arithmetic.

The largest values that a kernel computes in 32 bits, as expressions over the sizes.

Indices are ints in the text of a kernel, and addresses of arrays of several axes are not: a size that makes an index
larger than that is refused at the call, with the value that this file bounds. A sum is bounded by its positive and by its
negative terms apart, so that each of its partial sums is, too.

The bytes that windows in a memory take at most, and the agents that loops are bound to, over all sizes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Cast, Compare, Expr, Select, Var, children, dtype_of
from offcut.core.interpret.values import evaluate
from offcut.core.intervals import Interval, interval
from offcut.core.program import Alloc, For, If, Let, Program, Size, Stmt, Tile, blocks
from offcut.core.text.printer import format_expr
from offcut.core.traversal import Path, expressions, walk_with_parents
from offcut.errors import PartitionError
from offcut.polyhedral.affine import Space, coordinates, parse_set
from offcut.polyhedral.isl_budget import try_isl

Loops = Sequence[tuple[str, Expr, Expr]]
"""(iterator, lo, hi) of each loop, outermost first."""


def upper_bound(
    expr: Expr, program: Program, loops: Loops, conditions: Sequence[Expr] = ()
) -> int | None:
    """Return an upper bound of an index expression: from its literals, else its maximum, else from the range of each name by
    itself; None if none of these gives one.

    conditions  over the loops and sizes of `program`

    Products of sizes are in no set, but they have intervals.
    """
    bound = ix.literal_bound(expr)
    if bound is None:
        facts = program.sizes, program.assumptions, loops, conditions
        bound = try_isl(lambda: maximum(expr, *facts), None)
    return interval_maximum(expr, program, loops) if bound is None else bound


def interval_maximum(expr: Expr, program: Program, loops: Loops) -> int | None:
    """Return the greatest value of an expression by interval arithmetic; None if it has no finite one."""
    ranges: dict[str, tuple[float, float]] = {
        size.name: (size.min, size.last) for size in program.sizes
    }
    for name, lo, hi in loops:
        ranges[name] = _interval(lo, ranges)[0], _interval(hi, ranges)[1] - 1
    greatest = _interval(expr, ranges)[1]
    return int(greatest) if greatest < inf else None


def _interval(expr: Expr, ranges: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    anything = -inf, inf

    def known(part: Expr) -> tuple[float, float]:
        return ranges.get(part.name, anything) if isinstance(part, Var) else anything

    return interval(expr, known)


def maximum(
    expr: Expr,
    sizes: Sequence[Size],
    assumptions: Sequence[Expr],
    loops: Loops,
    conditions: Sequence[Expr] = (),
) -> int | None:
    """Return ``max { expr : loops, sizes, conditions }``; None if there is no maximum, or it is not quasi-affine.

    loops       (iterator, lo, hi), outermost first
    conditions  over the loops and sizes; one that is not quasi-affine is left out

    0 where nothing runs.
    """
    space = Space(tuple(sizes), tuple(assumptions))
    names = [name for name, _, _ in loops]
    at = coordinates(names)
    value = space.expr(expr, at)
    if value is None:
        return None
    constraints = [space.facts, f"x{len(names)} = {value}"]
    for name, lo, hi in loops:
        for side in (Compare("<=", lo, Var(name)), Compare("<", Var(name), hi)):
            text = space.condition(side, at)
            if text is not None:
                constraints.append(text)
    constraints += [text for one in conditions if (text := space.condition(one, at)) is not None]
    dims = ", ".join(f"x{k}" for k in range(len(names) + 1))
    points = parse_set(f"{space.parameters}{{ [{dims}] : {' and '.join(constraints)} }}")
    points = points.project_out(isl.dim_type.set, 0, len(names))
    points = points.move_dims(
        isl.dim_type.set, 1, isl.dim_type.param, 0, points.dim(isl.dim_type.param)
    )
    if points.is_empty():
        return 0
    greatest = points.dim_max_val(0)
    return int(greatest.to_python()) if greatest.is_int() else None


def quotient_range(
    dividend: Expr,
    divisor: Expr,
    sizes: Sequence[Size],
    assumptions: Sequence[Expr],
    within: Interval,
) -> Interval:
    """Return the least and the greatest value of ``dividend // divisor`` over the sizes; `within` where isl has no answer.

    dividend, divisor  quasi-affine over the sizes; divisors of 1 and more count alone
    within             a range that is known to hold all values, inclusive

    The quotient of two sizes is no set, but ``q <= dividend // divisor`` is ``q*divisor <= dividend`` for a number q: each end is
    found by halving.
    """
    space = Space(tuple(sizes), tuple(assumptions))
    positive = space.condition(Compare(">=", divisor, ix.const(1)), {}) or "false"
    numbers = range(within[0] + 1, within[1] + 1)

    def is_reached(number: int, op: str) -> bool:
        """Return whether the quotient is less than a number somewhere (">"), or at least that ("<=")."""
        condition = space.condition(Compare(op, ix.mul(divisor, number), dividend), {})
        return not space.set((), (positive, condition or "true")).is_empty()

    def ends() -> Interval:
        lowest = bisect_left(numbers, True, key=lambda number: is_reached(number, ">"))
        greatest = bisect_left(numbers, True, key=lambda number: not is_reached(number, "<="))
        return within[0] + lowest, within[0] + max(lowest, greatest)

    return try_isl(ends, within)


INDEX_LIMIT = 2**62  # of every intermediate value: the generated code computes in int64


def fitting(expr: Expr, ranges: Mapping[str, Interval], at: str) -> Interval:
    """Return the bounds of an index expression over the ranges of its names; reject one that may exceed int64."""

    def known(node: Expr) -> Interval:
        match node:
            case Var(name):
                return ranges[name]
            case Cast(a, _):
                high = INDEX_LIMIT // 2 if ITEM_BYTES.get(dtype_of(a), 8) == 8 else 2**32
            case _:
                below = [interval(child, known, within) for child in children(node)]
                high = max((abs(end) for ends in below for end in ends), default=0)
        return -high, high

    def within(node: Expr, bounds: Interval) -> Interval:
        if isinstance(node, Select):
            interval(node.condition, known, within)
        low, high = bounds
        if max(abs(low), abs(high)) > INDEX_LIMIT:
            raise PartitionError(
                "represent",
                f"cannot compute {format_expr(node)} in int64",
                at=at,
                because=f"it reaches {high if high > INDEX_LIMIT else low}, past 2**62",
                help=("give the sizes a smaller max", "use smaller factors"),
            )
        return bounds

    return interval(expr, known, within)


ZERO = ix.const(0)


def index_bounds(program: Program, launch: Stmt, limit: int) -> tuple[Expr, ...]:
    """Return bounds of the indices that a launch computes, over the sizes; those alone that some allowed sizes make larger than `limit`."""
    largest = {size.name: size.max for size in program.sizes}
    bounds: dict[Expr, None] = {}
    sizes: Iterator[Expr] = (Var(size.name) for size in program.sizes)
    extents = (extent for buffer in program.buffers for extent in buffer.shape)
    for bound in (*sizes, *_all_bounds(tuple(extents), {}), *_of_statement(launch, {})):
        if int(evaluate(bound, largest)) > limit:
            bounds[bound] = None
    return tuple(sorted(bounds, key=format_expr))


def _of_statement(stmt: Stmt, bounds: Mapping[str, Expr]) -> Iterator[Expr]:
    """Yield bounds of all indices of a statement.

    bounds  of the iterators around it
    """
    yield from _all_bounds(expressions(stmt), bounds)
    inner = dict(bounds)
    match stmt:
        case For(name, lo, hi, _):
            inner[name] = _larger(_magnitude_bound(lo, bounds), _magnitude_bound(hi, bounds))
        case Let(name, _, hi, value, _):
            inner[name] = ix.minimum(_magnitude_bound(value, bounds), hi)
        case Tile(axes, _, _):
            for axis in axes:
                inner[axis.iter] = ix.add(
                    _magnitude_bound(axis.start, bounds), _magnitude_bound(axis.extent, bounds)
                )
                yield inner[axis.iter]
    for body in blocks(stmt):
        for child in body:
            yield from _of_statement(child, inner)


def _all_bounds(exprs: tuple[Expr, ...], bounds: Mapping[str, Expr]) -> Iterator[Expr]:
    """Yield a bound of each index in expressions, and of each index that it is made of."""
    for expr in exprs:
        if dtype_of(expr) == "index":
            yield _magnitude_bound(expr, bounds)
            parts = tuple(atom for atom, _ in ix.to_linear(expr).terms)
            if parts == (expr,):
                parts = children(expr)
            yield from _all_bounds(parts, bounds)
        else:
            yield from _all_bounds(children(expr), bounds)


def _magnitude_bound(expr: Expr, bounds: Mapping[str, Expr]) -> Expr:
    """Return an upper bound of the magnitude of an index."""
    form = ix.to_linear(expr)
    if form.terms == ((expr, 1),):
        return _atom_bound(expr, bounds)
    above: Expr = ix.const(max(form.const, 0))
    below: Expr = ix.const(max(-form.const, 0))
    for atom, factor in form.terms:
        term = ix.mul(_magnitude_bound(atom, bounds), abs(factor))
        if factor > 0 or not ix.is_nonnegative(atom):
            above = ix.add(above, term)
        if factor < 0 or not ix.is_nonnegative(atom):
            below = ix.add(below, term)
    return _larger(above, below)


def _atom_bound(expr: Expr, bounds: Mapping[str, Expr]) -> Expr:
    match expr:
        case Var(name):
            return bounds.get(name, expr)
        case Binary("//", a, b):
            bound, divisor = _magnitude_bound(a, bounds), ix.literal_value(b)
            quotient = bound if divisor is None else ix.floordiv(bound, divisor)
            return quotient if ix.is_nonnegative(a) else ix.add(quotient, 1)
        case Binary("%", a, b):
            return _magnitude_bound(b, bounds)
        case Binary("min", a, b) if ix.is_nonnegative(a) and ix.is_nonnegative(b):
            return ix.minimum(_magnitude_bound(a, bounds), _magnitude_bound(b, bounds))
        case Binary("min" | "max", a, b) | Select(_, a, b):
            return _larger(_magnitude_bound(a, bounds), _magnitude_bound(b, bounds))
        case Binary("*", a, b):
            return ix.mul(_magnitude_bound(a, bounds), _magnitude_bound(b, bounds))
    return ZERO  # an element, which is checked where it is read


def _larger(a: Expr, b: Expr) -> Expr:
    """Return the larger of two magnitudes, which are never below 0."""
    return b if a == ZERO else a if b == ZERO else ix.maximum(a, b)


@dataclass(frozen=True, slots=True)
class WindowRoom:
    """The room of a window.

    bytes  of all its slots and copies, at the sizes where it is largest; None if nothing bounds its extents
    """

    alloc: Alloc
    bytes: int | None


def window_rooms(
    program: Program, stmt: Stmt, memory: str, units: Collection[str] = ()
) -> tuple[WindowRoom, ...]:
    """Return the room of each window in `memory` inside of a statement, in the order of the text.

    units  whose agents have a copy each of a window inside of their loops

    A window in place of another one takes no room of its own.
    """
    rooms: list[WindowRoom] = []
    for alloc, path in walk_with_parents((stmt,)):
        if not isinstance(alloc, Alloc) or alloc.inplace is not None:
            continue
        buffer = program.buffer(alloc.buffer)
        if memory != (alloc.memory or buffer.scope):
            continue
        copies = [
            _largest(ix.sub(loop.hi, loop.lo), program, path[:depth])
            for depth, (loop, _) in enumerate(path)
            if isinstance(loop, For) and loop.unit in units
        ]
        extents = [_largest(extent, program, path) for _, extent in alloc.axes]
        factors = [one for one in (*copies, *extents) if one is not None]
        if len(factors) < len(copies) + len(extents):
            rooms.append(WindowRoom(alloc, None))
            continue
        layout, shape = alloc.layout or buffer.layout, factors[len(copies) :]
        shape = shape if layout is None else [*layout.padded_extents(shape)]
        whole = prod(factors[: len(copies)]) * alloc.depth * prod(shape)
        rooms.append(WindowRoom(alloc, whole * ITEM_BYTES[buffer.dtype]))
    return tuple(rooms)


def agent_count(program: Program, stmt: Stmt, unit: str) -> int | None:
    """Return the number of agents of a unit that loops inside of a statement need, at the sizes where it is largest; 0 if no loop
    is bound to the unit, None if nothing bounds it.

    Agents are numbered from 0 on: a loop ``2:4`` needs four. Those of nested loops are pairs of numbers.
    """
    most = 0
    for loop, path in walk_with_parents((stmt,)):
        if not isinstance(loop, For) or loop.unit != unit:
            continue
        count = 1
        for depth, (around, _) in enumerate((*path, (loop, 0))):
            if isinstance(around, For) and around.unit == unit:
                end = _largest(around.hi, program, path[:depth])
                if end is None:
                    return None
                count *= end
        most = max(most, count)
    return most


def _largest(extent: Expr, program: Program, path: Path) -> int | None:
    """Return an upper bound of an extent inside of `path`, at least 0; None if there is none that is known."""
    loops: list[tuple[str, Expr, Expr]] = []
    conditions: list[Expr] = []
    for stmt, number in path:
        match stmt:
            case For(name, lo, hi):
                loops.append((name, lo, hi))
            case Let(name, low, high):
                loops.append((name, ix.const(low), ix.const(high)))
            case If(condition):
                conditions += conjuncts(condition, number == 0)
    bound = upper_bound(extent, program, tuple(loops), tuple(conditions))
    return None if bound is None else max(bound, 0)
