"""The same computations as tensor expressions and as text: what is described, and what it means."""

from __future__ import annotations

from ..drawing import Draw, Drawn, listed, nest
from .contractions import product

TYPES = ((("float32", "float32"), "float32"),) * 4 + (
    (("float64", "float64"), "float64"),
    *((("int8", "int8"), "int32"),) * 2,
    *((("uint8", "int8"), "int32"),) * 2,
    (("float16", "float16"), "float32"),
    (("bfloat16", "bfloat16"), "float32"),
    (("int32", "int32"), "int32"),
)


def _python(text: str) -> str:
    """Expressions of the text as Python on `oc`."""
    import re

    text = re.sub(r"\b(exp|log|tanh|erf|sqrt|where)\(", r"oc.\1(", text)
    text = re.sub(r"\babs\(", "oc.absolute(", text)
    text = re.sub(r"\bmax\(", "oc.maximum(", text)
    return re.sub(r"\bmin\(", "oc.minimum(", text)


def _sizes(draw: Draw, names: str) -> tuple[list[str], list[str]]:
    """Declarations in the text and in Python."""
    text, python = [], []
    for name in names:
        low, high = draw.pick(0, 0, 1), draw.pick(60, 200, 4096)
        facts = draw.pick(*("",) * 7, 4)
        low = 0 if facts else low
        text.append(f"size {name} in {low}:{high + 1}" + (f" multiple_of {facts}" if facts else ""))
        python.append(
            f"{name} = oc.dim({name!r}, min={low}, max={high}{f', multiple_of={facts}' if facts else ''})"
        )
    return text, python


def described_contraction(draw: Draw) -> Drawn:
    """A sum of products with bias and activation, as `oc.compute` says it."""
    types, total = draw.pick(*TYPES)
    rows, deep = draw.pick("ij", "ij", "ij", "i", "bij"), draw.pick("k", "k", "kl")
    names = {"i": "m", "j": "n", "k": "K", "b": "g", "l": "L"}
    extents = {
        a: names[a] if draw.chance(0.6) else str(draw.pick(1, 3, 8, 16, 33, 40, 70))
        for a in rows + deep
    }
    text, python = _sizes(draw, "".join(e for e in extents.values() if not e.isdigit()))
    left = draw.mixed([a for a in rows if a != "j"] + list(deep))
    right = draw.mixed(
        [a for a in rows if a != "i" and (a != "b" or draw.chance(0.5))] + list(deep)
    )
    found = Drawn(text, large=True)
    constant = all(extents[a].isdigit() for a in right) and draw.chance(0.5)
    found.head += [
        f"input A: {types[0]}[{listed(extents[a] for a in left)}]",
        f"{'constant' if constant else 'input'} B: {types[1]}[{listed(extents[a] for a in right)}]",
    ]
    python += [
        f"A = oc.placeholder(({listed(extents[a] for a in left)},), {types[0]!r}, name='A')",
        f"B = oc.placeholder(({listed(extents[a] for a in right)},), {types[1]!r}, name='B')",
    ]
    python += [f"{a} = oc.reduce_axis({extents[a]}, name={a!r})" for a in deep]
    op = draw.pick(*("sum",) * 6, "max", "min")
    real = total.startswith("float")
    term = product(f"A[{listed(left)}]", f"B[{listed(right)}]", types, total)
    said = " * ".join(
        f"oc.cast({v}, {total!r})" if t != total else v
        for v, t in zip((f"A[{listed(left)}]", f"B[{listed(right)}]"), types, strict=True)
    )
    shape = listed(extents[a] for a in rows)
    limit = {"float32": "inf", "float64": "inf", "int32": "2147483647"}[total]
    start = {"sum": "0", "max": f"-{limit}" if real else "-2147483648", "min": limit}[op]
    python.append(
        f"C = oc.compute(({shape},), lambda {listed(rows)}: oc.{op}({said}, axis=[{listed(deep)}]), name='C')"
    )
    c, result, inputs = f"C[{listed(rows)}]", "C", ["A", "B"]
    loops = [f"for {a} in 0:{extents[a]}" for a in rows]
    body = [
        f"{c} = {start}",
        *nest(
            [f"for {a} in 0:{extents[a]}" for a in deep],
            [f"{c} {'+=' if op == 'sum' else op + '='} {term}"],
        ),
    ]
    kind = "output"
    found.body = nest(loops, body)
    if draw.chance(0.6):
        vector = draw.pick(*rows)
        found.head.append(f"input V: {total}[{extents[vector]}]")
        python.append(f"V = oc.placeholder(({extents[vector]},), {total!r}, name='V')")
        inputs.append("V")
        form = draw.pick(
            f"max({c} + V[{vector}], 0)",
            f"{c} + V[{vector}]",
            f"{c} * V[{vector}] - 1",
            f"where({c} > V[{vector}], {c}, V[{vector}])",
            f"where({rows[0]} > 1, {c}, V[{vector}])",
        )
        found.body += nest(loops, [f"R[{listed(rows)}] = {form}"])
        python.append(
            f"R = oc.compute(({shape},), lambda {listed(rows)}: {_python(form)}, name='R')"
        )
        found.head += [f"local C: {total}[{shape}]", f"output R: {total}[{shape}]"]
        result = "R"
    else:
        found.head.append(f"{kind} C: {total}[{shape}]")
    found.described = "\n".join([*python, f"result, inputs = {result}, [{listed(inputs)}]"]) + "\n"
    if draw.chance(0.3) and real:
        found.data = "specials"
    return found


