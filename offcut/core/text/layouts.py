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
    if (shape := as_panels(layout)) and layout == shape.layout:
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
        raise ParseError("parse", "cannot read a layout", because="it is one line")
    reader = Tokens(lines[0])
    layout = read_layout(reader)
    reader.finish()
    return layout


def is_layout(reader: Tokens) -> bool:
    """Return whether a layout stands here."""
    return reader.token.text in _FORMS


def read_layout(reader: Tokens, shape: Sequence[Expr] | None = None, dtype: str = "int8") -> Layout:
    """Return the layout that stands here, and take it.

    shape, dtype   of what lies so; None: of any axes that the layout names

    Raises ParseError where it is none, or one that has no place for all elements.
    """
    if not is_layout(reader):
        raise reader.expected(f"a layout ({', '.join(_FORMS)})")
    first = reader.advance()
    try:
        layout = _read(reader, first.text, 2 if shape is None else len(shape))
        if reader.accept("multiple"):
            given = dict(_listed(reader, _pair))
            axes = range(max(len(layout.multiple), *(axis + 1 for axis in given)))
            multiple = tuple(given.get(axis, layout.multiple_of(axis)) for axis in axes)
            layout = replace(layout, multiple=multiple)
        if reader.accept("swizzle"):
            layout = replace(layout, swizzle=Swizzle(*_numbers(reader, "swizzle", 3, 3)))
        if shape is not None:
            layout.check([ix.literal(extent) for extent in shape], ITEM_BYTES[dtype])
    except DescribeError as refused:
        because, help = f"{refused.at}: {refused.because}", _FORMS[first.text]
        raise reader.refuse("cannot read a layout", because, *help, column=first.start) from None
    return layout


def _read(reader: Tokens, form: str, rank: int) -> Layout:
    match form:
        case "order":
            return order(*_listed(reader, Tokens.integer))
        case "words":
            return words(*_listed(reader, _pair))
        case "panels":
            numbers = _numbers(reader, form, 1, 5)
            if len(numbers) < 3 and rank < 2:
                because = f"they have two axes, and the buffer has {rank}"
                raise DescribeError("layout", "", at=form, because=because)
            rows, columns = (rank - 2, rank - 1) if len(numbers) < 3 else numbers[:2]
            width, *rest = numbers if len(numbers) < 3 else numbers[2:]
            beside, multiple = (*rest, *(rest or (1, 1)))[:2]
            return panels(width, beside, multiple, rows, columns)
        case "digits":
            places = tuple(_listed(reader, _coordinate))
            digits = [digit for _, of in places for digit in of]
            rounded = [1] * (max((digit.axis for digit in digits), default=-1) + 1)
            for digit in digits:
                rounded[digit.axis] *= digit.extent or 1
            return Layout(places, tuple(rounded))
    return ROWS


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


def _numbers(reader: Tokens, of: str, least: int, most: int) -> list[int]:
    numbers = _listed(reader, Tokens.integer)
    if not least <= len(numbers) <= most:
        raise DescribeError("layout", "", at=of, because=f"{len(numbers)} numbers stand there")
    return numbers


def _listed(reader: Tokens, read: Callable[[Tokens], _T]) -> list[_T]:
    """Return what stands between brackets, separated by commas."""
    bracket, found = reader.expect("("), list[_T]()
    while not reader.at(")"):
        found.append(read(reader))
        if not reader.accept(","):
            break
    reader.close(bracket, ")")
    return found


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
