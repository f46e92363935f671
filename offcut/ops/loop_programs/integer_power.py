"""Powers of integers by integers, as a loop program: squares, and products of those that the bits of the exponent name."""

from __future__ import annotations

from offcut.core.dtypes import INTEGERS, ITEM_BYTES, UNSIGNED
from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.ops.checks import axis_letters, check_tensor, pair_error, result_name, same_extent
from offcut.ops.loop_programs.program_writer import Written


def integer_power(x: Tensor, y: Tensor, *, name: str | None = None) -> Program:
    """A program of ``x ** y`` by element of integers, which wrap; 1 where `y` is 0.

    x, y   of one shape and one element type. Below 0, `y` gives 0, but for an `x` of 1 or -1, as torch does

    As many steps as the type has bits: `power` takes a number for `y` in fewer.
    Raises DescribeError where the operands are no such, or computed.
    """
    op = "integer_power"
    check_tensor(op, "x", x, dtypes=INTEGERS)
    check_tensor(op, "y", y, dtypes=(x.dtype,))
    pairs = list(zip(x.shape, y.shape, strict=False))
    if len(x.shape) != len(y.shape) or not all(same_extent(*pair) for pair in pairs):
        raise pair_error(op, x, y, "they are of one shape", equal=pairs)
    text = Written(op, result_name(op, name, [x, y]), {"x": x, "y": y})
    result = text.result(text.name, x.dtype, x.shape)
    total, base, exponent_left = (
        f"{text.local(word, x.dtype, (1,))}[0]" for word in ("total", "base", "left")
    )
    letters = [f"z{letter}" for letter in axis_letters(len(x.shape))]
    place = f"[{', '.join(f'${letter}' for letter in letters)}]"
    base_of, exponent = (text.given[label] + place for label in "xy")
    signed = x.dtype not in UNSIGNED
    none = f"{exponent} < 0 and abs({base_of}) != 1"
    text.nest(
        0,
        letters,
        x.shape,
        *(f"{total} = 1", f"{base} = {base_of}", f"{exponent_left} = {exponent}"),
        f"for $k in 0:{8 * ITEM_BYTES[x.dtype] - signed}",
        f"  if bitand({exponent_left}, 1) == 1",
        f"    {total} = {total} * {base}",
        f"  {base} = {base} * {base}",
        f"  {exponent_left} = shr({exponent_left}, 1)",
        f"{result}{place} = " + (f"where({none}, 0, {total})" if signed else total),
    )
    return text.program()
