"""Reductions along rows, and what is made of them: softmax, layer norm, norms, means."""

from __future__ import annotations

from ..drawing import Draw, Drawn, listed, nest


def reduction(draw: Draw) -> Drawn:
    """sum, max or min over some axes, in any order, from any start."""
    dtype = draw.pick("float32", "float32", "float64", "int32", "int64", "int8", "uint8", "float16")
    axes = "ijk"[: draw.pick(1, 2, 2, 3)]
    kept = [a for a in axes if draw.chance(0.5)]
    total = {"int8": "int32", "uint8": "int32", "float16": "float32"}.get(dtype, dtype)
    found = Drawn([f"size {e} in 0:{draw.pick(60, 300)}" for e in "nml"[: len(axes)]])
    extent = dict(zip(axes, "nml", strict=False))
    where = draw.mixed(axes)
    started = draw.pick("zero", "constant", "inf", "old", "vector")
    if started == "inf" and total.startswith("int"):
        started = "constant"
    kind = "inout" if started == "old" else draw.pick("output", "inout")
    found.head += [
        f"input X: {dtype}[{listed(extent[a] for a in where)}]",
        f"{kind} R: {total}[{listed(extent[a] for a in kept)}]",
    ]
    if started == "vector":
        found.head.append(f"input Y: {total}[{listed(extent[a] for a in kept)}]")
    r, x = f"R[{listed(kept)}]", f"X[{listed(where)}]"
    op = draw.pick("+=", "+=", "max=", "min=", "-=")
    start = {
        "zero": "0",
        "constant": draw.pick("7", "-2"),
        "inf": draw.pick("-inf", "inf"),
        "old": "",
        "vector": f"Y[{listed(kept)}]",
    }[started]
    value = x if dtype == total else f"{total}({x})"
    value = draw.pick(
        value,
        value,
        f"{value} * {value}",
        f"abs({value})",
        f"where({axes[-1]} > 1, {value}, 0)",
        f"{value} + 1",
        f"max({value}, 0)",
    )
    loops = {a: f"for {a} in 0:{extent[a]}{draw.pick(*('',) * 9, ':2')}" for a in axes}
    inner = [loops[a] for a in draw.mixed([a for a in axes if a not in kept])]
    outer = [loops[a] for a in draw.mixed(kept)]
    update = [f"{r} {op} {value}"]
    if draw.chance(0.2):
        update = [
            f"if {draw.pick(f'{x} > 0', f'{axes[0]} != 1', f'{axes[-1]} % 2 == 0')}",
            f"  {update[0]}",
        ]
    begin = [f"{r} = {start}"] if start else []
    if draw.chance(0.6):
        after = [f"{r} = {r} * 2"] if draw.chance(0.2) else []
        found.body = nest(outer, [*begin, *nest(inner, update), *after])
    else:
        found.body = [
            *(nest(outer, begin) if begin else []),
            *nest(draw.mixed([*outer, *inner]), update),
        ]
    if draw.chance(0.5) and dtype.startswith("float"):
        found.data = "specials"
    return found


def softmax(draw: Draw) -> Drawn:
    """Rows that are reduced, then used: each form as it is written by hand."""
    dtype = draw.pick("float32", "float32", "float64")
    found = Drawn(
        ["size n in 0:60", "size m in 1:60", f"input X: {dtype}[n, m]", f"output Y: {dtype}[n, m]"],
        data="smooth",
    )
    form = draw.pick("softmax", "layernorm", "rms", "normal", "logsum")
    scratch = draw.pick("[]", "[n]")
    s, t = (f"{x}[]" if scratch == "[]" else f"{x}[i]" for x in "st")
    found.head += [f"local {x}: {dtype}{scratch}" for x in "st"]
    row = ["for j in 0:m"]
    bodies = {
        "softmax": [f"{s} = -inf", *nest(row, [f"{s} max= X[i, j]"]), f"{t} = 0", *nest(row, [f"Y[i, j] = exp(X[i, j] - {s})", f"{t} += Y[i, j]"]), *nest(row, [f"Y[i, j] = Y[i, j] / {t}"])],
        "layernorm": [f"{s} = 0", *nest(row, [f"{s} += X[i, j]"]), f"{s} = {s} / {dtype}(m)", f"{t} = 0", *nest(row, [f"{t} += (X[i, j] - {s}) * (X[i, j] - {s})"]), *nest(row, [f"Y[i, j] = (X[i, j] - {s}) / sqrt({t} / {dtype}(m) + 1)"])],
        "rms": [f"{s} = 0", f"{t} = 1", *nest(row, [f"{s} += X[i, j] * X[i, j]"]), *nest(row, [f"Y[i, j] = X[i, j] * {t} / sqrt({s} + 1)"])],
        "normal": [f"{s} = X[i, 0]", f"{t} = X[i, 0]", *nest(row, [f"{s} max= X[i, j]", f"{t} min= X[i, j]"]), *nest(row, [f"Y[i, j] = (X[i, j] - {t}) / ({s} - {t} + 1)"])],
        "logsum": [f"{s} = 0", *nest(row, [f"{s} += exp(X[i, j])"]), f"{t} = log({s})", *nest(row, [f"Y[i, j] = X[i, j] - {t}"])],
    }  # fmt: skip
    found.body = nest(["for i in 0:n"], bodies[form])
    return found
