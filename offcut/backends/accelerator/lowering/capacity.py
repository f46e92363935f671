"""Whether the windows of a nest fit the memories at every size: their greatest extents, as isl finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from offcut.backends.accelerator.isa import Place
from offcut.backends.accelerator.lowering.places import Side
from offcut.backends.accelerator.lowering.tree import Guard, Leaf, Loop, Node
from offcut.backends.accelerator.spec import Spec
from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.core.program import Program
from offcut.errors import TargetError
from offcut.polyhedral import greatest

Loops = tuple[tuple[str, Expr, Expr], ...]


def check_fits(
    program: Program,
    spec: Spec,
    nodes: Sequence[Node],
    sides: Mapping[int, Sequence[Side]],
    regions: Mapping[str, str],
    place_of: Mapping[str, Place],
    stored: frozenset[str],
) -> None:
    """Refuse windows that take more bytes than their memory has, at some size.

    stored  the regions that stores read

    Raises TargetError, with the bytes of each window.
    """
    words = _Windows(program, sides, regions)
    words.visit(nodes, ())
    if (total := sum(words.most[region] for region in stored)) > spec.words[Place.OUTPUTS].depth:
        of = spec.words[Place.OUTPUTS]
        raise TargetError(
            "compile",
            f"cannot keep the results of {program.name} in {of.memory}",
            because=f"they take up to {total:,} words, and stores read {of.depth:,}",
            help=("smaller tiles",),
        )
    taken: dict[str, list[tuple[str, int]]] = {}
    for region, count in words.most.items():
        of = spec.words[place_of[region]]
        taken.setdefault(of.memory, []).append((region, count * of.bytes))
    for memory, windows in taken.items():
        room = max(w.depth * w.bytes for w in spec.words.values() if w.memory == memory)
        total = sum(count for _, count in windows)
        if total > room:
            shown = ", ".join(f"{name} {count:,}" for name, count in windows)
            raise TargetError(
                "compile",
                f"cannot keep the windows of {program.name} in {memory}",
                because=f"they take up to {total:,} bytes ({shown}), and there are {room:,}",
                help=("smaller tiles",),
            )


@dataclass
class _Windows:
    """Words of each region: of the largest window in it, as often as there are virtual threads."""

    program: Program
    sides: Mapping[int, Sequence[Side]]
    regions: Mapping[str, str]
    most: dict[str, int] = field(default_factory=dict)
    known: dict[Expr, int] = field(default_factory=dict)

    def visit(self, nodes: Sequence[Node], loops: Loops) -> None:
        """Note what the leaves of these nodes take."""
        for node in nodes:
            match node:
                case Loop(name, lo, hi, body):
                    self.visit(body, (*loops, (name, lo, hi)))
                case Guard(_, body):
                    self.visit(body, loops)
                case Leaf():
                    for side in self.sides[node.number]:
                        if side.buffer in self.regions:
                            self.note(side, node.threads.get(side.buffer), loops)

    def note(self, side: Side, thread: str | None, loops: Loops) -> None:
        """Note what one operand takes."""
        words = 1 if thread is None else self.greatest(ix.add(Var(thread), 1), loops)
        for axis, extent in enumerate(side.extents):
            words *= -(-max(self.greatest(extent, loops), 0) // side.lanes.lanes_of(axis))
        region = self.regions[side.buffer]
        self.most[region] = max(self.most.get(region, 0), words)

    def greatest(self, extent: Expr, loops: Loops) -> int:
        """The greatest value of an extent, or more than any memory has."""
        if extent not in self.known:
            found = greatest(extent, self.program.sizes, self.program.assumptions, loops)
            self.known[extent] = 2**40 if found is None else found
        return self.known[extent]
