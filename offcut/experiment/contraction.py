"""A tensor contraction written as text, such as ``"mk,kn->mn"`` or ``"bij,bkj->bik"``.

Each letter is an axis, as in `numpy.einsum`. Letters of the operands that the result lacks are
summed over. The text says nothing of sizes: a letter has either one extent (a constant of the
computation) or a range of extents (a symbolic size, which one compiled kernel serves whole).
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

import offcut as oc
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.functions import erf
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError

Array = NDArray[Any]
Wide = NDArray[np.float64]

ELEMENTS = {
    "float64": ("float64", "float64", "float64", "float64"),
    "float32": ("float32", "float32", "float32", "float32"),
    "float16": ("float16", "float16", "float32", "float16"),
    "bfloat16": ("bfloat16", "bfloat16", "float32", "bfloat16"),
    "int8": ("int8", "int8", "int32", "int32"),
    "uint8": ("uint8", "int8", "int32", "int32"),
}
"""Element types of a contraction by its kind: first operand, other operands, sum, result."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """``result[...] = sum over the other letters of the product of the operands``.

    operands   the letters of each operand, one letter per axis
    result     the letters of the result
    """

    operands: tuple[str, ...]
    result: str

    def __str__(self) -> str:
        return f"{','.join(self.operands)}->{self.result}"

    @property
    def letters(self) -> tuple[str, ...]:
        """Every letter once, in order of appearance."""
        return tuple(dict.fromkeys(chain.from_iterable(self.operands)))

    @property
    def reduced(self) -> tuple[str, ...]:
        """The letters that are summed over, in order of appearance."""
        return tuple(letter for letter in self.letters if letter not in self.result)

    @property
    def names(self) -> tuple[str, ...]:
        """The operands' names: A, B, and so on."""
        return tuple(string.ascii_uppercase[: len(self.operands)])

    @property
    def as_matmul(self) -> tuple[bool, bool] | None:
        """Which operands of `oc.ops.matmul` are transposed; None where it is no such product."""
        if len(self.operands) != 2 or len(self.reduced) != 1 or len(self.result) < 2:
            return None
        (k,), (a, b), shared = self.reduced, self.operands, self.result[:-2]
        i, j = self.result[-2], self.result[-1]
        left = {shared + i + k: False, shared + k + i: True}
        right = {shared + k + j: False, shared + j + k: True}
        return (left[a], right[b]) if a in left and b in right else None

    def elements(self, kind: str) -> tuple[str, ...]:
        """Element type of each operand, for a kind of `ELEMENTS`."""
        first, other, _, _ = ELEMENTS[kind]
        return (first, *(other for _ in self.operands[1:]))

    def flop(self, sizes: Mapping[str, int]) -> int:
        """Additions and multiplications at `sizes`: 2·m·n·k for a matrix product."""
        per_instance = len(self.operands) - 1 + bool(self.reduced)
        return per_instance * math.prod(sizes[letter] for letter in self.letters)


def parse_contraction(text: str) -> Contraction:
    """The contraction that `text` writes.

    >>> parse_contraction("mk,kn->mn").reduced
    ('k',)

    Raises DescribeError when there is no ``->``, when an axis is not a letter or a blank stands between two, or when the result
    has a letter twice or one that no operand has.
    """
    between = re.search(r"[A-Za-z]\s+[A-Za-z]", text)
    if between is not None:
        because = f"{between[0]!r} has a blank between two axes: it could be a comma, or nothing"
        raise _refused(text, because, _without_blanks(text))
    compact = "".join(text.split())
    left, arrow, result = compact.partition("->")
    operands = tuple(left.split(","))
    if not arrow:
        raise _refused(text, "it has no '->', so the result's axes are not known", _implicit(left))
    for part in (*operands, result):
        stray = next((c for c in part if c not in string.ascii_letters), None)
        if stray is not None:
            raise _refused(text, f"{stray!r} is not a letter", '"mk,kn->mn": one letter per axis')
    if not all(operands) or len(operands) > len(string.ascii_uppercase):
        raise _refused(text, "an operand has no axis", '"mk,kn->mn": a letter per axis, a comma')
    known = set(left)
    for position, letter in enumerate(result):
        if letter not in known:
            because = f"the result has the axis {letter!r} and no operand has it"
            raise _refused(text, because, f'"{left}->{result.replace(letter, "")}"')
        if letter in result[:position]:
            because = f"the result has the axis {letter!r} twice"
            raise _refused(text, because, f'"{left}->{"".join(dict.fromkeys(result))}"')
    return Contraction(operands, result)


