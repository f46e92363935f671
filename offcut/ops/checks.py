"""Check and convert the arguments of operators, and give results their names.

The names that operators give to their results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2s
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from offcut.core.dtypes import DTYPES, FLOATS
from offcut.core.integers import whole
from offcut.describe.refusals import operand_text
from offcut.describe.tensor import Tensor, tensors_of
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError

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
    inputs = tuple(one for one in operands if isinstance(one, Tensor))
    return replace(tensor, definition=replace(tensor.definition, operands=inputs))


def check_tensor(
    op: str,
    label: str,
    value: Any,
    *ranks: int,
    least: int = 0,
    shape: Sequence[Any] | None = None,
    dtypes: Sequence[str] | None = None,
) -> Tensor:
    """Return `value`, a tensor of one of `ranks`, or of rank `least` or more if none is named, of a shape and one of element types.

    Raises DescribeError for anything else.
    """
    if not isinstance(value, Tensor):
        raise DescribeError(
            op,
            f"cannot take {label} = {operand_text(value)}",
            because="it is not a tensor",
            help=('placeholder((n, 768), "float32", name="A")', "compute(…)"),
        )
    rank = len(value.shape)
    if rank not in ranks if ranks else rank < least:
        expected = " or ".join(map(str, ranks)) if ranks else f"at least {least}"
        raise DescribeError(
            op,
            f"cannot take {label} with {rank} {'axis' if rank == 1 else 'axes'}",
            at=repr(value),
            because=f"{label} has {expected} axes",
        )
    if shape is not None:
        check_shape(op, label, value, shape)
    if dtypes is not None:
        check_dtype(op, label, value, dtypes)
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


SAME_SIZE = "one size for both: a size is known by its name and facts"


def unequal_error(
    op: str,
    refused: str,
    *extents: tuple[Any, Any],
    at: str,
    because: str,
    help: tuple[str, ...] = (),
) -> DescribeError:
    """Return the error for extents, in pairs, that an operator needs to be equal: it names those that differ."""
    error = DescribeError(op, refused, at=at, because=because, help=help)
    error.equal = tuple(pair for pair in extents if not same_extent(*pair))
    return error


def pair_error(
    op: str, a: Tensor, b: Tensor, because: str, *help: str, equal: Iterable[tuple[Any, Any]] = ()
) -> DescribeError:
    """Return the error for two tensors that do not fit each other.

    equal  extents of theirs that must be equal, in pairs
    """
    refused, at = f"cannot pair {a.name} with {b.name}", f"{a!r} and {b!r}"
    return unequal_error(op, refused, *equal, at=at, because=because, help=help)


def check_extent(op: str, one: tuple[Tensor, int], other: tuple[Tensor, int]) -> None:
    """Raises DescribeError where two axes, each (tensor, position), differ in extent."""
    (a, i), (b, j) = one, other
    if not same_extent(a.shape[i], b.shape[j]):
        because = f"axis {i} of {a.name} is {a.shape[i]}, axis {j} of {b.name} is {b.shape[j]}"
        raise pair_error(op, a, b, because, SAME_SIZE, equal=[(a.shape[i], b.shape[j])])


def check_shape(op: str, label: str, tensor: Tensor, shape: Sequence[Any]) -> None:
    """Raises DescribeError where `tensor` is not of `shape`."""
    actual = tensor.shape
    pairs = list(zip(actual, shape, strict=True)) if len(actual) == len(shape) else []
    if len(actual) != len(shape) or not all(same_extent(*pair) for pair in pairs):
        raise unequal_error(
            op,
            f"cannot take {label} of shape {_shape_text(actual)}",
            *pairs,
            at=repr(tensor),
            because=f"{label} has the shape {_shape_text(shape)}",
        )


def _shape_text(shape: Sequence[Any]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def axis_number(op: str, tensor: Tensor, axis: Any, text: str | None = None) -> int:
    """`axis` counted from the front, -1 being the last.

    text  how the argument was written, where it is more than ``axis=…``

    Raises DescribeError where `tensor` has no such axis.
    """
    rank, number = len(tensor.shape), whole(axis)
    if number is None or not -rank <= number < rank:
        raise DescribeError(
            op,
            f"cannot take {text or f'axis={axis!r}'}",
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
    axes_or_none = several(axes)
    each = (axes,) if axes_or_none is None else axes_or_none
    numbers = sorted(axis_number(op, tensor, axis, f"axis={axes!r}") for axis in each)
    if len(set(numbers)) != len(numbers):
        raise DescribeError(
            op,
            f"cannot take axis={axes!r}",
            at=repr(tensor),
            because="an axis is named twice",
        )
    return tuple(numbers)


def number(value: Any) -> float | None:
    """`value` as a finite float where it is a real number of Python's or numpy's; None for all else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    return as_float if math.isfinite(as_float) else None


