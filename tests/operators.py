"""What the tests of `oc.ops` share: an operator's kernel against numpy in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from compiled import Array, build, poisoned

from offcut.core.dtypes import numpy_dtype
from offcut.describe.tensor import Tensor
from offcut.pipeline import Kernel

# Half a unit in the last place of a result near 1, and what a sum of some dozens of terms near 1 may
# be off in the type that it is accumulated in.
ROUNDING = {"float64": 2.0**-50, "float32": 2.0**-21, "float16": 2.0**-10, "bfloat16": 2.0**-7}
SUMMING = {"float64": 1e-13, "float32": 3e-5, "float16": 1e-4, "bfloat16": 1e-4}


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
    assert found.shape == exact.shape
    if np.issubdtype(found.dtype, np.integer):
        np.testing.assert_array_equal(found, exact)
        return
    name = found.dtype.name
    np.testing.assert_allclose(
        found.astype("float64"), exact, rtol=ROUNDING[name], atol=SUMMING[name]
    )


class Operator:
    """An operator's result as a kernel, and as loops of the reference interpreter."""

    def __init__(self, output: Tensor, inputs: Sequence[Tensor]) -> None:
        self.output, self.inputs = output, tuple(inputs)
        self.kernel: Kernel = build(output, inputs=self.inputs)

    def check(self, arrays: Sequence[Array], exact: Array, interpreted: bool = False) -> Array:
        """The kernel's result, written over poison, near `exact`; so is that of its loops, interpreted."""
        found = poisoned(self.kernel, exact.shape, *arrays)
        near(found, exact)
        if interpreted:
            named = {t.name: a for t, a in zip(self.inputs, arrays, strict=True)}
            result = np.asarray(self.kernel.loops.run(named))
            assert result.dtype == numpy_dtype(self.output.dtype)
            near(result, exact)
        return found