def _without_blanks(text: str) -> str:
    """Return the text that was probably meant: commas in place of blanks, or nothing where every word is one letter."""
    left, arrow, result = text.partition("->")
    words = re.split(r"[\s,]+", left.strip())
    between = "," if any(len(word) > 1 for word in words) else ""
    operands = (re.sub(r"\s+", between, one.strip()) for one in left.split(","))
    return f'"{",".join(operands)}{arrow}{"".join(result.split())}"'


def _implicit(left: str) -> str:
    """The text with numpy's implicit result: the letters that occur once, in order."""
    once = sorted(c for c in set(left) & set(string.ascii_letters) if left.count(c) == 1)
    return f'"{left}->{"".join(once)}"'


def _refused(text: str, because: str, help: str) -> DescribeError:
    return DescribeError(
        "contraction", "cannot read the text", at=f'"{text}"', because=because, help=(help,)
    )


def check_letters(
    contraction: Contraction, fixed: Mapping[str, int], swept: Mapping[str, tuple[int, int]]
) -> None:
    """Every letter has exactly one extent or exactly one range, and each of those has a letter.

    fixed   letter -> extent, in elements
    swept   letter -> least and largest extent, in elements

    Raises DescribeError otherwise.
    """

    def refused(because: str, *help: str) -> DescribeError:
        return DescribeError(
            "sweep",
            "the sizes do not fit the text",
            at=str(contraction),
            because=because,
            help=help,
        )

    for letter in contraction.letters:
        if letter not in fixed and letter not in swept:
            raise refused(
                f"the axis {letter!r} has no size",
                f"--{letter} 768 fixes it",
                f"--sizes {letter}=1:512 sweeps it",
            )
        if letter in fixed and letter in swept:
            raise refused(
                f"the axis {letter!r} is fixed to {fixed[letter]} and swept as well",
                f"leave out --{letter} or take {letter!r} out of --sizes",
            )
        if letter in fixed and fixed[letter] < 1:
            raise refused(f"the axis {letter!r} has size {fixed[letter]}", f"--{letter} 1 or more")
    for letter in chain(fixed, swept):
        if letter not in contraction.letters:
            raise refused(
                f"there is no axis {letter!r}", f"the axes are {', '.join(contraction.letters)}"
            )


@dataclass(frozen=True, slots=True)
class Computation:
    """Offcut's tensors: what `offcut.compile` takes."""

    inputs: tuple[Tensor, ...]
    result: Tensor

    def compile(
        self, constants: Mapping[str, Array], threads: int = 1, strategy: str = "auto"
    ) -> oc.Kernel:
        """The kernel that has these arrays for placeholders of their names."""
        return oc.compile(
            self.result,
            inputs=list(self.inputs),
            constants=dict(constants),
            target="cpu",
            strategy=strategy,
            threads=threads,
            records=False,
        )


