"""Sizes that make a node fit which is refused without: no longer than a table that is read, or a multiple of what it is halved by.

A table of 64 places gives ``min(n, 64)`` rows, and what these are added to has n: it runs up to 64. An image that is halved and
doubled has ``2*(h//2)`` rows, and what it is joined to has h: it runs where h is even.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from offcut.core.expr import Binary, Const, Expr, Var, variables, walk
from offcut.graph import extents
from offcut.plugins.onnx.context import Context, Scaled
from offcut.plugins.onnx.negative import INT_MAX
from offcut.plugins.onnx.operands import Known, Operand


class Capped(Exception):
    """A size may be `high` at most: the import is done again with that."""

    def __init__(self, size: str, high: int) -> None:
        super().__init__(size, high)
        self.size, self.high = size, high


def fit_sizes(g: Context, operands: Iterable[Operand | None]) -> None:
    """Look for sizes that would make extents of operands equal, where a node is refused.

    Raises Capped for a size that nobody bounded, or Scaled.
    """
    every = dict.fromkeys(one for operand in operands for one in _extents(g, operand))
    for extent in every:
        for part in walk(extent):
            if isinstance(part, Binary) and part.op == "min":
                _cap(g, part)
    for one, other in permutations(every, 2):
        match extents.normal(Binary("-", one, other)):
            case Binary("%", Var(name), Const() as by):
                raise Scaled({name: int(by.value)})
            case Binary("%", Binary("//", Var(name), Const() as part), Const() as by):
                raise Scaled({name: int(part.value) * int(by.value)})
            case _:
                pass


def _extents(g: Context, operand: Operand | None) -> Iterator[Expr]:
    """The symbolic extents of an operand, and its elements where it is a shape."""
    if operand is None:
        return
    found: Sequence[object] = g.shape(operand)
    if isinstance(operand, Known) and operand.symbolic:
        found = (*found, *operand.elements)
    yield from (one for one in found if isinstance(one, Expr))


def _cap(g: Context, least: Binary) -> None:
    """Raises Capped where a minimum of an extent of one free size and a number is the extent up to some size."""
    for extent, number in ((least.a, least.b), (least.b, least.a)):
        names = variables(extent) & g.free
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
            raise Capped(name, low)
