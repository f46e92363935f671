"""A dense layer as it is described: of every element type, its weights constant or not, ragged in all that it has."""

from __future__ import annotations

from math import prod

from ..drawing import Draw, Drawn, nest
from .contractions import product

TYPES = (
    *((("float32", "float32"), "float32"),) * 2,
    (("float64", "float64"), "float64"),
    *((("int8", "int8"), "int32"),) * 2,
    *((("uint8", "int8"), "int32"),) * 2,
    *((("bfloat16", "bfloat16"), "float32"),) * 2,
    (("float16", "float16"), "float32"),
)


def layer(draw: Draw) -> Drawn:
    """R[i, j], the sum over k of A[i, k] and B[k, j] or B[j, k], with or without a bias and an activation."""
    (a, b), total = draw.pick(*TYPES)
    n = draw.pick("n", "n", "1", "16", "17", "33", "40", "70")
    depth = draw.pick("K", "K", "3", "8", "17", "33", "64", "70", "130")
    known = [int(x) for x in (n, depth) if x.isdigit()]
    m = draw.pick("m", "m", "m", "1", "17", "33") if prod(known) <= 200 else "m"
    names = [x for x in (m, n, depth) if not x.isdigit()]
    found = Drawn([f"size {name} in 0:200" for name in names], large=True)
    python = [f"{name} = oc.dim({name!r}, max=199)" for name in names]
    turned = draw.chance(0.5)
    shape, at = (f"{n}, {depth}", "j, k") if turned else (f"{depth}, {n}", "k, j")
    constant = n.isdigit() and depth.isdigit() and draw.chance(0.7)
    found.head += [
        f"input A: {a}[{m}, {depth}]",
        f"{'constant' if constant else 'input'} B: {b}[{shape}]",
    ]
    python += [
        f"A = oc.placeholder(({m}, {depth}), {a!r}, name='A')",
        f"B = oc.placeholder(({shape}), {b!r}, name='B')",
        f"k = oc.reduce_axis({depth}, name='k')",
    ]
    term = product("A[i, k]", f"B[{at}]", (a, b), total)
    said = " * ".join(
        f"oc.cast({read}, {total!r})" if dtype != total else read
        for read, dtype in (("A[i, k]", a), (f"B[{at}]", b))
    )
    loops, rest = [f"for i in 0:{m}", f"for j in 0:{n}"], [f"for k in 0:{depth}"]
    after = draw.pick("", "", "max(C[i, j] + V[j], 0)", "C[i, j] - V[j]")
    found.head.append(f"{'local' if after else 'output'} C: {total}[{m}, {n}]")
    found.body = nest(loops, ["C[i, j] = 0", *nest(rest, [f"C[i, j] += {term}"])])
    python.append(f"C = oc.compute(({m}, {n}), lambda i, j: oc.sum({said}, axis=k), name='C')")
    result, inputs = "C", "A, B"
    if after:
        found.head += [f"input V: {total}[{n}]", f"output R: {total}[{m}, {n}]"]
        found.body += nest(loops, [f"R[i, j] = {after}"])
        value = after.replace("max(", "oc.maximum(")
        python += [
            f"V = oc.placeholder(({n},), {total!r}, name='V')",
            f"R = oc.compute(({m}, {n}), lambda i, j: {value}, name='R')",
        ]
        result, inputs = "R", "A, B, V"
    found.described = "\n".join([*python, f"result, inputs = {result}, [{inputs}]"]) + "\n"
    if draw.chance(0.3) and total.startswith("float"):
        found.data = "specials"
    return found