def build(
    contraction: Contraction,
    fixed: Mapping[str, int],
    swept: Mapping[str, tuple[int, int]],
    kind: str = "float32",
) -> Computation:
    """The contraction on operands of one kind, with a symbolic size per swept letter.

    It is `oc.ops.matmul` where it is one, else a sum of products.

    fixed   letter -> extent, in elements
    swept   letter -> least and largest extent, in elements
    kind    element types, as `ELEMENTS` has them; each term is in the type of the sum

    Raises DescribeError when a letter has no size, or two.
    """
    check_letters(contraction, fixed, swept)
    extents: dict[str, Any] = dict(fixed)
    for letter, (least, largest) in swept.items():
        extents[letter] = oc.dim(letter, min=least, max=largest)
    inputs = tuple(
        oc.placeholder(tuple(extents[letter] for letter in letters), dtype, name=name)
        for name, letters, dtype in zip(
            contraction.names, contraction.operands, contraction.elements(kind), strict=True
        )
    )
    turned = contraction.as_matmul
    if turned is not None:
        (a, b), (turned_a, turned_b) = inputs, turned
        return Computation(inputs, oc.ops.matmul(a, b, turned_a, turned_b, name="result"))
    _, _, summed, stored = ELEMENTS[kind]
    reduced = {
        letter: oc.reduce_axis(extents[letter], name=letter) for letter in contraction.reduced
    }

    def element(*indices: Any) -> Any:
        at = dict(zip(contraction.result, indices, strict=True)) | reduced
        factors = [
            oc.cast(tensor[tuple(at[letter] for letter in letters)], summed)
            for tensor, letters in zip(inputs, contraction.operands, strict=True)
        ]
        term = math.prod(factors[1:], start=factors[0])
        value = oc.sum(term, axis=tuple(reduced.values())) if reduced else term
        return oc.cast(value, stored)

    shape = tuple(extents[letter] for letter in contraction.result)
    result = oc.compute(shape, element, axes=tuple(contraction.result), name="result")
    return Computation(inputs, result)


HALF_ULP = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-7,
    "int32": 0.0,
}
"""Largest relative error of rounding to an element type.

For bfloat16 it is twice that: there are libraries that cut off the digits beyond.
"""


FUNCTION_UNITS = 8
"""Half units in the last place that a library's function of an epilogue may be off: of gelu in float32, 4 of erf, 2 of the sum with 1, both halved,
and 3 roundings of products and of the argument; measured are 5.4 (gelu), 5.2 (tanh), 3 (silu) and 2.8 (sigmoid) at the most."""


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A function of an epilogue, and how it carries an error.

    call       in float64
    lipschitz  the greatest absolute value of its derivative
    units      half units in the last place of float32 (or of float64) that a library's value may be off, at the scale of the result;
               0 for a function that rounds nothing
    is_scaled  whether that scale is the argument's magnitude, as of ``x * g(x)`` with g between 0 and 1; else 1
    """

    call: Callable[[Any], Any]
    lipschitz: float
    units: int = FUNCTION_UNITS
    is_scaled: bool = False

    def bounded(self, value: Wide, allowed: Wide, stored: str) -> tuple[Wide, Wide]:
        """Return the function of `value`, and the error allowed of it where the argument's is `allowed`.

        stored  the element type of the result: a 16-bit float is calculated in float32 and rounded once
        """
        computed = stored if stored in ("float32", "float64") else "float32"
        scale = np.abs(value) + allowed if self.is_scaled else 1.0
        error = self.lipschitz * allowed + self.units * HALF_ULP[computed] * scale
        result = self.call(value)
        if self.units and stored != computed:
            error = error + HALF_ULP[stored] * (np.abs(result) + error)
        return result, error


def _sigmoid(x: Wide) -> Wide:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


STEP_FUNCTIONS: Mapping[str, StepFunction] = {
    "relu": StepFunction(lambda x: np.maximum(x, 0), 1.0, units=0),
    "gelu": StepFunction(lambda x: x / 2 * (1 + erf(x / math.sqrt(2))), 1.13, is_scaled=True),
    "sigmoid": StepFunction(_sigmoid, 0.25),
    "silu": StepFunction(lambda x: x * _sigmoid(x), 1.1, is_scaled=True),
    "tanh": StepFunction(np.tanh, 1.0),
}
"""The steps of an epilogue that are functions of an element. The derivatives are greatest at sqrt(2) (gelu), 0 (sigmoid, tanh), 2.4 (silu)."""

ADDED_STEPS = ("bias", "residual")
"""The steps that add an array: `bias` along the last axis, `residual` of the result's shape."""

