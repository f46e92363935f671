"""Reads and prints layouts, as buffers, windows and schedules have them: ``layout_of(format_layout(x)) == x``.

::

    rows                                row by row
    order(1, 0)                         element by element along these axes, the last one fastest
    panels(0, 1, 16, 4, 64)             axes of rows and columns, width; rows side by side, multiple of the rows
    words(0: 1, 1: 16)                  words of 16 elements of a row
    digits(lane: 1//2%4 0%8, element: 1%2 0//8%2)
                                        coordinates, each of digits of axes, the least significant first
    … multiple(0: 4)                    multiples that axes are rounded up to, if not the period of their digits
    … swizzle(3, 4, 7)                  bits, low, high: of the byte offset
    … bits(4)                           of an element, several of which share a byte

``panels(16)`` and ``panels(16, 4)``, with width and rows side by side, are of the last two axes of a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr
from offcut.core.layout import ROWS, Digit, Layout, Swizzle
from offcut.core.panels import as_panels, order, panels, words
from offcut.core.text.tokens import Tokens, read_lines
from offcut.errors import DescribeError, ParseError

_T = TypeVar("_T")


@cache
def format_layout(layout: Layout) -> str:
    """Return the text that `read_layout` reads back."""
    plain = replace(layout, swizzle=None, bits=None)
    ends = (layout.swizzle, None if layout.bits is None else f"bits({layout.bits})")
    return " ".join([_format(plain), *(str(end) for end in ends if end is not None)])


def _format(layout: Layout) -> str:
    if (shape := as_panels(layout)) and layout == shape.layout:
        numbers = [shape.rows, shape.columns, shape.width]
        if (shape.beside, shape.multiple) != (1, 1):
            numbers += [shape.beside, shape.multiple]
        return f"panels({', '.join(map(str, numbers))})"
    lanes = [(of[-1].axis, of[-1].step) for _, of in layout.places if of and not of[-1].extent]
    axes = [axis for axis, _ in lanes]
    places = (" ".join([f"{name}:", *map(_digit, of)]) for name, of in layout.places)
    text, like = f"digits({', '.join(places)})", None
    for short, form in (
        ("rows", ROWS),
        (f"order({', '.join(map(str, axes))})", order(*axes)),
        (f"words({_pairs(lanes)})", words(*lanes)),
    ):
        if like is None and form.places == layout.places:
            text, like = short, form
    usual = layout.period if like is None else like.multiple_of
    rounded = [(at, m) for at, m in enumerate(layout.multiple) if m != usual(at)]
    return text + (f" multiple({_pairs(rounded)})" if rounded else "")


def _pairs(pairs: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{axis}: {count}" for axis, count in pairs)


def _digit(digit: Digit) -> str:
    step = f"//{digit.step}" if digit.step > 1 else ""
    return f"{digit.axis}{step}" + (f"%{digit.extent}" if digit.extent is not None else "")


def layout_of(text: str) -> Layout:
    """Return the layout of a text of one line.

    Raises ParseError for any other text.
    """
    lines = read_lines(text)
    if len(lines) != 1:
        raise ParseError("parse", "cannot read a layout", because="it is one line")
    reader = Tokens(lines[0])
    layout = read_layout(reader)
    reader.finish()
    return layout


def is_layout(reader: Tokens) -> bool:
    """Return whether the current token begins a layout."""
    return reader.token.text in _FORMS


def read_layout(reader: Tokens, shape: Sequence[Expr] | None = None, dtype: str = "int8") -> Layout:
    """Read a layout from the current token on.

    shape, dtype   of the buffer, its extents in elements; None: it has the axes that the layout names

    Raises ParseError for any other text, and for a layout without a place for each element.
    """
    if not is_layout(reader):
        raise reader.expected_error(f"a layout ({', '.join(_FORMS)})")
    first = reader.advance()
    try:
        layout = _read_layout(reader, first.text, 2 if shape is None else len(shape))
        if reader.accept("multiple"):
            multiples = dict(_list(reader, _pair))
            axes = range(max(len(layout.multiple), *(axis + 1 for axis in multiples)))
            rounded = tuple(multiples.get(axis, layout.multiple_of(axis)) for axis in axes)
            layout = replace(layout, multiple=rounded)
        if reader.accept("swizzle"):
            layout = replace(layout, swizzle=Swizzle(*_numbers(reader, "swizzle", 3, 3)))
        if reader.accept("bits"):
            layout = replace(layout, bits=_numbers(reader, "bits", 1, 1)[0])
        if shape is not None:
            layout.check([ix.literal_value(extent) for extent in shape], ITEM_BYTES[dtype])
    except DescribeError as refused:
        because, help = f"{refused.at}: {refused.because}", _FORMS[first.text]
        raise reader.refuse("cannot read a layout", because, *help, column=first.start) from None
    return layout


def _read_layout(reader: Tokens, form: str, rank: int) -> Layout:
    match form:
        case "order":
            return order(*_list(reader, Tokens.integer))
        case "words":
            return words(*_list(reader, _pair))
        case "panels":
            numbers = _numbers(reader, form, 1, 5)
            if len(numbers) < 3:
                if rank < 2:
                    because = f"they have two axes, and the buffer has {rank}"
                    raise DescribeError("layout", "", at=form, because=because)
                numbers = [rank - 2, rank - 1, *numbers]
            rows, columns, width, *rest = numbers
            beside, multiple = (*rest, *(rest or (1, 1)))[:2]
            return panels(width, beside, multiple, rows, columns)
        case "digits":
            places = tuple(_list(reader, _coordinate))
            digits = [digit for _, of in places for digit in of]
            rounded = [1] * (max((digit.axis for digit in digits), default=-1) + 1)
            for digit in digits:
                rounded[digit.axis] *= digit.extent or 1
            return Layout(places, tuple(rounded))
    return ROWS


def _coordinate(reader: Tokens) -> tuple[str, tuple[Digit, ...]]:
    """Read a coordinate and its digits: ``lane: 1//2%4 0%8``."""
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


def _numbers(reader: Tokens, of: str, least: int, most: int) -> list[int]:
    numbers = _list(reader, Tokens.integer)
    if not least <= len(numbers) <= most:
        raise DescribeError("layout", "", at=of, because=f"{len(numbers)} numbers stand there")
    return numbers


def _list(reader: Tokens, read: Callable[[Tokens], _T]) -> list[_T]:
    """Read a list in brackets, separated by commas; `read` reads an item."""
    bracket, items = reader.expect("("), list[_T]()
    while not reader.at(")"):
        items.append(read(reader))
        if not reader.accept(","):
            break
    reader.close(bracket, ")")
    return items


_FORMS = {
    "panels": (
        "panels(rows, columns, width)",
        "panels(rows, columns, width, interleave, multiple)",
    ),
    "words": ("words(0: 1, 1: 16)",),
    "order": ("order(1, 0)",),
    "rows": ("rows",),
    "digits": ("digits(lane: 1//2%4 0%8, element: 1%2 0//8%2)",),
}
