"""Extents that a node needs to be equal, solved for sizes that nobody bounded.

Operators state such equations: axes that are joined, multiplied or concatenated, elements before and after a reshape. An equation is
solved by the first of these ways that makes it hold at all sizes:

    b == a                          b is a; of two sizes the second one, of a size and a number the size
    total == past + new             total is past + new
    6*s*b == 30*b                   s is 5: factors of both sides are left out
    min(n, 64) == n                 n runs up to 64: a table of 64 rows is added to n words
    min(n, 1) == 1                  n begins at 1
    min(m, n) == n                  m is n: a mask is cut to n words
    2*(h//2) == h                   h is a multiple of 2: an image is halved, doubled and joined to itself
    n//4 == 1                       n is in 4:8

A solution says something of one size alone, and no size is said anything of twice in the same way: an import is done anew at most a few
times for each size. What has no solution is refused, and the user is asked for the sizes in it.

Extents that must be 1, or must not be: a rank does not depend on a size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import product

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, variables, walk
from offcut.core.program import Size
from offcut.graph import extents
from offcut.graph.sizes.extent_values import plain
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.nonnegative_extents import (
    first,
    in_file,
    larger,
    require_minimum_sizes,
    sizes_said,
    value_at,
    within,
    witness,
)
from offcut.plugins.onnx.importer.operands import Element, Equation, UnsupportedNode
from offcut.plugins.onnx.importer.size_facts import INT_MAX, FactsRequired, SizeFacts


def require_one(g: Context, value: Element, axis: int) -> None:
    """See to it that an extent is 1 at every size that is allowed; where one size that nobody bounded says it, that is bounded.

    Raises Wanted for that size; Refused, with the smallest sizes at which the extent is another, for others.
    """
    if value == 1 or (isinstance(value, Expr) and g.bounds(value) == (1, 1)):
        return
    if not isinstance(value, Expr):
        raise UnsupportedNode(f"axis {axis} has the extent {value}, which is not 1")
    help = "from_onnx(…, sizes={…}): bounds in which it is 1"
    if len(names := variables(value)) == 1:
        (name,) = names
        ends = range_where(g, value, 1, name)
        if ends is not None and name in g.free:
            if ends[0] == ends[1]:
                raise FactsRequired(said={name: g.origins[name][1] * ends[0]})
            raise FactsRequired(lows={name: ends[0]}, highs={name: ends[1]})
        help = within(g, name, *ends) if ends is not None else ""
    sizes = witness(g, value, lambda one: one != 1)
    at = "" if sizes is None else f" at {sizes_said(g, sizes)}"
    raise UnsupportedNode(
        f"axis {axis} has the extent {in_file(g, value)}, which is not 1{at}", help
    )


def range_where(g: Context, value: Expr, number: int, name: str) -> tuple[int, int] | None:
    """Return the values of a size, the least and the greatest, between which an extent is seen to be a number; None where there are none."""
    size = g.builder.sizes[name]

    def reaches(least: int, low: int) -> int:
        """Return the first value of the size from `low` on at which the extent is that large, or the one beyond all."""
        return first(low, min(size.max, INT_MAX) + 1, lambda n: value_at(value, {name: n}) >= least)

    low = reaches(number, size.min)
    high = reaches(number + 1, low) - 1
    if low > high:
        return None
    return (low, high) if g.bounds(value, {name: (low, high)}) == (number, number) else None


def is_one(g: Context, value: Element, axis: int) -> bool:
    """Whether an extent is 1.

    Raises Refused where it is at some sizes, and not at others.
    """
    if not isinstance(value, Expr):
        return value == 1
    low, high = g.bounds(value)
    if low == high == 1:
        return True
    if not low <= 1 <= high or extents.divisor(value, tuple(g.builder.sizes.values())) > 1:
        return False
    sizes = witness(g, value, lambda one: one == 1)
    at = "" if sizes is None else f": it is at {sizes_said(g, sizes)}"
    because = f"how many axes it gives depends on whether the extent {in_file(g, value)} of axis {axis} is 1{at}"
    above = larger(g, Binary("-", value, Const(2, "index")))
    raise UnsupportedNode(because, ", or ".join(filter(None, (above, "Squeeze with axes"))))


MAX_FACTOR = 4096
"""Maximum product of the divisors in an equation whose divisors are tried as factors of a size: an image is halved some five times, each seen twice."""

ZERO = Const(0, "index")


def solve(g: Context, equations: Iterable[Equation]) -> None:
    """Solve the first equation that has a solution in sizes that nobody bounded.

    Raises Wanted with the solution. Returns where no equation has one.
    """
    for equation in equations:
        one, other = map(ix.index, equation)
        difference = extents.normal(Binary("-", one, other))
        if not variables(difference) & g.free:
            continue
        _cap(g, one)
        _cap(g, other)
        for left, right in _simpler(one, other):
            _substitute(g, left, right, difference)
        _make_multiple(g, difference)
        _narrow(g, one, other)


def _simpler(one: Expr, other: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield pairs of which each, if equal, makes an equation hold: its sides without what is a factor of both, and sides of a minimum."""
    left, right = extents.normal(one), extents.normal(other)
    sides = extents.equate_terms(extents.normal(Binary("-", left, right)))
    yield (left, right) if sides is None else sides
    for by, divided, swapped in ((right, left, False), (left, right, True)):
        quotient = None if by == ZERO else extents.quotient(divided, by)
        if quotient is not None:
            yield (ix.const(1), quotient) if swapped else (quotient, ix.const(1))
    for extreme, side in ((left, right), (right, left)):
        if isinstance(extreme, Binary) and extreme.op in ("min", "max"):
            yield side, extreme.a
            yield side, extreme.b


