"""Software prefetching of packed operands: what the next round of a loop reads, asked for in this one.

    for j_tile            goes from one group of panels of B to the next
      for i_tile          reads the group again, for other rows
        tile

What comes from main memory, such as the weights of a layer, is otherwise waited for by the first tile
of every group. Each tile of a group asks for its share of the group after it, a little with every term.
Two groups have to fit the second level together, or the one that comes would push out the one in use;
and a step asks for one line at most, so that few tiles to a group ask for nothing: there the group in
use is itself still on its way.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.backends.cpu.lowering.addressing import Memory
from offcut.backends.cpu.lowering.vectors import Vectors
from offcut.backends.llvm import ir
from offcut.core import index as ix
from offcut.core.expr import Load, variables
from offcut.core.panels import as_panels
from offcut.core.program import For, Kind, TileAxis
from offcut.polyhedral import coefficient


@dataclass(frozen=True, slots=True)
class Reuse:
    """Packed columns that loops read again.

    group   the loop that goes from one group of panels to the next
    again   the loops inside of it that do not move the operand, outermost first
    """

    group: For
    again: tuple[For, ...]


def reuse(low: Vectors, operand: Load, memory: Memory, columns: TileAxis | None) -> Reuse | None:
    """How the loops around a tile use a packed operand again; None: not at all, or two groups do not fit.

    columns   the tile's axis that runs along the operand's panels
    """
    stored = low.program.buffer(operand.buffer).kind is not Kind.LOCAL
    shape = as_panels(memory.layout)
    if columns is None or shape is None or not stored:
        return None
    again: list[For] = []
    for loop in reversed(low.around):
        moves = loop.iter in variables(columns.start)
        if moves and again:
            step, panel = coefficient(columns.start, loop.iter), ir.literal(memory.panels)
            if not step or panel is None:
                return None
            group = step // shape.width * panel
            fits = 2 * group <= low.isa.machine.memory[1].bytes
            return Reuse(loop, tuple(reversed(again))) if fits else None
        if not moves and any(loop.iter in variables(part) for part in operand.index):
            return None
        if not moves:
            again.append(loop)
    return None


def prefetch_slice(
    low: Vectors, reused: Reuse, operand: Load, columns: TileAxis, panels: int, step: str
) -> tuple[str, str]:
    """Where a call's share of the next group starts, and how far it goes on with each step of terms.

    panels   that the call reads
    step     bytes of a panel that a step reads
    """
    f = low.f
    parts, position = "1", "0"
    for loop in reused.again:
        length = low.scalar(ix.sub(loop.hi, loop.lo))
        now = ir.sub(f, low.values[loop.iter], low.scalar(loop.lo))
        position = ir.add(f, ir.mul(f, position, length), now)
        parts = ir.mul(f, parts, length)
    following = ir.add(f, low.values[reused.group.iter], "1")
    last = f.let(f"icmp sge i64 {following}, {low.scalar(reused.group.hi)}")
    memory = low.memory[operand.buffer]
    with low.bound(reused.group.iter, following):
        start = low.scalar(columns.start)
    with low.bound(columns.iter, start):
        group = low.address(memory, operand.index)
    bytes_of_step = ir.mul(f, step, str(panels))
    some = ir.maximum(f, parts, "1")
    up = ir.sub(f, ir.add(f, bytes_of_step, some), "1")
    each = f.let(f"udiv i64 {up}, {some}")
    steps = ir.floordiv(f, memory.panels, step)
    offset = ir.mul(f, position, ir.mul(f, each, steps))
    at = f.let(f"getelementptr i8, ptr {group}, i64 {offset}")
    line = low.isa.machine.memory[1].line
    late = f.let(f"icmp ugt i64 {each}, {line}")
    none = f.let(f"or i1 {last}, {late}")
    return at, f.let(f"select i1 {none}, i64 0, i64 {each}")
