"""Compute the maximum of an index over the loops around it and the sizes, and the range of a quotient of sizes, by isl; an upper
bound of it by interval arithmetic too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import inf

import islpy as isl

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Cast, Compare, Expr, Select, Var, children, dtype_of
from offcut.core.intervals import Interval, interval
from offcut.core.program import Program, Size
from offcut.core.text.printer import format_expr
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
