"""Slices that only a call knows to be within their axis, so that it asks before anything runs.

Kernels read a slice as a part of its root's memory: one that goes beyond its axis would read the next row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offcut.core.expr import Binary, Expr
from offcut.graph.graph import Graph
from offcut.graph.sizes import extents
from offcut.graph.views import VIEWS, is_within


@dataclass(frozen=True, slots=True)
class OpenSlice:
    """``start:stop`` of an axis, which has so many elements.

    name  of its result
    """

    name: str
    axis: int
    start: Expr
    stop: Expr
    extent: Expr

    def fault(self, number: Callable[[Expr], int]) -> str:
        """Why it cannot be taken where extents have these values; "" where it can."""
        start, stop, extent = number(self.start), number(self.stop), number(self.extent)
        if is_within(start, stop, extent):
            return ""
        return f"{start}:{stop} of axis {self.axis} is not within 0:{extent}"


def open_slices(graph: Graph) -> Iterator[OpenSlice]:
    """Those of a graph that are not seen to be within their axis at all of its sizes."""
    for node in graph.nodes:
        if node.op != "slice":
            continue
        value = graph.values[node.operands[0]]
        own = VIEWS["slice"].arguments(value, *node.arguments[1:], **dict(node.options))
        axis = own["axis"] % len(value.shape)
        start, stop = extents.normal(own["start"]), extents.normal(own["stop"])
        ends = start, Binary("-", stop, start), Binary("-", value.shape[axis], stop)
        if any(extents.span(extents.normal(end), graph.sizes)[0] < 0 for end in ends):
            yield OpenSlice(node.results[0].name, axis, start, stop, value.shape[axis])
