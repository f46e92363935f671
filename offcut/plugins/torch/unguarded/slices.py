"""Where a part of an axis starts and ends, traced with a guard where torch would leave it open.

With sizes that start at 0, torch asks nothing of an index that is an int of the program's, such as a window's: it makes the part's
extent a number that only data tell, which no later operator takes. The sign of such an int is a guard instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_impls import _compute_slice_index


def slice_index(size: Any, index: Any) -> Any:
    """An index from 0 on and within the axis; None for one that only data tell."""
    found = _compute_slice_index(size, index)
    if found is not None or not _known(size) or not _known(index):
        return found
    if index >= 0:
        return index if index <= size else size
    return index + size if index >= -size else 0


def _known(value: Any) -> bool:
    return not isinstance(value, torch.SymInt) or value.node.has_hint()
