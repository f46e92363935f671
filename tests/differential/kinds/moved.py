"""Elements that change places: axes turned, reversed, shifted and spread, as they are or converted."""

from __future__ import annotations

from ..drawing import Draw, Drawn, listed, nest

TYPES = ("float32", "float32", "float64", "int32", "bfloat16", "uint8", "int8", "float16", "int64")
# the element that (i, j) is read from, and the shape that holds it
SOURCES = (
    *(("j, i", "m, n"),) * 4,
    ("i, j", "n, m"),
    ("j, n - 1 - i", "m, n"),
    ("m - 1 - j, i", "m, n"),
    ("2*j, i", "2*m, n"),
    ("j, 2*i + 1", "m, 2*n"),
    ("j + 1, i", "m + 1, n"),
    ("j, i + 2", "m, n + 2"),
    ("j, i//2", "m, n"),
    ("j//2, i", "m, n"),
)


def moved(draw: Draw) -> Drawn:
    """O[i, j] from elements of A and V that lie elsewhere, in tiles larger than a vector, or not."""
    dtype = draw.pick(*TYPES)
    found = Drawn(["size n in 0:60", "size m in 0:60"], large=True)
    place, shape = draw.pick(*SOURCES)
    deep = draw.chance(0.2)
    also = ", k" if deep else ""
    found.head += [
        f"input A: {dtype}[{shape}{', 3' if deep else ''}]",
        f"input V: {dtype}[{draw.pick('n', 'm')}]",
        f"output O: {dtype}[{'3, ' if deep else ''}n, m]",
    ]
    vector = "V[i]" if found.head[-2].endswith("[n]") else "V[j]"
    value = draw.pick(
        *(f"A[{place}{also}]",) * 4,
        f"A[{place}{also}] * 2",
        f"A[{place}{also}] - {vector}",
        f"{vector} - A[{place}{also}]",
        f"where(i > j, A[{place}{also}], {vector})",
    )
    loops = ["for i in 0:n", "for j in 0:m", *(["for k in 0:3"] if deep else [])]
    found.body = nest(
        draw.mixed(loops),
        [f"O[{listed(['k'] if deep else [])}{', ' if deep else ''}i, j] = {value}"],
    )
    if draw.chance(0.6):
        found.tile = {"i": draw.pick(8, 16, 20, 32), "j": draw.pick(16, 32, 17, 8)}
        found.tail = {a: draw.pick("mask", "cut", "guard", "shift", "ladder") for a in "ij"}
    return found
