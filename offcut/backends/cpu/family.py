"""Microkernels of the CPU, each with the functions that compute its tiles.

A family is data: what is computed, which tiles there are, and text generators. Two calling
conventions exist, both with byte strides:

tiles   one function for each shape, of `fma.PARAMETERS`: A, its row and depth steps, B, from panel to
        panel (or vector to vector) and from term to term, C and its row step, the depth, the columns
        of the last vector, whether C is added to
wide    one function of any rows up to the tallest tile and any columns, of `WIDE`

Either adds the terms of an element in an order that depends on the depth alone, and touches nothing
outside of what the call names, but for up to one vector past the last column of B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from offcut.backends.cpu import amx, external, fma, halves, vnni
from offcut.backends.cpu.isa import Host
from offcut.core.microkernel import Microkernel

WIDE = "ptr, i64, i64, ptr, i64, ptr, i64, i64, i64, i64"
"""A, its row step, rows, B, from panel to panel (from term to term, where B is not packed), C, its
row step, depth, columns, whether C is added to."""

Shapes = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Family:
    """The functions that compute one microkernel.

    symbol   the name of the function of a variant and a shape (rows, panels)
    text     LLVM IR of the functions of these shapes
    widths   rows -> how many panels wide a tile may be, widest first; empty: the family is wide
    unit_depth  whether the terms of A must lie next to each other
    """

    microkernel: Microkernel
    symbol: Callable[[fma.Variant, int, int], str]
    text: Callable[[fma.Variant, Shapes], str]
    widths: Mapping[int, tuple[int, ...]]
    unit_depth: bool = False

    @property
    def wide(self) -> bool:
        """Whether one function takes any rows and columns."""
        return not self.widths


@cache
def families(host: Host) -> tuple[Family, ...]:
    """What this host can run."""
    found = [_multiply_add(host, dtype) for dtype in ("float32", "float64")]
    found.append(_halves(host))
    if host.features >= vnni.FEATURES:
        found += [_byte_dot(host, dtype) for dtype in ("int8", "uint8")]
    found += [
        _tile_unit(kind)
        for kind, features in amx.FEATURES.items()
        if features <= host.features and amx.permitted()
    ]
    return (*found, *(_foreign(kernel) for kernel in host.external))


def _multiply_add(host: Host, dtype: str) -> Family:
    isa = host.isa
    return Family(
        fma.microkernel(isa, dtype),
        lambda variant, rows, panels: fma.symbol(isa, dtype, variant, rows, panels),
        lambda variant, shapes: fma.tiles(isa, dtype, variant, shapes),
        fma.widths(isa),
    )


def _halves(host: Host) -> Family:
    isa = host.isa
    return Family(
        halves.microkernel(isa),
        lambda variant, rows, panels: halves.symbol(isa, variant, rows, panels),
        lambda variant, shapes: halves.tiles(isa, variant, shapes),
        fma.widths(isa),
    )


def _byte_dot(host: Host, dtype: str) -> Family:
    isa = host.isa
    return Family(
        vnni.microkernel(isa, dtype),
        lambda _, rows, panels: vnni.symbol(isa, dtype, rows, panels),
        lambda _, shapes: vnni.tiles(isa, dtype, shapes),
        fma.widths(isa),
        unit_depth=True,
    )


def _tile_unit(kind: str) -> Family:
    return Family(
        amx.microkernel(kind),
        lambda _, rows, panels: amx.symbol(kind),
        lambda _, shapes: amx.text(kind),
        {},
        unit_depth=True,
    )


def _foreign(kernel: Microkernel) -> Family:
    return Family(
        kernel,
        lambda _, rows, panels: external.symbol(kernel),
        lambda _, shapes: external.text(kernel),
        {},
        unit_depth=True,
    )
