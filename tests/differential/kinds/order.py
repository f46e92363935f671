"""What is right in one order alone: scalars and sweeps that threads share, and nests that are no computation."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest


def order(draw: Draw) -> Drawn:
    """Statements that an order of their own would break, at sizes of several shares."""
    form = draw.pick("carried", "carried", "sweeps", "sweeps", "backwards", "part")
    found = Drawn(["size n in 0:60", "size m in 0:60"])
    found.steps = ("strategy",) if form == "carried" else ("uncut",)
    threads = form in ("carried", "sweeps")
    found.threads = draw.pick(2, 2, 3) if threads else 1
    forms = {"carried": _carried, "sweeps": _sweeps, "backwards": _backwards, "part": _part}
    forms[form](draw, found)
    found.sizes = tuple(
        {"n": n, "m": m} for n, m in ((draw.pick(0, 2, 3, 7, 12), draw.pick(1, 5, 16, 19)), (9, 7))
    )
    return found


def _carried(draw: Draw, found: Drawn) -> None:
    """A private scalar: one iteration's own, or what the next one goes on with."""
    dtype = draw.pick("float32", "int32", "float64")
    found.head += [f"input X: {dtype}[n, m]", f"input A: {dtype}[n]", f"inout O: {dtype}[n, m]"]
    found.head.append(f"local t: {dtype}[]")
    uses = nest(["for j in 0:m"], [f"O[i, j] {draw.pick('=', '+=')} X[i, j] + t[]"])
    change = draw.pick(
        ["t[] += A[i]"],
        ["if A[i] > 0", "  t[] = A[i]"],
        ["t[] = A[i]"],
        ["t[] max= A[i]"],
        ["t[] = A[i]", "t[] += X[i, 0]"],
    )
    body = [*change, *uses] if draw.chance(0.6) else [*uses, *change]
    found.body = ["t[] = 3", *nest(["for i in 0:n"], body)]
    if "X[i, 0]" in str(change):
        found.head[1] = "size m in 1:60"
    text = found.text.replace("local t", "private t")
    found.described = f'result, inputs = written("""{text}"""), None\n'


def _sweeps(draw: Draw, found: Drawn) -> None:
    """A loop over time around sweeps that all threads share, each of what the one before left."""
    dtype = draw.pick("float32", "int32", "float64")
    found.head += [f"inout O: {dtype}[n, m]", f"inout A: {dtype}[m]", f"inout S: {dtype}[n]"]
    whole = ["for i in 0:n", "for j in 0:m"]
    sweeps = [
        nest(whole, [f"O[i, j] = {draw.pick('O[i, j] + A[j]', 'A[j]', 'A[j] + S[i]')}"]),
        nest(["for j in 0:m"], [f"A[j] = {draw.pick('A[j] + 1', 'A[m - 1 - j] - 2', '2 - A[j]')}"]),
        nest(["for i in 0:n"], [f"S[i] {draw.pick('=', '+=')} {draw.pick('S[n - 1 - i]', '1')}"]),
    ]
    if draw.chance(0.5):
        sweeps[0] = nest(whole[::-1], [sweeps[0][-1].strip()])
    sweeps.append(nest(whole, [f"S[i] {draw.pick('+=', 'max=')} O[i, j]"]))
    chosen = draw.mixed(sweeps)[: draw.pick(2, 2, 3)]
    if draw.chance(0.8) and sweeps[0] not in chosen:
        chosen[0] = sweeps[0]
    body = [line for sweep in chosen for line in sweep]
    found.body = nest([f"for u in 0:{draw.pick(2, 3)}"], body)
    found.head = [x for x in found.head if x[:4] == "size" or f"{x[6]}[" in str(body)]


def _product(draw: Draw, found: Drawn, columns: str, start: list[str]) -> None:
    """A sum of products as a microkernel computes it, from a start that is right only in its place."""
    found.head += ["input A: float32[m, 5]", "input B: float32[5, n]"]
    sums = nest(["for k in 0:5"], ["D[i, j] += A[i, k] * B[k, j]"])
    found.body = nest(["for i in 0:m", f"for j in {columns}"], [*start, *sums])


def _backwards(draw: Draw, found: Drawn) -> None:
    """A start that is read from what a later iteration writes, and an earlier one has written."""
    found.head += ["input X: float32[m, n]", "inout S: float32[m, n]", "output D: float32[m, n]"]
    at = draw.pick("m - 1 - i, n - 1 - j", "m - 1 - i, j", "i, n - 1 - j")
    _product(draw, found, "0:n", draw.mixed(["S[i, j] = X[i, j]", f"D[i, j] = S[{at}]"]))


def _part(draw: Draw, found: Drawn) -> None:
    """An array of which the nest writes a part."""
    shape, columns = draw.pick(("m, n + 3", "0:n"), ("m + 1, n", "0:n"), ("m, n", "0:n//2"))
    found.head += [f"inout D: float32[{shape}]"]
    _product(draw, found, columns, draw.pick(["D[i, j] = 0"], ["D[i, j] = 1"], []))
