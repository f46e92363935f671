"""Which of two elements comes first, as 1 or 0: sums and products of these read both, where behind ``and`` and ``or`` elements are read one by one."""

from __future__ import annotations

from offcut.describe.functions import where
from offcut.describe.value import Value, cast


def one(condition: Value) -> Value:
    """1 where it holds, else 0."""
    return where(condition, cast(1, "int32"), 0)


def alike(a: Value, b: Value, nan: bool) -> Value:
    """1 where two elements are equal, or, with `nan`, both NaN; else 0."""
    found = one(a == b)
    return found + one(a != a) * one(b != b) if nan else found


def ahead(a: Value, b: Value, earlier: Value, nan: bool) -> Value:
    """1 where `a` is less than `b`, or alike and `earlier`; else 0. With `nan`, a NaN is greater than all else; without, there is none."""
    less = one(a < b)
    if nan:
        less = less + one(a == a) * one(b != b)
    return less + alike(a, b, nan) * one(earlier)
