"""Sizes that make a node fit which is refused without: no longer than a table that is read, a multiple of what it is halved by, or
a number.

A table of 64 places gives ``min(n, 64)`` rows, and what these are added to has n: it runs up to 64. An image that is halved and
doubled has ``2*(h//2)`` rows, and what it is joined to has h: it runs where h is even. An exporter that was told that every axis
varies calls the channels of an image c, and the weights are of 3: it runs where c is 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations, product

from offcut.core import index as ix
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


class Settled(Exception):
    """A size may be `number` alone: the import is done again with that."""

    def __init__(self, size: str, number: int) -> None:
        super().__init__(size, number)
        self.size, self.number = size, number


def settle_sizes(
    g: Context,
    operands: Sequence[Operand | None],
    taken: Callable[[Context, Sequence[Operand | None]], bool],
) -> None:
    """Look for a size that is a number, where a node is refused.

    taken  whether the node is, of other operands

    Raises Settled where the node is taken with one size that nobody bounded as one of the numbers among the extents of its operands,
    and with no other such size or number.
    """
    shapes = [g.shape(one) for one in operands if one is not None]
    every = dict.fromkeys(extent for shape in shapes for extent in shape)
    names = [one.name for one in every if isinstance(one, Var) and one.name in g.free]
    numbers = [one for one in every if isinstance(one, int) and one > 1]
    found = [
        (name, number)
        for name, number in product(names, numbers)
        if taken(*_with_number(g, operands, name, number))
    ]
    if len(found) == 1:
        raise Settled(*found[0])


def _with_number(
    g: Context, operands: Sequence[Operand | None], name: str, number: int
) -> tuple[Context, list[Operand | None]]:
    """A context of its own, and operands that are alike in it but for the size that is a number."""
    apart, put = Context("apart"), {name: Const(number, "index")}
    apart.builder.sizes.update(g.builder.sizes)
    apart.free |= g.free
    apart.origins.update(g.origins)

    def alike(one: Operand | None) -> Operand | None:
        if one is None or isinstance(one, Known):
            return one
        shape = [extents.at(ix.index(extent), put) for extent in g.shape(one)]
        return apart.builder.input(apart.builder.fresh(one.name), g.dtype(one), shape)

    return apart, [alike(one) for one in operands]


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