EPILOGUES = (*ADDED_STEPS, *STEP_FUNCTIONS)


@dataclass(frozen=True, slots=True)
class Problem:
    """A contraction at one point: its sizes and its operands.

    sizes      letter -> extent, for every letter
    arrays     operand name -> values, C-contiguous; those that an epilogue reads are called as its steps are
    constant   names of the operands whose values never change, which may be packed beforehand
    kind       element types, as `ELEMENTS` has them
    epilogue   what is done to each element of the sum, in order: names of `EPILOGUES`
    """

    contraction: Contraction
    sizes: Mapping[str, int]
    arrays: Mapping[str, Array]
    constant: tuple[str, ...] = ()
    kind: str = "float32"
    epilogue: tuple[str, ...] = ()

    @property
    def operands(self) -> tuple[Array, ...]:
        """The arrays that are not constant, in the order of a call."""
        return tuple(array for name, array in self.arrays.items() if name not in self.constant)

    @property
    def flop(self) -> int:
        """Additions and multiplications of one call."""
        return self.contraction.flop(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.sizes[letter] for letter in self.contraction.result)

    @property
    def moved(self) -> int:
        """Bytes of the operands and the result, each once."""
        result = math.prod(self.shape) * numpy_dtype(ELEMENTS[self.kind][-1]).itemsize
        return result + sum(array.nbytes for array in self.arrays.values())

    def result(self) -> Array:
        """A new array for the result, every page touched."""
        return poisoned(self.shape, ELEMENTS[self.kind][-1])

    def reference(self) -> Reference:
        """The result in float64, with the error that float32 is allowed.

        A step `f` of the epilogue takes an error `e` of its argument to `l * e`, where `l` is its Lipschitz constant, and adds its own
        (`STEP_FUNCTIONS`).
        """
        operands = [self.arrays[name].astype(np.float64) for name in self.contraction.names]
        text = str(self.contraction)
        value = np.einsum(text, *operands, optimize=True)
        magnitude = np.einsum(text, *map(np.abs, operands), optimize=True)
        terms = math.prod(self.sizes[letter] for letter in self.contraction.reduced)
        _, _, summed, stored = ELEMENTS[self.kind]
        steps = terms + len(operands)
        allowed = steps * HALF_ULP[summed] * magnitude
        if stored != summed:
            allowed += HALF_ULP[stored] * np.abs(value)
        for step in self.epilogue:
            if step in ADDED_STEPS:
                value = value + self.arrays[step].astype(np.float64)
                allowed = allowed + HALF_ULP[stored] * (np.abs(value) + allowed)
            else:
                value, allowed = STEP_FUNCTIONS[step].bounded(value, allowed, stored)
        return Reference(np.asarray(value), np.asarray(allowed))


def poisoned(shape: tuple[int, ...], dtype: str) -> Array:
    """A new array of values that no result has by chance, every page touched."""
    return np.full(shape, np.nan if dtype in FLOATS else -(2**30) - 1, numpy_dtype(dtype))


@dataclass(frozen=True, slots=True)
class Reference:
    """What a result must be, in any order of summation.

        |result - value| <= allowed

    For a contraction, allowed = (terms + operands) * 2^-24 * sum of |term|, and the rounding of the
    result where its type is shorter than float32.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1.
    """

    value: NDArray[np.float64]
    allowed: NDArray[np.float64]

    def mismatch(self, result: NDArray[Any]) -> str:
        """What is wrong with `result`, naming its worst element; empty when nothing is."""
        if result.shape != self.value.shape:
            return f"shape {result.shape}, expected {self.value.shape}"
        given = result.astype(np.float64)
        error = np.abs(given - self.value)
        wrong = ~(error <= self.allowed)
        if not wrong.any():
            return ""
        worst = np.unravel_index(
            np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1)), error.shape
        )
        at = ", ".join(str(int(i)) for i in worst)
        return (
            f"{int(wrong.sum())} of {wrong.size} elements are off; "
            f"[{at}] is {given[worst]:.9g}, expected {self.value[worst]:.9g}"
        )
