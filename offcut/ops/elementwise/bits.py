"""Operations on the bits of integers, in two's complement."""

from __future__ import annotations

from offcut.core.dtypes import INTEGERS
from offcut.describe.tensor import Tensor
from offcut.ops.elementwise.functions import of_each
from offcut.ops.elementwise.joining import Operand, pointwise


def bitwise_and(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """The bits that are set in both, by element of integers; operands as in `add`."""
    return pointwise("bitwise_and", name, {"x": x, "y": y}, lambda a, b: a & b, INTEGERS)


def bitwise_or(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """The bits that are set in one, by element of integers; operands as in `add`."""
    return pointwise("bitwise_or", name, {"x": x, "y": y}, lambda a, b: a | b, INTEGERS)


def bitwise_xor(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """The bits that are set in just one, by element of integers; operands as in `add`."""
    return pointwise("bitwise_xor", name, {"x": x, "y": y}, lambda a, b: a ^ b, INTEGERS)


def bitwise_not(x: Tensor, *, name: str | None = None) -> Tensor:
    """The bits that are not set, by element of integers, of any shape."""
    return of_each("bitwise_not", name, x, lambda a: ~a, INTEGERS)


def shift_left(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x << y`` by element of integers: the lowest `y` bits are 0, and the highest are lost.

    x, y   as in `add`. By the width or more, or by less than 0, it is 0
    """
    return pointwise("shift_left", name, {"x": x, "y": y}, lambda a, b: a << b, INTEGERS)


def shift_right(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x >> y`` by element of integers, ``floor(x / 2**y)``; bits of the sign come in from the left.

    x, y   as in `add`. By the width or more, or by less than 0, it is 0, and -1 where x is below 0
    """
    return pointwise("shift_right", name, {"x": x, "y": y}, lambda a, b: a >> b, INTEGERS)
