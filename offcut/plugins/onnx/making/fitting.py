"""Sizes that make a node fit which is refused without: no longer than a table that is read, a multiple of what it is halved by,
a number, in the range where an extent is a number, or equal to others.

A table of 64 places gives ``min(n, 64)`` rows, and what these are added to has n: it runs up to 64. An image that is halved and
doubled has ``2*(h//2)`` rows, and what it is joined to has h: it runs where h is even. An exporter that was told that every axis
varies calls the channels of an image c, and the weights are of 3: it runs where c is 3. One that was told of each input apart calls
the batch of words b, and that of their masks d: it runs where d is b. One of speech reads 4 samples at a time into a row, and
multiplies it by weights of one row: it runs where ``n//4`` is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, product, zip_longest
from typing import TypeAlias

import numpy as np

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, variables, walk
from offcut.graph import extents
from offcut.graph.sizes.numbers import plain
from offcut.plugins.onnx.making.context import Context
from offcut.plugins.onnx.making.facts import INT_MAX, Wanted
from offcut.plugins.onnx.making.negative import raise_sizes
from offcut.plugins.onnx.making.ones import range_where
from offcut.plugins.onnx.making.operands import Element, Known, Operand, known

MOST_FACTOR = 4096
"""Of how many numbers a size may be made a multiple: an image is halved some five times, and each is seen twice."""


MOST_EXTENTS = 8
"""Of how many elements a vector of integers may be a shape, for numbers that sizes may be: images of volumes have five extents."""

MOST_PAIRS = 300
"""Of how many pairs of extents it is guessed which is equal: for each, the node is taken anew. Three images of open sizes have less."""

Taken: TypeAlias = "Callable[[Context, Sequence[Operand | None]], bool]"
"""Whether a node is taken, of operands in a context of its own."""


def settle_sizes(g: Context, operands: Sequence[Operand | None], taken: Taken) -> None:
    """Look for a size that is a number above 1, where a node is refused.

    Raises Wanted as `_number` finds it.
    """
    number = _number(g, operands, taken, (n for n in _numbers(g, operands) if n > 1))
    if number is not None:
        raise number


def _number(
    g: Context, operands: Sequence[Operand | None], taken: Taken, numbers: Iterable[int]
) -> Wanted | None:
    """Return what is wanted where a node is taken with one size that nobody bounded as one of some numbers, and with no other such size or
    number, nor with the next: that one would say that it is taken with any.
    """
    every = _numbered(g, operands)
    names = [extent.name for extent in every if isinstance(extent, Var) and extent.name in g.free]
    found = [
        (name, number)
        for name, number in product(names, numbers)
        if taken(*_with(g, operands, {name: Const(number, "index")}))
    ]
    if len(found) != 1:
        return None
    ((name, number),) = found
    more = taken(*_with(g, operands, {name: Const(number + 1, "index")}))
    return None if more else Wanted(said={name: number})


def guessed(g: Context, operands: Sequence[Operand | None], taken: Taken) -> Wanted | None:
    """Return what sizes are, for where no node is seen to join or to settle sizes: equal to others at another place; in the range in which an
    extent, ``n//4``, is a number; or 1, which fits much. Of more than `MOST_PAIRS` pairs of extents nothing is guessed.
    """
    pairs = _pairs(g, operands)
    if len(pairs) > MOST_PAIRS:
        return None
    return (
        _equal(g, operands, taken, pairs)
        or _range(g, operands, taken)
        or _number(g, operands, taken, (1,))
    )


def _range(g: Context, operands: Sequence[Operand | None], taken: Taken) -> Wanted | None:
    """Return the range of a size where a node is taken with an extent of it as 1, or as one of the numbers among the extents of its operands,
    and with no other extent or number, nor with the next.
    """
    ranges = list[tuple[str, tuple[int, int], Expr, int]]()
    for extent in _numbered(g, operands):
        if not isinstance(extent, Expr) or isinstance(extent, Var) or len(variables(extent)) != 1:
            continue
        (name,) = variables(extent)
        for number in dict.fromkeys((1, *_numbers(g, operands))) if name in g.free else ():
            ends = range_where(g, extent, number, name)
            if ends is not None and taken(*_in_place(g, operands, extent, number)):
                ranges.append((name, ends, extent, number))
    if len(ranges) != 1:
        return None
    ((name, (low, high), extent, number),) = ranges
    more = taken(*_in_place(g, operands, extent, number + 1))
    return None if more else Wanted(lows={name: low}, highs={name: high})


def _numbers(g: Context, operands: Sequence[Operand | None]) -> list[int]:
    """Return the numbers above 0 among the extents of operands, and the elements of shapes."""
    return [one for one in _numbered(g, operands) if isinstance(one, int) and one > 0]


def _numbered(g: Context, operands: Sequence[Operand | None]) -> dict[Element, None]:
    """Return the extents of operands, and the elements of those that are shapes, each once."""
    shapes = [g.shape(one) for one in operands if one is not None]
    elements = (one for operand in operands for one in _listed(operand))
    return dict.fromkeys((*(extent for shape in shapes for extent in shape), *elements))


def join_sizes(g: Context, operands: Sequence[Operand | None], taken: Taken) -> None:
    """Look for sizes that are equal to extents, where a node is refused.

    Raises Wanted where the node is taken with extents of its operands, or of a shape among them, that are at one place, counted from the last, in place of the
    sizes there, as few as do. A size that somebody bounded stays.
    """
    aligned = _aligned(g, operands)
    if not aligned or not taken(*_with(g, operands, aligned)):
        return
    for name in tuple(aligned):
        fewer = {one: other for one, other in aligned.items() if one != name}
        if fewer and taken(*_with(g, operands, fewer)):
            aligned = fewer
    raise Wanted(equal=aligned)


def _pairs(g: Context, operands: Sequence[Operand | None]) -> list[dict[str, Expr]]:
    """Return what sizes are where two extents of operands, or sizes in them, are equal, for each two of which one is such a size."""
    every = dict.fromkeys(
        one
        for operand in operands
        for extent in _extents(g, operand)
        for one in (extent, *filter(partial(_is_free, g), walk(extent)))
    )
    return [same for pair in combinations(every, 2) if (same := _joined(g, pair))]


def _equal(
    g: Context,
    operands: Sequence[Operand | None],
    taken: Taken,
    pairs: Sequence[Mapping[str, Expr]],
) -> Wanted | None:
    """Return what sizes are, where a node is taken with one of the pairs equal, and with no other: they are at no one place."""
    found = [same for same in pairs if taken(*_with(g, operands, same))]
    return Wanted(equal=found[0]) if len(found) == 1 else None


def _aligned(g: Context, operands: Sequence[Operand | None]) -> dict[str, Expr]:
    """What sizes are, where extents at one place are equal."""
    found: dict[str, Expr] = {}
    shapes = [_as_shape(g, one)[::-1] for one in operands if one is not None]
    for there in zip_longest(*shapes):
        same = _joined(g, [extents.at(one, found) for one in there if isinstance(one, Expr)])
        found = {name: extents.at(one, same) for name, one in found.items()} | same
    return found


def _as_shape(g: Context, operand: Operand) -> Sequence[Element]:
    """Return the extents of an operand, or its elements where these are a shape."""
    if isinstance(operand, Known) and operand.symbolic:
        return operand.elements
    return g.shape(operand)


def _listed(operand: Operand | None) -> Sequence[Element]:
    """Return the elements of a short vector of integers, such as a shape is; none of other operands."""
    if not isinstance(operand, Known) or operand.array.ndim != 1 or operand.dtype != "int64":
        return ()
    return operand.elements if operand.array.size <= MOST_EXTENTS else ()


def _joined(g: Context, every: Iterable[Expr]) -> dict[str, Expr]:
    """What sizes that nobody bounded are, where all extents are equal: what is no such size, else the first."""
    first, *others = sorted(dict.fromkeys(every), key=partial(_is_free, g)) or [Const(0, "index")]
    return {
        one.name: first
        for one in others
        if isinstance(one, Var) and _is_free(g, one) and one.name not in variables(first)
    }


def _is_free(g: Context, extent: Expr) -> bool:
    """Return whether an extent is a size that nobody bounded."""
    return isinstance(extent, Var) and extent.name in g.free


def _with(
    g: Context, operands: Sequence[Operand | None], put: Mapping[str, Expr]
) -> tuple[Context, list[Operand | None]]:
    """Return a context of its own, and operands that are alike in it but for sizes in whose places others, or numbers, are put."""
    return _changed(g, operands, lambda one: extents.at(ix.index(one), put))


def _in_place(
    g: Context, operands: Sequence[Operand | None], extent: Expr, number: int
) -> tuple[Context, list[Operand | None]]:
    """Return the same where an extent is a number."""
    replacement = Const(number, "index")
    return _changed(g, operands, lambda one: replacement if one == extent else ix.index(one))


def _changed(
    g: Context, operands: Sequence[Operand | None], change: Callable[[Element], Expr]
) -> tuple[Context, list[Operand | None]]:
    """Return a context of its own, and operands that are alike in it but for their extents."""
    apart = Context("apart")
    apart.builder.sizes.update(g.builder.sizes)
    apart.free |= g.free
    apart.origins.update(g.origins)

    def alike(one: Operand | None) -> Operand | None:
        if isinstance(one, Known) and one.symbolic:
            elements = [plain(change(element)) for element in one.elements]
            return known(np.reshape(np.array(elements, object), one.array.shape), one.dtype)
        if one is None or isinstance(one, Known):
            return one
        shape = [change(extent) for extent in g.shape(one)]
        return apart.builder.input(apart.builder.fresh(one.name), g.dtype(one), shape)

    return apart, [alike(one) for one in operands]


def fit_sizes(g: Context, operands: Iterable[Operand | None]) -> None:
    """Look for sizes that would make extents of operands equal, where a node is refused.

    Raises Wanted for sizes that nobody bounded.
    """
    every = dict.fromkeys(one for operand in operands for one in _extents(g, operand))
    for extent in every:
        for part in walk(extent):
            if isinstance(part, Binary) and part.op == "min":
                _cap(g, part)
    for one, other in combinations(every, 2):
        difference = extents.normal(Binary("-", one, other))
        for name in sorted(variables(difference) & g.free):
            factor = _without_rest(difference, name)
            if factor is not None:
                raise Wanted(factors={name: factor})


def _without_rest(difference: Expr, name: str) -> int | None:
    """Return the least factor of a size, among those of the numbers that a difference divides by, for whose multiples it is 0; None for none."""
    divisors = [
        int(node.b.value)
        for node in walk(difference)
        if isinstance(node, Binary) and node.op in ("//", "%") and isinstance(node.b, Const)
    ]
    most = math.prod(divisors)
    if most > MOST_FACTOR:
        return None
    for factor in range(2, most + 1):
        multiple = Binary("*", Const(factor, "index"), Var(name))
        if most % factor == 0 and extents.at(difference, {name: multiple}) == Const(0, "index"):
            return factor
    return None


def _extents(g: Context, operand: Operand | None) -> Iterator[Expr]:
    """Yield the symbolic extents of an operand, and its elements where it is a shape."""
    if operand is None:
        return
    found: Sequence[object] = g.shape(operand)
    if isinstance(operand, Known) and operand.symbolic:
        found = (*found, *operand.elements)
    yield from (one for one in found if isinstance(one, Expr))


def _cap(g: Context, least: Binary) -> None:
    """Raises Wanted where a minimum of an extent of one free size and a number is the extent up to some size; or where the number is
    1, of one of the last elements: there is one.
    """
    for extent, number in ((least.a, least.b), (least.b, least.a)):
        names = variables(extent) & g.free
        if number == Const(1, "index"):
            raise_sizes(g, plain(Binary("-", extent, number)))
        if not isinstance(number, Const) or len(names) != 1 or variables(extent) != names:
            continue
        (name,) = names
        size = g.builder.sizes[name]
        low, high = size.min, min(size.max, INT_MAX)
        while low < high:  # the greatest size at which it is no more than the number
            middle = (low + high + 1) // 2
            at_it = extents.at(extent, {name: Const(middle, "index")})
            fits = isinstance(at_it, Const) and at_it.value <= number.value
            low, high = (middle, high) if fits else (low, middle - 1)
        if low < size.max and low > size.min:
            raise Wanted(highs={name: low})
