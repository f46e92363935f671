"""What the code of a program takes: bytes of it, seconds to compile it, registers that a tile holds.

A tile of a microkernel has code for each height that it may have, with its loop unrolled, so that it is counted by its vectors of
accumulators; any other statement counts once. Right to a factor of three: pieces that are alike share their code.
"""

from __future__ import annotations

from collections.abc import Mapping

from offcut.core import index as ix
from offcut.core.expr import Load, walk
from offcut.core.program import Program, Stmt, Store, Tile
from offcut.core.program import walk as statements
from offcut.costmodel.machine import Machine
from offcut.describe.microkernel import Microkernel


def code_bytes(
    program: Program, kernels: Mapping[str, Microkernel], machine: Machine, lanes: int
) -> int:
    """Bytes of code.

    lanes  of a vector
    """
    compiling = machine.compiling
    vectors, covered = 0, set[int]()
    for tile in statements(program.body):
        if isinstance(tile, Tile) and (tile.microkernel or "") in kernels:
            vectors += _vectors(tile, kernels[tile.microkernel or ""], lanes)
            covered |= {id(store) for store in _stores(tile.body)}
    others = sum(id(store) not in covered for store in _stores(program.body))
    return others * compiling.lanes_bytes + vectors * compiling.accumulator_bytes


def compile_seconds(code: int, machine: Machine) -> float:
    """Seconds to compile code of so many bytes."""
    return code * machine.compiling.statement_seconds / machine.compiling.statement_bytes


def registers(kernel: Microkernel, rows: int, columns: int, lanes: int) -> int:
    """Vector registers that a tile of a microkernel holds: accumulators, a vector of the columns' operand for each of a
    row, a term of the rows' operand.
    """
    height = min(rows, kernel.max_rows)
    vectors = -(-min(columns, kernel.columns_for(height)) // lanes)
    return height * vectors + vectors + 1


def held(program: Program) -> dict[str, int]:
    """Vector registers that loops hold at once, by what they store: a value, and what it reads."""
    found: dict[str, int] = {}
    for store in _stores(program.body):
        read = sum(isinstance(node, Load) for node in walk(store.value))
        found[store.buffer] = max(found.get(store.buffer, 0), 1 + read)
    return found


def _vectors(tile: Tile, kernel: Microkernel, lanes: int) -> int:
    """Vectors of accumulators of a tile, of every height that it may have."""
    rows = ix.literal_value(tile.axes[-2].extent) if len(tile.axes) > 1 else 1
    columns = ix.literal_value(tile.axes[-1].extent)
    total = 0
    for height in range(1, kernel.max_rows + 1) if rows is None else (min(rows, kernel.max_rows),):
        widest = kernel.columns_for(height)
        if columns is None or rows is not None or columns == widest:
            total += height * -(-min(columns or widest, widest) // lanes)
    return total


def _stores(body: tuple[Stmt, ...]) -> list[Store]:
    return [one for one in statements(body) if isinstance(one, Store)]
