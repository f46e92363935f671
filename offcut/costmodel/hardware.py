"""The schema of hardware descriptions: what a cost model needs to know of a machine, as data."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from math import gcd
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Hardware:
    """A core and its memory.

    hertz                 cycles per second, sustained while multiplying
    l1_bytes, l1_ways     capacity and associativity of the first-level data cache
    nearest_bytes         capacity of the cache that packed operands are blocked for, in bytes
    near_bytes_per_cycle  what a core reads from that cache, in bytes per cycle
    far_bytes_per_cycle   what it streams from behind that cache
    pack_bytes_per_cycle  what it reads while packing an operand
    unpacked_near         time on an operand whose rows lie apart over time on panels, near
    unpacked_far          and where it comes from behind the nearest cache
    overlap_loss          of the shorter of computing and streaming, the share that is not hidden
    code_bytes            capacity of the instruction cache
    statement_bytes       of object code that a statement takes, with the loop around it
    statement_seconds     that it takes to compile
    compile_seconds       that separating the conditions of a program may take to compile
    """

    name: str
    hertz: float
    l1_bytes: int
    l1_ways: int
    nearest_bytes: int
    near_bytes_per_cycle: float
    far_bytes_per_cycle: float
    pack_bytes_per_cycle: float
    unpacked_near: float
    unpacked_far: float
    overlap_loss: float
    code_bytes: int
    statement_bytes: int
    statement_seconds: float
    compile_seconds: float

    def rows_in_l1(self, row_bytes: int) -> int:
        """Rows of this length whose current lines an L1 set can hold, one way left for the rest.

        Lines at one offset of rows ``row_bytes`` apart fall into ``way / gcd(row_bytes, way)`` sets
        (way = capacity over associativity): rows of 4096 bytes all into one.
        """
        way = self.l1_bytes // self.l1_ways
        return (self.l1_ways - 1) * (way // gcd(row_bytes, way))


@cache
def load(path: Path) -> Hardware:
    """The description in a TOML file."""
    with path.open("rb") as file:
        return Hardware(**tomllib.load(file))


def with_caches(
    hardware: Hardware,
    l1_bytes: int | None = None,
    l1_ways: int | None = None,
    nearest_bytes: int | None = None,
) -> Hardware:
    """`hardware` with what was found on the host; None: as described."""
    return replace(
        hardware,
        l1_bytes=l1_bytes or hardware.l1_bytes,
        l1_ways=l1_ways or hardware.l1_ways,
        nearest_bytes=nearest_bytes or hardware.nearest_bytes,
    )
