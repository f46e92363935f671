"""Microkernels of the tensor unit: up to 32 rows by any number of columns, through tile registers.

Here is what they compute, need and cost; `amx_code` writes the functions.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator, Mapping
from functools import cache

from offcut.backends.cpu.machine.isa import TILE_PERMISSION, Host
from offcut.backends.cpu.microkernels.amx_code import (
    MAX_ROWS,
    STEP_BYTES,
    TILE_ROWS,
    halves_of,
    symbol,
    text,
    widest,
)
from offcut.backends.cpu.microkernels.family import Family
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.panels import panels
from offcut.core.sizes import dim
from offcut.costmodel import TileUnit
from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import compute, placeholder
from offcut.describe.tile_shapes import Place, TileShape
from offcut.describe.value import cast

_BASE = frozenset({"amx-tile", "avx512f", "avx512bw"})
FEATURES: Mapping[str, frozenset[str]] = {
    "bfloat16": _BASE | {"amx-bf16"},
    "int8": _BASE | {"amx-int8"},
    "uint8": _BASE | {"amx-int8"},
}
"""What the host must have for each kind, in LLVM's names; `is_amx_permitted` must hold as well.

A kind is the element type of A; B has int8 for uint8.
"""


@cache
def is_amx_permitted() -> bool:
    """Whether the system lets this process use tile registers; asks Linux for it, once.

    Threads that start later, and forked processes, inherit the permission.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    syscall = ctypes.CDLL(None).syscall
    syscall.restype = ctypes.c_long
    return int(syscall(*map(ctypes.c_long, TILE_PERMISSION))) == 0


def families(host: Host) -> Iterator[Family]:
    """Those of the kinds that the host has, where the system lets this process use them."""
    for kind, features in FEATURES.items():
        if features <= host.features and (not host.here or is_amx_permitted()):
            yield Family(
                microkernel(kind, host.machine.tile_unit),
                lambda *_, kind=kind: symbol(kind),
                lambda *_, kind=kind: text(kind),
                {},
            )


def interleave(kind: str) -> int:
    """Elements of a column of B that lie side by side: those of 4 bytes."""
    return 4 // ITEM_BYTES[kind]


def multiple(kind: str) -> int:
    """Elements of a step; what the depth of a packed panel is rounded up to."""
    return STEP_BYTES // ITEM_BYTES[kind]


def microkernel(kind: str, unit: TileUnit) -> Microkernel:
    """The microkernel of one kind, declared as data.

    ``C[i, j] = sum over p of wide(A[i, p]) * wide(B[p, j])``, wide = float32 for bfloat16 and int32
    for int8 and uint8 (whose B is int8).

    Cost facts: a tile of B that is streamed takes as long to load as a multiplication at 16 rows, so
    one multiplication for each load of B is bound by loads, at any height. Loading the configuration
    takes 50 to 100 ns of a call, however many tiles it computes, and is in the cost of none.
    """
    wide = "float32" if kind == "bfloat16" else "int32"
    m, n = dim("m", min=1, max=MAX_ROWS), dim("n", min=1, max=4 * TILE_ROWS)
    k = reduce_axis(dim("k"), name="p")
    a = placeholder((m, dim("k")), kind, name="A")
    b = placeholder((dim("k"), n), kind if kind != "uint8" else "int8", name="B")
    shapes = [
        (rows, panels)
        for rows in range(1, MAX_ROWS + 1)
        for panels in range(widest(halves_of(rows)), 0, -1)
    ]
    return Microkernel(
        name=f"amx_{kind}",
        computes=compute(
            (m, n),
            lambda i, j: sum_over(cast(a[i, k], wide) * cast(b[k, j], wide), axis=k),
            name="C",
        ),
        tiles=tuple(
            TileShape(
                (rows, panels * TILE_ROWS),
                step_cycles(rows, panels, unit) / multiple(kind),
                unit.startup_cycles + rows * panels,
            )
            for rows, panels in shapes
        ),
        predicates=frozenset({"i", "j", "p"}),
        operands={
            "A": Place(beside="p"),
            "B": Place(layout=panels(TILE_ROWS, interleave(kind), multiple(kind)), beside="j"),
            "C": Place(beside="j"),
        },
        features=FEATURES[kind],
        ascending=wide == "int32",
        repeats=frozenset({"j"}),
    )


def step_cycles(rows: int, panels: int, unit: TileUnit) -> float:
    """Predicted cycles of one step, `multiple` terms of each element; B comes from a farther cache."""
    halves = [rows] if halves_of(rows) == 1 else [(rows + 1) // 2, rows // 2]
    multiplying = panels * sum(
        max(unit.least_cycles, unit.multiply_cycles * h / TILE_ROWS) for h in halves
    )
    loading = rows * unit.row_cycles + panels * unit.multiply_cycles
    return max(multiplying, loading)


__all__ = ["FEATURES", "is_amx_permitted", "microkernel", "symbol", "text"]
