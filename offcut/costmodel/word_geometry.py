"""The words in the memories of a machine of queues, how many there are, and the fields of instructions that name them.

The product of its matrix unit gives the words: one of inputs is ``rows × terms`` int8, one of weights
``columns × terms`` int8, one of accumulators ``rows × columns`` int32, one of outputs as many int8. A
micro-op is what its memory moves at a time.

An instruction has 128 bits, in two parts: fields follow one another from the lowest bit on, and the second
part begins at bit 64, or before it where it would not end by bit 128. An address has as many bits as it needs
to name any word of the operand; what does not depend on the machine is as VTA has it.

Source: the VTA repository's hw_spec.h; with its depths the fields lie where they lie there, and the type of a
memory has 3 bits, as in its hardware in Chisel.
"""

from __future__ import annotations

from collections.abc import Mapping

from offcut.costmodel.device import Accelerator, Memory, Unit


def matrix_unit(machine: Accelerator) -> Unit | None:
    """What multiplies int8: the first such unit."""
    return next((unit for unit in machine.unit if "int8" in unit.of), None)


def operand_memory(machine: Accelerator, operand: str) -> Memory | None:
    """The memory that an operand is kept in."""
    return next((memory for memory in machine.memory if operand in memory.holds), None)


def word_bytes(machine: Accelerator, unit: Unit, operand: str) -> int:
    """Bytes of a word of an operand; of outputs, as they are stored."""
    memory = operand_memory(machine, operand)
    return {
        "micro-ops": memory.line if memory else 0,
        "inputs": unit.rows * unit.terms,
        "weights": unit.columns * unit.terms,
        "accumulators": 4 * unit.rows * unit.columns,
        "outputs": unit.rows * unit.columns,
    }[operand]


def word_capacity(machine: Accelerator, unit: Unit, operand: str) -> int:
    """Words of an operand that its memory has room for; outputs that are kept with accumulators are
    their words.
    """
    memory = operand_memory(machine, operand)
    if memory is None:
        return 0
    same = operand == "outputs" and "accumulators" in memory.holds
    return memory.bytes // word_bytes(machine, unit, "accumulators" if same else operand)


INSTRUCTION_BITS = 128

Fields = tuple[tuple[str, int], ...]

_HEAD: Fields = (
    ("opcode", 3),
    ("pop_prev", 1),
    ("pop_next", 1),
    ("push_prev", 1),
    ("push_next", 1),
)
_SRAM_BITS = 16  # at least
_LOOP_BITS = 14
_PADS = ("pad_top", "pad_bottom", "pad_left", "pad_right")


def index_bits(depth: int) -> int:
    """Bits that name any of so many words."""
    return max((depth - 1).bit_length(), 1)


def micro_op(depths: Mapping[str, int]) -> Fields:
    """The fields of a micro-op, from its lowest bit on. A vector operation's source is an accumulator."""
    source = max(depths["inputs"], depths["accumulators"])
    return (
        ("dst", index_bits(depths["accumulators"])),
        ("src", index_bits(source)),
        ("wgt", index_bits(depths["weights"])),
    )


def instructions(depths: Mapping[str, int]) -> dict[str, tuple[Fields, Fields]]:
    """The two parts of each format: of loads and stores, of products, of vector operations, of an end."""
    dst, inputs, wgt = (index_bits(depths[one]) for one in ("accumulators", "inputs", "weights"))
    ops = index_bits(depths["micro-ops"])
    sram = max(_SRAM_BITS, *(index_bits(depth) for depth in depths.values()))
    loops: Fields = (
        *_HEAD,
        ("reset", 1),
        ("begin", ops),
        ("end", ops + 1),
        ("outer", _LOOP_BITS),
        ("inner", _LOOP_BITS),
    )
    return {
        "memory": (
            (*_HEAD, ("place", 3), ("sram", sram), ("dram", 32)),
            (("y", 16), ("x", 16), ("stride", 16), *((pad, 4) for pad in _PADS)),
        ),
        "gemm": (loops, _factors(dst=dst, src=inputs, wgt=wgt)),
        "alu": (
            loops,
            (*_factors(dst=dst, src=dst), ("op", 3), ("use_immediate", 1), ("immediate", 16)),
        ),
        "finish": (_HEAD, ()),
    }


def _factors(**bits: int) -> Fields:
    return tuple(
        (f"{loop}_{operand}", width)
        for operand, width in bits.items()
        for loop in ("outer", "inner")
    )
