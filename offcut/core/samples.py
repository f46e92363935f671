"""Sample values of a size, at which a claim about all of its values is looked at."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from offcut.core.program import Size


def samples(size: Size, count: int, most: int = 2**31 - 1) -> npt.NDArray[np.int64]:
    """As many values of a size at most, ascending: the further apart the larger they are, none of them 0.

    most  the largest that is looked at, where the size has one below
    """
    step = size.multiple_of
    first = max(size.at_or_above(1), step)
    last = max(min(size.max, most) // step * step, first)
    values: npt.NDArray[np.int64] = np.geomspace(first, last, count).astype(np.int64)
    return np.unique(values // step * step)