def _without_factors(one: Expr, other: Expr) -> tuple[Expr, Expr]:
    """Return the sides of an equation without the sizes that are factors of both."""
    for name in sorted(variables(one) & variables(other)):
        left, right = (extents.quotient(side, Var(name)) for side in (one, other))
        if left is not None and right is not None:
            return _without_factors(left, right)
    return one, other


def _substitute(g: Context, one: Expr, other: Expr, difference: Expr) -> None:
    """Look for a size that stands alone in one term of two sides, and is what the other terms are.

    difference  of the equation, which must be 0 with that

    Raises Wanted.
    """
    total = extents.normal(Binary("-", one, other))
    for name, op in product(_candidates(g, one, other), "-+"):
        value = extents.normal(Binary(op, Var(name), total))
        if name in variables(value) or extents.at(difference, {name: value}) != ZERO:
            continue
        (low, high), size = g.bounds(value), g.builder.sizes[name]
        if isinstance(value, Const):
            if size.min <= low <= size.max:
                raise FactsRequired(said={name: g.origins[name][1] * low})
        elif low >= size.min and (high <= size.max or size.max >= INT_MAX // g.origins[name][1]):
            raise FactsRequired(equal={name: value})


def _candidates(g: Context, one: Expr, other: Expr) -> list[str]:
    """Return the sizes of two sides that nobody bounded: first those that are a side, of two that which the file has later."""
    alone = [side.name for side in (one, other) if isinstance(side, Var)]
    names = (variables(one) | variables(other)) & g.free
    place = {name: number for number, name in enumerate(g.builder.sizes)}
    return sorted(names, key=lambda name: (name not in alone, -place[name]))


def _cap(g: Context, expr: Expr) -> None:
    """Look for a minimum of an extent of one size and a number: the extent is that number at most; or the number is 1, of one of the
    last elements, and the extent is 1 at least.

    Raises Wanted.
    """
    for least in walk(expr):
        if not isinstance(least, Binary) or least.op != "min":
            continue
        for extent, number in ((least.a, least.b), (least.b, least.a)):
            names = variables(extent)
            if number == Const(1, "index"):
                require_minimum_sizes(g, plain(Binary("-", extent, number)))
            if isinstance(number, Const) and len(names) == 1 and names <= g.free:
                (name,) = names
                size = g.builder.sizes[name]
                most = _last_within(extent, int(number.value), size)
                if size.min < most < size.max:
                    raise FactsRequired(highs={name: most})


def _last_within(extent: Expr, number: int, size: Size) -> int:
    """Return the greatest value of a size at which an extent, which grows with it, is at most a number; one less than its least if none is."""
    end = min(size.max, INT_MAX) + 1
    return first(size.min, end, lambda n: value_at(extent, {size.name: n}) > number) - 1


def _make_multiple(g: Context, difference: Expr) -> None:
    """Look for a size for whose multiples of a number a difference is 0; the numbers are those that the difference divides by.

    Raises Wanted with the least.
    """
    divisors = [
        int(node.b.value)
        for node in walk(difference)
        if isinstance(node, Binary) and node.op in ("//", "%") and isinstance(node.b, Const)
    ]
    most = math.prod(divisors)
    for name in sorted(variables(difference) & g.free) if most <= MAX_FACTOR else ():
        for factor in (one for one in range(2, most + 1) if most % one == 0):
            multiple = Binary("*", Const(factor, "index"), Var(name))
            if extents.at(difference, {name: multiple}) == ZERO:
                raise FactsRequired(factors={name: factor})


def _narrow(g: Context, one: Expr, other: Expr) -> None:
    """Look for the range of a size in which an extent of it alone is the number that it is compared with.

    Raises Wanted.
    """
    for left, right in _simpler(one, other):
        for extent, number in ((left, right), (right, left)):
            names = variables(extent)
            if not isinstance(number, Const) or len(names) != 1 or not names <= g.free:
                continue
            (name,) = names
            ends, size = range_where(g, extent, int(number.value), name), g.builder.sizes[name]
            if ends is None or ends == (size.min, size.max):
                continue
            if ends[0] == ends[1]:
                raise FactsRequired(said={name: g.origins[name][1] * ends[0]})
            raise FactsRequired(lows={name: ends[0]}, highs={name: ends[1]})


def sizes_help(g: Context, equations: Iterable[Equation]) -> str:
    """Return what a user can say of the sizes of equations that have no solution; "" where no equation has a size.

    >>> sizes_help(context, [(h * w, 100)])  # doctest: +SKIP
    'from_onnx(…, sizes={"h": …, "w": …}) at which h*w is 100: h is axis 1 of the input x, w is axis 2 of the input x'
    """
    for equation in equations:
        left, right = _without_factors(*map(ix.index, equation))
        names = sorted(variables(left) | variables(right), key=list(g.builder.sizes).index)
        sizes = dict.fromkeys(g.origins[name][0] for name in names)
        if sizes:
            assignments = ", ".join(f'"{size}": …' for size in sizes)
            where = ", ".join(f"{size} is {g.axes[size]}" for size in sizes)
            equal = f"{in_file(g, left)} is {in_file(g, right)}"
            return f"from_onnx(…, sizes={{{assignments}}}) at which {equal}: {where}"
    return ""


def facts_said(g: Context, facts: SizeFacts) -> str:
    """Return facts of sizes in words, by the names of the file: ``n = 6, m in 4:8``."""
    origins = g.origins
    parts = [f"{origins[name][0]} = {number}" for name, number in facts.said.items()]
    parts += [
        f"{in_file(g, Var(name))} = {in_file(g, extent)}" for name, extent in facts.equal.items()
    ]
    parts += [
        f"{origins[name][0]} a multiple of {origins[name][1] * factor}"
        for name, factor in facts.factors.items()
    ]
    for name in dict.fromkeys((*facts.lows, *facts.highs)):
        low, high = facts.lows.get(name), facts.highs.get(name)
        ends = (
            "" if end is None else str(end) for end in (low, None if high is None else high + 1)
        )
        parts.append(f"{in_file(g, Var(name))} in {':'.join(ends)}")
    return ", ".join(parts)
