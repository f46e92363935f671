"""A partition in words: what was cut, what was left as it is, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offcut.core.expr import Expr, Load, Select
from offcut.core.expr import walk as walk_expr
from offcut.core.program import For, If, Program, Stmt, Store, Tile, blocks
from offcut.core.text.printer import format_expr
from offcut.core.traversal import all_bound_names
from offcut.polyhedral import Facts, Space

if TYPE_CHECKING:
    from offcut.partition.pieces import Partition


def explain(partition: Partition) -> str:
    """A paragraph about `partition`, then its decisions, one a line."""
    program, pieces = partition.loops, partition.pieces
    roles = Counter(piece.role for piece in pieces)
    covered = sum(piece.microkernel is not None for piece in pieces)
    parts = ", ".join(f"{count} {role}" for role, count in roles.items())
    axes = dict.fromkeys(axis for piece in pieces for axis in piece.tile)
    cut = f"{', '.join(axes)} cut into {parts}" if pieces else "no loop is cut"
    lines = [f"{program.name}: {cut}."]
    if covered:
        lines.append(f"A microkernel covers {covered} of {len(pieces)} pieces.")
    kept = dict.fromkeys(_kept(partition.source, program))
    asked = "No instance asks a condition."
    if kept:
        asked = f"{len(kept)} conditions are left." if len(kept) > 1 else "One condition is left."
    lines.append(asked)
    lines.append(str(partition.size) + ".")
    lines.append(f"{len(partition.certificate.theorems)} theorems hold for all sizes.")
    said = [note for note in partition.notes if "keeps" in note]
    reasons = [one for one in kept if not any(one.text in note for note in said)]
    return "\n".join([" ".join(lines), *(f"- {line}" for line in (*partition.notes, *reasons))])


@dataclass(frozen=True, slots=True)
class _Kept:
    """A condition that instances ask, and why it stays."""

    text: str
    because: str

    def __str__(self) -> str:
        return f"{self.text} stays: {self.because}"


def _kept(source: Program, emitted: Program) -> Iterator[_Kept]:
    """What an instance of `emitted`, or a lane of a tile, asks before it runs or in its value."""
    given = set(_asked(source.body, False))
    space = Space(emitted.sizes, emitted.assumptions)
    names = tuple(sorted(all_bound_names(emitted)))
    at = Facts(space, names)
    for condition in _asked(emitted.body, False):
        text = format_expr(condition)
        if any(isinstance(node, Load) for node in walk_expr(condition)):
            yield _Kept(text, "it depends on what is in memory")
        elif not at.expresses(condition):
            yield _Kept(text, "it is not quasi-affine")
        elif condition in given:
            yield _Kept(text, "the parts in which it would not change are not worth their copies")
        else:
            yield _Kept(text, "it holds on a part of a tile")


def _asked(body: Sequence[Stmt], inside: bool) -> Iterator[Expr]:
    """The conditions between a loop or a tile and a statement in it, and those in its value."""
    for stmt in body:
        match stmt:
            case Store(_, _, value):
                yield from (n.condition for n in walk_expr(value) if isinstance(n, Select))
            case If(condition, then, other):
                held = (*then, *other)
                if inside and any(isinstance(inner, Store) for inner in held):
                    yield condition
                yield from _asked(held, inside)
            case _:
                if isinstance(stmt, Tile) and stmt.where is not None:
                    yield stmt.where
                for block in blocks(stmt):
                    yield from _asked(block, inside or isinstance(stmt, For | Tile))