def described_chain(draw: Draw) -> Drawn:
    """An element-wise expression of every operator."""
    from .chains import Values

    dtype = draw.pick("float32", "float32", "float64", "int32", "bfloat16", "float16")
    rank = draw.pick(1, 2, 2)
    text, python = _sizes(draw, "nm"[:rank])
    axes, extents = list("ij"[:rank]), list("nm"[:rank])
    shape, at = listed(extents), listed(axes)
    found = Drawn(
        [
            *text,
            f"input A: {dtype}[{shape}]",
            f"input B: {dtype}[{shape}]",
            f"input V: {dtype}[{extents[-1]}]",
            f"output O: {dtype}[{shape}]",
        ]
    )
    smooth = dtype.startswith(("float", "bf")) and draw.chance(0.4)
    values = Values(draw, dtype, [f"A[{at}]", f"B[{at}]", f"V[{axes[-1]}]"], [], smooth)
    values.cast = lambda a: a  # type: ignore[method-assign]
    values.condition = lambda depth: f"A[{at}] {draw.pick('<', '>=', '==')} B[{at}]"  # type: ignore[method-assign]
    value = f"A[{at}] + {values.value(3)} * V[{axes[-1]}] - B[{at}]"
    found.body = nest(
        [f"for {a} in 0:{e}" for a, e in zip(axes, extents, strict=True)], [f"O[{at}] = {value}"]
    )
    python += [
        f"{x} = oc.placeholder(({s},), {dtype!r}, name={x!r})"
        for x, s in (("A", shape), ("B", shape), ("V", extents[-1]))
    ]
    python.append(f"O = oc.compute(({shape},), lambda {at}: {_python(value)}, name='O')")
    found.described = "\n".join([*python, "result, inputs = O, [A, B, V]"]) + "\n"
    small = dtype in ("float16", "bfloat16")
    found.data = (
        "smooth" if smooth else draw.pick("whole", "specials", "rough" if small else "specials")
    )
    return found


def described_window(draw: Draw) -> Drawn:
    """A window that slides: convolution, pooling, padded by where."""
    dtype = draw.pick("float32", "float32", "float64", "int32")
    taps, pad = draw.pick(2, 3, 5), draw.pick(0, 1, 2)
    text, python = [f"size n in {taps}:200"], [f"n = oc.dim('n', min={taps}, max=199)"]
    count = f"n + {2 * pad - taps + 1}"
    x = f"i + r - {pad}" if pad else "i + r"
    op = draw.pick("sum", "sum", "max")
    weights = op == "sum"
    real = dtype.startswith("float")
    low = "0" if op == "sum" else "-inf" if real else "-2147483648"
    said_low = {"0": "0", "-inf": "float('-inf')"}.get(low, low)
    term = f"where({x} >= 0 and {x} < n, X[{x}], {low})" if pad else f"X[{x}]"
    said = f"oc.where(({x} >= 0) & ({x} < n), X[{x}], {said_low})" if pad else f"X[{x}]"
    found = Drawn([*text, f"input X: {dtype}[n]"])
    python.append(f"X = oc.placeholder((n,), {dtype!r}, name='X')")
    inputs = ["X"]
    if weights:
        kind = draw.pick("constant", "input")
        found.head.append(f"{kind} W: {dtype}[{taps}]")
        python.append(f"W = oc.placeholder(({taps},), {dtype!r}, name='W')")
        inputs.append("W")
        term, said = f"{term} * W[r]", f"{said} * W[r]"
    found.head.append(f"output O: {dtype}[{count}]")
    python.append(f"r = oc.reduce_axis({taps}, name='r')")
    python.append(f"O = oc.compute(({count},), lambda i: oc.{op}({said}, axis=r), name='O')")
    found.body = nest(
        [f"for i in 0:{count}"],
        [f"O[i] = {low}", f"for r in 0:{taps}", f"  O[i] {'+=' if op == 'sum' else 'max='} {term}"],
    )
    found.described = "\n".join([*python, f"result, inputs = O, [{listed(inputs)}]"]) + "\n"
    found.data = draw.pick("whole", "specials") if real else "whole"
    return found


