"""Remainders of floats are exact, whatever the quotient: held against C's `fmod`, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from compiled import Array

import offcut as oc

COUNT = 4003
WORDS = {"float32": np.int32, "float64": np.int64}


def operands(dtype: str) -> Iterator[tuple[Array, Array]]:
    """Any bits; multiples of the divisor and their neighbours; integers; powers of two; denormal divisors; large quotients."""
    draw, real, word = np.random.default_rng(7), np.dtype(dtype), WORDS[dtype]
    lowest, highest = np.iinfo(word).min, np.iinfo(word).max
    yield tuple(draw.integers(lowest, highest, COUNT, dtype=word).view(real) for _ in range(2))
    b = draw.standard_normal(COUNT).astype(real)
    multiple = (draw.integers(-1000, 1000, COUNT).astype(real) * b).astype(real)
    for toward in (-np.inf, np.inf):
        yield np.nextafter(multiple, real.type(toward)), b
    yield multiple, b
    yield (
        draw.integers(-(2**24), 2**24, COUNT).astype(real),
        draw.integers(-50, 50, COUNT).astype(real),
    )
    two = np.ldexp(1.0, draw.integers(-20, 20, COUNT)).astype(real)
    yield (
        (draw.standard_normal(COUNT) * two * np.ldexp(1.0, draw.integers(0, 26, COUNT))).astype(
            real
        ),
        two,
    )
    huge = np.copysign(real.type(np.inf), b)
    yield b, huge
    yield b, np.where(np.arange(COUNT) % 16, huge, b)
    small = np.abs(b) * np.finfo(real).tiny
    yield small * draw.integers(-4_000_000, 4_000_000, COUNT).astype(real), small


@pytest.mark.parametrize("dtype", WORDS)
@pytest.mark.parametrize("hidden", ["", "fma"])
def test_remainders_are_exact(dtype: str, hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", hidden)
    n = oc.dim("n")
    a, b = (oc.placeholder((n,), dtype, name=name) for name in "AB")
    kernel = oc.compile(oc.compute((n,), lambda i: a[i] % b[i], name="Y"), inputs=[a, b])
    for left, by in operands(dtype):
        with np.errstate(all="ignore"):
            rest = np.fmod(left, by)
            moved = np.where(np.signbit(rest) != np.signbit(by), rest + by, rest)
            wanted = np.where(rest == 0, np.copysign(np.zeros_like(by), by), moved)
        found = kernel(left, by)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        known = ~np.isnan(wanted)
        word = WORDS[dtype]
        np.testing.assert_array_equal(found.view(word)[known], wanted.view(word)[known])
