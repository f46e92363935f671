"""Layouts: the places of the elements of an array, as panel and offset, lane and register, word and byte.

A layout is a bijection of mixed radix. Each coordinate of an element is written in digits, and each
coordinate of a place is read from some of them::

    B[k, j] in panels of 16 columns, 2 rows side by side        digits of k: k % 2, k // 2
    panel   =  j // 16                                                    j: j % 16, j // 16
    offset  =  k % 2  +  2 * (j % 16)  +  32 * (k // 2)

Each digit is used once, so that every element has one place, and every place one element. Extents are rounded
up; the padding has places, and holds zero. In memory, places follow one another by their coordinates, the last
one fastest. A layout is of arrays of any rank: the axes that it does not name are outermost, in their order.

The last step may be a swizzle, as shared memories have it: some bits of the byte offset are XORed with others.
It is its own inverse.

Integers of few bits may share a byte: those of a layout with `bits` take so many each, the first one the lowest. Elements that share
a byte are those of its first digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import gcd, prod
from typing import Any

import numpy as np

from offcut.core.integers import whole
from offcut.core.names import RenamedAttribute
from offcut.errors import DescribeError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Digit:
    """``(element[axis] // step) % extent``, times `weight` in the coordinate of the place.

    extent   number of values; None: it is the most significant digit of its axis, ``element[axis] // step``
    """

    axis: int
    step: int
    extent: int | None
    weight: int

    def __str__(self) -> str:
        extent = "" if self.extent is None else f" % {self.extent}"
        return f"element[{self.axis}] // {self.step}{extent}, times {self.weight}"

    def of(self, coordinate: Any) -> Any:
        """Return the digit of a coordinate along its axis, or of an array of coordinates."""
        value = coordinate // self.step
        return value if self.extent is None else value % self.extent


@dataclass(frozen=True, slots=True)
class Swizzle:
    """Bits `low` to ``low + bits`` of a byte offset, XORed with those from `high` on; its own inverse."""

    bits: int
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.bits < 1 or min(self.low, self.high) < 0 or max(self.low, self.high) > 62:
            raise _refusal(str(self), "it is of one bit at least, and bits count from 0 to 62")
        if abs(self.high - self.low) < self.bits:
            raise _refusal(str(self), "the bits that change are among those that change them")

    def __str__(self) -> str:
        return f"swizzle({self.bits}, {self.low}, {self.high})"

    def __call__(self, offset: Any) -> Any:
        """Return the byte offset, or the array of them, that bytes at `offset` move to."""
        return offset ^ (offset >> self.high & (1 << self.bits) - 1) << self.low

    def check(self, size: int, item_bytes: int) -> None:
        """Check that elements of `item_bytes` bytes stay whole, and inside of an operand of `size` bytes.

        Raises DescribeError if they do not.
        """
        unit, block = 1 << self.low, 1 << self.low + self.bits
        if unit % item_bytes:
            raise _refusal(str(self), f"it moves {unit} bytes, and elements have {item_bytes}")
        if size % block:
            raise _refusal(str(self), f"it moves within {block} bytes, and the operand has {size}")


@dataclass(frozen=True, slots=True)
class Layout:
    """A place for each element: numbers, by name.

    places     the coordinates of a place, each with its name and its digits; axes without a digit come before them
    multiple   the multiples, in elements, that the extents of the axes are rounded up to
    swizzle    the last step, on the byte offset; None: there is none
    bits       of an element in memory, 1, 2 or 4, where it takes less than a byte; None: those of its type

    Digits have one form, the least significant first: two layouts of the same names are equal if they place all
    elements alike.

    Raises DescribeError if the layout is not a bijection.
    """

    places: tuple[tuple[str, tuple[Digit, ...]], ...]
    multiple: tuple[int, ...]
    swizzle: Swizzle | None = None
    bits: int | None = None

    def __post_init__(self) -> None:
        for d in self._digits():
            if d.axis < 0 or min(d.step, d.weight, 1 if d.extent is None else d.extent) < 1:
                raise _refusal(f"axis {d.axis}", f"{d}: axes count from 0, the rest from 1")
        places = tuple((name, tuple(d for d in of if d.extent != 1)) for name, of in self.places)
        object.__setattr__(self, "places", places)
        for axis, multiple in enumerate(self.multiple):
            period = self.period(axis)
            if multiple < 1:
                raise _refusal(
                    f"axis {axis}", f"it is rounded up to {multiple}, which is less than 1"
                )
            if multiple % period:
                raise _refusal(f"axis {axis}", f"its digits repeat after {period}, not {multiple}")
        for name, of in self.places:
            _period(name, [(digit.weight, digit.extent) for digit in of])
        outside = {digit.axis for digit in self._digits()} - set(range(len(self.multiple)))
        if outside:
            raise _refusal(f"axis {min(outside)}", f"there are {len(self.multiple)} axes")
        object.__setattr__(self, "places", tuple((n, _merge(of)) for n, of in self.places))
        known = {d.axis for d in self._digits()} | {a for a, m in enumerate(self.multiple) if m > 1}
        object.__setattr__(self, "multiple", self.multiple[: max(known, default=-1) + 1])
        if self.bits is not None:
            self._check_bits()

    def _check_bits(self) -> None:
        """Check that the elements of a byte are those of the first digit.

        Raises DescribeError if they are not.
        """
        if self.bits not in (1, 2, 4):
            raise _refusal(f"bits({self.bits})", "elements that share a byte have 1, 2 or 4 bits")
        if self.swizzle is not None:
            raise _refusal(f"bits({self.bits})", "a swizzle moves whole bytes")
        first = [d for _, of in self.places[-1:] for d in of if (d.weight, d.step) == (1, 1)]
        if not first or first[0].extent != self.per_byte:
            because = f"the first digit counts the {self.per_byte} elements of a byte"
            raise _refusal(f"bits({self.bits})", because)

    @property
    def per_byte(self) -> int:
        """Return the number of elements that share a byte; 1 where an element takes bytes of its own."""
        return 1 if self.bits is None else 8 // self.bits

    @property
    def shared_axis(self) -> int | None:
        """Return the axis along which elements share a byte; None where an element takes bytes of its own."""
        return None if self.bits is None else self.places[-1][1][0].axis

    def of_bytes(self) -> Layout:
        """Return the layout of the array of bytes that hold the elements: its shared axis counts bytes."""
        axis, count = self.shared_axis, self.per_byte
        if axis is None:
            return self

        def digit(one: Digit, weight: int) -> Digit:
            return replace(
                one, step=one.step // count if one.axis == axis else one.step, weight=weight
            )

        *outer, (name, (_, *inner)) = self.places
        places = (
            *((n, tuple(digit(one, one.weight) for one in of)) for n, of in outer),
            (name, tuple(digit(one, one.weight // count) for one in inner)),
        )
        multiple = tuple(m // count if at == axis else m for at, m in enumerate(self.multiple))
        return Layout(places, multiple)

    def share_bytes(self, array: Array) -> Array:
        """Return the array of bytes that hold the elements of `array`, integers of that many bits; zeros follow the last one."""
        axis, count = self.shared_axis, self.per_byte
        if axis is None or self.bits is None:
            return array
        elements = np.moveaxis(array, axis, 0).view(np.uint8)
        whole = np.zeros((-(-len(elements) // count), *elements.shape[1:]), np.uint8)
        for place in range(count):
            part = elements[place::count] & ((1 << self.bits) - 1)
            whole[: len(part)] |= part << (self.bits * place)
        return np.moveaxis(whole, 0, axis)

    def split_bytes(self, array: Array, extent: int, dtype: np.dtype[Any]) -> Array:
        """Return the elements, `extent` along their shared axis, of an integer type of a byte, that `share_bytes` has put into bytes."""
        axis, count = self.shared_axis, self.per_byte
        if axis is None or self.bits is None:
            return array
        bytes_, free = np.moveaxis(array, axis, 0).view(np.uint8), 8 - self.bits
        elements = np.empty((extent, *bytes_.shape[1:]), dtype)
        for place in range(count):
            part = elements[place::count]
            part[...] = (bytes_[: len(part)] >> (self.bits * place) << free).view(dtype) >> free
        return np.moveaxis(elements, 0, axis)

    def _digits(self) -> list[Digit]:
        return [digit for _, of in self.places for digit in of]

    def period(self, axis: int) -> int:
        """Return the number of elements of an axis after which its digits repeat, but for one without an extent."""
        return _period(
            f"axis {axis}", [(d.step, d.extent) for d in self._digits() if d.axis == axis]
        )

    def canonical(self) -> Layout:
        """Return the same places in memory in one form: coordinates are named by their order, and one that has an
        end is of the coordinate before it, whose digits weigh more.
        """
        return _canonical(self)

    def on(self, *axes: int) -> Layout:
        """Return the layout of an operand whose axes ``axes[0]``, ``axes[1]``, … are the axes 0, 1, … of this one."""
        multiple = dict(zip(axes, self.multiple, strict=False))
        return replace(
            self,
            places=tuple(
                (name, tuple(replace(digit, axis=axes[digit.axis]) for digit in of))
                for name, of in self.places
            ),
            multiple=tuple(multiple.get(axis, 1) for axis in range(max(axes, default=-1) + 1)),
        )

    def digits(self, rank: int) -> tuple[tuple[Digit, ...], ...]:
        """Return the digits of each coordinate of a place, for an operand with `rank` axes.

        Raises DescribeError if the layout names more axes.
        """
        if rank < len(self.multiple):
            raise _refusal(f"axis {rank}", f"the operand has {rank} axes")
        named = {digit.axis for digit in self._digits()}
        outer = ((Digit(axis, 1, None, 1),) for axis in range(rank) if axis not in named)
        return (*outer, *(of for _, of in self.places))

    def room(self, axis: int) -> int | None:
        """Return the number of elements of an axis that have places; None: any number has."""
        mine = [digit for digit in self._digits() if digit.axis == axis]
        if not mine or any(digit.extent is None for digit in mine):
            return None
        return self.period(axis)

    def multiple_of(self, axis: int) -> int:
        """Return the multiple, in elements, that the extent of an axis is rounded up to."""
        return self.multiple[axis] if axis < len(self.multiple) else 1

    def place(
        self, element: Sequence[Any], shape: Sequence[int] = (), item_bytes: int = 1
    ) -> tuple[Any, ...]:
        """Return the place of an element, or the places of arrays of coordinates as arrays.

        shape, item_bytes   extents of the operand, and bytes of an element; a swizzle alone depends on them
        """
        digits = self.digits(len(element))
        place = tuple(sum(d.of(element[d.axis]) * d.weight for d in of) for of in digits)
        return self._swizzle_place(place, shape, item_bytes)

    def element(
        self, place: Sequence[int], shape: Sequence[int] = (), item_bytes: int = 1
    ) -> tuple[int, ...]:
        """Return the element, or the padding, that lies at a place; arguments as of `place`."""
        rank = len(place) - len(self.places) + len({digit.axis for digit in self._digits()})
        element = [0] * rank
        plain = self._swizzle_place(tuple(place), shape, item_bytes)
        for value, digits in zip(plain, self.digits(rank), strict=True):
            for digit in digits:
                count = value // digit.weight
                count = count if digit.extent is None else count % digit.extent
                element[digit.axis] += digit.step * count
        return tuple(element)

    def _swizzle_place(
        self, place: tuple[Any, ...], shape: Sequence[int], item_bytes: int
    ) -> tuple[Any, ...]:
        if self.swizzle is None:
            return place
        counts = self.extents(shape, item_bytes)
        if not counts:
            return ()
        at = np.ravel_multi_index(place, counts)
        moved = np.unravel_index(self.swizzle(at * item_bytes) // item_bytes, counts)
        return tuple(int(one) if one.ndim == 0 else one for one in moved)

    padded = RenamedAttribute("padded_extents")
    laid = RenamedAttribute("arrange")
    taken = RenamedAttribute("restore")

    def padded_extents(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the extents of an operand with its padding."""
        return tuple(
            -(-e // self.multiple_of(a)) * self.multiple_of(a) for a, e in enumerate(shape)
        )

    def extents(self, shape: Sequence[int], item_bytes: int = 1) -> tuple[int, ...]:
        """Return the number of values of each coordinate of a place, for an operand of `shape` elements.

        Raises DescribeError if some element has no place, or a swizzle would move one out of the operand.
        """
        whole = self.padded_extents(shape)
        digits = self.digits(len(shape))
        counts = tuple(prod(_count(digit, whole) for digit in of) for of in digits)
        for axis, extent in enumerate(whole):
            room = self.room(axis)
            if room is not None and extent > room:
                because = f"it has {shape[axis]} elements, and places for {room}"
                raise _refusal(f"axis {axis}", because)
        if self.swizzle is not None:
            self.swizzle.check(prod(counts) * item_bytes, item_bytes)
        return counts

    def check(self, shape: Sequence[int | None], item_bytes: int) -> None:
        """Check that all elements of an operand have places; an extent is None if it is not known.

        Raises DescribeError, as `extents` does.
        """
        self.digits(len(shape))
        for axis, extent in enumerate(shape):
            if extent is None and (room := self.room(axis)) is not None:
                because = f"its extent is not known, and there are places for {room}"
                raise _refusal(f"axis {axis}", because)
        self.extents(
            [self.multiple_of(at) if e is None else e for at, e in enumerate(shape)], item_bytes
        )

    def arrange(self, array: Array) -> Array:
        """Return the elements of `array` at their places, zero at the padding's."""
        if self.bits is not None:
            return self.of_bytes().arrange(self.share_bytes(array))
        counts = self.extents(array.shape, array.itemsize)
        room, sizes, order = self._turn(array.shape)
        whole = np.zeros(room, array.dtype)
        whole[tuple(map(slice, array.shape))] = array
        parts = whole.reshape(sizes)
        return self._swizzle_array(np.asarray(parts.transpose(order).reshape(counts), order="C"))

    def restore(self, stored: Array, shape: Sequence[int]) -> Array:
        """Return the elements of an operand of `shape`, as `arrange` has stored them."""
        room, sizes, order = self._turn(shape)
        parts = self._swizzle_array(stored).reshape([sizes[at] for at in order])
        whole: Array = parts.transpose(np.argsort(order))
        return whole.reshape(room)[tuple(map(slice, shape))]

    def _turn(self, shape: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """Return the number of places along each axis; the extents of the digits, by axis, the most significant first; and
        the order of these in memory.
        """
        whole = self.padded_extents(shape)
        places = [d for of in self.digits(len(shape)) for d in reversed(of)]
        axes = sorted(places, key=lambda d: (d.axis, -d.step))
        room = [prod(_count(d, whole) for d in axes if d.axis == at) for at in range(len(shape))]
        return room, [_count(d, whole) for d in axes], [axes.index(d) for d in places]

    def _swizzle_array(self, stored: Array) -> Array:
        if self.swizzle is None:
            return stored
        item = stored.itemsize
        elements: Array = stored.ravel()[self.swizzle(np.arange(stored.size) * item) // item]
        return elements.reshape(stored.shape)

    def beside(self, axis: int, item_bytes: int = 1) -> int:
        """Return the number of elements along an axis that lie next to each other, from each multiple of it on."""
        first = (d for _, of in self.places[-1:] for d in of if (d.weight, d.axis) == (1, axis))
        count = next((d.extent for d in first if d.extent is not None), 1)
        return count if self.swizzle is None else gcd(count, (1 << self.swizzle.low) // item_bytes)


ROWS = Layout((), ())
"""Row by row."""


@cache
def _canonical(layout: Layout) -> Layout:
    joined: list[tuple[Digit, ...]] = []
    for _, of in layout.places:
        if joined and all(digit.extent for digit in of):
            count = prod(digit.extent or 1 for digit in of)
            of += tuple(replace(d, weight=d.weight * count) for d in joined.pop())
        if of:
            joined.append(of)
    return replace(layout, places=tuple((f"place{n}", of) for n, of in enumerate(joined)))


def _count(digit: Digit, whole: Sequence[int]) -> int:
    return whole[digit.axis] // digit.step if digit.extent is None else digit.extent


def _merge(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """Return the digits of a coordinate by weight; neighbours that are digits of one number are merged."""
    merged: list[Digit] = []
    for digit in sorted(digits, key=lambda digit: digit.weight):
        last = merged[-1] if merged else Digit(-1, 1, None, 1)
        if last.extent and (last.axis, last.step * last.extent) == (digit.axis, digit.step):
            merged[-1] = replace(last, extent=digit.extent and digit.extent * last.extent)
        else:
            merged.append(digit)
    return tuple(merged)


def _period(what: str, digits: Sequence[tuple[int, int | None]]) -> int:
    """Return the number of values after which the digits ``(unit, extent)`` of a number repeat, without a last one that has
    no extent.

    Raises DescribeError, about `what`, if they are not all digits of a number, each once.
    """
    period = 1
    for number, (unit, extent) in enumerate(sorted(digits, key=lambda digit: digit[0]), 1):
        if unit != period:
            missing = f"no digit counts {period}" if unit > period else f"{unit} is counted twice"
            raise _refusal(what, missing)
        if extent is None and number < len(digits):
            raise _refusal(what, f"what counts {unit} has no end, and is not the last digit")
        period *= extent or 1
    return period


def _check_integers(maker: str, example: str, numbers: Sequence[object]) -> None:
    """Check that numbers of a layout are integers, for `maker`, a call of which is `example`."""
    for number in numbers:
        if whole(number) is None:
            because = f"{number!r} is of type {type(number).__name__}, not an integer"
            raise _refusal(maker, because, example)


def _refusal(at: str, because: str, *help: str) -> DescribeError:
    return DescribeError("layout", "cannot place an operand", at=at, because=because, help=help)
