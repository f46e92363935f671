"""Extents that may be below 0, ``h - 4``: a size that nobody bounded is raised, else the node is refused."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING

from offcut.core.expr import Binary, Const, Expr, Var, variables
from offcut.core.program import Size
from offcut.graph import extents
from offcut.plugins.onnx.making.facts import INT_MAX, Wanted
from offcut.plugins.onnx.making.operands import Element, Refused, said

if TYPE_CHECKING:
    from offcut.plugins.onnx.making.context import Context

MOST_RAISED = 4096
"""How far a size is raised: windows and padding take less, and what takes more is a difference of sizes."""

MOST_SIZES = 6
"""Of how many sizes an extent is tried at their ends."""


def raise_sizes(g: Context, value: Element) -> None:
    """See to it that an extent is at least 0, by a size that is large enough, where one nobody bounded does.

    Raises Wanted with the least value of that size.
    """
    if not isinstance(value, Expr) or g.bounds(value)[0] >= 0:
        return
    for name in sorted(variables(value) & g.free):
        size = g.builder.sizes[name]
        low = _enough(g, value, name, min(size.max, size.min + MOST_RAISED))
        if low is not None:
            raise Wanted(lows={name: low})


def refuse_negative(g: Context, value: Element, what: str = "it gives") -> None:
    """See to it that no size that is allowed makes an extent less than 0.

    what  makes it, in words

    Raises Refused with the smallest sizes that are seen to.
    """
    if not isinstance(value, Expr) or g.bounds(value)[0] >= 0:
        return
    found = _witness(g, value)
    if found is None:
        return
    own = {name: _of_file(*g.origins[name]) for name in found}
    at = ", ".join(
        f"{g.origins[name][0]} = {g.origins[name][1] * one}" for name, one in found.items()
    )
    help = ""
    for name in found:
        low = _enough(g, value, name, INT_MAX)
        if low is not None:
            (text, factor), most = g.origins[name], g.builder.sizes[name].max
            help = f'sizes={{"{text}": ({factor * low}, {factor * max(low, most)})}}'
            break
    raise Refused(f"{what} the extent {said(extents.at(value, own))}, below 0 at {at}", help)


def _enough(g: Context, value: Expr, name: str, high: int) -> int | None:
    """The least value of a size, `high` at most, from which on an extent is seen to be at least 0."""
    low = g.builder.sizes[name].min

    def holds(least: int) -> bool:
        return g.bounds(value, {name: least})[0] >= 0

    return _first(low, high, holds) if low <= high and holds(high) else None


def _witness(g: Context, value: Expr) -> dict[str, int] | None:
    """Sizes at which an extent is below 0: each at an end, then as small as it may be; None where no end is one."""
    names = sorted(variables(value))
    if len(names) > MOST_SIZES:
        return None
    sizes = [g.builder.sizes[name] for name in names]
    for ends in sorted(product(*((size.min, size.max) for size in sizes)), key=sum):
        found = dict(zip(names, ends, strict=True))
        if _at(value, found) >= 0:
            continue
        for size in sizes:
            found[size.name] = _smallest(value, found, size)
        return found
    return None


def _smallest(value: Expr, found: Mapping[str, int], size: Size) -> int:
    """The least value of a size at which an extent is still below 0, the others as they are found."""
    return _first(size.min, found[size.name], lambda one: _at(value, {**found, size.name: one}) < 0)


def _at(value: Expr, sizes: Mapping[str, int]) -> int:
    found = extents.at(value, {name: Const(one, "index") for name, one in sizes.items()})
    assert isinstance(found, Const)
    return int(found.value)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first number from `low` on where something holds that holds at `high`, and from its first on."""
    return low + bisect_left(range(low, high), True, key=holds)


def _of_file(text: str, factor: int) -> Expr:
    return Var(text) if factor == 1 else Binary("//", Var(text), Const(factor, "index"))
