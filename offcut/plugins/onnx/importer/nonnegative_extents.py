"""Extents that may be below 0, ``h - 4``: a size that nobody bounded is raised, else the node is refused."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING

from offcut.core.expr import Binary, Const, Expr, Var, variables
from offcut.core.program import Size
from offcut.graph import extents
from offcut.plugins.onnx.importer.operands import Element, UnsupportedNode, format_values
from offcut.plugins.onnx.importer.size_facts import INT_MAX, FactsRequired

if TYPE_CHECKING:
    from offcut.plugins.onnx.importer.context import Context

MOST_RAISED = 4096
"""How far a size is raised: windows and padding take less, and what takes more is a difference of sizes."""

MOST_SIZES = 6
"""Of how many sizes an extent is tried at their ends."""


def require_minimum_sizes(g: Context, value: Element) -> None:
    """See to it that an extent is at least 0, by a size that is large enough, where one nobody bounded does.

    Raises Wanted with the least value of that size.
    """
    if not isinstance(value, Expr) or g.bounds(value)[0] >= 0:
        return
    for name in sorted(variables(value) & g.free):
        size = g.builder.sizes[name]
        low = _enough(g, value, name, min(size.max, size.min + MOST_RAISED))
        if low is not None:
            raise FactsRequired(lows={name: low})


def refuse_negative(g: Context, value: Element, what: str = "it gives") -> None:
    """See to it that no size that is allowed makes an extent less than 0.

    what  makes it, in words

    Raises Refused with the smallest sizes that are seen to.
    """
    if not isinstance(value, Expr) or g.bounds(value)[0] >= 0:
        return
    sizes = witness(g, value, lambda one: one < 0)
    if sizes is None:
        return
    at, help = sizes_said(g, sizes), larger(g, value)
    raise UnsupportedNode(f"{what} the extent {in_file(g, value)}, below 0 at {at}", help)


def in_file(g: Context, value: Expr) -> str:
    """An extent over the sizes of the file."""
    own = {name: _of_file(*g.origins[name]) for name in variables(value)}
    return format_values(extents.at(value, own))


def sizes_said(g: Context, sizes: Mapping[str, int]) -> str:
    """Sizes of the graph as those of the file."""
    own = ((*g.origins[name], one) for name, one in sizes.items())
    return ", ".join(f"{text} = {factor * one}" for text, factor, one in own)


def larger(g: Context, value: Expr) -> str:
    """What says that a size is so large that an extent is seen to be at least 0; nothing where none does."""
    for name in sorted(variables(value)):
        low = _enough(g, value, name, INT_MAX)
        if low is not None:
            return within(g, name, low, g.builder.sizes[name].max)
    return ""


def within(g: Context, name: str, low: int, high: int) -> str:
    """What says that a size is between two numbers, `low` at least."""
    text, factor = g.origins[name]
    return f'sizes={{"{text}": ({factor * low}, {factor * max(low, high)})}}'


def _enough(g: Context, value: Expr, name: str, high: int) -> int | None:
    """The least value of a size, `high` at most, from which on an extent is seen to be at least 0."""
    low, most = g.builder.sizes[name].min, g.builder.sizes[name].max

    def holds(least: int) -> bool:
        return g.bounds(value, {name: (least, max(least, most))})[0] >= 0

    return first(low, high, holds) if low <= high and holds(high) else None


def witness(g: Context, value: Expr, breaks: Callable[[int], bool]) -> dict[str, int] | None:
    """Sizes at which an extent is what it may not be: each at an end, then as small as it may be; None where no end is one."""
    names = sorted(variables(value))
    if len(names) > MOST_SIZES:
        return None
    sizes = [g.builder.sizes[name] for name in names]
    for ends in sorted(product(*((size.min, size.max) for size in sizes)), key=sum):
        values = dict(zip(names, ends, strict=True))
        if not breaks(value_at(value, values)):
            continue
        for size in sizes:
            values[size.name] = _smallest(value, values, size, breaks)
        return values
    return None


def _smallest(
    value: Expr, values: Mapping[str, int], size: Size, breaks: Callable[[int], bool]
) -> int:
    """The least value of a size at which an extent is still what it may not be, the others as they are found."""
    return first(
        size.min, values[size.name], lambda one: breaks(value_at(value, {**values, size.name: one}))
    )


def value_at(value: Expr, sizes: Mapping[str, int]) -> int:
    """An extent at sizes."""
    number = extents.at(value, {name: Const(one, "index") for name, one in sizes.items()})
    assert isinstance(number, Const)
    return int(number.value)


def first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first number from `low` on where something holds that holds at `high`, and from its first on."""
    return low + bisect_left(range(low, high), True, key=holds)


def _of_file(text: str, factor: int) -> Expr:
    return Var(text) if factor == 1 else Binary("//", Var(text), Const(factor, "index"))