def several(value: Any) -> tuple[Any, ...] | None:
    """The elements of a sequence, or of an array along its first axis; None for all else."""
    if isinstance(value, np.ndarray):
        return tuple(value) if value.ndim else None
    text = isinstance(value, str | bytes)
    return tuple(value) if isinstance(value, Sequence) and not text else None


def flag(op: str, label: str, value: Any) -> bool:
    """`value`, True or False of Python's or numpy's; raises DescribeError for anything else."""
    if not isinstance(value, bool | np.bool_):
        raise DescribeError(
            op, f"cannot take {label}={value!r}", because=f"{label} is True or False"
        )
    return bool(value)


def is_one_of(value: Any, words: Sequence[str]) -> bool:
    """Whether `value` is one of `words`."""
    return isinstance(value, str) and value in words


def integer(op: str, label: str, value: Any, least: int, most: int | None = None) -> int:
    """Return `value` as an int; raises DescribeError for anything but an int of at least `least`, and of at most `most` if that is given."""
    as_int = whole(value)
    if as_int is None or as_int < least or (most is not None and as_int > most):
        ends = f"of at least {least}" if most is None else f"in {least}…{most}"
        because = f"{label} is an int {ends}"
        raise DescribeError(op, f"cannot take {label}={value!r}", because=because)
    return as_int


def integers(op: str, label: str, value: Any, axes: int, least: int) -> tuple[int, ...]:
    """Return `value`, one int for all of so many axes or one for each, as a tuple.

    Raises DescribeError for anything else, or if one is below `least`.
    """
    each = several(value)
    candidates = [whole(n) for n in ((value,) * axes if each is None else each)]
    numbers = tuple(n for n in candidates if n is not None and n >= least)
    if not len(numbers) == len(candidates) == axes:
        because = f"{label} is an int of at least {least}"
        because += f", or one for each of the {axes} axes" if axes > 1 else ""
        raise DescribeError(op, f"cannot take {label}={value!r}", because=because)
    return numbers


def finite(op: str, label: str, value: Any, *help: str) -> float:
    """Return `value` as a float; raises DescribeError for anything but a finite number."""
    as_float = number(value)
    if as_float is None:
        because = f"{label} is a finite number"
        raise DescribeError(op, f"cannot take {label}={value!r}", because=because, help=help)
    return as_float


def choice(op: str, label: str, value: Any, words: Sequence[str], more: str = "") -> str:
    """Return `value`; raises DescribeError for anything but one of `words`, behind whose list the text says `more`."""
    if not is_one_of(value, words):
        because = f"{label}s are {', '.join(words)}{more}"
        raise DescribeError(op, f"cannot take {label}={value!r}", because=because)
    return str(value)


def check_float_result(op: str, dtype: Any) -> None:
    """Raises DescribeError where `dtype` is no type of floats."""
    if not is_one_of(dtype, FLOATS):
        raise DescribeError(op, f"cannot give {dtype!r}", because="it gives floats")


INT32 = np.iinfo("int32")
FLOAT32 = np.finfo("float32")


