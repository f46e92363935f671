"""The instructions of a machine of queues, as records: what a load, a compute and a store unit do.

Addresses and extents are in words of the place that is meant: a word of inputs is `rows × terms` int8 of the
matrix unit, one of weights `columns × terms` int8, one of accumulators `rows × columns` int32, one of outputs
the same elements as int8. The meaning of a stream is that of its instructions one after the other; tokens
have to make the units, which run side by side, keep it.

Source: Moreau et al., "A Hardware–Software Blueprint for Flexible Deep Learning Specialization", IEEE Micro
2019 (VTA). Other than there, an output is no memory of its own: a store takes it from the accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """What runs instructions, one after the other, beside the two others; in the order of the data."""

    LOAD = "load"
    COMPUTE = "compute"
    STORE = "store"


class MemorySpace(Enum):
    """What words are kept for; a machine may keep several of them in one memory."""

    MICRO_OPS = "micro-ops"
    INPUTS = "inputs"
    WEIGHTS = "weights"
    ACCUMULATORS = "accumulators"
    OUTPUTS = "outputs"  # in main memory; on the chip they are accumulators


class AluOp(Enum):
    """What the vector unit does with each int32 of a word: ``dst = op(dst, other)``, modulo 2³²."""

    MIN = "min"
    MAX = "max"
    ADD = "add"
    SHR = "shr"  # floor(dst / 2**other): to the left where `other` is negative
    MUL = "mul"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What an instruction waits for before it starts, and whom it tells when it has completed.

    `prev` is the unit before its own in the order load, compute, store, and `next` the one after. Each pair of
    neighbours has a queue of tokens in either direction; the k-th pop takes the k-th push.
    """

    pop_prev: bool = False
    pop_next: bool = False
    push_prev: bool = False
    push_next: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """Words from main memory, `y` rows of `x` that lie `stride` apart there, and zeros around them.

    On the chip rows follow one another without gaps: ``top + y + bottom`` of ``left + x + right`` words.

    sram  first word on the chip
    dram  first word in main memory, of the array of the place
    pad   words of zeros: rows above, rows below, words to the left, words to the right of each row
    """

    place: MemorySpace
    sram: int
    dram: int
    y: int
    x: int
    stride: int
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    tokens: Tokens = Tokens()

    @property
    def words(self) -> int:
        """Words that are written on the chip, zeros included."""
        top, bottom, left, right = self.pad
        return (top + self.y + bottom) * (left + self.x + right)


@dataclass(frozen=True, slots=True)
class Store:
    """Words of accumulators, each int32 cut to its lowest 8 bits, to rows of outputs in main memory."""

    sram: int
    dram: int
    y: int
    x: int
    stride: int
    tokens: Tokens = Tokens()

    @property
    def words(self) -> int:
        """Words that are written."""
        return self.y * self.x


@dataclass(frozen=True, slots=True)
class MicroOp:
    """Which words an operation takes: of accumulators, of inputs (the vector unit's: of accumulators),
    of weights.
    """

    dst: int
    src: int = 0
    wgt: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """One of the two loops around micro-ops, and by how many words each of its iterations moves them."""

    extent: int = 1
    dst: int = 0
    src: int = 0
    wgt: int = 0


@dataclass(frozen=True, slots=True)
class Gemm:
    """Products of words, added up: of micro-ops `begin` to `end` of the buffer, `end` exclusive.

    for i in 0:outer.extent, for j in 0:inner.extent, for op in begin:end
      dst = op.dst + i·outer.dst + j·inner.dst, and so src, wgt
      acc[dst] += inp[src] · wgt[wgt]ᵀ      (reset: acc[dst] = 0)
    """

    begin: int
    end: int
    outer: Loop = Loop()
    inner: Loop = Loop()
    reset: bool = False
    tokens: Tokens = Tokens()


@dataclass(frozen=True, slots=True)
class Alu:
    """Operations on words of accumulators, in the loops of `Gemm`: ``acc[dst] = op(acc[dst], other)``.

    immediate  `other`, for all elements; None: acc[src]
    """

    op: AluOp
    begin: int
    end: int
    outer: Loop = Loop()
    inner: Loop = Loop()
    immediate: int | None = None
    tokens: Tokens = Tokens()


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a stream: the compute unit says that it is done."""

    tokens: Tokens = Tokens()


Instruction = Load | Store | Gemm | Alu | Finish


@dataclass(frozen=True, slots=True)
class Stream:
    """Instructions in the order in which they are fetched, and the micro-ops that they load: the array of
    their place in main memory.
    """

    instructions: tuple[Instruction, ...]
    micro_ops: tuple[MicroOp, ...] = ()
