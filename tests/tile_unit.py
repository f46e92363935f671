"""A CPU's tile registers in numpy: the tensor unit's code runs on any machine.

Its instructions are replaced by calls of `TileUnit`, which does what they do, and checks what they
demand of the configuration.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.facade import hooked, host_with_a_tile_unit, numpy_dtype


class TileUnit:
    """Eight tile registers; what an instruction refuses is noted in `faults`."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.tiles = np.zeros((8, 16, 64), np.uint8)
        self.rows = self.row_bytes = np.zeros(8, np.int64)
        self.configured = self.rows
        self.multiplied = 0

    def need(self, holds: bool, what: str) -> None:
        if not holds:
            self.faults.append(what)

    def ldtilecfg(self, address: int) -> None:
        given = np.frombuffer(ctypes.string_at(address, 64), np.uint8)
        self.need(given[0] == 1 and not given[1:16].any(), "palette 1, from row 0")
        self.need(not given[32:48].any() and not given[56:].any(), "reserved bytes are zeros")
        self.row_bytes = given[16:32].view(np.uint16).astype(np.int64)
        self.rows = self.configured = given[48:56].astype(np.int64)
        self.need(bool(np.all((self.rows >= 1) & (self.rows <= 16))), "1 to 16 rows")
        self.need(bool(np.all((self.row_bytes >= 4) & (self.row_bytes <= 64))), "4 to 64 bytes")
        self.tiles[...] = 0

    def tilerelease(self) -> None:
        self.rows = self.row_bytes = np.zeros(8, np.int64)

    def tilezero(self, tile: int) -> None:
        self.need(self.rows[tile] > 0, "a configured tile")
        self.tiles[tile] = 0

    def tileloadd64(self, tile: int, address: int, step: int) -> None:
        self.tilezero(tile)
        width = int(self.row_bytes[tile])
        for row in range(self.rows[tile]):
            data = ctypes.string_at(address + row * step, width)
            self.tiles[tile, row, :width] = np.frombuffer(data, np.uint8)

    tileloaddt164 = tileloadd64

    def tilestored64(self, tile: int, address: int, step: int) -> None:
        self.need(self.rows[tile] > 0, "a configured tile")
        for row in range(self.rows[tile]):
            data = self.tiles[tile, row, : self.row_bytes[tile]].tobytes()
            ctypes.memmove(address + row * step, data, len(data))

    def multiply(self, a_dtype: str, b_dtype: str, wide: str, c: int, a: int, b: int) -> None:
        rows, steps, columns = self.rows[c], self.rows[b], self.row_bytes[c] // 4
        self.need(rows == self.rows[a] and self.row_bytes[b] == self.row_bytes[c], "shapes agree")
        self.need(len({a, b, c}) == 3 and self.row_bytes[a] == 4 * steps, "depths agree")
        left = self.tiles[a, :rows, : 4 * steps].copy().view(numpy_dtype(a_dtype)).astype(wide)
        right = self.tiles[b, :steps, : 4 * columns].copy().view(numpy_dtype(b_dtype)).astype(wide)
        right = right.reshape(steps, columns, -1).transpose(0, 2, 1).reshape(-1, columns)
        with np.errstate(all="ignore"):  # columns past the last may hold anything
            total = self.tiles[c, :rows, : 4 * columns].copy().view(wide) + left @ right
        self.tiles[c, :rows, : 4 * columns] = total.view(np.uint8)
        self.multiplied += 1

    def tdpbf16ps(self, c: int, a: int, b: int) -> None:
        self.multiply("bfloat16", "bfloat16", "float32", c, a, b)

    def tdpbssd(self, c: int, a: int, b: int) -> None:
        self.multiply("int8", "int8", "int32", c, a, b)

    def tdpbusd(self, c: int, a: int, b: int) -> None:
        self.multiply("uint8", "int8", "int32", c, a, b)


TILE = ctypes.c_ubyte
MOVE = (TILE, ctypes.c_void_p, ctypes.c_int64)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ldtilecfg": (ctypes.c_void_p,),
    "tilerelease": (),
    "tilezero": (TILE,),
    **dict.fromkeys(("tileloadd64", "tileloaddt164", "tilestored64"), MOVE),
    **dict.fromkeys(("tdpbf16ps", "tdpbssd", "tdpbusd"), (TILE, TILE, TILE)),
}
UNIT = TileUnit()
CALLBACKS = {
    name: ctypes.CFUNCTYPE(None, *parameters)(getattr(UNIT, name))
    for name, parameters in SIGNATURES.items()
}


def on_tile_unit(text: str) -> str:
    """LLVM IR of tile code that calls `UNIT` instead."""
    for name, callback in CALLBACKS.items():
        llvm.add_symbol(f"emulated_{name}", ctypes.cast(callback, ctypes.c_void_p).value)
    return text.replace("@llvm.x86.", "@emulated_")


def stores_tiles() -> bool:
    """Whether this machine runs what surrounds the tile unit's instructions: the code stores with AVX-512."""
    return hooked("host")().isa.name == "avx512"


def skip_unless_tiles_are_stored() -> None:
    """Skip where it does not."""
    if not stores_tiles():
        pytest.skip(f"{llvm.get_host_cpu_name()} lacks avx512f, with which the tile code stores")


@contextmanager
def emulated() -> Iterator[None]:
    """Kernels that are built inside run their tiles on `UNIT`, on a host that says it has the unit."""
    with host_with_a_tile_unit(on_tile_unit), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFCUT_CACHE", "off")
        yield
