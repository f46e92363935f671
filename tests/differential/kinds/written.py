"""Tiles as an author writes them: anywhere and of any size, with packed operands, windows and microkernels."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest
from .contractions import product

# element types of the operands and of the sum, microkernels of these terms, rows side by side in a panel
UNITS = (
    *((("float32", "float32"), "float32", ("fma_float32",), 1),) * 5,
    (("float64", "float64"), "float64", ("fma_float64",), 1),
    *((("int8", "int8"), "int32", ("vnni_int8", "amx_int8"), 4),) * 2,
    (("uint8", "int8"), "int32", ("vnni_uint8", "amx_uint8"), 4),
    *((("bfloat16", "bfloat16"), "float32", ("fma_bfloat16", "amx_bfloat16"), 2),) * 3,
)
BOUNDS = (*("0:K",) * 4, "1:K", "0:K - 1", "0:min(K, i + 1)", "0:min(K, j + 1)", "min(i, K):K")
GROUPS = ("0:K", "1:K", "0:K - 1", "0:K - 1")
EDGES = (1, 5, 8, 9, 16, 17, 21, 33, 40, 50, 59)
MOST = 2400  # terms of a call


def written(draw: Draw) -> Drawn:
    """The text says what is computed; what is compiled is the same with its loops in tiles."""
    found = Drawn(
        ["size m in 0:60", "size n in 0:60", "size K in 0:60"], steps=("strategy",), threads=1
    )
    form = draw.pick("sum", "sum", "sum", "sum", "panels", "window")
    made = {"sum": _sum, "panels": _panels, "window": _window}[form](draw, found)
    text = "\n".join(["program drawn", *found.ordered, *made])
    found.described = f'result, inputs = written("""{text}\n"""), None\n'
    found.head = [line.split(" @panels")[0] for line in found.head if not line.startswith("local")]
    found.sizes = tuple(_sizes(draw, found.emulated) for _ in range(2))
    return found


def _sizes(draw: Draw, tall: bool) -> dict[str, int]:
    m, n = draw.pick(0, 1, 3, 5, 8, 9, 13), draw.pick(0, *EDGES)
    if tall and draw.chance(0.6):  # more than one tile of the tensor unit
        m, n = draw.pick(18, 20), draw.pick(33, 40, 50)
    deep = draw.pick(0, 1, 2, 3, 4, 5, 9, 17, 33)
    return {"m": m, "n": n, "K": min(deep, max(MOST // max(m * n, 1), 1))}


def _rows(draw: Draw, tall: bool) -> tuple[list[str], str, str, str]:
    """Loops around the tiles, the axis of the rows, its limit, and the loop that is meant."""
    h = draw.pick(5, 20, 24, 32) if tall else draw.pick(4, 5, 8, 14)
    way = draw.pick("limited", "limited", "limited", "short", "halves", "first", "last")
    if way == "limited":
        return [f"for t in 0:(m + {h - 1})//{h}"], f"i in {h}*t +: {h}", "i < m", "for i in 0:m"
    if way == "short":
        axis = f"i in {h}*t +: min({h}, m - {h}*t)"
        return [f"for t in 0:(m + {h - 1})//{h}"], axis, "", "for i in 0:m"
    if way == "halves":  # of which the second may have no row
        heads = [f"for t in 0:(m + {2 * h - 1})//{2 * h}", "for s in 0:2"]
        return heads, f"i in {2 * h}*t + {h}*s +: {h}", "i < m", "for i in 0:m"
    if way == "first":
        return [], f"i in 0 +: min(m, {h})", "", f"for i in 0:min(m, {h})"
    return [], f"i in 0 +: {h}", "i < m", f"for i in 0:min(m, {h})"


def _columns(draw: Draw, tall: bool) -> tuple[list[str], list[tuple[str, str]]]:
    """Loops around the tiles, and the columns of each with their limit."""
    ways = ("all", "tiles", "tiles", "apart", "whole", "whole")
    way = draw.pick(*ways, *("all",) * (4 if tall else 0))
    if way == "all":
        return [], [("j in 0 +: n", "")]
    if way == "apart":
        c = draw.pick(3, 5, 16)
        return [], [(f"j in 0 +: min(n, {c})", ""), (f"j in min(n, {c}) +: n - min(n, {c})", "")]
    w = draw.pick(5, 12, 16, 20, 32, 48, 64)
    head = [f"for u in 0:(n + {w - 1})//{w}"]
    if way == "whole":  # a literal number of columns
        w = draw.pick(20, 33, 48, 48)
        head = [f"for u in 0:(n + {w - 1})//{w}", f"if {w}*u + {w} <= n"]
        return head, [(f"j in {w}*u +: {w}", "")]
    if draw.chance(0.5):
        return head, [(f"j in {w}*u +: {w}", "j < n")]
    return head, [(f"j in {w}*u +: min({w}, n - {w}*u)", "")]


def _tile(axes: list[tuple[str, str]], form: str, kernel: str, body: list[str]) -> list[str]:
    limits = " and ".join(limit for _, limit in axes if limit)
    where = f" where {limits}" if limits else ""
    marks = f"  @{form}" if form else ""
    marks += f"  @cover({kernel})" if kernel else ""
    return nest([f"tile {', '.join(axis for axis, _ in axes)}{where}{marks}"], body)


def _sum(draw: Draw, found: Drawn) -> list[str]:
    """D from a start, plus a product, and what follows it."""
    (a, b), total, kernels, side = draw.pick(*UNITS)
    kernel = draw.pick(*kernels)
    tall = kernel.startswith("amx")
    found.head += [f"input A: {a}[m, K]", f"input B: {b}[K, n]", f"inout D: {total}[m, n]"]
    packed = draw.chance(0.6) or side > 1
    width = 8 if total == "float64" else 16
    made: list[str] = []
    if packed:
        made = _packed(draw, found, b, width, side, kernel)
    zero = ["D[i, j] = 0"]
    starts = ([], zero, zero, zero) if tall else ([], [], [], zero, ["D[i, j] = bias[j]"])
    start = draw.pick(*starts)
    found.head += [f"input bias: {total}[n]"] if "bias" in str(start) else []
    terms = f"for k in {draw.pick(*(GROUPS if side > 1 else BOUNDS))}"
    after = draw.pick([], [], ["E[i, j] = D[i, j]"], ["D[i, j] = max(D[i, j], 0)"])
    found.head += [f"output E: {total}[m, n]"] if "E[" in str(after) else []
    sums = {
        name: [
            *start,
            *nest([terms], [f"D[i, j] += {product('A[i, k]', f'{name}[k, j]', (a, b), total)}"]),
            *after,
        ]
        for name in "BP"
    }
    heads, axis, limit, loop = _rows(draw, tall)
    inner, columns = _columns(draw, tall)
    form = draw.pick("mask", "pad", "pad") if limit else ""
    tiles: list[str] = []
    for column, end in columns:
        axes = [(axis, limit), (column, end)]
        tiles += _tile(axes, "mask" if end and not form else form, kernel, sums["BP"[packed]])
    made += nest([*heads, *inner], tiles)
    if any(head.startswith("if ") for head in inner):
        w = inner[1].split("*")[0].split()[1]
        found.body = nest([loop, f"for j in 0:n - n % {w}"], sums["B"])
    else:
        found.body = nest([loop, "for j in 0:n"], sums["B"])
    some = ("specials",) if a == "bfloat16" else ("whole", "specials")
    found.data = draw.pick(*some) if total.startswith("float") else "whole"
    found.emulated = tall
    return made


def _packed(draw: Draw, found: Drawn, dtype: str, width: int, side: int, kernel: str) -> list[str]:
    """P, which is B in panels: with zeros below, or as deep as B is."""
    groups = {"amx_int8": 64, "amx_uint8": 64, "amx_bfloat16": 32}.get(kernel, side)
    layout = f"@panels(0, 1, {width}{f', {side}, {groups}' if side > 1 else ''})"
    depth, value = "K", "B[k, j]"
    if groups > 1 and draw.chance(0.75):
        depth = f"{groups}*((K + {groups - 1})//{groups})"
        value = "where(k < K, B[k, j], 0)"
    found.head.append(f"local P: {dtype}[{depth}, n] {layout}")
    return nest(
        [f"for k in 0:{depth}"], _tile([("j in 0 +: n", "")], "", "", [f"P[k, j] = {value}"])
    )


def _panels(draw: Draw, found: Drawn) -> list[str]:
    """What is packed, read and written by vectors that begin anywhere."""
    dtype = draw.pick("float32", "float32", "int32", "float64")
    side = draw.pick(1, 1, 1, 2)
    width = draw.pick(16, 16, 8, 32)
    groups = f", {side}, {side}" if side > 1 else ""
    found.head += [f"input B: {dtype}[K, n]", f"output Q: {dtype}[K, n]"]
    found.head.append(f"local P: {dtype}[K, n] @panels(0, 1, {width}{groups})")
    made: list[str] = []
    for store in ("P[k, j] = B[k, j]", "Q[k, j] = P[k, j] * 2"):
        w = draw.pick(3, 5, 16, 20, 24, 40)
        axes = [(f"j in {w}*u +: {w}", "j < n")]
        if draw.chance(0.3):
            axes = [(f"j in {w}*u +: min({w}, n - {w}*u)", "")]
        heads = ["for k in 0:K", f"for u in 0:(n + {w - 1})//{w}"]
        made += nest(heads, _tile(axes, "mask" if axes[0][1] else "", "", [store]))
    found.body = nest(["for k in 0:K", "for j in 0:n"], ["Q[k, j] = B[k, j] * 2"])
    return made


def _window(draw: Draw, found: Drawn) -> list[str]:
    """A window of rows, filled and read by vectors, of neighbours or of elements that lie apart."""
    dtype = draw.pick("float32", "int32", "float64")
    h = draw.pick(2, 4, 5)
    found.head += [f"input X: {dtype}[m, n]", f"output E: {dtype}[m, n]", f"local W: {dtype}[m, n]"]
    at = draw.pick("i, j", "i, n - 1 - j", "i, max(j, n - 1 - j)", "i, min(j, 3)", "i, j//2")
    rows = [f"for i in {h}*t:min(m, {h}*t + {h})"]
    tile = [("j in 0 +: n", "")]
    inside = [
        *nest(rows, _tile(tile, "", "", ["W[i, j] = X[i, j] * 2"])),
        *nest(rows, _tile(tile, "", "", [f"E[i, j] = W[{at}] + 1"])),
    ]
    made = nest([f"for t in 0:(m + {h - 1})//{h}", f"alloc W[{h}*t +: {h}, 0 +: n]"], inside)
    found.body = nest(["for i in 0:m", "for j in 0:n"], [f"E[i, j] = X[{at}] * 2 + 1"])
    return made
