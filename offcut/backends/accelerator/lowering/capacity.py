"""Whether the windows of a nest fit the memories at every size: their greatest extents.

isl finds them, over the loops and conditions around. Extents with products of sizes and iterators are no sets: of ``min(q, n - q*i)``
the bound is the least one of its parts, each by the ranges of its names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.lowering.issue_tree import Guard, Leaf, Node, Repeat
from offcut.backends.accelerator.lowering.memory_allocation import allocate_regions, first_free_word
from offcut.backends.accelerator.lowering.operand_addresses import OperandAddress
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.expr import Expr, Var
from offcut.core.intervals import Interval, interval
from offcut.core.program import Alloc, Program
from offcut.core.text.printer import format_head
from offcut.errors import TargetError
from offcut.polyhedral import maximum, try_isl

_ANY = -(2**40), 2**40
"""The range of what nothing is known of: more than any memory has."""

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
    words = _Windows(program, chip)
    words.visit(nodes, _Around())
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
    held = spec.words[MemorySpace.ACCUMULATORS]
    if constant is not None:
        ends[held.memory] = (first_free_word(ends, spec) + 1) * held.bytes
    for memory, total in ends.items():
        if total <= spec.memories[memory]:
            continue
        regions = [name for name in room if spec.words[place_of[name]].memory == memory]
        shown = [
            f"{name} {turns}{words.most[name][0] * spec.words[place_of[name]].bytes:,}"
            for name in regions
            for turns in [f"{slots[name]} x " if slots[name] > 1 else ""]
        ]
        if constant is not None and memory == held.memory:
            shown.append(f"the constant {constant} {held.bytes:,}")
        because = f"they take up to {total:,} bytes ({', '.join(shown)}), and there are {spec.memories[memory]:,}"
        raise too_many("windows", memory, because, regions)


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops and conditions around a leaf, outermost first."""

    loops: Loops = ()
    conditions: tuple[Expr, ...] = ()


@dataclass
class _Windows:
    """Words of the largest window in each region, and the statement that it is of."""

    program: Program
    chip: Sequence[Sequence[tuple[OperandAddress, WindowPlace]]]
    most: dict[str, tuple[int, Alloc | None]] = field(default_factory=dict)
    known: dict[tuple[Expr, _Around], int] = field(default_factory=dict)

    def visit(self, nodes: Sequence[Node], around: _Around) -> None:
        """Note what the leaves of these nodes take."""
        for node in nodes:
            match node:
                case Repeat(body=body):
                    self.visit(body, replace(around, loops=(*around.loops, node.range)))
                case Guard(condition, body):
                    conditions = (*around.conditions, condition)
                    self.visit(body, replace(around, conditions=conditions))
                case Leaf():
                    for side, place in self.chip[node.number]:
                        self.note(side, place, around)

    def note(self, side: OperandAddress, place: WindowPlace, around: _Around) -> None:
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
            self.known[key] = self.bound(extent, around.loops) if greatest is None else greatest
        return self.known[key]

    def bound(self, extent: Expr, loops: Loops) -> int:
        """Return a bound of an extent, by the ranges of its names."""
        ranges = {size.name: (size.min, size.last) for size in self.program.sizes}

        def known(part: Expr) -> Interval:
            return ranges.get(part.name, _ANY) if isinstance(part, Var) else _ANY

        for name, lo, hi in loops:
            ranges[name] = interval(lo, known)[0], interval(hi, known)[1] - 1
        return min(interval(extent, known)[1], _ANY[1])
