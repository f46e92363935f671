"""Which values the elements on the chip have, at most: intervals, from what is stored in each buffer.

::

    S[i] = 0;  9 times S[i] += int32(a[i, r])   ->   S  from -1152 to 1143

What may leave its element type wraps, so that nothing is known of it then. So it is of a buffer that is
computed from itself, other than by a sum, a minimum or a maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from offcut.backends.accelerator.lowering.capacity import Loops
from offcut.backends.accelerator.lowering.issue_tree import (
    Leaf,
    Node,
    leaves_and_ancestors,
    ranges_of,
)
from offcut.core import index as ix
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Cast, Expr, Load, dtype_of, variables
from offcut.core.intervals import Interval, interval
from offcut.core.program import Program, Store
from offcut.polyhedral import maximum


@dataclass
class ValueRanges:
    """The values of the buffers that the leaves of a nest store in."""

    program: Program
    nodes: Sequence[Node]
    known: dict[str, Interval] = field(default_factory=dict)
    stores: dict[str, list[tuple[Leaf, Loops]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for leaf, ancestors in leaves_and_ancestors(self.nodes):
            self.stores.setdefault(leaf.store.buffer, []).append((leaf, ranges_of(ancestors)))

    def of(self, load: Load) -> Interval:
        """Return the values of an element."""
        if load.buffer not in self.known:
            self.known[load.buffer] = _whole(load.dtype)  # of what is computed from itself
            self.known[load.buffer] = self.stored(load)
        return self.known[load.buffer]

    def stored(self, load: Load) -> Interval:
        """What all stores in a buffer make of its elements."""
        stores = self.stores.get(load.buffer, [])
        starts = [self.value(leaf.store.value) for leaf, _ in stores if leaf.store.reduce is None]
        if not starts:
            return _whole(load.dtype)
        low, high = min(low for low, _ in starts), max(high for _, high in starts)
        for leaf, loops in stores:
            match leaf.store:
                case Store(value=value, reduce="sum"):
                    least, most = self.value(value)
                    count = self.times(leaf, loops)
                    low, high = low + count * min(least, 0), high + count * max(most, 0)
                case Store(value=value, reduce="min" | "max"):
                    least, most = self.value(value)
                    low, high = min(low, least), max(high, most)
        return _within((low, high), load.dtype)

    def times(self, leaf: Leaf, loops: Loops) -> int:
        """Return how often, at most, a leaf adds to an element while its window lasts."""
        moved = frozenset().union(*map(variables, leaf.store.index))
        window = leaf.windows.get(leaf.store.buffer)
        own = loops if window is None else loops[window.level :]
        extents = [(name, ix.sub(hi, lo)) for name, lo, hi in own]
        extents += [(name, count) for name, _, count in leaf.axes]
        count = 1
        for name, extent in extents:
            if name not in moved:
                greatest = maximum(extent, self.program.sizes, self.program.assumptions, loops)
                count *= 2**32 if greatest is None else max(greatest, 0)
        return count

    def value(self, expr: Expr) -> Interval:
        """Return the values of an expression."""
        return interval(expr, self._known, lambda node, bounds: _within(bounds, dtype_of(node)))

    def _known(self, expr: Expr) -> Interval | None:
        match expr:
            case Load():
                return self.of(expr)
            case Cast():
                return None
            case _:
                return _whole(dtype_of(expr))


def _whole(dtype: str) -> Interval:
    of = np.iinfo(numpy_dtype(dtype))
    return int(of.min), int(of.max)


def _within(bounds: Interval, dtype: str) -> Interval:
    """Return a range of an element type; all of it where it may be left."""
    low, high = _whole(dtype)
    return bounds if low <= bounds[0] and bounds[1] <= high else (low, high)
