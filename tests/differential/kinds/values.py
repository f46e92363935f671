"""What single lanes make of odd values: NaN, bytes past 127, indices below zero, elements that are not there."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest

FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")
EDGES = (1, 2, 15, 16, 17, 19, 31, 33, 35)


def values(draw: Draw) -> Drawn:
    """One nest over n and m, each a few vectors at most."""
    form = draw.pick(
        *("nan", "extremes", "bytes", "bytes", "indices", "indices", "terms", "terms", "lost")
    )
    forms = {
        "nan": _nan, "extremes": _extremes, "bytes": _bytes,
        "indices": _indices, "terms": _terms, "lost": _lost,
    }  # fmt: skip
    found = Drawn(["size n in 0:99", "size m in 0:99"], steps=("uncut",), threads=1)
    n, m, few = draw.pick(0, 1, 2, 3, 5), draw.pick(*EDGES), draw.pick(1, 1, 2, 3, 6)
    found.sizes = ({"n": n, "m": m}, {"n": m, "m": few} if draw.chance(0.3) else {"n": few, "m": m})
    if form == "indices":
        n, more = draw.number(1, 9), draw.number(1, 5)
        found.sizes = ({"n": n, "m": n + more}, {"n": n + more, "m": n})
    forms[form](draw, found)
    return found


def _compared(draw: Draw, reads: list[str], literals: tuple[str, ...], likely: str) -> str:
    a, b = reads[0], draw.pick(*reads[1:], *literals)
    condition = f"{a} {draw.pick('!=', '==', '<', '<=', '>', '>=', *(likely,) * 4)} {b}"
    return draw.pick(condition, condition, f"not ({condition})", f"({condition} or {reads[1]} < 0)")


def _nan(draw: Draw, found: Drawn) -> None:
    """Comparisons that NaN makes false, and the one that it makes true."""
    dtype = draw.pick(*FLOATS)
    found.head += [f"input X: {dtype}[n, m]", f"input V: {dtype}[m]", f"inout O: {dtype}[n, m]"]
    condition = _compared(draw, ["X[i, j]", "V[j]"], ("0", "1"), "!=")
    store = draw.pick(
        [f"O[i, j] = where({condition}, 1, 2)"],
        [f"if {condition}", "  O[i, j] = X[i, j]"],
        [f"if {condition}", "  O[i, j] = 3", "else", "  O[i, j] += 1"],
    )
    found.body = nest(["for i in 0:n", "for j in 0:m"], store)
    found.data = "specials"


def _extremes(draw: Draw, found: Drawn) -> None:
    """Rows of which one element is NaN, wherever it is."""
    dtype = draw.pick(*FLOATS[:3])
    found.head += [f"input X: {dtype}[n, m]", f"output R: {dtype}[n]"]
    op, start = draw.pick(("max=", "-inf"), ("min=", "inf"), ("max=", "0"))
    value = draw.pick("X[i, j]", "X[i, j]", "abs(X[i, j])", "-X[i, j]")
    found.body = nest(
        ["for i in 0:n"], [f"R[i] = {start}", *nest(["for j in 0:m"], [f"R[i] {op} {value}"])]
    )
    found.data = "one"
    found.sizes = (
        {"n": 1, "m": draw.pick(17, 33, 67, 70)},
        {"n": 1, "m": draw.pick(3, 37, 67, 70)},
    )


def _bytes(draw: Draw, found: Drawn) -> None:
    """Whole numbers of the whole range of their type."""
    dtype = draw.pick("uint8", "uint8", "uint8", "int8", "int32")
    found.head += [f"input X: {dtype}[n, m]", f"input V: {dtype}[m]", f"inout O: {dtype}[n, m]"]
    x, v = "X[i, j]", "V[j]"
    value = draw.pick(
        f"where({_compared(draw, [x, v], ('7', '100'), '>')}, {x}, {v})",
        f"where({_compared(draw, [x, v], ('7', '100'), '>')}, 1, 2)",
        f"{x} {draw.pick('//', '%')} {draw.pick(2, 3, 7, 16)}",
        f"({x} + {v}) {draw.pick('//', '%')} {draw.pick(3, 5)}",
        f"{draw.pick('max', 'min')}({x}, {v})",
    )
    found.body = nest(["for i in 0:n", "for j in 0:m"], [f"O[i, j] = {value}"])
    found.data = "full"


def _indices(draw: Draw, found: Drawn) -> None:
    """Quotients and remainders of what is below zero, in bounds, in indices and as values."""
    c, d = draw.pick(1, 2, 3, 5), draw.pick(2, 3, 4, 7)
    below = draw.pick(f"(m - n)//{d}", f"(n - m)//{d}", f"(i - {c})//{d}", f"(n - 7)//{d}")
    rest = draw.pick(f"(m - n) % {d}", f"(i - n) % {d}", f"(i - {c}) % {d}")
    found.head += ["input A: int32[n + m + 9]", "inout O: int32[n, m]", "inout S: int32[n + 9]"]
    low = draw.pick(f"max(0, {below} + {c})", f"max(0, {below} + 4)", rest, f"max({below}, 0)")
    high = draw.pick("m", "m", f"min(m, {below} + 9)", f"min(m, {rest} + 2)")
    body = draw.pick(
        nest([f"for j in {low}:{high}"], [f"O[i, j] = A[{draw.pick('i', 'j')}] + 1"]),
        nest(["for j in 0:m"], [f"O[i, j] = int32({below}) + A[i] * int32({rest})"]),
        nest(["for j in 0:m"], [f"O[i, j] = A[max({below} + {c}, 0)] - A[{rest}]"]),
        nest(["for j in 0:m"], [f"O[i, j] = A[max({below} + 5, 0)] - A[{rest}]"]),
        [f"S[{rest}] += A[i]", f"S[max({below}, 0)] += 2" if "m" not in below else "S[i] += 2"],
        nest(
            [f"if {below} < {draw.pick('0', '-1', 'i')}"], nest(["for j in 0:m"], ["O[i, j] = 4"])
        ),
    )
    found.body = nest(["for i in 0:n"], body)
    found.head = [
        x for x in found.head if f"{x.split(':')[0].split()[-1]}[" in str(body) or "size" in x
    ]


def _terms(draw: Draw, found: Drawn) -> None:
    """Terms of a reduction, each of which is one of two values."""
    dtype = draw.pick("int32", "float32", "float64", "int64")
    found.head += [f"input X: {dtype}[n, m]", f"inout S: {dtype}[n]", f"inout T: {dtype}[m]"]
    op = draw.pick("+=", "+=", "max=", "min=", "-=")
    other = draw.pick("3", "-7", "1", "0", "X[i, 0]")
    condition = draw.pick("X[i, j] > 0", "X[i, j] != 1", "X[i, 0] < 1", "j % 3 == 1")
    value = f"where({condition}, {draw.pick('X[i, j]', 'X[i, j] * X[i, j]')}, {other})"
    target, used = draw.pick(("S[i]", "S"), ("T[j]", "T"))
    found.head = [x for x in found.head if not x.startswith("inout") or f" {used}:" in x]
    found.body = nest(draw.mixed(["for i in 0:n", "for j in 0:m"]), [f"{target} {op} {value}"])


def _lost(draw: Draw, found: Drawn) -> None:
    """Elements that are read where what is read says that they are there."""
    dtype, kind = draw.pick("float32", "int32", "float64"), draw.pick("int32", "int64")
    found.head += [f"input X: {dtype}[n, m]", f"input V: {dtype}[n]", f"input I: {kind}[n]"]
    found.head += [f"inout O: {dtype}[n, m]"]
    inside = "index(I[i]) < n and I[i] >= 0"
    held = draw.pick("", "X[i, j] > 0 and ")
    at = "V[index(I[i])]"
    found.body = nest(
        ["for i in 0:n", "for j in 0:m"],
        draw.pick(
            [f"O[i, j] = where({held}{inside}, {at}, X[i, j])"],
            [f"O[i, j] += where({held}{inside}, {at}, 0)"],
            [f"if {held}{inside}", f"  O[i, j] = {at}"],
        ),
    )
