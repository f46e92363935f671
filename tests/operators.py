"""What the tests of `oc.ops` share: an operator's kernel against numpy in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from compiled import Array, build, poisoned

from offcut import Kernel, Program, Tensor
from tests.agree import agree, of_peer
from tests.facade import FLOATS, INTEGERS, numpy_dtype

SUMMED = 64
"""What the terms of an element add up to, at most: some dozens of terms near 1."""


def integers(seed: object, dtype: str, *shape: int) -> Array:
    """Integers of the whole range of `dtype`, that depend on `seed` and the shape alone."""
    info = np.iinfo(dtype)
    generator = np.random.default_rng([*str(seed).encode(), *shape])
    values: Array = generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    return values


def wide(*arrays: Array) -> list[Array]:
    """The arrays in float64."""
    return [array.astype("float64") for array in arrays]


def near(found: Array, exact: Array) -> None:
    """`found` is `exact` but for rounding in its type; integers are equal."""
    agree(found, of_peer(exact, scale=SUMMED, units=4))


EDGES = (0, 1, 15, 16, 17, 63, 64, 65, 197)
"""0, 1, t-1, t, t+1 and 3t+5 for vectors of 16 and rows of 64."""


def specials(dtype: str) -> Array:
    """What rounding, overflow and signs of `dtype` turn on, and some plain values."""
    found = numpy_dtype(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTEGERS:
        info = np.iinfo(found)
        plain = [0, 1, 2, 3, 7, 100, *([-1, -2, -3, -7, -100] if info.min else [])]
        return np.array([info.min, info.min + 1, info.max - 1, info.max, *plain], found)
    import ml_dtypes

    limits = ml_dtypes.finfo(found)
    small = [float(limits.smallest_subnormal), float(limits.smallest_normal), float(limits.eps)]
    values = [0.0, *small, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 6.0, 50.0, float(limits.max), np.inf]
    return np.array([*values, np.nan, *(-value for value in values)]).astype(found)


def within(ulps: float, found: Array, exact: Array) -> None:
    """`found` is within `ulps` units in the last place of `exact`, given in float64; NaN, inf and integers are equal.

    Where `exact` is too large for the type by less than that, the largest value is as good as inf.
    """
    dtype = found.dtype
    assert found.shape == exact.shape
    if dtype.name not in FLOATS:
        np.testing.assert_array_equal(found, exact.astype(dtype))
        return
    import ml_dtypes

    limits = ml_dtypes.finfo(dtype)
    wide, largest = found.astype("float64"), float(limits.max)
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(exact))
    near = ~np.isnan(exact)
    a, b = wide[near], exact.astype("float64")[near]
    exponent = np.maximum(np.frexp(np.minimum(np.abs(b), largest))[1] - 1, limits.minexp)
    unit = np.ldexp(1.0, exponent - limits.nmant)
    with np.errstate(all="ignore"):
        a, b = (np.clip(value, -largest - unit / 2, largest + unit / 2) for value in (a, b))
        off = np.where(a == b, 0.0, np.abs(a - b) / unit)
    worst = int(off.argmax()) if off.size else 0
    assert not off.size or off[worst] <= ulps, (wide[near][worst], exact[near][worst], off[worst])


class Operator:
    """An operator's result as a kernel, and as loops of the reference interpreter."""

    def __init__(self, output: Tensor | Program, inputs: Sequence[Tensor]) -> None:
        self.inputs = tuple(inputs)
        whole = isinstance(output, Program)
        self.dtype = output.results[0].dtype if isinstance(output, Program) else output.dtype
        self.kernel: Kernel = build(output) if whole else build(output, inputs=self.inputs)

    def check(self, arrays: Sequence[Array], exact: Array, interpreted: bool = False) -> Array:
        """The kernel's result, written over poison, near `exact`; so is that of its loops, interpreted."""
        found = poisoned(self.kernel, exact.shape, *arrays)
        near(found, exact)
        if interpreted:
            named = {t.name: a for t, a in zip(self.inputs, arrays, strict=True)}
            result = np.asarray(self.kernel.loops.run(named))
            assert result.dtype == numpy_dtype(self.dtype)
            near(result, exact)
        return found
