"""Operators of `oc.ops` beside their textbook forms: windows, norms, attention, layouts, types."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest

N, M = "n = oc.dim('n', max=199)", "m = oc.dim('m', min=1, max=99)"
IJ = ["for i in 0:n", "for j in 0:m"]


def network(draw: Draw) -> Drawn:
    """One operator, or two of them in a row."""
    return draw.pick(
        _layernorm,
        _attention,
        _conv,
        _pool,
        _mean,
        _two_layers,
        _outputs,
        _sweep,
        _turned,
        _residual,
    )(draw)


def _made(found: Drawn, python: list[str], result: str, inputs: str) -> Drawn:
    found.described = "\n".join([*python, f"result, inputs = {result}, [{inputs}]"]) + "\n"
    return found


def _layernorm(draw: Draw) -> Drawn:
    found = Drawn(
        [
            "size n in 0:200",
            "size m in 1:100",
            "input X: float32[n, m]",
            "local s: float32[n]",
            "local t: float32[n]",
            "output R: float32[n, m]",
        ],
        data="smooth",
    )
    row = ["for j in 0:m"]
    if draw.chance(0.5):
        found.body = nest(
            ["for i in 0:n"],
            [
                "s[i] = 0",
                *nest(row, ["s[i] += X[i, j] / float32(m)"]),
                "t[i] = 0",
                *nest(row, ["t[i] += (X[i, j] - s[i]) * (X[i, j] - s[i]) / float32(m)"]),
                *nest(row, ["R[i, j] = (X[i, j] - s[i]) / sqrt(t[i] + 0.1)"]),
            ],
        )
        return _made(
            found,
            [N, M, "X = oc.placeholder((n, m), name='X')", "R = oc.ops.layernorm(X, epsilon=0.1)"],
            "R",
            "X",
        )
    found.body = nest(
        ["for i in 0:n"],
        [
            "t[i] = 0",
            *nest(row, ["t[i] += X[i, j] * X[i, j] / float32(m)"]),
            *nest(row, ["R[i, j] = X[i, j] / sqrt(t[i] + 0.1)"]),
        ],
    )
    found.head.remove("local s: float32[n]")
    return _made(
        found,
        [N, M, "X = oc.placeholder((n, m), name='X')", "R = oc.ops.rmsnorm(X, epsilon=0.1)"],
        "R",
        "X",
    )


def _attention(draw: Draw) -> Drawn:
    deep = draw.pick(1, 4, 8, 16)
    causal = draw.chance(0.4)
    keep = "j <= i" if causal else "true"
    sizes = ["size n in 0:60", "size m in 1:60"] if not causal else ["size n in 1:60"]
    m = "n" if causal else "m"
    found = Drawn(
        [
            *sizes,
            f"input Q: float32[n, {deep}]",
            f"input K: float32[{m}, {deep}]",
            f"input V: float32[{m}, {deep}]",
            f"local S: float32[n, {m}]",
            "local s: float32[n]",
            "local t: float32[n]",
            f"output R: float32[n, {deep}]",
        ],
        data="smooth",
    )
    row = [f"for j in 0:{m}"]
    scale = deep**-0.5
    found.body = nest(["for i in 0:n"], [
        *nest(row, ["S[i, j] = 0", *nest([f"for k in 0:{deep}"], ["S[i, j] += Q[i, k] * K[j, k]"]), f"S[i, j] = where({keep}, S[i, j] * {scale}, -inf)"]),
        "s[i] = -inf", *nest(row, ["s[i] max= S[i, j]"]),
        "t[i] = 0", *nest(row, ["t[i] += exp(S[i, j] - s[i])"]),
        *nest([f"for k in 0:{deep}"], ["R[i, k] = 0", *nest(row, ["R[i, k] += exp(S[i, j] - s[i]) / t[i] * V[j, k]"])]),
    ])  # fmt: skip
    dims = (
        ["n = oc.dim('n', min=1, max=59)", "m = n"]
        if causal
        else ["n = oc.dim('n', max=59)", "m = oc.dim('m', min=1, max=59)"]
    )
    python = [
        *dims,
        f"Q = oc.placeholder((n, {deep}), name='Q')",
        *(f"{x} = oc.placeholder((m, {deep}), name='{x}')" for x in "KV"),
        f"R = oc.ops.attention(Q, K, V, causal={causal})",
    ]
    return _made(found, python, "R", "Q, K, V")


def _conv(draw: Draw) -> Drawn:
    channels, wide, taps = draw.pick(1, 3, 8), draw.pick(1, 4, 16), draw.pick(1, 3)
    pad, stride = draw.pick(0, 1) if taps == 3 else 0, draw.pick(1, 1, 2)
    fixed = draw.chance(0.5)
    h, w = (f"({x} + {2 * pad - taps})//{stride} + 1" for x in "hw")
    y, x = (f"{stride}*{a} + {b} - {pad}" for a, b in (("i", "r"), ("j", "s")))
    kind = "constant" if fixed else "input"
    found = Drawn(
        [
            f"size h in {taps}:30",
            f"size w in {taps}:30",
            f"input X: float32[1, {channels}, h, w]",
            f"{kind} W: float32[{wide}, {channels}, {taps}, {taps}]",
            f"output R: float32[1, {wide}, {h}, {w}]",
        ],
        data=draw.pick("whole", "specials"),
    )
    term = f"where({y} >= 0 and {y} < h and {x} >= 0 and {x} < w, X[0, c, {y}, {x}], 0) * W[o, c, r, s]"
    if pad:
        found.data = "whole"
    found.body = nest(
        [f"for o in 0:{wide}", f"for i in 0:{h}", f"for j in 0:{w}"],
        [
            "R[0, o, i, j] = 0",
            *nest(
                [f"for c in 0:{channels}", f"for r in 0:{taps}", f"for s in 0:{taps}"],
                [f"R[0, o, i, j] += {term}"],
            ),
        ],
    )
    python = [
        f"h, w = oc.dim('h', min={taps}, max=29), oc.dim('w', min={taps}, max=29)",
        f"X = oc.placeholder((1, {channels}, h, w), name='X')",
        f"W = oc.placeholder(({wide}, {channels}, {taps}, {taps}), name='W')",
        f"R = oc.ops.conv2d(X, W, stride={stride}, padding={pad})",
    ]
    return _made(found, python, "R", "X, W")


def _pool(draw: Draw) -> Drawn:
    window, stride = draw.pick(2, 3), draw.pick(1, 2, 3)
    h, w = (f"({x} - {window})//{stride} + 1" for x in "hw")
    most = draw.chance(0.6)
    found = Drawn(
        [
            f"size h in {window}:40",
            f"size w in {window}:40",
            "input X: float32[1, 2, h, w]",
            f"output R: float32[1, 2, {h}, {w}]",
        ],
        data=draw.pick("whole", "specials") if most else "smooth",
    )
    term = f"X[0, c, {stride}*i + r, {stride}*j + s]"
    update = (
        f"R[0, c, i, j] max= {term}" if most else f"R[0, c, i, j] += {term} / {window * window}"
    )
    found.body = nest(
        ["for c in 0:2", f"for i in 0:{h}", f"for j in 0:{w}"],
        [
            f"R[0, c, i, j] = {'-inf' if most else '0'}",
            *nest([f"for r in 0:{window}", f"for s in 0:{window}"], [update]),
        ],
    )
    python = [
        f"h, w = oc.dim('h', min={window}, max=39), oc.dim('w', min={window}, max=39)",
        "X = oc.placeholder((1, 2, h, w), name='X')",
        f"R = oc.ops.{'max' if most else 'avg'}_pool2d(X, {window}, {stride})",
    ]
    return _made(found, python, "R", "X")


def _mean(draw: Draw) -> Drawn:
    dtype = draw.pick("float32", "float64")
    form = draw.pick("columns", "all", "min")
    found = Drawn(["size n in 1:200", "size m in 1:100", f"input X: {dtype}[n, m]"], data="smooth")
    python = [N.replace("max", "min=1, max"), M, f"X = oc.placeholder((n, m), {dtype!r}, name='X')"]
    if form == "columns":
        found.head.append(f"output R: {dtype}[m]")
        found.body = nest(
            ["for j in 0:m"], ["R[j] = 0", *nest(["for i in 0:n"], ["R[j] += X[i, j]"])]
        )
        return _made(found, [*python, "R = oc.ops.sum(X, 0)"], "R", "X")
    if form == "all":
        found.head.append(f"output R: {dtype}[]")
        found.body = ["R[] = 0", *nest(IJ, ["R[] += X[i, j]"])]
        return _made(found, [*python, "R = oc.ops.sum(X, (0, 1))"], "R", "X")
    found.head.append(f"output R: {dtype}[n]")
    found.data = "specials"
    found.body = nest(
        ["for i in 0:n"], ["R[i] = inf", *nest(["for j in 0:m"], ["R[i] min= X[i, j]"])]
    )
    return _made(found, [*python, "R = oc.ops.min(X, 1)"], "R", "X")


def _two_layers(draw: Draw) -> Drawn:
    wide, out = draw.pick(3, 8, 16), draw.pick(1, 5, 16)
    kind = draw.pick("constant", "input")
    found = Drawn(
        [
            "size n in 0:100",
            "input X: float32[n, 7]",
            f"{kind} W: float32[7, {wide}]",
            f"{kind} U: float32[{wide}, {out}]",
            f"local H: float32[n, {wide}]",
            f"output R: float32[n, {out}]",
        ]
    )
    found.body = [
        *nest(
            ["for i in 0:n", f"for j in 0:{wide}"],
            [
                "H[i, j] = 0",
                *nest(["for k in 0:7"], ["H[i, j] += X[i, k] * W[k, j]"]),
                "H[i, j] = max(H[i, j], 0)",
            ],
        ),
        *nest(
            ["for i in 0:n", f"for j in 0:{out}"],
            ["R[i, j] = 0", *nest([f"for k in 0:{wide}"], ["R[i, j] += H[i, k] * U[k, j]"])],
        ),
    ]
    python = [
        "n = oc.dim('n', max=99)",
        "X = oc.placeholder((n, 7), name='X')",
        f"W = oc.placeholder((7, {wide}), name='W')",
        f"U = oc.placeholder(({wide}, {out}), name='U')",
        "H = oc.ops.dense(X, W, activation='relu')",
        "R = oc.ops.dense(H, U)",
    ]
    return _made(found, python, "R", "X, W, U")


def _outputs(draw: Draw) -> Drawn:
    """Two results of one program."""
    dtype = draw.pick("float32", "int32")
    found = Drawn(
        [
            "size n in 0:200",
            "size m in 0:100",
            f"input A: {dtype}[n, m]",
            f"input V: {dtype}[m]",
            f"output P: {dtype}[n, m]",
            f"output S: {dtype}[n]",
        ],
        data=draw.pick("whole", "specials"),
    )
    found.body = nest(
        ["for i in 0:n"],
        [
            *nest(["for j in 0:m"], ["P[i, j] = A[i, j] + V[j]"]),
            "S[i] = 0",
            *nest(["for j in 0:m"], ["S[i] += P[i, j]"]),
        ],
    )
    python = [
        N,
        M.replace("min=1, ", ""),
        f"A = oc.placeholder((n, m), {dtype!r}, name='A')",
        f"V = oc.placeholder((m,), {dtype!r}, name='V')",
        "P = oc.compute((n, m), lambda i, j: A[i, j] + V[j], name='P')",
        "k = oc.reduce_axis(m, name='k')",
        "S = oc.compute((n,), lambda i: oc.sum(P[i, k], axis=k), name='S')",
    ]
    return _made(found, python, "[P, S]", "A, V")


def _sweep(draw: Draw) -> Drawn:
    """A recurrence in place."""
    dtype = draw.pick("float64", "float32")
    found = Drawn(["size steps in 0:20", "size n in 3:60", f"inout V: {dtype}[n]"], data="smooth")
    jacobi = draw.chance(0.4)
    value = "(V[i - 1] + V[i + 1]) / 2" if not jacobi else "(V[i] + V[i + 1]) / 2"
    found.body = nest(["for t in 0:steps", "for i in 1:n - 1"], [f"V[i] = {value}"])
    python = [
        "n, steps = oc.dim('n', min=3, max=59), oc.dim('steps', max=19)",
        f"V = oc.placeholder((n,), {dtype!r}, name='V')",
        f"R = oc.recurrence(steps, lambda t: oc.update(V, lambda i: {value}, where=lambda i: (i >= 1) & (i < n - 1)))",
    ]
    return _made(found, python, "R", "V")


def _turned(draw: Draw) -> Drawn:
    dtype = draw.pick("float32", "int32", "bfloat16", "uint8")
    found = Drawn(
        [
            "size n in 0:200",
            "size m in 0:100",
            "size p in 0:40",
            f"input X: {dtype}[n, m, p]",
            f"output R: {dtype}[p, n, m]",
        ]
    )
    found.body = nest([*IJ, "for k in 0:p"], ["R[k, i, j] = X[i, j, k]"])
    python = [
        N,
        M.replace("min=1, ", ""),
        "p = oc.dim('p', max=39)",
        f"X = oc.placeholder((n, m, p), {dtype!r}, name='X')",
        "R = oc.ops.transpose(X, (2, 0, 1))",
    ]
    return _made(found, python, "R", "X")


def _residual(draw: Draw) -> Drawn:
    """Rows that are reduced, and used beside what they were made of."""
    found = Drawn(
        [
            "size n in 0:200",
            "size m in 1:100",
            "input X: float32[n, m]",
            "local s: float32[n]",
            "output R: float32[n, m]",
        ],
        data=draw.pick("whole", "specials"),
    )
    op = draw.pick("max", "sum", "min")
    start = {"max": "-inf", "min": "inf", "sum": "0"}[op]
    update = {"max": "max=", "min": "min=", "sum": "+="}[op]
    found.body = nest(
        ["for i in 0:n"],
        [
            f"s[i] = {start}",
            *nest(["for j in 0:m"], [f"s[i] {update} X[i, j]"]),
            *nest(["for j in 0:m"], ["R[i, j] = X[i, j] * 2 - s[i]"]),
        ],
    )
    python = [
        N,
        M,
        "X = oc.placeholder((n, m), name='X')",
        "k = oc.reduce_axis(m, name='k')",
        f"s = oc.compute((n,), lambda i: oc.{op}(X[i, k], axis=k), name='s')",
        "R = oc.compute((n, m), lambda i, j: X[i, j] * 2.0 - s[i], name='R')",
    ]
    return _made(found, python, "R", "X")
