"""What a word is in the memories of a machine of queues, and how many there are.

The product of its matrix unit gives the words: one of inputs is ``rows × terms`` int8, one of weights
``columns × terms`` int8, one of accumulators ``rows × columns`` int32, one of outputs as many int8. A
micro-op is what its memory moves at a time.
"""

from __future__ import annotations

from offcut.costmodel.accelerator import Accelerator
from offcut.costmodel.device import Memory, Unit


def matrix_unit(machine: Accelerator) -> Unit | None:
    """What multiplies int8: the first such unit."""
    return next((unit for unit in machine.unit if "int8" in unit.of), None)


def held(machine: Accelerator, operand: str) -> Memory | None:
    """The memory that an operand is kept in."""
    return next((memory for memory in machine.memory if operand in memory.holds), None)


def word_bytes(machine: Accelerator, unit: Unit, operand: str) -> int:
    """Bytes of a word of an operand; of outputs, as they are stored."""
    memory = held(machine, operand)
    return {
        "micro-ops": memory.line if memory else 0,
        "inputs": unit.rows * unit.terms,
        "weights": unit.columns * unit.terms,
        "accumulators": 4 * unit.rows * unit.columns,
        "outputs": unit.rows * unit.columns,
    }[operand]


def depth(machine: Accelerator, unit: Unit, operand: str) -> int:
    """Words of an operand that its memory has room for; outputs that are kept with accumulators are
    their words.
    """
    memory = held(machine, operand)
    if memory is None:
        return 0
    same = operand == "outputs" and "accumulators" in memory.holds
    return memory.bytes // word_bytes(machine, unit, "accumulators" if same else operand)
