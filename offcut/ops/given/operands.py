"""What operators ask of the tensors that they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from offcut.core.dtypes import DTYPES, FLOATS
from offcut.core.integers import whole
from offcut.describe.refusals import shown
from offcut.describe.tensor import Tensor
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.given.arguments import is_one_of, several

SMALL = {
    **dict.fromkeys(("float16", "bfloat16"), "float32"),
    **dict.fromkeys(("int16", "int8", "uint16", "uint8"), "int32"),
}
"""The type that sums of a small type are accumulated in; other types are their own."""


def wider(dtype: str) -> str:
    """The type in which operators calculate with elements of `dtype`."""
    return SMALL.get(dtype, dtype)


def narrower(total: str) -> tuple[str, ...]:
    """The element types that are calculated in `total`."""
    return tuple(dtype for dtype in DTYPES if wider(dtype) == total)


def beside(dtype: str) -> tuple[str, ...]:
    """Return the element types that products take beside an operand of `dtype`: weights of int8 stay as they are."""
    return (dtype, "int8") if dtype in ("uint8", "float32") else (dtype,)


def element(tensor: Tensor, index: Sequence[Any], dtype: str | None = None) -> Value:
    """The element at `index`, converted to `dtype`; None: to the type that it is calculated in."""
    return cast(tensor[tuple(index)], wider(tensor.dtype) if dtype is None else dtype)


def axis_letters(rank: int) -> tuple[str, ...]:
    """Names for the axes of a tensor: ``i, j`` are the last two, ``b, h`` or ``b0, b1, …`` come first."""
    if rank <= 2:
        return ("i", "j")[:rank]
    leading = ("b", "h")[: rank - 2] if rank <= 4 else tuple(f"b{n}" for n in range(rank - 2))
    return (*leading, "i", "j")


def of_operands(tensor: Tensor, *operands: object) -> Tensor:
    """A result whose operands, the tensors among these, are a kernel's inputs in their order, where nobody says another."""
    assert tensor.definition is not None
    tensors = tuple(one for one in operands if isinstance(one, Tensor))
    return replace(tensor, definition=replace(tensor.definition, operands=tensors))


def check_tensor(op: str, label: str, value: Any, *ranks: int, least: int = 0) -> Tensor:
    """`value`, a tensor of one of `ranks`, or of rank `least` or more where none is named.

    Raises DescribeError for anything else.
    """
    if not isinstance(value, Tensor):
        raise DescribeError(
            op,
            f"cannot take {label} = {shown(value)}",
            because="it is no tensor",
            help=('placeholder((n, 768), "float32", name="A")', "compute(…)"),
        )
    rank = len(value.shape)
    if rank not in ranks if ranks else rank < least:
        wanted = " or ".join(map(str, ranks)) if ranks else f"at least {least}"
        raise DescribeError(
            op,
            f"cannot take {label} with {rank} {'axis' if rank == 1 else 'axes'}",
            at=repr(value),
            because=f"{label} has {wanted} axes",
        )
    return value


def check_dtype(op: str, label: str, tensor: Tensor, allowed: Sequence[str]) -> None:
    """Raises DescribeError where the element type of `tensor` is none of `allowed`."""
    if tensor.dtype not in allowed:
        raise DescribeError(
            op,
            f"cannot take {label} of {tensor.dtype}",
            at=repr(tensor),
            because=f"{label} is of {', '.join(allowed)}",
        )


def check_floats(op: str, label: str, tensor: Tensor) -> None:
    """Raises DescribeError where the elements of `tensor` are integers."""
    check_dtype(op, label, tensor, FLOATS)


def check_result(op: str, dtype: str | None, default: str) -> str:
    """`dtype`, or `default` where it is None; raises DescribeError where it is no element type."""
    if dtype is None:
        return default
    if not is_one_of(dtype, DTYPES):
        raise DescribeError(
            op,
            f"cannot give {dtype!r}",
            at="argument dtype",
            because=f"element types are {', '.join(DTYPES)}",
        )
    return dtype


def is_one(extent: Any) -> bool:
    """Whether an extent is the literal 1."""
    return bool(extent == 1)


def same_extent(a: Any, b: Any) -> bool:
    """Whether two extents are equal as expressions in sizes."""
    return bool(a == b or (a - b).expand() == 0)


def check_extent(op: str, one: tuple[Tensor, int], other: tuple[Tensor, int]) -> None:
    """Raises DescribeError where two axes, each (tensor, position), differ in extent."""
    (a, i), (b, j) = one, other
    if not same_extent(a.shape[i], b.shape[j]):
        raise DescribeError(
            op,
            f"cannot pair {a.name} with {b.name}",
            at=f"{a!r} and {b!r}",
            because=f"axis {i} of {a.name} is {a.shape[i]}, axis {j} of {b.name} is {b.shape[j]}",
            help=("one size for both: a size is known by its name and facts",),
        )


def check_shape(op: str, label: str, tensor: Tensor, shape: Sequence[Any]) -> None:
    """Raises DescribeError where `tensor` is not of `shape`."""
    actual = tensor.shape
    equal = len(actual) == len(shape) and all(map(same_extent, actual, shape))
    if not equal:
        raise DescribeError(
            op,
            f"cannot take {label} of shape {_shown(actual)}",
            at=repr(tensor),
            because=f"{label} has the shape {_shown(shape)}",
        )


def _shown(shape: Sequence[Any]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def axis_number(op: str, tensor: Tensor, axis: Any, written: str | None = None) -> int:
    """`axis` counted from the front, -1 being the last.

    written   how the argument was written, where it is more than ``axis=…``

    Raises DescribeError where `tensor` has no such axis.
    """
    rank, number = len(tensor.shape), whole(axis)
    if number is None or not -rank <= number < rank:
        raise DescribeError(
            op,
            f"cannot take {written or f'axis={axis!r}'}",
            at=repr(tensor),
            because=f"the axes of {tensor.name} are {-rank}…{rank - 1}"
            if rank
            else f"{tensor.name} has no axis",
        )
    return number % rank


def axis_numbers(op: str, tensor: Tensor, axes: Any) -> tuple[int, ...]:
    """`axes`, an int, several, or None for all, counted from the front and ascending.

    Raises DescribeError where `tensor` has no such axis, or one is named twice.
    """
    if axes is None:
        return tuple(range(len(tensor.shape)))
    listed = several(axes)
    each = (axes,) if listed is None else listed
    numbers = sorted(axis_number(op, tensor, axis, f"axis={axes!r}") for axis in each)
    if len(set(numbers)) != len(numbers):
        raise DescribeError(
            op,
            f"cannot take axis={axes!r}",
            at=repr(tensor),
            because="an axis is named twice",
        )
    return tuple(numbers)
