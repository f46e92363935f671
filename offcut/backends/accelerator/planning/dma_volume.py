"""What a copy of a tile moves, or a store of results: words, by the axes of its window.

Words follow one another along the axes that tiles cut, then along those that they have all of, in both memories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.planning.elementary import Operations, lanes
from offcut.backends.accelerator.planning.staging import Staged
from offcut.backends.accelerator.planning.typical_sizes import TYPICAL, typical_extents
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Compare, Const, Expr, Var, substitute, variables
from offcut.core.memo import lazy_property
from offcut.costmodel.unit_program import End, Ends
from offcut.proof.normal_forms.condition_hoisting import bound

Tile = tuple[int, int]
"""First iteration, and how many."""


@dataclass(frozen=True, slots=True)
class Part:
    """An axis of a window: the sum ``const + k * loop + …``.

    loops   (name, k)
    lane    elements of a word along it
    lo, hi  the elements that main memory has
    padded  whether there are others, which are filled
    whole   words of all that main memory has
    """

    loops: tuple[tuple[str, int], ...]
    const: int
    lane: int
    lo: int
    hi: int
    padded: bool
    whole: int

    @property
    def ends(self) -> Ends:
        """Return the ends of loops at which tiles are others: the last one is smaller, the first one lies over a border."""
        ends = (End.FIRST, End.LAST) if self.padded else (End.LAST,)
        return frozenset((loop, end) for loop, _ in self.loops for end in ends)

    def counts(self, tiles: Mapping[str, Tile]) -> tuple[int, int]:
        """Words of a tile, and how many of them are moved."""
        first, reach = self.const, 1
        for loop, k in self.loops:
            start, count = tiles[loop]
            first += k * start if k > 0 else k * (start + count - 1)
            reach += abs(k) * (count - 1)
        there = max(min(first + reach, self.hi) - max(first, self.lo), 0) if self.padded else reach
        return -(-reach // self.lane), -(-there // self.lane)


@dataclass(frozen=True)
class Transfer:
    """A copy, or what is stored, at the extents of the axes of its nest.

    place  of its words
    parts  by axis
    fill   the value of words that main memory has not
    """

    name: str
    place: MemorySpace
    parts: tuple[Part, ...]
    spec: AcceleratorSpec
    fill: int = 0

    @lazy_property
    def loops(self) -> frozenset[str]:
        """Those that move it."""
        return frozenset(loop for part in self.parts for loop, _ in part.loops)

    @lazy_property
    def ends(self) -> Ends:
        """Return the ends of loops at which tiles are others."""
        return frozenset().union(*(part.ends for part in self.parts))

    @property
    def unit(self) -> Unit:
        """Which moves it."""
        return Unit.STORE if self.place is MemorySpace.OUTPUTS else self.spec.loads[self.place]


def load_volume(
    copy: Staged,
    operations: Operations,
    spec: AcceleratorSpec,
    sizes: Mapping[str, int],
    shapes: Mapping[str, Sequence[Expr]],
) -> Transfer:
    """A copy with its numbers, at these sizes.

    shapes  of arrays in main memory
    """
    lane_counts, reached = lanes(operations, spec), typical_extents(sizes, copy.axes)
    loops = {axis.name for axis in (*operations.axes, *operations.terms)}
    known: dict[str, Expr] = {name: ix.const(size) for name, size in sizes.items()}
    parts = []
    for axis, part in zip(copy.axes, copy.index, strict=True):
        lo, hi = 0, reached[axis.name]
        for condition in copy.element.conditions if not copy.by_host else ():
            match bound(substitute(condition, known), axis.name):
                case Compare(">=", _, Const(end)):
                    lo = max(lo, int(end))
                case Compare("<", _, Const(end)):
                    hi = min(hi, int(end))
        form = ix.to_linear(part)
        terms = tuple((a.name, k) for a, k in form.terms if isinstance(a, Var) and a.name in loops)
        lane = lane_counts.get(part.name, 1) if isinstance(part, Var) else 1
        padded = (lo, hi) != (0, reached[axis.name])
        length = reached[axis.name] if copy.by_host else _length(copy, axis.name, shapes, known)
        parts.append(Part(terms, form.const, lane, lo, hi, padded, -(-length // lane)))
    fill = 0 if copy.by_host else copy.element.fill
    return Transfer(copy.name, copy.place, tuple(parts), spec, fill)


def _length(
    copy: Staged, axis: str, shapes: Mapping[str, Sequence[Expr]], sizes: Mapping[str, Expr]
) -> int:
    """Elements of the array along an axis of its copy."""
    load = copy.element.load
    along = zip(load.index, shapes[load.buffer], strict=True)
    extent = next((extent for part, extent in along if axis in variables(part)), ix.const(1))
    known = ix.literal_value(ix.simplify(substitute(extent, sizes)))
    return TYPICAL if known is None else known


def store_volume(
    operations: Operations, spec: AcceleratorSpec, extents: Mapping[str, int]
) -> Transfer:
    """Results, at these extents of the axes."""
    lane_counts = lanes(operations, spec)
    parts = (
        Part(((axis.name, 1),), 0, lane, 0, extent, padded=False, whole=-(-extent // lane))
        for axis in operations.axes
        for lane, extent in [(lane_counts.get(axis.name, 1), extents[axis.name])]
    )
    return Transfer(operations.label, MemorySpace.OUTPUTS, tuple(parts), spec)
