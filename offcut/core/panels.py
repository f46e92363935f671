"""Layouts by their usual names: panels of columns, words of lanes, orders of axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import prod

from offcut.core.layout import Digit, Layout, _check_integers, _refusal


@dataclass(frozen=True, slots=True)
class PanelShape:
    """The arguments of `panels`; ``[…, k, …, n, …]`` lies in panel ``n // width``."""

    width: int
    beside: int = 1
    multiple: int = 1
    rows: int = 0
    columns: int = 1
    bits: int | None = None

    @property
    def layout(self) -> Layout:
        """Return the layout that `panels` makes so."""
        plain = panels(self.width, self.beside, self.multiple, self.rows, self.columns)
        return replace(plain, bits=self.bits)


def panels(
    width: int, beside: int = 1, multiple: int = 1, rows: int = 0, columns: int = 1
) -> Layout:
    """Return the layout in panels of `width` columns, with `beside` rows of a column next to each other.

    multiple        the multiple that the number of rows is rounded up to
    rows, columns   the axes

    Raises DescribeError for a number below 1, for equal axes, and for a `multiple` that `beside` does not divide.
    """
    _check_integers("panels", "panels(16)", (width, beside, multiple, rows, columns))
    if min(width, beside, multiple, rows + 1, columns + 1) < 1 or rows == columns:
        because = f"panels of {width} columns and {beside} rows of axes {rows} and {columns}"
        raise _refusal("panels", f"{because} hold no elements")
    inner = (Digit(0, 1, beside, 1),) if beside > 1 else ()
    offset = (*inner, Digit(1, 1, width, beside), Digit(0, beside, None, width * beside))
    places = (("panel", (Digit(1, width, None, 1),)), ("offset", offset))
    return Layout(places, (multiple, width)).on(rows, columns)


@cache
def as_panels(layout: Layout | None) -> PanelShape | None:
    """Return the arguments with which `panels` places elements in memory as `layout` does; None if there are none."""
    named = layout is not None and [name for name, _ in layout.places] == ["panel", "offset"]
    layout = layout and layout.canonical()
    if layout is None or len(layout.places) != 2:
        return None
    (_, panel), (_, offset) = layout.places
    rows, columns, width = offset[-1].axis, panel[-1].axis, panel[-1].step
    multiple, beside = layout.multiple_of(rows), layout.beside(rows)
    if rows == columns or multiple % beside or (width == 1 and not named):
        return None
    shape = PanelShape(width, beside, multiple, rows, columns, layout.bits)
    return shape if shape.layout.canonical() == layout else None


def words(*lanes: tuple[int, int]) -> Layout:
    """Return the layout in words of elements: each word of ``words((0, 1), (1, 16))`` has 16 columns of a row.

    lanes   (axis, elements along it in a word); in a word and from word to word, the last axis is the fastest
    """
    for lane in lanes:
        if not isinstance(lane, tuple | list) or len(lane) != 2:
            because = "each lane is two numbers: an axis, and the elements along it in a word"
            raise _refusal(f"words({lane!r})", because, "words((0, 1), (1, 16))")
        _check_integers("words", "words((0, 1), (1, 16))", lane)
    inside: list[Digit] = []
    for axis, count in reversed(lanes):
        inside.append(Digit(axis, 1, count, prod(d.extent or 1 for d in inside)))
    outside = tuple((f"word{axis}", (Digit(axis, count, None, 1),)) for axis, count in lanes)
    multiple = dict(lanes)
    rank = max(multiple, default=-1) + 1
    return Layout(
        (*outside, ("lane", tuple(inside))), tuple(multiple.get(axis, 1) for axis in range(rank))
    )


def order(*axes: int) -> Layout:
    """Return the layout of elements one after the other, the last of these axes fastest."""
    _check_integers("order", "order(1, 0)", axes)
    places = tuple((f"axis{axis}", (Digit(axis, 1, None, 1),)) for axis in axes)
    return Layout(places, (1,) * (max(axes, default=-1) + 1))
