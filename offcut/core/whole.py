"""Integers as users give them: Python's, numpy's, and those of any other package."""

from __future__ import annotations

import operator

import numpy as np


def whole(value: object) -> int | None:
    """`value` as an int where it is an integer, of whatever package; None for a bool and for all else.

    >>> whole(np.int64(3)), whole(True), whole(3.0)
    (3, None, None)
    """
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
