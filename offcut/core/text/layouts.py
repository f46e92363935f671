"""The text of layouts, as buffers, windows and schedules have it: ``layout_of(format_layout(x)) == x``.

::

    rows                                as arrays lie
    order(1, 0)                         element by element along these axes, the last one fastest
    panels(0, 1, 16, 4, 64)             rows, columns, width; rows side by side, what rows are rounded up to
    words(0: 1, 1: 16)                  words of 16 elements of a row
    digits(lane: 1//2%4 0%8, element: 1%2 0//8%2)
                                        coordinates, each of digits of axes, the least significant first
    … multiple(0: 4)                    what axes are rounded up to, where digits do not say it
    … swizzle(3, 4, 7)                  bits, low, high: of the byte offset

``panels(16)`` and ``panels(16, 4)``, width and rows side by side, are of the last two axes of a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr
from offcut.core.layout import ROWS, Digit, Layout, Swizzle, as_panels, order, panels, words
from offcut.core.text.tokens import Tokens, read_lines
from offcut.errors import DescribeError, ParseError

_T = TypeVar("_T")


@cache
def format_layout(layout: Layout) -> str:
    """Return the text that `read_layout` reads back."""
    plain, swizzle = replace(layout, swizzle=None), layout.swizzle
    return _format(plain) + (f" {swizzle}" if swizzle else "")


def _format(layout: Layout) -> str:
    if shape := as_panels(layout):
        numbers = [shape.rows, shape.columns, shape.width]
        if (shape.beside, shape.multiple) != (1, 1):
            numbers += [shape.beside, shape.multiple]
        return f"panels({', '.join(map(str, numbers))})"
    if layout == ROWS:
        return "rows"
    lanes = [(of[-1].axis, of[-1].step) for _, of in layout.places if of and not of[-1].extent]
    if layout == order(*(axis for axis, _ in lanes)):
        return f"order({', '.join(str(axis) for axis, _ in lanes)})"
    if layout == words(*lanes):
        return f"words({_pairs(lanes)})"
    places = (" ".join([f"{name}:", *map(_digit, of)]) for name, of in layout.places)
    rounded = [(at, m) for at, m in enumerate(layout.multiple) if m != layout.period(at)]
    return f"digits({', '.join(places)})" + (f" multiple({_pairs(rounded)})" if rounded else "")


def _pairs(pairs: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{axis}: {count}" for axis, count in pairs)


def _digit(digit: Digit) -> str:
    step = f"//{digit.step}" if digit.step > 1 else ""
    return f"{digit.axis}{step}" + (f"%{digit.extent}" if digit.extent is not None else "")


def layout_of(text: str) -> Layout:
    """Return the layout that a text is.

    Raises ParseError for any other text.
    """
    lines = read_lines(text)
    if len(lines) != 1:
        raise ParseError("parse", "cannot read a layout", because="it is one line", help=_ALL)
    reader = Tokens(lines[0])
    layout = read_layout(reader)
    reader.finish()
    return layout


def is_layout(reader: Tokens) -> bool:
    """Return whether a layout stands here."""
    return reader.token.text in _READERS


def read_layout(reader: Tokens, shape: Sequence[Expr] | None = None, dtype: str = "int8") -> Layout:
    """Return the layout that stands here, and take it.

    shape, dtype   of what lies so; None: of any axes that the layout names

    Raises ParseError where it is none, or one that has no place for all elements.
    """
    if not is_layout(reader):
        raise reader.expected(f"a layout ({', '.join(_READERS)})")
    first = reader.advance()
    read, *help = _READERS[first.text]
    try:
        layout = read(reader, None if shape is None else len(shape))
        if reader.accept("multiple"):
            given = dict(_bracketed(reader, lambda: _pair(reader)))
            axes = range(max(len(layout.multiple), *(axis + 1 for axis in given)))
            multiple = tuple(given.get(axis, layout.multiple_of(axis)) for axis in axes)
            layout = replace(layout, multiple=multiple)
        if reader.accept("swizzle"):
            layout = replace(layout, swizzle=Swizzle(*_numbers(reader, 3, 3)))
        if shape is not None:
            layout.check([ix.literal(extent) for extent in shape], ITEM_BYTES[dtype])
    except DescribeError as refused:
        because = f"{refused.at}: {refused.because}" if refused.at else refused.because
        raise reader.refuse("cannot read a layout", because, *help, column=first.start) from None
    return layout


def _rows(reader: Tokens, rank: int | None) -> Layout:
    return ROWS


def _order(reader: Tokens, rank: int | None) -> Layout:
    return order(*_bracketed(reader, reader.integer))


def _words(reader: Tokens, rank: int | None) -> Layout:
    return words(*_bracketed(reader, lambda: _pair(reader)))


def _panels(reader: Tokens, rank: int | None) -> Layout:
    numbers = _numbers(reader, 1, 5)
    if len(numbers) < 3:
        width, beside = (*numbers, 1)[:2]
        last = 2 if rank is None else rank
        if last < 2:
            raise DescribeError(
                "layout", "", because=f"panels have two axes, and the buffer has {last}"
            )
        return panels(width, beside, beside, last - 2, last - 1)
    rows, columns, width, *rest = numbers
    beside, multiple = (*rest, *(rest or (1, 1)))[:2]
    return panels(width, beside, multiple, rows, columns)


def _digits(reader: Tokens, rank: int | None) -> Layout:
    return _of_digits(_bracketed(reader, lambda: _coordinate(reader)))


def _of_digits(places: Sequence[tuple[str, tuple[Digit, ...]]]) -> Layout:
    digits = [digit for _, of in places for digit in of]
    multiple = [1] * (max((digit.axis for digit in digits), default=-1) + 1)
    for digit in digits:
        multiple[digit.axis] *= digit.extent or 1
    return Layout(tuple(places), tuple(multiple))


def _coordinate(reader: Tokens) -> tuple[str, tuple[Digit, ...]]:
    """``lane: 1//2%4 0%8``."""
    name, digits, weight = reader.name("the name of a coordinate"), list[Digit](), 1
    reader.expect(":")
    while reader.token.kind == "number":
        axis = reader.integer()
        step = reader.integer() if reader.accept("//") else 1
        extent = reader.integer() if reader.accept("%") else None
        digits.append(Digit(axis, step, extent, weight))
        weight *= extent or 1
    return name, tuple(digits)