def scale_of(
    op: str, label: str, value: Any, channels: Any | None, *, positive: bool = False
) -> float | Tensor:
    """`value` as a finite float, or a tensor of float32 of shape () or (channels,).

    channels   an extent; None: shape () alone
    positive   whether a number must be above 0, also once it is rounded to float32

    Raises DescribeError for anything else.
    """
    if isinstance(value, Tensor):
        return _tensor(op, label, value, "float32", channels)
    as_float = number(value)
    least = float(FLOAT32.smallest_subnormal) if positive else -float(FLOAT32.max)
    if as_float is None or not least <= as_float <= float(FLOAT32.max):
        raise DescribeError(
            op,
            f"cannot take {label}={value!r}",
            because=f"{label} is a finite {'number above 0' if positive else 'number'}"
            " or a tensor of float32",
        )
    return as_float


def zero_of(op: str, label: str, value: Any, channels: Any | None) -> int | Tensor:
    """`value` as an int, or a tensor of int32 of shape () or (channels,).

    Raises DescribeError for anything else, and for an int that int32 does not hold.
    """
    if isinstance(value, Tensor):
        return _tensor(op, label, value, "int32", channels)
    as_int = whole(value)
    if as_int is None or not INT32.min <= as_int <= INT32.max:
        raise DescribeError(
            op,
            f"cannot take {label}={value!r}",
            because=f"{label} is an int that int32 holds or a tensor of int32",
        )
    return as_int


def parameter(value: float | Tensor, dtype: str, channel: tuple[Value, ...]) -> Value:
    """A scale or a zero point as `dtype`; `channel` is the index of those that have an axis."""
    if not isinstance(value, Tensor):
        return cast(value, dtype)
    return value[channel if value.shape else ()]


def _tensor(op: str, label: str, value: Tensor, dtype: str, channels: Any | None) -> Tensor:
    check_dtype(op, label, value, (dtype,))
    check_tensor(op, label, value, *((0,) if channels is None else (0, 1)))
    if value.shape:
        check_shape(op, label, value, (channels,))
    return value


LONGEST = 48  # characters of a name that an operator makes

Option: TypeAlias = tuple[str, Any, Any]
"""An argument that was checked: its label in names, "" where the value says enough; value; default."""


def result_name(op: str, name: str | None, operands: Sequence[Tensor], *options: Option) -> str:
    """`name`, else one made of the operator, its operands, and every option not at its default.

    Two calls that differ in an operand or an option get two names, unless names of operands with
    underscores in them read alike once joined; tensors inside an operator are called ``{name}_…``,
    and none of these is the name of a tensor that the operands read.
    """
    if name is not None:
        return name
    words = [op, *(operand.name for operand in operands), *map(_option, options)]
    wish = "_".join(word for word in words if word)
    if len(wish) > LONGEST:
        wish = f"{wish[: LONGEST - 9]}_{blake2s(wish.encode(), digest_size=4).hexdigest()}"
    read = [*operands, *(value for _, value, _ in options if isinstance(value, Tensor))]
    used_names = [tensor.name for tensor in tensors_of(read)]
    candidate, count = wish, 0
    while any(other == candidate or other.startswith(f"{candidate}_") for other in used_names):
        count += 1
        candidate = f"{wish}_{count}"
    return candidate


def _option(option: Option) -> str:
    label, value_, default = option
    value = _shortest(value_)
    if value is default or (type(value) is type(default) and value == default):
        return ""
    if isinstance(value, bool):
        return label
    return "_".join(filter(None, (label, _word(value))))


def _shortest(value: Any) -> Any:
    """One int for a sequence of equal ones, as ``stride=(2, 2)`` is ``stride=2``."""
    parts = several(value)
    if parts is None:
        integer = None if isinstance(value, bool) else whole(value)
        return value if integer is None else integer
    inner = tuple(map(_shortest, parts))
    same = bool(inner) and isinstance(inner[0], int) and len(set(inner)) == 1
    return inner[0] if same else inner


def _word(value: Any) -> str:
    """`value` in letters, digits and underscores: 1e-05 is 1em05, 2*n + 1 is 2n1, ((0, 1), (2, 2)) is 0_1x2."""
    if isinstance(value, tuple):
        return "x".join(
            "_".join(map(_word, part)) if isinstance(part, tuple) else _word(part) for part in value
        )
    text = value.name if isinstance(value, Tensor) else str(value)
    return re.sub(r"\W", "", text.replace("-", "m").replace(".", "_"))
