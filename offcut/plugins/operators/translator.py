"""The graph of ours that the operators of a host become, as compositions see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from offcut.graph.sizes.extent_values import Extent


class Translator(Protocol):
    """A graph in the making. Its values are what the host's translation makes of arrays: some may be known before any call."""

    def node(self, op: str, /, *arguments: Any, **options: Any) -> Any:
        """Return the result of an operator of ours, or a tuple of several."""

    def shape(self, x: Any, /) -> tuple[Extent, ...]:
        """Return the extents of a value."""

    def rank(self, x: Any, /) -> int:
        """Return how many axes a value has."""

    def dtype(self, x: Any, /) -> str:
        """Return the element type of a value."""

    def cast(self, x: Any, dtype: str, /) -> Any:
        """Return a value in another element type."""

    def reshape(self, x: Any, shape: Iterable[Any], /) -> Any:
        """Return the elements of a value in another shape."""

    def transpose(self, x: Any, axes: Sequence[int], /) -> Any:
        """Return a value with its axes in another order."""

    def slice(self, x: Any, axis: int, start: Any, stop: Any, /) -> Any:
        """Return ``start:stop`` of an axis."""

    def require_at_least(self, extent: Extent, least: int, /) -> None:
        """Take it that an extent is `least` or more, where that can be said of a size."""