def described_operator(draw: Draw) -> Drawn:
    """An operator of `oc.ops`, and its textbook form as text."""
    found = Drawn(["size n in 0:200", "size m in 1:100"], data="smooth")
    python = [
        "n, m = oc.dim('n', max=199), oc.dim('m', min=1, max=99)",
        "X = oc.placeholder((n, m), name='X')",
    ]
    form = draw.pick(
        "softmax", "relu", "dense", "sum", "max", "transpose", "embedding", "gelu", "matmul"
    )
    head, inputs = ["input X: float32[n, m]"], ["X"]
    row, loops = ["for j in 0:m"], ["for i in 0:n"]
    both = [*loops, *row]
    if form == "softmax":
        python.append("R = oc.ops.softmax(X)")
        head += ["local s: float32[n]", "local t: float32[n]", "output R: float32[n, m]"]
        found.body = nest(
            loops,
            [
                "s[i] = -inf",
                *nest(row, ["s[i] max= X[i, j]"]),
                "t[i] = 0",
                *nest(row, ["t[i] += exp(X[i, j] - s[i])"]),
                *nest(row, ["R[i, j] = exp(X[i, j] - s[i]) / t[i]"]),
            ],
        )
    elif form in ("relu", "gelu"):
        python.append(f"R = oc.ops.{form}(X)")
        head.append("output R: float32[n, m]")
        value = (
            "max(X[i, j], 0)"
            if form == "relu"
            else "X[i, j] * 0.5 * (1 + erf(X[i, j] * 0.7071067811865476))"
        )
        found.body = nest(both, [f"R[i, j] = {value}"])
    elif form in ("sum", "max"):
        python.append(f"R = oc.ops.{form}(X, 1)")
        head.append("output R: float32[n]")
        found.body = nest(
            loops,
            [
                f"R[i] = {'0' if form == 'sum' else '-inf'}",
                *nest(row, [f"R[i] {'+=' if form == 'sum' else 'max='} X[i, j]"]),
            ],
        )
    elif form == "transpose":
        python.append("R = oc.ops.transpose(X)")
        head.append("output R: float32[m, n]")
        found.body = nest(both, ["R[j, i] = X[i, j]"])
    elif form == "embedding":
        python = [
            "n, m = oc.dim('n', max=199), oc.dim('m', min=1, max=99)",
            "T = oc.placeholder((4, m), name='T')",
            "I = oc.placeholder((n,), 'int32', name='I')",
            "R = oc.ops.embedding(T, I)",
        ]
        head, inputs = (
            ["input T: float32[4, m]", "input I: int32[n]", "output R: float32[n, m]"],
            ["T", "I"],
        )
        found.body = nest(both, ["R[i, j] = T[index(I[i]), j]"])
    elif form == "dense":
        wide = draw.pick(1, 8, 16, 33)
        activation = draw.pick("None", "'relu'")
        python += [
            f"W = oc.placeholder((m, {wide}), name='W')",
            f"V = oc.placeholder(({wide},), name='V')",
            f"R = oc.ops.dense(X, W, V, activation={activation})",
        ]
        head += [
            f"input W: float32[m, {wide}]",
            f"input V: float32[{wide}]",
            f"output R: float32[n, {wide}]",
        ]
        inputs += ["W", "V"]
        out = (
            "R[i, k] = R[i, k] + V[k]"
            if activation == "None"
            else "R[i, k] = max(R[i, k] + V[k], 0)"
        )
        found.body = nest(
            ["for i in 0:n", f"for k in 0:{wide}"],
            ["R[i, k] = 0", *nest(row, ["R[i, k] += X[i, j] * W[j, k]"]), out],
        )
        found.data = "whole"
    else:
        python += [
            "p = oc.dim('p', max=99)",
            "W = oc.placeholder((m, p), name='W')",
            "R = oc.ops.matmul(X, W)",
        ]
        found.head.append("size p in 0:100")
        head += ["input W: float32[m, p]", "output R: float32[n, p]"]
        inputs.append("W")
        found.body = nest(
            ["for i in 0:n", "for k in 0:p"],
            ["R[i, k] = 0", *nest(row, ["R[i, k] += X[i, j] * W[j, k]"])],
        )
        found.data = draw.pick("whole", "specials")
    found.head += head
    found.described = "\n".join([*python, f"result, inputs = R, [{listed(inputs)}]"]) + "\n"
    return found
