"""A tensor contraction written as text, such as ``"mk,kn->mn"`` or ``"bij,bkj->bik"``.

Each letter is an axis, as in `numpy.einsum`. Letters of the operands that the result lacks are
summed over. The text says nothing of sizes: a letter has either one extent (a constant of the
computation) or a range of extents (a symbolic size, which one compiled kernel serves whole).
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import offcut as oc
from offcut.describe.request import Array
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError

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
        """Return every letter once, in order of appearance."""
        return tuple(dict.fromkeys(chain.from_iterable(self.operands)))

    @property
    def summed_letters(self) -> tuple[str, ...]:
        """Return the letters that are summed over, in order of appearance."""
        return tuple(letter for letter in self.letters if letter not in self.result)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the operands' names: A, B, and so on."""
        return tuple(string.ascii_uppercase[: len(self.operands)])

    @property
    def as_matmul(self) -> tuple[bool, bool] | None:
        """Return which operands of `oc.ops.matmul` are transposed; None where it is no such product."""
        if len(self.operands) != 2 or len(self.summed_letters) != 1 or len(self.result) < 2:
            return None
        (k,), (a, b), shared = self.summed_letters, self.operands, self.result[:-2]
        i, j = self.result[-2], self.result[-1]
        left = {shared + i + k: False, shared + k + i: True}
        right = {shared + k + j: False, shared + j + k: True}
        return (left[a], right[b]) if a in left and b in right else None

    def elements(self, kind: str) -> tuple[str, ...]:
        """Return the element type of each operand, for a kind of `ELEMENTS`."""
        first, other, _, _ = ELEMENTS[kind]
        return (first, *(other for _ in self.operands[1:]))

    def flop(self, sizes: Mapping[str, int]) -> int:
        """Return the additions and multiplications at `sizes`: 2·m·n·k for a matrix product."""
        per_instance = len(self.operands) - 1 + bool(self.summed_letters)
        return per_instance * math.prod(sizes[letter] for letter in self.letters)


def parse_contraction(text: str) -> Contraction:
    """Return the contraction that `text` writes.

    >>> parse_contraction("mk,kn->mn").summed_letters
    ('k',)

    Raises DescribeError when there is no ``->``, when an axis is not a letter or a blank stands between two, or when the result
    has a letter twice or one that no operand has.
    """
    between = re.search(r"[A-Za-z]\s+[A-Za-z]", text)
    if between is not None:
        because = f"{between[0]!r} has a blank between two axes: it could be a comma, or nothing"
        raise _refusal(text, because, _without_blanks(text))
    compact = "".join(text.split())
    left, arrow, result = compact.partition("->")
    operands = tuple(left.split(","))
    if not compact:
        raise _refusal(text, "it is empty", '"mk,kn->mn": a letter per axis, a comma')
    if not arrow and compact.count(">") == 1:
        raise _refusal(text, "it has no '->'", f'"{compact.replace("-", "").replace(">", "->")}"')
    if not arrow:
        raise _refusal(text, "it has no '->', so the result's axes are not known", _implicit(left))
    for part in (*operands, result):
        stray = next((c for c in part if c not in string.ascii_letters), None)
        if stray is not None:
            raise _refusal(text, f"{stray!r} is not a letter", '"mk,kn->mn": one letter per axis')
    if not all(operands) or len(operands) > len(string.ascii_uppercase):
        raise _refusal(text, "an operand has no axis", '"mk,kn->mn": a letter per axis, a comma')
    known = set(left)
    for position, letter in enumerate(result):
        if letter not in known:
            because = f"the result has the axis {letter!r} and no operand has it"
            raise _refusal(text, because, f'"{left}->{result.replace(letter, "")}"')
        if letter in result[:position]:
            because = f"the result has the axis {letter!r} twice"
            raise _refusal(text, because, f'"{left}->{"".join(dict.fromkeys(result))}"')
    return Contraction(operands, result)


def _without_blanks(text: str) -> str:
    """Return the text that was probably meant: commas in place of blanks, or nothing where every word is one letter."""
    left, arrow, result = text.partition("->")
    words = re.split(r"[\s,]+", left.strip())
    between = "," if any(len(word) > 1 for word in words) else ""
    operands = (re.sub(r"\s+", between, one.strip()) for one in left.split(","))
    return f'"{",".join(operands)}{arrow}{"".join(result.split())}"'


def _implicit(left: str) -> str:
    """Return the text with numpy's implicit result: the letters that occur once, in order."""
    once = sorted(c for c in set(left) & set(string.ascii_letters) if left.count(c) == 1)
    return f'"{left}->{"".join(once)}"'


def _refusal(text: str, because: str, help: str) -> DescribeError:
    return DescribeError(
        "contraction", "cannot read the text", at=f'"{text}"', because=because, help=(help,)
    )


def check_letters(
    contraction: Contraction, fixed: Mapping[str, int], swept: Collection[str]
) -> None:
    """Check that every letter has one extent or one range, and each of those has a letter, as the command `sweep` spells them.

    fixed   letter -> extent, in elements
    swept   letters that have a range

    Raises DescribeError otherwise.
    """

    def refused(because: str, *help: str) -> DescribeError:
        what, at = "the sizes do not fit the text", str(contraction)
        return DescribeError("sweep", what, at=at, because=because, help=help)

    for letter in dict.fromkeys(chain(contraction.letters, fixed, swept)):
        axis = f"the axis {letter!r}"
        if letter not in contraction.letters:
            listed = ", ".join(contraction.letters)
            raise refused(f"there is no axis {letter!r}", f"the axes are {listed}")
        if letter not in fixed and letter not in swept:
            helps = f"--{letter} 768 fixes it", f"--sizes {letter}=1:512 sweeps it"
            raise refused(f"{axis} has no size", *helps)
        if letter in fixed and letter in swept:
            help = f"leave out --{letter} or take {letter!r} out of --sizes"
            raise refused(f"{axis} is fixed to {fixed[letter]} and swept as well", help)
        if letter in fixed and fixed[letter] < 1:
            raise refused(f"{axis} has size {fixed[letter]}", f"--{letter} 1 or more")


@dataclass(frozen=True, slots=True)
class Computation:
    """Offcut's tensors: what `offcut.compile` takes."""

    inputs: tuple[Tensor, ...]
    result: Tensor

    def compile(
        self, constants: Mapping[str, Array], threads: int = 1, strategy: str = "auto"
    ) -> oc.Kernel:
        """Return the kernel that has these arrays for placeholders of their names."""
        options: dict[str, Any] = {"strategy": strategy, "threads": threads, "records": False}
        return oc.compile(self.result, [*self.inputs], dict(constants), "cpu", **options)


def build(
    contraction: Contraction,
    fixed: Mapping[str, int],
    swept: Mapping[str, tuple[int, int]],
    kind: str = "float32",
) -> Computation:
    """Return the contraction on operands of one kind, with a symbolic size per swept letter.

    It is `oc.ops.matmul` where it is one, else a sum of products.

    fixed   letter -> extent, in elements
    swept   letter -> least and largest extent, in elements
    kind    element types, as `ELEMENTS` has them; each term is in the type of the sum

    Every letter has an extent or a range.
    """
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
        letter: oc.reduce_axis(extents[letter], name=letter)
        for letter in contraction.summed_letters
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
