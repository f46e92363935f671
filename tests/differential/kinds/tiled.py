"""One sum of products in a nest that is cut for a microkernel: any start, any statement after it, any tails."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest
from .contractions import TYPES, product

TAILS = ("mask", "mask", "pad", "pad", "cut", "ladder", "balance", "guard", "shift", "even")


def tiled(draw: Draw) -> Drawn:
    """D[i, j] from a start, plus a product, and a statement over it; i and j in tiles."""
    types, total = draw.pick(*TYPES[:1] * 4, *TYPES)
    a, b = types
    found = Drawn(["size m in 0:60", "size n in 0:60", "size K in 0:60"])
    found.head += [f"input A: {a}[m, K]", f"input B: {b}[K, n]", f"input bias: {total}[n]"]
    found.head += [f"input X: {total}[m, n]", f"inout D: {total}[m, n]", f"output E: {total}[m, n]"]
    start = draw.pick("", "0", "5", "-3", "bias[j]", "X[i, j]", f"{total}(j)", "max(D[i, j], 0)")
    body = [f"D[i, j] = {start}"] if start else []
    body += nest(["for k in 0:K"], [f"D[i, j] += {product('A[i, k]', 'B[k, j]', types, total)}"])
    after = draw.pick("E[i, j] = D[i, j]", "E[i, j] = D[i, j] - X[i, j]", "E[i, j] = bias[j]")
    body += [after, *draw.pick([], ["D[i, j] = max(D[i, j], 0)"], ["D[i, j] = D[i, j] * 3"])]
    found.body += nest(["for i in 0:m", "for j in 0:n"], body)
    found.tile = {"i": draw.pick(4, 8, 14, (8, 4)), "j": draw.pick(16, 32, 5, (32, 16))}
    found.tail = {"i": draw.pick(*TAILS), "j": draw.pick("mask", "mask", *TAILS)}
    return found
