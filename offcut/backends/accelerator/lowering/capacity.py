"""Allocates regions on the chip for windows, one behind the other, and checks that they fit the memories at every size.

isl finds them, over the loops and conditions around. Extents with products of sizes and iterators are no sets: of ``min(q, n - q*i)``
the bound is the least one of its parts, each by the ranges of its names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.lowering.issue_tree import (
    Guard,
    Node,
    leaves_and_ancestors,
    ranges_of,
)
from offcut.backends.accelerator.lowering.word_layout import OperandAddress
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.expr import Expr
from offcut.core.program import Alloc, Program
from offcut.core.text.printer import format_head
from offcut.errors import TargetError
from offcut.polyhedral import interval_maximum, maximum, try_isl

_UNBOUNDED = 2**40
"""Elements of a window that nothing bounds: more than any memory has."""

Loops = tuple[tuple[str, Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """The place of a window on the chip.

    slots  the number of windows that iterations take in turn
    slot   the one that an iteration takes, over the loops around
    alloc  the statement that says so; None: it is a whole array
    """

    region: str
    slots: int
    slot: Expr
    alloc: Alloc | None


def slots_of(leaves: Iterable[Iterable[tuple[OperandAddress, WindowPlace]]]) -> dict[str, int]:
    """Return the number of windows in each region, from the operands of all leaves."""
    most: dict[str, int] = {}
    for place in (place for operands in leaves for _, place in operands):
        most[place.region] = max(most.get(place.region, 1), place.slots)
    return most


def allocate_regions(
    room: Mapping[str, int],
    place_of: Mapping[str, MemorySpace],
    stored: frozenset[str],
    spec: AcceleratorSpec,
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the first word of each region, and the bytes that are taken by memory.

    room    words of each region
    stored  the regions that stores read

    Regions of fewer words begin no later: what fits at its greatest extents fits at all.
    """

    def order(region: str) -> tuple[bool, str, str]:
        return region not in stored, place_of[region].value, region

    first: dict[str, int] = {}
    ends: dict[str, int] = {}
    for region in sorted(room, key=order):
        of = spec.words[place_of[region]]
        first[region] = -(-ends.get(of.memory, 0) // of.bytes)
        ends[of.memory] = (first[region] + room[region]) * of.bytes
    return first, ends


def first_free_word(ends: Mapping[str, int], spec: AcceleratorSpec) -> int:
    """Return the first word of accumulators behind all regions."""
    of = spec.words[MemorySpace.ACCUMULATORS]
    return -(-ends.get(of.memory, 0) // of.bytes)


def check_fits(
    program: Program,
    spec: AcceleratorSpec,
    nodes: Sequence[Node],
    chip: Sequence[Sequence[tuple[OperandAddress, WindowPlace]]],
    place_of: Mapping[str, MemorySpace],
    stored: frozenset[str],
    constant: int | None,
) -> None:
    """Refuse windows that take more bytes than their memory has, at some size.

    chip      by leaf, its operands on the chip
    stored    the regions that stores read
    constant  one that a word of accumulators holds, behind all windows; None: there is none

    Raises TargetError, with the bytes of each window.
    """
    words = _Windows(program)
    for leaf, ancestors in leaves_and_ancestors(nodes):
        conditions = tuple(node.condition for node in ancestors if isinstance(node, Guard))
        for side, place in chip[leaf.number]:
            words.add(side, place, _Around(ranges_of(ancestors), conditions))
    slots = slots_of(chip)
    room = {region: most * slots[region] for region, (most, _) in words.most.items()}

    def too_many(what: str, memory: str, because: str, regions: Sequence[str]) -> TargetError:
        _, alloc = words.most[max(regions, key=lambda region: room[region])]
        several = any(slots[region] > 1 for region in regions)
        help = ("smaller tiles", *(("windows of less depth",) if several else ()))
        at = "" if alloc is None else format_head(alloc)
        return TargetError(
            "compile",
            f"cannot keep the {what} of {program.name} in {memory}",
            at=at,
            because=because,
            help=help,
        )

    results = [region for region in room if region in stored]
    if (total := sum(room[region] for region in results)) > (
        depth := spec.words[MemorySpace.OUTPUTS].depth
    ):
        because = f"they take up to {total:,} words, and stores read {depth:,}"
        raise too_many("results", spec.words[MemorySpace.OUTPUTS].memory, because, results)
    _, ends = allocate_regions(room, place_of, stored, spec)
    accumulators = spec.words[MemorySpace.ACCUMULATORS]
    if constant is not None:
        ends[accumulators.memory] = (first_free_word(ends, spec) + 1) * accumulators.bytes
    for memory, total in ends.items():
        if total <= spec.memories[memory]:
            continue
        regions = [name for name in room if spec.words[place_of[name]].memory == memory]
        shown = [
            f"{name} {turns}{words.most[name][0] * spec.words[place_of[name]].bytes:,}"
            for name in regions
            for turns in [f"{slots[name]} x " if slots[name] > 1 else ""]
        ]
        if constant is not None and memory == accumulators.memory:
            shown.append(f"the constant {constant} {accumulators.bytes:,}")
        because = f"they take up to {total:,} bytes ({', '.join(shown)}), and there are {spec.memories[memory]:,}"
        raise too_many("windows", memory, because, regions)


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops and conditions around a leaf, outermost first."""

    loops: Loops
    conditions: tuple[Expr, ...]


@dataclass
class _Windows:
    """Words of the largest window in each region, and the statement that it is of."""

    program: Program
    most: dict[str, tuple[int, Alloc | None]] = field(default_factory=dict)
    known: dict[tuple[Expr, _Around], int] = field(default_factory=dict)

    def add(self, side: OperandAddress, place: WindowPlace, around: _Around) -> None:
        """Note what one operand takes."""
        words = 1
        for axis, extent in enumerate(side.extents):
            words *= -(-max(self.greatest(extent, around), 0) // side.lanes.lanes_of(axis))
        if words > self.most.get(place.region, (-1, None))[0]:
            self.most[place.region] = words, place.alloc

    def greatest(self, extent: Expr, around: _Around) -> int:
        """Return the greatest value of an extent, or a bound of it; at most more than any memory has."""
        key = extent, around
        if key not in self.known:
            sizes, facts = self.program.sizes, self.program.assumptions
            greatest = try_isl(
                lambda: maximum(extent, sizes, facts, around.loops, around.conditions), None
            )
            if greatest is None:
                greatest = interval_maximum(extent, self.program, around.loops)
            self.known[key] = _UNBOUNDED if greatest is None else greatest
        return self.known[key]
