"""Which earlier instructions of other units an instruction must follow: those that it shares words with.

Two instructions are in conflict where both touch a byte on the chip and one of them writes it. A unit runs its
instructions one after the other, so of each other unit the last one in conflict says it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import gcd
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    Store,
    Unit,
)
from offcut.backends.accelerator.simulator.machine_state import Steps, Words
from offcut.backends.accelerator.spec import AcceleratorSpec


class Conflict(Enum):
    """What two instructions do to a word, the later one first."""

    READ_OF_WRITE = "reads what {} writes"
    WRITE_OVER_READ = "writes over what {} reads"
    WRITE_OVER_WRITE = "writes over what {} writes"
    END_OF_WRITE = "ends what {} writes"


@dataclass(frozen=True, slots=True)
class Predecessor:
    """An instruction that another one must follow.

    unit      which runs it, by number: load, compute, store
    sequence  its position among those of its unit
    word      where the two meet, of `place`
    """

    unit: int
    sequence: int
    conflict: Conflict
    place: MemorySpace
    word: int


class AccessHistory:
    """Who touched what last, of instructions that are told of in the order of the stream."""

    def __init__(self, spec: AcceleratorSpec) -> None:
        shapes = {
            place: words for place, words in spec.words.items() if place is not MemorySpace.OUTPUTS
        }
        granule: dict[str, int] = {}  # bytes that the words of a memory have in common
        extents: dict[str, int] = {}
        for words in shapes.values():
            granule[words.memory] = gcd(granule.get(words.memory, 0), words.bytes)
        self._parts: dict[MemorySpace, tuple[str, int]] = {
            place: (words.memory, words.bytes // granule[words.memory])
            for place, words in shapes.items()
        }
        for place, (memory, parts) in self._parts.items():
            extents[memory] = max(extents.get(memory, 0), spec.words[place].depth * parts)
        self._written = {name: np.zeros((3, extent), np.int64) for name, extent in extents.items()}
        self._read = {name: np.zeros((3, extent), np.int64) for name, extent in extents.items()}
        self._count = [0, 0, 0]
        self._stored: Predecessor | None = None
        self.unwritten: list[tuple[int, MemorySpace, int]] = []
        """Position, place and word of the first read of each instruction that nothing was written for."""

    def next(self, position: int, unit: int, touched: Sequence[Touched]) -> tuple[Predecessor, ...]:
        """The instructions that the next one of a unit must follow, one of each other unit at most."""
        predecessors: dict[int, Predecessor] = {}
        for one in touched:
            memory, words = self._touched_parts(one)
            for other in range(3):
                if other == unit:
                    continue
                if one.write:
                    self._later(
                        predecessors,
                        other,
                        Conflict.WRITE_OVER_READ,
                        one,
                        self._read[memory],
                        words,
                    )
                kind = Conflict.WRITE_OVER_WRITE if one.write else Conflict.READ_OF_WRITE
                self._later(predecessors, other, kind, one, self._written[memory], words)
            if not one.write:
                self._check_written(position, one, memory, words)
        self._count[unit] += 1
        for one in touched:
            memory, words = self._touched_parts(one)
            (self._written if one.write else self._read)[memory][unit, words] = self._count[unit]
        return tuple(predecessors.values())

    def stores(self, instruction: Store) -> None:
        """Note that the next instruction writes to main memory, if it does."""
        if instruction.words:
            unit = tuple(Unit).index(Unit.STORE)
            end = Conflict.END_OF_WRITE
            self._stored = Predecessor(
                unit, self._count[unit], end, MemorySpace.OUTPUTS, instruction.dram
            )

    def end(self) -> tuple[Predecessor, ...]:
        """What the end of a stream must follow: the last store, since whoever is told of it reads the results."""
        return () if self._stored is None else (self._stored,)

    def _later(
        self,
        predecessors: dict[int, Predecessor],
        other: int,
        kind: Conflict,
        one: Touched,
        table: NDArray[np.int64],
        words: slice | Words,
    ) -> None:
        last = table[other, words]
        if not last.size:
            return
        at = int(last.argmax())
        sequence = int(last[at]) - 1
        if sequence >= 0 and (other not in predecessors or sequence > predecessors[other].sequence):
            predecessors[other] = Predecessor(other, sequence, kind, one.place, self._word(one, at))

    def _check_written(
        self, position: int, one: Touched, memory: str, words: slice | Words
    ) -> None:
        if self.unwritten and self.unwritten[-1][0] == position:
            return
        never = ~self._written[memory][:, words].any(axis=0)
        if never.any():
            self.unwritten.append((position, one.place, self._word(one, int(never.argmax()))))

    def _touched_parts(self, one: Touched) -> tuple[str, slice | Words]:
        """The memory, and its parts that are touched."""
        memory, parts = self._parts[one.place]
        words = one.words
        if parts == 1:
            return memory, words
        if isinstance(words, slice):
            return memory, slice(words.start * parts, words.stop * parts)
        return memory, (words[:, None] * parts + np.arange(parts)).ravel()

    def _word(self, one: Touched, at: int) -> int:
        """The word that has the part at a position of those that are touched."""
        number = at // self._parts[one.place][1]
        return one.words.start + number if isinstance(one.words, slice) else int(one.words[number])


@dataclass(frozen=True, slots=True)
class Touched:
    """Words of a place: a range, or one by one, each once."""

    place: MemorySpace
    words: slice | Words
    write: bool


def footprint(
    instruction: Instruction, steps: Steps | None, depths: dict[MemorySpace, int]
) -> tuple[Touched, ...]:
    """What an instruction touches; reads come before writes.

    steps   those of a product or a vector operation; None for the others
    depths  words by place
    """
    match instruction:
        case Load(place=place, sram=sram):
            return (Touched(place, slice(sram, sram + instruction.words), True),)
        case Store(sram=sram):
            return (
                Touched(MemorySpace.ACCUMULATORS, slice(sram, sram + instruction.words), False),
            )
        case Finish():
            return ()
        case Gemm() | Alu():
            assert steps is not None
            if not steps.dst.size:
                return ()
        case _:
            assert_never(instruction)
    ops = Touched(MemorySpace.MICRO_OPS, slice(instruction.begin, instruction.end), False)
    dst = _once(steps.dst, depths[MemorySpace.ACCUMULATORS])
    reads: tuple[Touched, ...]
    match instruction:
        case Gemm(reset=True):
            reads = ()
        case Gemm():
            src = _once(steps.src, depths[MemorySpace.INPUTS])
            wgt = _once(steps.wgt, depths[MemorySpace.WEIGHTS])
            reads = (
                Touched(MemorySpace.INPUTS, src, False),
                Touched(MemorySpace.WEIGHTS, wgt, False),
                Touched(MemorySpace.ACCUMULATORS, dst, False),
            )
        case Alu(immediate=None):
            both = np.concatenate((dst, steps.src.ravel()))
            reads = (
                Touched(
                    MemorySpace.ACCUMULATORS, _once(both, depths[MemorySpace.ACCUMULATORS]), False
                ),
            )
        case Alu():
            reads = (Touched(MemorySpace.ACCUMULATORS, dst, False),)
    return (ops, *reads, Touched(MemorySpace.ACCUMULATORS, dst, True))


def _once(words: Words, depth: int) -> Words:
    """Each word once, in ascending order."""
    seen = np.zeros(depth, bool)
    seen[words.ravel()] = True
    return np.flatnonzero(seen)
