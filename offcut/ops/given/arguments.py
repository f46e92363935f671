"""What operators ask of arguments that are no tensors: whole numbers, numbers, words, and yes or no."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from offcut.core.dtypes import FLOATS
from offcut.errors import DescribeError


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


def check_float_result(op: str, dtype: Any) -> None:
    """Raises DescribeError where `dtype` is no type of floats."""
    if not is_one_of(dtype, FLOATS):
        raise DescribeError(op, f"cannot give {dtype!r}", because="it gives floats")
