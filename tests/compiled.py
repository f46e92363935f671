"""What the tests of compiled kernels share: contractions by einsum text, exact bounds, equal bits."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import offcut as oc
from offcut import Kernel, Tensor
from tests.facade import numpy_dtype

Array = npt.NDArray[Any]

STRATEGIES = ("auto", "guard", "cut", "mask", "pad", "shift", "ladder", "balance")
BLOCK = 14  # rows of the tallest register tile, on AVX-512
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def build(output: Tensor | Sequence[Tensor], **request: Any) -> Kernel:
    """`oc.compile`, which proves what it lowers."""
    return oc.compile(output, **request)


@dataclass(frozen=True)
class Contraction:
    """``result[…] = sum of the product of the operands`` over the letters that only these have.

    spec   as `numpy.einsum` reads it
    """

    spec: str
    inputs: tuple[Tensor, ...]
    result: Tensor

    def exact(self, arrays: Iterable[Array]) -> tuple[Array, Array]:
        """The result in float64, and the sum of the absolute values of its terms."""
        wide = [np.asarray(array, "float64") for array in arrays]
        total = np.asarray(np.einsum(self.spec, *wide))
        return total, np.asarray(np.einsum(self.spec, *map(np.abs, wide)))

    def terms(self, arrays: Iterable[Array]) -> int:
        """How many products one element sums."""
        left, result = self.spec.split("->")
        sizes = dict(
            pair
            for letters, array in zip(left.split(","), arrays, strict=True)
            for pair in zip(letters, array.shape, strict=True)
        )
        return int(np.prod([size for letter, size in sizes.items() if letter not in result]))

    def check(self, result: Array, arrays: Sequence[Array]) -> None:
        """`result` is within the bound of any order of summation: terms · eps · sum of |terms|."""
        exact, scale = self.exact(arrays)
        assert result.shape == exact.shape
        bound = (self.terms(arrays) + 2) * np.finfo(result.dtype).eps * scale
        assert np.all(np.abs(result - exact) <= bound)


def contraction(
    spec: str, extents: Mapping[str, int] | None = None, name: str = "C", dtype: str = "float32"
) -> Contraction:
    """`spec` described; a letter is a size of that name unless `extents` has it."""
    left, result = spec.split("->")
    operands = left.split(",")
    sizes: dict[str, Any] = {
        letter: (extents or {}).get(letter, oc.dim(letter, max=4096))
        for letter in dict.fromkeys("".join(operands))
    }
    tensors = [
        oc.placeholder(tuple(sizes[letter] for letter in letters), dtype, name=operand)
        for operand, letters in zip("ABD", operands, strict=False)
    ]
    reduced = {a: oc.reduce_axis(sizes[a], name=a) for a in sizes if a not in result}

    def term(*axes: Any) -> Any:
        at = dict(zip(result, axes, strict=True)) | reduced
        product = tensors[0][tuple(at[letter] for letter in operands[0])]
        for tensor, letters in zip(tensors[1:], operands[1:], strict=True):
            product = product * tensor[tuple(at[letter] for letter in letters)]
        return oc.sum(product, axis=tuple(reduced.values())) if reduced else product

    shape = tuple(sizes[letter] for letter in result)
    made = oc.compute(shape, term, name=name, axes=tuple(result))
    return Contraction(spec, tuple(tensors), made)


def floats(seed: object, *shape: int, dtype: str = "float32") -> Array:
    """Normal values that depend on `seed` and the shape alone."""
    generator = np.random.default_rng([*str(seed).encode(), *shape])
    values: Array = generator.standard_normal(shape).astype(numpy_dtype(dtype))
    return values


def poisoned(kernel: Kernel, shape: tuple[int, ...], *arrays: Array, **sizes: int) -> Array:
    """The result, written over an array that held no result before: NaN, or the least integer."""
    dtype = numpy_dtype(kernel.signature.outputs[0].dtype)
    integer = np.issubdtype(dtype, np.integer)
    out: Array = np.full(shape, np.iinfo(dtype).min if integer else np.nan, dtype)
    result: Array = kernel(*arrays, out=out, **sizes)
    assert result is out
    return result


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays are equal byte for byte, NaN and signs of zero included."""
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def agreed(results: Mapping[str, Array]) -> Array:
    """The result that all strategies give, bit for bit."""
    first = next(iter(results.values()))
    for strategy, result in results.items():
        assert same_bits(result, first), f"{strategy} differs from {next(iter(results))}"
    return first


def in_child(action: Callable[[], None]) -> int:
    """Exit status of a forked process that runs `action`: 0, 1 for an exception, -n for a signal."""
    child = os.fork()
    if not child:
        status = 1
        try:
            action()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
