"""What tiles cost by their height, and what copies of a statement cost: code, and time to compile.

A loop cut into tiles of heights h runs ``sum of count * (c(h) + startup)`` cycles per column, with
c(h) the microkernel's cycles at that height. Without a microkernel of that height, a tile costs as
many cycles as the tallest one does for its share of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Lookup, real
from offcut.costmodel.device import Device
from offcut.costmodel.machine import Machine
from offcut.costmodel.tile_cycles import tile_cycles
from offcut.describe.microkernel import Microkernel


def tile_price(
    kernel: Microkernel, machine: Device
) -> Callable[[Sequence[tuple[Expr, Expr]], int], Expr]:
    """Predicted seconds per column of runs of equal tiles, ``(how many, their height)``.

    The heights are at most the second argument; a run of no tile costs nothing.
    """

    taken = tile_cycles(kernel)

    def price(runs: Sequence[tuple[Expr, Expr]], tile: int) -> Expr:
        tallest = min(tile, taken.tallest)
        table = (0.0, *(sum(taken.by_column(height)) for height in range(1, tallest + 1)))
        total: Expr = real(0.0)
        for count, height in runs:
            one: Expr = Lookup(table, ix.minimum(ix.maximum(height, 0), tallest))
            if tile > tallest:
                above = real(ix.maximum(ix.sub(height, tallest), 0))
                one = Binary("+", one, Binary("*", above, real(table[-1] / tallest)))
            total = Binary("+", total, Binary("*", real(count), one))
        return Binary("*", total, real(1.0 / machine.hertz))

    return price


def copies_worth(machine: Device, stores: int) -> int:
    """How many copies of each of `stores` statements conditions may cost.

    As many as keep all of them in the instruction cache, and compile within the time that a call
    has to win back: ``min(code_bytes / statement_bytes, budget_seconds / statement_seconds)`` in
    all, and at least 2 of each; no more for a machine whose description does not say what code costs.
    """
    if not isinstance(machine, Machine):
        return 2
    cached = machine.core.code_bytes / machine.compiling.statement_bytes
    timely = machine.compiling.budget_seconds / machine.compiling.statement_seconds
    return max(2, int(min(cached, timely)) // max(1, stores))
