"""One sum of products in a nest that is cut for a microkernel: any start, any statement after it, any tails."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest
from .contractions import TYPES, product
from .sums import PLACES, TERMS

TAILS = ("mask", "mask", "pad", "pad", "cut", "ladder", "balance", "guard", "shift", "even")
BOUNDS = (
    *("0:K",) * 8,
    *("1:K", "2:K - 1", "0:K:2", "0:min(K, i + 1)", "min(j, K):K", "0:min(K, n - j)"),
)


def tiled(draw: Draw) -> Drawn:
    """D from a start, plus a product, and statements over it; i and j in tiles."""
    types, total = draw.pick(*TYPES[:1] * 4, *TYPES)
    a, b = types
    found = Drawn(["size m in 0:60", "size n in 0:60", "size K in 0:60"])
    shape, place, _ = draw.pick(*PLACES[:1] * 6, *PLACES)
    d = f"D[{place}]"
    found.head += [f"input A: {a}[m, K]", f"input B: {b}[K, n]", f"input bias: {total}[n]"]
    found.head += [f"input T: {b}[n, K]", f"input S: {a}[K, m]", f"input X: {total}[m, n]"]
    found.head += [f"inout D: {total}[{shape}]", f"output E: {total}[m, n]"]
    start = draw.pick("", "", "0", "5", "-3", "bias[j]", "X[i, j]", f"{total}(j)", f"max({d}, 0)")
    body = [f"{d} = {start}"] if start else []
    left, right = draw.pick(*TERMS[:1] * 4, *TERMS)
    term = product(left, right, types, total)
    body += nest([f"for k in {draw.pick(*BOUNDS)}"], [f"{d} += {term}"])
    after = draw.pick([], [f"E[i, j] = {d}"], [f"E[i, j] = {d} - X[i, j]"], ["E[i, j] = bias[j]"])
    body += [*after, *draw.pick([], [f"{d} = max({d}, 0)"], [f"{d} = {d} * 3"])]
    if draw.chance(0.15):
        body = nest([draw.pick("if i <= j", "if i + j < n", "if X[i, j] > 0")], body)
    found.body += nest(["for i in 0:m", "for j in 0:n"], body)
    found.tile = {
        "i": draw.pick(4, 8, 14, (8, 4)),
        "j": draw.pick(16, 32, 5, (32, 16), 48, 64, 20),
    }
    again = not start or d in start  # an instance that runs twice would see what it left
    tails = [tail for tail in TAILS if not (again and tail == "shift")]
    found.tail = {"i": draw.pick(*tails), "j": draw.pick("mask", "mask", *tails)}
    if draw.chance(0.3) and total.startswith("float"):
        found.data = "specials"
    return found
