"""What operators ask of arguments that are no tensors: whole numbers, numbers, words, and yes or no."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from offcut.core.dtypes import FLOATS
from offcut.core.integers import whole
from offcut.errors import DescribeError


def number(value: Any) -> float | None:
    """`value` as a finite float where it is a real number of Python's or numpy's; None for all else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


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


def integer(op: str, label: str, value: Any, least: int) -> int:
    """Return `value` as an int; raises DescribeError for anything but an int of at least `least`."""
    found = whole(value)
    if found is None or found < least:
        because = f"{label} is an int of at least {least}"
        raise DescribeError(op, f"cannot take {label}={value!r}", because=because)
    return found


def integers(op: str, label: str, value: Any, axes: int, least: int) -> tuple[int, ...]:
    """Return `value`, one int for all of so many axes or one for each, as a tuple.

    Raises DescribeError for anything else, or if one is below `least`.
    """
    each = several(value)
    found = [whole(n) for n in ((value,) * axes if each is None else each)]
    numbers = tuple(n for n in found if n is not None and n >= least)
    if not len(numbers) == len(found) == axes:
        because = f"{label} is an int of at least {least}"
        because += f", or one for each of the {axes} axes" if axes > 1 else ""
        raise DescribeError(op, f"cannot take {label}={value!r}", because=because)
    return numbers


def finite(op: str, label: str, value: Any, *help: str) -> float:
    """Return `value` as a float; raises DescribeError for anything but a finite number."""
    found = number(value)
    if found is None:
        because = f"{label} is a finite number"
        raise DescribeError(op, f"cannot take {label}={value!r}", because=because, help=help)
    return found


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
