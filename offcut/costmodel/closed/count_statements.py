"""What one instance of a statement counts: operations, cycles, and the elements that it touches."""

from __future__ import annotations

from math import ceil

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Load, children
from offcut.core.program import Store
from offcut.costmodel.closed.count_loops import LoopCounts
from offcut.costmodel.closed.count_state import APART, Scope, Tally
from offcut.costmodel.closed.counts import Counts
from offcut.costmodel.closed.covered import THOUSANDTHS
from offcut.costmodel.closed.exactness import Exactness, worst
from offcut.costmodel.closed.operations import instructions, is_even, operations, picojoules
from offcut.costmodel.closed.touched import Box, box
from offcut.costmodel.statements import Inside, StatementPrices


class StatementCounts(LoopCounts):
    """Counts of one instance of a statement, and the boxes of arrays that it touches."""

    def store(self, stmt: Store, scope: Scope) -> Tally:
        """One instance of a statement."""
        assert scope.piece is not None
        dtype = self.program.buffer(stmt.buffer).dtype
        width = self.hardware.lanes_of(dtype) if scope.lane else 1
        run = scope.run or 0
        filled = run / ceil(run / width) if run > 0 else width
        prices = StatementPrices(self.hardware.machine, width)
        inner = "" if scope.loop is None or scope.loop is scope.around else scope.loop.iter
        first = 0
        if scope.across is not None:
            first = ix.to_linear(scope.across[1]).const
        elif scope.loop is not None and scope.loop.iter == scope.lane:
            first = ix.to_linear(scope.loop.lo).const
        work = prices.each(stmt, Inside(scope.lane, inner, scope.written, first), scope.loop)
        if isinstance(stmt.value, Load) and self.program.buffer(stmt.buffer).layout is not None:
            rate = self.hardware.machine.traffic.pack_bytes_per_cycle
            work = max(work, 2 * ITEM_BYTES[dtype] * width / rate)
        if not is_even(stmt):
            self.exactness = worst(self.exactness, Exactness.BOUND)
        flop, energy = operations(stmt), self.hardware.machine.energy
        joules = 0.0 if energy is None else picojoules(stmt, self.program, energy)
        issued = instructions(stmt) / filled
        counts = Counts(
            ix.const(1),
            ix.const(1),
            ix.const(flop),
            ix.const(round(issued * THOUSANDTHS)),
            ix.const(round(work / filled * THOUSANDTHS)),
            ix.const(round(joules * THOUSANDTHS)),
        )
        boxes = self.boxes(stmt)
        if scope.across is not None:
            name, *ends = scope.across
            boxes = {array: one.over({name: (ends[0], ends[1])}) for array, one in boxes.items()}
        return Tally(self.traffic.access(boxes, scope.piece), {scope.piece: counts})

    def named(self, buffer: str, one: Box) -> str:
        """What an array is called at places that move as these do: rows and columns of one array are apart."""
        known = self.apart.setdefault(buffer, {})
        if one.moves not in known:
            known[one.moves] = f"{buffer}{APART}{len(known)}" if known else buffer
        name = known[one.moves]
        self.held[name] = self.held[buffer]
        return name

    def boxes(self, stmt: Store) -> dict[str, Box]:
        """What one instance touches: the element it stores, and those it reads."""
        found: dict[str, Box] = {}

        def add(buffer: str, one: Box) -> None:
            if buffer in self.held:
                name = self.named(buffer, one)
                found[name] = found[name].joined(one, self.known) if name in found else one

        add(stmt.buffer, box(stmt.index, written=True))
        if stmt.reduce is not None:
            add(stmt.buffer, box(stmt.index, written=False))
        for node in _parts(stmt.value):
            if isinstance(node, Load):
                add(node.buffer, box(node.index, written=False))
        return found


def _parts(expr: Expr) -> list[Expr]:
    return [expr, *(part for child in children(expr) for part in _parts(child))]
