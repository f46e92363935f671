"""The element types, and numpy's name for each."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

HALVES = ("float16", "bfloat16")
FLOATS = ("float64", "float32", *HALVES)
SIGNED = ("int64", "int32", "int16", "int8")
UNSIGNED = ("uint64", "uint32", "uint16", "uint8")
INTEGERS = (*SIGNED, *UNSIGNED)
INDEX_DTYPES = tuple(one for one in INTEGERS if one != "uint64")
"""The integers that operators take as places along an axis: int64 holds them."""
NUMBERS = (*FLOATS, *INTEGERS)
DTYPES = (*NUMBERS, "bool")

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}


@cache
def index_dtype(dtype: str) -> str:
    """What places of an integer type are calculated in: int32 where it holds them all, else int64."""
    return "int64" if dtype in ("int64", "uint32") else "int32"


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype of that name; bfloat16 is ml_dtypes'."""
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def to_dtype(name: object) -> str | None:
    """Return the name of an element type that is given by its name, or as numpy's dtype or type; None for all else.

    >>> dtype_named(np.float32), dtype_named("f4")
    ('float32', None)
    """
    if isinstance(name, np.dtype | type):
        dtype = np.dtype(name)
        name = dtype.name if dtype.isnative else None
    return name if isinstance(name, str) and name in DTYPES else None


def is_identity(op: str, value: float, dtype: str) -> bool:
    """Return whether reducing by `op` with `value` changes nothing; for a float sum that is -0.0 alone."""
    if op == "sum" and dtype in FLOATS:
        return value == 0 and math.copysign(1.0, value) < 0
    return value == reduction_start(op, dtype)


def finite_range(dtype: str) -> tuple[int | float, int | float]:
    """Return the least and the greatest finite value of `dtype`."""
    if dtype in FLOATS:
        import ml_dtypes

        most = float(ml_dtypes.finfo(numpy_dtype(dtype)).max)
        return -most, most
    if dtype == "bool":
        return 0, 1
    info = np.iinfo("int64" if dtype == "index" else dtype)
    return int(info.min), int(info.max)


def describe_range(dtype: str) -> str:
    """Return the finite values of `dtype`, in words.

    >>> span("int8")
    'int8 holds -128…127'
    """
    least, most = finite_range(dtype)
    return f"{dtype} holds {least}…{most}"


def identity(op: str, dtype: str) -> int | float:
    """Return the value that changes nothing when `op` reduces with it."""
    return -0.0 if op == "sum" and dtype in FLOATS else reduction_start(op, dtype)


def in_range(value: float, dtype: str) -> bool:
    """Return whether a Python scalar is a value of `dtype`: a float rounds, but what is finite not to infinity."""
    if dtype in FLOATS:
        try:
            as_float = float(value)
        except OverflowError:
            return False
        with np.errstate(over="ignore"):
            return not math.isfinite(as_float) or bool(
                np.isfinite(numpy_dtype(dtype).type(as_float))
            )
    least, most = finite_range(dtype)
    return least <= value <= most


ANY_ORDER = ("max", "min")
"""Reducers whose result is the same in any order of the terms, and where terms are repeated, whatever their type."""


def reduction_start(op: str, dtype: str) -> int | float:
    """Return the value that a reduction by `op` starts from.

    For sum it is 0 (the true neutral element of float addition is -0.0, but an empty sum is 0);
    for max and min the least and the greatest value of the type.
    """
    if op == "sum":
        return 0.0 if dtype in FLOATS else 0
    if dtype in FLOATS:
        return float("-inf") if op == "max" else float("inf")
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min if op == "max" else info.max)
