"""Explain a partition as text: what was tiled, what was left as it is, and why."""

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
    """Return a paragraph about `partition`, then its decisions, one a line."""
    program, pieces = partition.loops, partition.pieces
    roles = Counter(piece.role for piece in pieces)
    covered_pieces = sum(piece.microkernel is not None for piece in pieces)
    parts = ", ".join(f"{count} {role}" for role, count in roles.items())
    axes = dict.fromkeys(axis for piece in pieces for axis in piece.tile)
    cut = f"{', '.join(axes)} cut into {parts}" if pieces else "no loop is cut"
    lines = [f"{program.name}: {cut}."]
    if covered_pieces:
        lines.append(f"A microkernel covers {covered_pieces} of {len(pieces)} pieces.")
    remaining = dict.fromkeys(_remaining_conditions(partition.source, program))
    conditions_text = "No instance asks a condition."
    if remaining:
        conditions_text = (
            f"{len(remaining)} conditions are left."
            if len(remaining) > 1
            else "One condition is left."
        )
    lines.append(conditions_text)
    lines.append(str(partition.size) + ".")
    lines.append(f"{len(partition.certificate.theorems)} theorems hold for all sizes.")
    keep_notes = [note for note in partition.notes if "keeps" in note]
    reasons = [one for one in remaining if not any(one.text in note for note in keep_notes)]
    return "\n".join([" ".join(lines), *(f"- {line}" for line in (*partition.notes, *reasons))])


@dataclass(frozen=True, slots=True)
class _RemainingCondition:
    """A condition that instances still test, and why it stays."""

    text: str
    because: str

    def __str__(self) -> str:
        return f"{self.text} stays: {self.because}"


def _remaining_conditions(source: Program, emitted: Program) -> Iterator[_RemainingCondition]:
    """Yield the conditions that an instance of `emitted`, or a lane of a tile, tests before it runs or in its value."""
    source_conditions = set(_conditions_in(source.body, False))
    space = Space(emitted.sizes, emitted.assumptions)
    names = tuple(sorted(all_bound_names(emitted)))
    at = Facts(space, names)
    for condition in _conditions_in(emitted.body, False):
        text = format_expr(condition)
        if any(isinstance(node, Load) for node in walk_expr(condition)):
            yield _RemainingCondition(text, "it depends on what is in memory")
        elif not at.expresses(condition):
            yield _RemainingCondition(text, "it is not quasi-affine")
        elif condition in source_conditions:
            yield _RemainingCondition(
                text, "the parts in which it would not change are not worth their copies"
            )
        else:
            yield _RemainingCondition(text, "it holds on a part of a tile")


def _conditions_in(body: Sequence[Stmt], in_tile: bool) -> Iterator[Expr]:
    """Yield the conditions between a loop or a tile and a statement in it, and those in its value."""
    for stmt in body:
        match stmt:
            case Store(_, _, value):
                yield from (n.condition for n in walk_expr(value) if isinstance(n, Select))
            case If(condition, then, other):
                body_statements = (*then, *other)
                if in_tile and any(isinstance(inner, Store) for inner in body_statements):
                    yield condition
                yield from _conditions_in(body_statements, in_tile)
            case _:
                if isinstance(stmt, Tile) and stmt.where is not None:
                    yield stmt.where
                for block in blocks(stmt):
                    yield from _conditions_in(block, in_tile or isinstance(stmt, For | Tile))