def _pair(reader: Tokens) -> tuple[int, int]:
    axis = reader.integer()
    reader.expect(":")
    return axis, reader.integer()


def _numbers(reader: Tokens, least: int, most: int) -> list[int]:
    numbers = _bracketed(reader, reader.integer)
    if not least <= len(numbers) <= most:
        raise DescribeError("layout", "", because=f"it has {len(numbers)} numbers")
    return numbers


def _bracketed(reader: Tokens, read: Callable[[], _T]) -> list[_T]:
    """Return what stands between brackets, separated by commas."""
    bracket, found = reader.expect("("), list[_T]()
    while not reader.at(")"):
        found.append(read())
        if not reader.accept(","):
            break
    reader.close(bracket, ")")
    return found


_READERS: dict[str, tuple[Callable[[Tokens, int | None], Layout], *tuple[str, ...]]] = {
    "panels": (
        _panels,
        "panels(rows, columns, width)",
        "panels(rows, columns, width, interleave, multiple)",
    ),
    "words": (_words, "words(0: 1, 1: 16)"),
    "order": (_order, "order(1, 0)"),
    "rows": (_rows, "rows"),
    "digits": (_digits, "digits(lane: 1//2%4 0%8, element: 1%2 0//8%2)"),
}
_ALL = tuple(text for _, *help in _READERS.values() for text in help)
