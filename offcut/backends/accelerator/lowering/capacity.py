"""Whether the windows of a nest fit the memories at every size: their greatest extents.

isl finds them, over the loops and conditions around. Extents with products of sizes and iterators are no sets: of ``min(q, n - q*i)``
the bound is the least one of its parts, each by the ranges of its names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from offcut.backends.accelerator.isa import Place
from offcut.backends.accelerator.lowering.places import Side
from offcut.backends.accelerator.lowering.regions import Region, laid, spare
from offcut.backends.accelerator.lowering.tree import Guard, Leaf, Node, Repeat
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.core.intervals import Interval, interval
from offcut.core.program import Program
from offcut.errors import TargetError
from offcut.polyhedral import maximum, try_isl

_ANY = -(2**40), 2**40
"""The range of what nothing is known of: more than any memory has."""

Loops = tuple[tuple[str, Expr, Expr], ...]
Operand = tuple[Side, str, str | None]
"""An operand on the chip, its region, and the loop whose virtual threads have one each; None: there is one."""


def check_fits(
    program: Program,
    spec: Spec,
    nodes: Sequence[Node],
    chip: Sequence[Sequence[Operand]],
    place_of: Mapping[str, Place],
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
    room: dict[Region, int] = {}
    for region, (most, threads) in words.most.items():
        room |= {(region, thread): most for thread in range(threads)}
    if (total := sum(n for (name, _), n in room.items() if name in stored)) > (
        depth := spec.words[Place.OUTPUTS].depth
    ):
        raise TargetError(
            "compile",
            f"cannot keep the results of {program.name} in {spec.words[Place.OUTPUTS].memory}",
            because=f"they take up to {total:,} words, and stores read {depth:,}",
            help=("smaller tiles",),
        )
    _, ends = laid(room, place_of, stored, spec)
    held = spec.words[Place.ACCUMULATORS]
    if constant is not None:
        ends[held.memory] = (spare(ends, spec) + 1) * held.bytes
    for memory, total in ends.items():
        if total <= spec.memories[memory]:
            continue
        shown = [
            f"{name} {words.most[name][0] * words.most[name][1] * of.bytes:,}"
            for name in words.most
            if (of := spec.words[place_of[name]]).memory == memory
        ]
        if constant is not None and memory == held.memory:
            shown.append(f"the constant {constant} {held.bytes:,}")
        raise TargetError(
            "compile",
            f"cannot keep the windows of {program.name} in {memory}",
            because=f"they take up to {total:,} bytes ({', '.join(shown)}), and there are "
            f"{spec.memories[memory]:,}",
            help=("smaller tiles",),
        )


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops and conditions around a leaf, outermost first."""

    loops: Loops = ()
    conditions: tuple[Expr, ...] = ()


@dataclass
class _Windows:
    """Words of each region: of the largest window in it, and how many virtual threads have one."""

    program: Program
    chip: Sequence[Sequence[Operand]]
    most: dict[str, tuple[int, int]] = field(default_factory=dict)
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
                    for side, region, thread in self.chip[node.number]:
                        self.note(side, region, thread, around)

    def note(self, side: Side, region: str, thread: str | None, around: _Around) -> None:
        """Note what one operand takes."""
        threads = 1 if thread is None else self.greatest(ix.add(Var(thread), 1), around)
        words = 1
        for axis, extent in enumerate(side.extents):
            words *= -(-max(self.greatest(extent, around), 0) // side.lanes.lanes_of(axis))
        known = self.most.get(region, (0, 0))
        self.most[region] = max(known[0], words), max(known[1], threads)

    def greatest(self, extent: Expr, around: _Around) -> int:
        """The greatest value of an extent, or a bound of it; at most more than any memory has."""
        key = extent, around
        if key not in self.known:
            sizes, facts = self.program.sizes, self.program.assumptions
            greatest = try_isl(
                lambda: maximum(extent, sizes, facts, around.loops, around.conditions), None
            )
            self.known[key] = self.bound(extent, around.loops) if greatest is None else greatest
        return self.known[key]

    def bound(self, extent: Expr, loops: Loops) -> int:
        """A bound of an extent, by the ranges of its names."""
        ranges = {size.name: (size.min, size.last) for size in self.program.sizes}

        def known(part: Expr) -> Interval:
            return ranges.get(part.name, _ANY) if isinstance(part, Var) else _ANY

        for name, lo, hi in loops:
            ranges[name] = interval(lo, known)[0], interval(hi, known)[1] - 1
        return min(interval(extent, known)[1], _ANY[1])
