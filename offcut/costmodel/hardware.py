"""The schema of hardware descriptions: what a cost model needs to know of a machine, as data."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Hardware:
    """A core and its memory.

    hertz              cycles per second, sustained
    nearest_bytes      capacity of the cache that packed operands are blocked for, in bytes
    far_bytes_per_cycle   what one core streams from behind that cache, in bytes per cycle
    pack_bytes_per_cycle  what it reads while packing an operand, in bytes per cycle
    """

    name: str
    hertz: float
    nearest_bytes: int
    far_bytes_per_cycle: float
    pack_bytes_per_cycle: float


@cache
def load(path: Path) -> Hardware:
    """The description in a TOML file."""
    with path.open("rb") as file:
        return Hardware(**tomllib.load(file))


def with_cache(hardware: Hardware, nearest_bytes: int | None) -> Hardware:
    """`hardware` with the capacity that was found on the host; None: as described."""
    return hardware if nearest_bytes is None else replace(hardware, nearest_bytes=nearest_bytes)
