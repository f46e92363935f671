"""Powers of elements."""

from __future__ import annotations

from offcut.core.dtypes import FLOATS, NUMBERS
from offcut.describe import functions
from offcut.describe.functions import LARGEST
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.elementwise.joining import Operand, checked, element_of, joined, name_of
from offcut.ops.given.operands import axis_letters, wider


def power(x: Operand, y: Operand, *, name: str | None = None) -> Tensor:
    """``x ** y`` by element, within 2 ULP (float32); NaN where x is below 0 and y is not whole.

    x, y   as in `add`. A number `y` that is whole, from -2 to 4, is calculated by products, and 0.5 is the square root;
           16-bit floats are calculated in float32 and rounded once. Integers wrap, and `y` is a whole number
           from 0 to 64 then

    Raises DescribeError where extents or element types do not fit.
    """
    dtype, operands = checked("power", {"x": x, "y": y}, NUMBERS)
    base, exponent = operands["x"], operands["y"]
    if dtype not in FLOATS and (
        isinstance(exponent, Tensor) or not isinstance(base, Tensor) or not 0 <= exponent <= LARGEST
    ):
        raise DescribeError(
            "power",
            f"cannot take y={y!r}",
            at=repr(base if isinstance(base, Tensor) else exponent),
            because=f"the exponent of integers is a whole number from 0 to {LARGEST}",
            help=('cast(x, "float32") takes any exponent',),
        )
    shape = joined("power", [one for one in operands.values() if isinstance(one, Tensor)])
    inner = wider(dtype) if dtype in FLOATS else dtype

    def at(*axes: Value) -> Value:
        first = cast(element_of(base, shape, axes, dtype), inner)
        if not isinstance(exponent, Tensor):
            return cast(functions.power(first, exponent), dtype)
        second = cast(element_of(exponent, shape, axes, dtype), inner)
        return cast(functions.power(first, second), dtype)

    return compute(shape, at, name_of("power", name, operands), axis_letters(len(shape)))
