"""The one comparison of floats: each element is within the rounding of the terms that it is made of.

Σ t with terms of both signs may cancel, so no multiple of its value bounds its error: the bound is
``units · eps · Σ |t|``, in any order of summation and on any machine. References are in float64, and the
terms are computed beside them: those of a product by `exact_matmul`, those of any function by `computed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from offcut import Program, parse

Array = npt.NDArray[Any]

UNITS = 64
"""Roundings of a function of some steps, in units of its terms: those of a few functions, each of some steps."""
_STEP = 2.0**-20  # how far inputs are moved to see what a result is made of, relatively
_MOVES = 4


@dataclass(frozen=True)
class Exact:
    """A reference in float64.

    value  of each element
    terms  the sum of the absolute values of the terms of each element
    units  how many roundings of them an element may be off
    """

    value: Array
    terms: Array
    units: float = UNITS

    def __getitem__(self, key: Any) -> Exact:
        """The same elements of both."""
        return Exact(self.value[key], self.terms[key], self.units)

    def map(self, change: Callable[[Array], Any]) -> Exact:
        """Both with their elements in other places."""
        return Exact(np.asarray(change(self.value)), np.asarray(change(self.terms)), self.units)


def wide(array: Any) -> Array:
    """An array in float64 where it holds floats, complex128 where it holds complex numbers, else as it is."""
    array = np.asarray(array)
    if array.dtype.kind == "c":
        return array.astype("complex128")
    return array if array.dtype.kind in "biu" else array.astype("float64")


def epsilon(dtype: Any) -> float:
    """The distance from 1 to the next number of a type of floats."""
    return float(ml_dtypes.finfo(np.dtype(dtype)).eps)


def agree(
    result: Any,
    exact: Exact | Any,
    *,
    terms: Any = 0.0,
    units: float = 4.0,
    sums: Any = None,
    what: str = "",
) -> None:
    """Check that each element of `result` is `exact` but for rounding; integers, inf and NaN are equal.

    exact  a reference in float64; an array of numbers whose terms do not cancel, or has them in `terms`
    terms  sums of absolute values of what the elements are sums of
    units  roundings of the terms that an element may be off
    sums   the type of floats in which the terms are added; float32 or, of float64, float64
    what   said where it is not
    """
    if isinstance(exact, Exact):
        exact, terms, units = exact.value, exact.terms, exact.units
    found, value, terms = np.asarray(result), np.asarray(exact), np.asarray(terms)
    assert found.shape == value.shape, f"{found.shape} is not {value.shape}"
    assert value.dtype not in (np.float16, np.float32, np.complex64), "the reference is in float64"
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, value)
        return
    real = np.empty(0, found.dtype).real.dtype
    stored = epsilon(real)
    added = min(stored, epsilon("float32")) if sums is None else epsilon(sums)
    floor = float(ml_dtypes.finfo(real).smallest_normal)
    got, value = wide(found), wide(value)
    with np.errstate(all="ignore"):
        bound = units * added * (np.abs(terms) + np.abs(value)) + stored * np.abs(value) + floor
        close = (got == value) | (np.abs(got - value) <= bound) | (np.isnan(got) & np.isnan(value))
        close &= np.isfinite(value) | (got == value) | np.isnan(value)
    if not close.all():
        with np.errstate(all="ignore"):
            off = np.where(close, 0, np.nan_to_num(np.abs(got - value) / bound, nan=np.inf))
        place = np.unravel_index(int(off.argmax()), off.shape)
        raise AssertionError(
            f"{np.count_nonzero(~close)} of {close.size} elements are off; at {tuple(map(int, place))}"
            f" {got[place]!r} is not {value[place]!r} ± {np.broadcast_to(bound, got.shape)[place]:.3g}"
            f"{what and chr(10)}{what}"
        )


def exact_matmul(*operands: Any, spec: str = "") -> Exact:
    """``a @ b``, or what `numpy.einsum` makes of operands by `spec`, with its terms; of integers in int64."""
    arrays = [wide(one) for one in operands]
    arrays = [one.astype("int64") if one.dtype.kind in "iu" else one for one in arrays]
    if spec:
        letters, result = spec.split("->")
        sizes = {
            letter: size
            for part, array in zip(letters.split(","), arrays, strict=True)
            for letter, size in zip(part, array.shape, strict=True)
        }
        count = int(np.prod([size for letter, size in sizes.items() if letter not in result]))
        value, terms = np.einsum(spec, *arrays), np.einsum(spec, *map(np.abs, arrays))
    else:
        a, b = arrays
        count, value, terms = a.shape[-1], a @ b, np.abs(a) @ np.abs(b)
    return Exact(np.asarray(value), np.asarray(terms), count + len(arrays) + 1)


def total(array: Any, axis: Any = None) -> Exact:
    """The sum over an axis, or all, with its terms."""
    array = wide(array)
    value, terms = array.sum(axis), np.abs(array).sum(axis)
    return Exact(np.asarray(value), np.asarray(terms), array.size // max(value.size, 1) + 2)


def computed(function: Callable[..., Any], *given: Any, units: float = UNITS) -> Any:
    """What a function of float64 arrays gives: each of its results as an `Exact`.

    given  arrays, or mappings of some

    The terms of an element are what it moves by where each element of each input moves by its own size, which is
    Σ |t| of a sum of products; they are added as squares, of some moves whose signs are drawn.
    """
    draw = np.random.default_rng(0)

    def moved(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {name: moved(array) for name, array in one.items()}
        array = wide(one)
        if array.dtype.kind in "biu":
            return array
        return array * (1 + _STEP * draw.choice((-1.0, 1.0), array.shape))

    def as_wide(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {name: wide(array) for name, array in one.items()}
        return wide(one)

    exact = function(*map(as_wide, given))
    with np.errstate(all="ignore"):
        others = [function(*map(moved, given)) for _ in range(_MOVES)]
    return _together(exact, others, units)


def _together(exact: Any, others: list[Any], units: float) -> Any:
    """The terms of each of some results, by name or by place."""
    if isinstance(exact, Mapping):
        return {n: _together(one, [o[n] for o in others], units) for n, one in exact.items()}
    if isinstance(exact, tuple | list):
        return tuple(
            _together(one, [other[k] for other in others], units) for k, one in enumerate(exact)
        )
    value = wide(exact)
    if value.dtype.kind in "biu":
        return Exact(value, np.zeros(value.shape))
    with np.errstate(all="ignore"):
        squares = sum(np.abs(wide(other) - value) ** 2 for other in others)
        terms = np.sqrt(np.asarray(squares)) / _STEP
    return Exact(value, np.nan_to_num(terms, nan=0.0, posinf=0.0), units)


def nearly(expected: Any, rel: float = 1e-6, abs: float = 1e-15) -> Any:
    """Equal to `expected` within `rel` of it: seconds, cycles, bytes and other sums of terms of one sign, in float64.

    abs  what a difference, or a sum of both signs, may be off
    """
    return pytest.approx(expected, rel=rel, abs=abs)


def of_program(program: Program, given: Mapping[str, Array], **sizes: int) -> Any:
    """What a loop program means, all its floats in float64: each of its results, with its terms."""
    text = re.sub(r"\b(float32|float16|bfloat16)\b", "float64", str(program))
    return computed(lambda given: parse(text).run(given, **sizes), given)


def of_peer(reference: Any, scale: float = 1.0, units: float = 256) -> Exact:
    """What another system gives, or a formula whose terms are not known: they are none larger than its greatest value.

    reference  in float64, or in the type of floats of the other system, whose roundings count too
    scale      of the terms, where the results are smaller
    """
    value = wide(reference)
    finite = np.abs(value[np.isfinite(value)]) if value.dtype.kind in "fc" else np.zeros(0)
    terms = np.full(value.shape, scale + finite.max(initial=0.0))
    return Exact(value, terms, units)
