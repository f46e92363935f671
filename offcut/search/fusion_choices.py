"""Which loops nests share: the tree of nests of a schedule, each of its shared loops kept or taken apart.

    together b h          taken apart      nest scores      way …  loops b h
      nest scores                          nest result      way …  loops b h
      nest result

Loops that are taken apart become plain loops of each nest that was in them, by the names that its own axes have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core.memo import lazy_property, memoize_method
from offcut.schedule import Nest, Together, Way, in_loops, nests_in, nests_with_axes

Leaves = tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """The nests of a schedule, as shared as they may be.

    parts  with all loops shared
    axes   of each stage, the names of its own axes, outermost first
    """

    parts: tuple[Nest | Together, ...]
    axes: Mapping[str, tuple[str, ...]]

    @property
    def loops(self) -> tuple[Leaves, ...]:
        """The shared loops, outermost first, each by the stages in it."""
        return tuple(leaves(part) for part in _togethers(self.parts))

    @property
    def nests(self) -> tuple[Nest, ...]:
        """The nests, in order."""
        return tuple(nests_in(self.parts))

    def around(self, stage: str) -> tuple[str, ...]:
        """The axes of all loops that may be shared around a nest."""
        return next(axes for nest, axes in nests_with_axes(self.parts) if nest.stage == stage)

    def written(
        self, kept: frozenset[Leaves], ways: Mapping[str, tuple[Way, ...]]
    ) -> tuple[Nest | Together, ...]:
        """The nests in these ways; of the shared loops, those in `kept` stay."""

        def parts(
            given: Sequence[Nest | Together], outer: tuple[str, ...], shared: int
        ) -> Iterator[Nest | Together]:
            for part in given:
                if isinstance(part, Nest):
                    loops = self.axes[part.stage][shared : len(outer)]
                    yield self._nest(part, loops, ways[part.stage])
                    continue
                axes = (*outer, *part.axes)
                if self._leaves[id(part)] in kept:
                    inside = tuple(parts(part.parts, axes, len(axes)))
                    yield replace(part, axes=axes[shared:], parts=inside)
                else:
                    yield from parts(part.parts, axes, shared)

        return tuple(parts(self.parts, (), 0))

    @memoize_method
    def _nest(self, nest: Nest, loops: tuple[str, ...], ways: tuple[Way, ...]) -> Nest:
        """The nest in these ways, which run in further plain loops."""
        return replace(nest, ways=tuple(in_loops(way, loops) for way in ways))

    @lazy_property
    def _leaves(self) -> dict[int, Leaves]:
        return {id(part): leaves(part) for part in _togethers(self.parts)}

    def read(
        self, parts: Sequence[Nest | Together]
    ) -> tuple[frozenset[Leaves], dict[str, tuple[Way, ...]]]:
        """What `written` has made `parts` of."""
        kept = frozenset(leaves(part) for part in _togethers(parts)) & frozenset(self.loops)
        ways = {}
        for nest, axes in nests_with_axes(parts):
            apart = len(self.around(nest.stage)) - len(axes)
            ways[nest.stage] = tuple(_without(way, apart) for way in nest.ways)
        return kept, ways

    def only(self, stages: frozenset[str]) -> Tree:
        """The same, of these stages alone."""
        return replace(self, parts=tuple(_only(self.parts, stages)))


def leaves(part: Nest | Together) -> Leaves:
    """The stages of the nests in it, in order."""
    return tuple(nest.stage for nest in nests_in((part,)))


def _togethers(parts: Sequence[Nest | Together]) -> Iterator[Together]:
    for part in parts:
        if isinstance(part, Together):
            yield part
            yield from _togethers(part.parts)


def _only(parts: Sequence[Nest | Together], stages: frozenset[str]) -> Iterator[Nest | Together]:
    for part in parts:
        if isinstance(part, Nest):
            if part.stage in stages:
                yield part
        else:
            inside = tuple(_only(part.parts, stages))
            if inside:
                yield replace(part, parts=inside)


def _without(way: Way, loops: int) -> Way:
    if not loops:
        return way
    pack = way.pack and replace(way.pack, loops=way.pack.loops[loops:])
    return replace(way, loops=way.loops[loops:], pack=pack)
