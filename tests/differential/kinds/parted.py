"""Axes that are read and written in two parts, ``j // d`` and ``j % d``: heads that are merged and split, blocks, moved or not."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest

TYPES = ("float32", "float32", "float64", "int32", "bfloat16", "int8")


def parted(draw: Draw) -> Drawn:
    """O[i, j] from A[(j + c) // d, i, (j + c) % d], or the other way, in tiles larger than a vector, or not."""
    dtype, d = draw.pick(*TYPES), draw.pick(8, 16, 16, 24, 32, 48, 64)
    c = draw.pick(0, 0, 0, 3, 8, 16)
    found = Drawn(["size n in 0:20", "size m in 0:200"], large=True)
    at = f"j + {c}" if c else "j"
    blocks, part, inside = f"(m + {c + d - 1})//{d}", f"({at})//{d}", f"({at}) % {d}"
    whole, parts = ("n, m", "i, j"), (f"{blocks}, n, {d}", f"{part}, i, {inside}")
    source, result = (parts, whole) if draw.chance(0.7) or c else (whole, parts)
    kind = "output" if result is whole else "inout"  # blocks that are not full keep what they had
    found.head += [
        f"input A: {dtype}[{source[0]}]",
        f"input V: {dtype}[64]",
        f"{kind} O: {dtype}[{result[0]}]",
    ]
    read = f"A[{source[1]}]"
    value = draw.pick(read, read, f"{read} * 2", f"{read} - V[({at}) % {min(d, 64)}]")
    found.body = nest(draw.mixed(["for i in 0:n", "for j in 0:m"]), [f"O[{result[1]}] = {value}"])
    if draw.chance(0.5):
        found.tile = {"j": draw.pick(16, 32, 64, 17, 8)}
        found.tail = {"j": draw.pick("mask", "cut", "guard", "shift", "ladder")}
    return found
