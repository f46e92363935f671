"""Whether the windows of a nest fit the memories at every size: their greatest extents, as isl finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from offcut.backends.accelerator.isa import Place
from offcut.backends.accelerator.lowering.places import Side
from offcut.backends.accelerator.lowering.regions import Region, laid, spare
from offcut.backends.accelerator.lowering.tree import Guard, Leaf, Node, Repeat
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.core.program import Program
from offcut.errors import TargetError
from offcut.polyhedral import maximum

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
    words.visit(nodes, ())
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


@dataclass
class _Windows:
    """Words of each region: of the largest window in it, and how many virtual threads have one."""

    program: Program
    chip: Sequence[Sequence[Operand]]
    most: dict[str, tuple[int, int]] = field(default_factory=dict)
    known: dict[Expr, int] = field(default_factory=dict)

    def visit(self, nodes: Sequence[Node], loops: Loops) -> None:
        """Note what the leaves of these nodes take."""
        for node in nodes:
            match node:
                case Repeat(body=body):
                    self.visit(body, (*loops, node.range))
                case Guard(_, body):
                    self.visit(body, loops)
                case Leaf():
                    for side, region, thread in self.chip[node.number]:
                        self.note(side, region, thread, loops)

    def note(self, side: Side, region: str, thread: str | None, loops: Loops) -> None:
        """Note what one operand takes."""
        threads = 1 if thread is None else self.greatest(ix.add(Var(thread), 1), loops)
        words = 1
        for axis, extent in enumerate(side.extents):
            words *= -(-max(self.greatest(extent, loops), 0) // side.lanes.lanes_of(axis))
        known = self.most.get(region, (0, 0))
        self.most[region] = max(known[0], words), max(known[1], threads)

    def greatest(self, extent: Expr, loops: Loops) -> int:
        """The greatest value of an extent, or more than any memory has."""
        if extent not in self.known:
            found = maximum(extent, self.program.sizes, self.program.assumptions, loops)
            self.known[extent] = 2**40 if found is None else found
        return self.known[extent]
