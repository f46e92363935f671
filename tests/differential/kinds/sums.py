"""Several sums in one nest, each from its own start, over its own terms, into a result that lies in its own way."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest
from .contractions import TYPES, product

# how a result lies: its shape, and the element of an instance (i, j); another element for a start
PLACES = (
    ("m, n", "i, j", ""),
    ("m, n", "i, j", ""),
    ("m, n", "i, j", ""),
    ("n, m", "j, i", ""),
    ("m, n, 2", "i, j, 1", "i, j, 0"),
    ("2, m, n", "0, i, j", "1, i, j"),
    ("m + 2, n + 3", "i + 2, j + 1", ""),
    ("2*m, n", "2*i, j", "2*i + 1, j"),
    ("m, 2*n", "i, 2*j + 1", "i, 2*j"),
    ("m, n", "m - 1 - i, j", ""),
    ("m, n", "i, n - 1 - j", ""),
)
TERMS = (
    *(("A[i, k]", "B[k, j]"),) * 4,
    ("A[i, k]", "T[j, k]"),
    ("S[k, i]", "B[k, j]"),
    ("A[i, K - 1 - k]", "B[k, j]"),
    ("A[i, k]", "B[K - 1 - k, j]"),
    ("A[m - 1 - i, k]", "B[k, j]"),
    ("A[i//2, k]", "B[k, j]"),
    ("A[i, k]", "B[k, n - 1 - j]"),
)
SAME = (*("0:K",) * 4, "1:K", "0:K - 1", "0:K:2", "2:K - 1")
APART = ("0:min(K, i + 1)", "min(i, K):K", "0:min(K, j)", "max(0, i - 2):min(K, i + 2)")


def sums(draw: Draw) -> Drawn:
    """One to three sums over (i, j), what they start from, and statements between them."""
    types, total = draw.pick(*TYPES[:1] * 4, *TYPES)
    low = draw.pick(0, 0, 1)
    found = Drawn(["size m in 0:60", "size n in 0:60", f"size K in {low}:60"], large=True)
    a, b = types
    found.head += [f"input A: {a}[m, K]", f"input B: {b}[K, n]", f"input bias: {total}[n]"]
    found.head += [f"input T: {b}[n, K]", f"input S: {a}[K, m]", f"input X: {total}[m, n]"]
    body: list[str] = []
    for name in "DEF"[: draw.pick(1, 1, 2, 2, 3)]:
        shape, place, elsewhere = draw.pick(*PLACES)
        here = f"{name}[{place}]"
        found.head.append(f"inout {name}: {total}[{shape}]")
        start = draw.pick(
            "0", "0", "0", "5", "bias[j]", "X[i, j]", f"{total}(j)", f"{here} + 1", ""
        )
        starts = [f"{name}[{elsewhere}] = 0"] if elsewhere else []
        starts += [f"{here} = {start}"] if start else []
        body += draw.mixed(starts)
        if draw.chance(0.2):
            body.append(f"{here} = {here} * 2")
        left, right = draw.pick(*TERMS)
        term = product(left, right, types, total)
        bounds = draw.pick(*SAME, *(APART if name == "D" else APART * 3))
        body += nest([f"for k in {bounds}"], [f"{here} += {term}"])
        if draw.chance(0.2):
            body += nest(["for k in 0:K"], [f"{here} += {term}"])
        if draw.chance(0.3):
            body.append(
                f"{here} = {draw.pick(f'max({here}, 0)', f'{here} - X[i, j]', f'{here} * 3')}"
            )
    if draw.chance(0.1) and f"inout D: {total}[m, n]" in found.head:
        # What one instance leaves is what the next one of its column starts from.
        found.head.append(f"inout R: {total}[n]")
        body = [
            "D[i, j] = R[j]",
            *(x for x in body if not x.startswith("D[i, j] =")),
            "R[j] = D[i, j]",
        ]
    heads = ["for i in 0:m", "for j in 0:n"]
    found.body += nest(draw.pick(heads, heads, heads[::-1]), body)
    if draw.chance(0.3) and total.startswith("float"):
        found.data = "specials"
    return found
