"""A partition in words: what was cut, what was left as it is, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from offcut.core.program import For, If, Store, Tile, walk

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
    guards = _conditions(partition)
    lines.append(
        "No instance asks a condition." if not guards else f"{guards} conditions are left."
    )
    lines.append(str(partition.size) + ".")
    lines.append(f"{len(partition.certificate.theorems)} theorems hold for all sizes.")
    return "\n".join([" ".join(lines), *(f"- {note}" for note in partition.notes)])


def _conditions(partition: Partition) -> int:
    """Conditions inside loops: what an instance or a tile asks before it runs."""
    found = 0
    for stmt in walk(partition.loops.body):
        if isinstance(stmt, For | Tile):
            found += sum(isinstance(inner, If) and _holds_store(inner) for inner in stmt.body)
    return found


def _holds_store(stmt: If) -> bool:
    return any(isinstance(inner, Store) for inner in (*stmt.then, *stmt.other))
