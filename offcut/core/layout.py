"""Where the elements of an operand lie: panel and offset, lane and register, word and byte.

A layout is a bijection of mixed radix. Each coordinate of an element is written in digits, and each
coordinate of a place is read from some of them::

    B[k, j] in panels of 16 columns, 2 rows side by side        digits of k: k % 2, k // 2
    panel   =  j // 16                                                    j: j % 16, j // 16
    offset  =  k % 2  +  2 * (j % 16)  +  32 * (k // 2)

No digit is used twice and none is left out, so that every element has one place, and every place one
element. What rounds the extents up is padding: it has places, and holds zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.errors import DescribeError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Digit:
    """``(element[axis] // step) % extent``, which counts `weight` in its place's coordinate.

    extent   values that it has; None: as many as there are
    """

    axis: int
    step: int
    extent: int | None
    weight: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A place for each element: numbers, by name.

    places     the coordinates of a place, each with its digits
    multiple   what the extents of the axes are rounded up to

    Raises DescribeError for what is no bijection.
    """

    places: tuple[tuple[str, tuple[Digit, ...]], ...]
    multiple: tuple[int, ...]

    def __post_init__(self) -> None:
        digits = [digit for _, of in self.places for digit in of]
        for axis, multiple in enumerate(self.multiple):
            mine = [(d.step, d.extent) for d in digits if d.axis == axis]
            period = _chained(f"axis {axis}", mine)
            if multiple % period:
                raise _refused(f"axis {axis}", f"its digits repeat after {period}, not {multiple}")
        for name, of in self.places:
            _chained(name, [(digit.weight, digit.extent) for digit in of])
        outside = {digit.axis for digit in digits} - set(range(len(self.multiple)))
        if outside:
            raise _refused(f"axis {min(outside)}", f"there are {len(self.multiple)} axes")

    def place(self, element: Sequence[Any]) -> tuple[Any, ...]:
        """Where an element lies; of arrays of coordinates, arrays."""
        return tuple(sum(_digit(d, element) * d.weight for d in of) for _, of in self.places)

    def element(self, place: Sequence[int]) -> tuple[int, ...]:
        """The element, or the padding, that lies at a place."""
        found = [0] * len(self.multiple)
        for value, (_, digits) in zip(place, self.places, strict=True):
            for digit in digits:
                count = value // digit.weight
                found[digit.axis] += digit.step * (count % digit.extent if digit.extent else count)
        return tuple(found)

    def padded(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Extents of an operand with its padding."""
        return tuple(-(-e // m) * m for e, m in zip(shape, self.multiple, strict=True))

    def extents(self, shape: Sequence[int]) -> tuple[int, ...]:
        """How many values each coordinate of a place has, for an operand of so many elements.

        Raises DescribeError where it has no place for all.
        """
        whole = self.padded(shape)
        for axis, extent in enumerate(whole):
            mine = [digit for _, of in self.places for digit in of if digit.axis == axis]
            last = max(mine, key=lambda digit: digit.step)
            if last.extent is not None and extent > last.step * last.extent:
                room = last.step * last.extent
                raise _refused(
                    f"axis {axis}", f"it has {shape[axis]} elements, and places for {room}"
                )
        counts = []
        for _, digits in self.places:
            count = 1
            for digit in digits:
                count *= whole[digit.axis] // digit.step if digit.extent is None else digit.extent
            counts.append(count)
        return tuple(counts)

    def laid(self, array: Array) -> Array:
        """The elements of `array` at their places, zero at the padding's."""
        stored = np.zeros(self.extents(array.shape), array.dtype)
        stored[self.place(list(np.indices(array.shape)))] = array
        return stored

    def taken(self, stored: Array, shape: Sequence[int]) -> Array:
        """The elements of an operand of that shape from their places."""
        found: Array = stored[self.place(list(np.indices(shape)))]
        return found

    def beside(self, axis: int) -> int:
        """Elements along an axis that lie next to each other, in each coordinate that starts so."""
        first = (d for _, of in self.places[-1:] for d in of if (d.weight, d.axis) == (1, axis))
        return next((d.extent for d in first if d.extent is not None), 1)


def panels(width: int, beside: int = 1, multiple: int = 1) -> Layout:
    """Rows and columns in panels of `width` columns, `beside` rows of a column next to each other.

    multiple   what the rows are rounded up to
    """
    inner = (Digit(0, 1, beside, 1),) if beside > 1 else ()
    offset = (*inner, Digit(1, 1, width, beside), Digit(0, beside, None, width * beside))
    return Layout((("panel", (Digit(1, width, None, 1),)), ("offset", offset)), (multiple, width))


def _digit(digit: Digit, element: Sequence[Any]) -> Any:
    value = element[digit.axis] // digit.step
    return value if digit.extent is None else value % digit.extent


def _chained(what: str, digits: Sequence[tuple[int, int | None]]) -> int:
    """After how many values the digits ``(unit, extent)`` of a number repeat, the last left out where
    it has no end; refused where they are not each once all of a number.
    """
    period = 1
    for number, (unit, extent) in enumerate(ordered := sorted(digits, key=lambda digit: digit[0])):
        if unit != period:
            missing = f"no digit counts {period}" if unit > period else f"{unit} is counted twice"
            raise _refused(what, missing)
        if extent is None and number < len(ordered) - 1:
            raise _refused(what, f"what counts {unit} has no end, and is not the last digit")
        period *= extent or 1
    return period


def _refused(at: str, because: str) -> DescribeError:
    return DescribeError("layout", "cannot place an operand", at=at, because=because)
