"""Calls that no kernel may take, each for one reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from . import meaning
from .memory import guarded
from .reading import Buffer, Source

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class WrongCall:
    """Arrays and sizes, and what is wrong with them."""

    why: str
    given: tuple[Array, ...]
    out: tuple[Array, ...]
    sizes: Mapping[str, int]

    def arrays(self) -> tuple[Array, ...]:
        return (*self.given, *self.out)


def wrong_calls(
    source: Source, inputs: Sequence[Buffer], results: Sequence[Buffer], sizes: Mapping[str, int]
) -> Iterator[WrongCall]:
    """What differs in one thing from a right call with `sizes`.

    All sizes are said, but where they are what is wrong: then only those that no array tells.
    """
    right = _call("", inputs, results, sizes)
    if right is None:
        return
    yield from _of_sizes(source, inputs, results, sizes)
    if right.given:
        yield replace(right, why="the last input is missing", given=right.given[:-1])
    for place, array in enumerate(right.given):
        for why, other in _unlike(array):
            yield replace(right, why=f"input {place} {why}", given=_with(right.given, place, other))
    for place, array in enumerate(right.out):
        for why, other in _unlike(array):
            yield replace(right, why=f"result {place} {why}", out=_with(right.out, place, other))
        if array.size:
            fixed = array.view()
            fixed.flags.writeable = False
            yield replace(
                right, why=f"result {place} is read-only", out=_with(right.out, place, fixed)
            )
        yield from _shared(right, place)


def _call(
    why: str, inputs: Sequence[Buffer], results: Sequence[Buffer], sizes: Mapping[str, int]
) -> WrongCall | None:
    """A call with `sizes`; None where some extent would be negative."""
    shapes = [
        tuple(meaning.value_of(extent, sizes) for extent in buffer.shape)
        for buffer in (*inputs, *results)
    ]
    if any(extent < 0 for shape in shapes for extent in shape):
        return None
    arrays = [
        guarded(shape, buffer.dtype, at_end=True)
        for buffer, shape in zip((*inputs, *results), shapes, strict=True)
    ]
    return WrongCall(why, tuple(arrays[: len(inputs)]), tuple(arrays[len(inputs) :]), sizes)


def _of_sizes(
    source: Source, inputs: Sequence[Buffer], results: Sequence[Buffer], sizes: Mapping[str, int]
) -> Iterator[WrongCall]:
    """Sizes that are not declared so, or of which an assumption does not hold."""
    told = {extent for buffer in inputs for extent in buffer.shape}
    for size in source.sizes:
        for value in (size.low - 1, sizes[size.name] + 1, size.high):
            changed = {**sizes, size.name: value}
            facts = all(meaning.holds(fact, changed) for fact in source.assumptions)
            if value >= 0 and value <= 300 and not (size.allows(value) and facts):
                found = _call(f"{size.name} = {value}", inputs, results, changed)
                if found is not None:
                    said = {name: changed[name] for name in changed if name not in told}
                    yield replace(found, sizes=said)


def _unlike(array: Array) -> Iterator[tuple[str, Array]]:
    """Arrays of another rank, extent or element type."""
    yield "has an axis more", array[None]
    yield "is of another type", array.astype("int32" if array.dtype != "int32" else "float32")
    for axis, extent in enumerate(array.shape):
        shape = list(array.shape)
        shape[axis] = extent + 1
        yield f"is longer along axis {axis}", np.zeros(shape, array.dtype)


def _shared(right: WrongCall, place: int) -> Iterator[WrongCall]:
    """A result that shares all memory but an element with an input."""
    result = right.out[place]
    for other, array in enumerate(right.given):
        if array.shape == result.shape and array.dtype == result.dtype and array.size > 1:
            base = np.zeros(array.size + 1, array.dtype)
            one, two = base[:-1].reshape(array.shape), base[1:].reshape(array.shape)
            yield replace(
                right,
                why=f"result {place} overlaps input {other}",
                given=_with(right.given, other, one),
                out=_with(right.out, place, two),
            )


def _with(arrays: tuple[Array, ...], place: int, array: Array) -> tuple[Array, ...]:
    return (*arrays[:place], array, *arrays[place + 1 :])
