"""What counts ask of a machine: its description, the microkernels that tiles may name, its vectors and its levels of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offcut.core.dtypes import ITEM_BYTES
from offcut.costmodel.closed.touched import Level
from offcut.costmodel.machine import Machine
from offcut.describe.microkernel import Microkernel


@dataclass(frozen=True, slots=True)
class Hardware:
    """What computes.

    microkernels    that tiles may name
    register_bytes  of a vector
    levels          of memory that are filled, nearest first: the registers before all
    """

    machine: Machine
    microkernels: Mapping[str, Microkernel]
    register_bytes: int
    levels: tuple[Level, ...]

    @property
    def lanes(self) -> int:
        """Of a vector of float32, and of what is summed in it."""
        return self.lanes_of("float32")

    def lanes_of(self, dtype: str) -> int:
        """Of a vector: what is narrower than a float32 takes a lane of one, too, as code computes with it."""
        return max(1, self.register_bytes // max(ITEM_BYTES[dtype], ITEM_BYTES["float32"]))

    def on_core(self, kernel: Microkernel) -> bool:
        """Whether vector registers hold the accumulators of its tiles; else another unit does."""
        vectors = (tile.rows * -(-tile.columns // self.lanes) for tile in kernel.tiles)
        return max(vectors, default=0) * self.register_bytes <= self.levels[0].bytes
