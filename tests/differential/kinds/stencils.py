"""Neighbours: stencils, convolutions with and without padding, and updates in place."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest


def stencil(draw: Draw) -> Drawn:
    """Weighted neighbours in one or two dimensions, one time or several."""
    dtype = draw.pick("float32", "float64", "int32")
    found = Drawn(
        ["size n in 0:60"], data=draw.pick("whole", "specials") if dtype != "int32" else "whole"
    )
    reach = draw.pick(1, 1, 2)
    if draw.chance(0.5):
        found.head += [f"input A: {dtype}[n]", f"inout B: {dtype}[n]"]
        terms = [
            f"A[i + {d}]" if d > 0 else f"A[i - {-d}]" if d else "A[i]"
            for d in range(-reach, reach + 1)
        ]
        value = draw.pick(
            " + ".join(terms), f"max({terms[0]}, {terms[-1]})", f"{terms[0]} - 2*A[i] + {terms[-1]}"
        )
        found.body = nest(
            [f"for i in {reach}:n - {reach}{draw.pick('', '', ':2')}"],
            [f"B[i] {draw.pick('=', '=', '+=')} {value}"],
        )
        if draw.chance(0.3):
            found.head += [f"output C: {dtype}[n]"]
            found.body += nest(
                ["for i in 0:n"], ["C[i] = B[i] + where(i > 0, B[max(0, i - 1)], 0)"]
            )
        return found
    found.head += ["size m in 0:60", f"input A: {dtype}[n, m]", f"inout B: {dtype}[n, m]"]
    if draw.chance(0.3):
        found.head.append(f"input V: {dtype}[n]")
        found.body = nest(
            draw.mixed(["for i in 0:n", "for j in 0:m"]),
            [f"B[i, j] {draw.pick('=', '+=')} {_outer(draw)}"],
        )
        return found
    value = draw.pick(
        "A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1]",
        "A[i - 1, j - 1] - A[i + 1, j + 1]",
        "max(A[i, j - 1], max(A[i, j], A[i, j + 1]))",
    )
    found.body = nest(
        draw.mixed(["for i in 1:n - 1", "for j in 1:m - 1"]),
        [f"B[i, j] {draw.pick('=', '+=')} {value}"],
    )
    return found


def _outer(draw: Draw) -> str:
    """An element of one axis, read where conditions on both say that it is there."""
    before, after = "V[i - 1]", "V[i + 1]"
    here = draw.pick("", " and j > 1", " and A[i, j] > 0", " and j < m - 2")
    return draw.pick(
        f"where(i > 0{here}, {before}, A[i, j])",
        f"where(i < n - 1{here}, {after}, 0)",
        f"where(i > 0{here}, {before}, 0) - where(i < n - 1{here}, {after}, 1)",
        f"A[i, j] * where(i > 0{here}, {before}, 0)",
    )


def convolution(draw: Draw) -> Drawn:
    """A window slides over one or two axes; padded by where or if, strided, dilated."""
    dtype = draw.pick("float32", "float32", "int32", "float64")
    taps, stride = draw.pick(1, 2, 3, 5), draw.pick(1, 1, 1, 2, 3)
    padded, plane = draw.chance(0.6), draw.chance(0.4)
    pad = draw.pick(0, 1, taps - 1) if padded else 0
    found = Drawn(
        [f"size n in {taps}:60"],
        data=draw.pick("whole", "whole", "specials") if dtype != "int32" else "whole",
    )
    window = draw.pick("constant", "input", "input")
    place = f"{stride}*i + r" if stride > 1 else "i + r"
    place += f" - {pad}" if pad else ""
    count = f"(n + {2 * pad - taps})//{stride} + 1"
    inside = f"{place} >= 0 and {place} < n"
    if plane:
        found.head += [
            "size w in 3:40",
            f"input X: {dtype}[n, w]",
            f"{window} W: {dtype}[{taps}, 3]",
            f"inout O: {dtype}[{count}, w]",
        ]
        x, term = "j + s - 1", f"X[{place}, j + s - 1] * W[r, s]"
        inside = f"{inside} and {x} >= 0 and {x} < w" if padded else f"{x} >= 0 and {x} < w"
        padded = True
        loops, inner = (
            [f"for i in 0:{count}", "for j in 0:w"],
            [f"for r in 0:{taps}", "for s in 0:3"],
        )
        o = "O[i, j]"
    else:
        found.head += [
            f"input X: {dtype}[n]",
            f"{window} W: {dtype}[{taps}]",
            f"inout O: {dtype}[{count}]",
        ]
        term, loops, inner, o = (
            f"X[{place}] * W[r]",
            [f"for i in 0:{count}"],
            [f"for r in 0:{taps}"],
            "O[i]",
        )
    op = draw.pick("+=", "+=", "+=", "max=")
    update = [f"{o} {op} {term}"]
    if padded:
        a, b = term.split(" * ")
        update = draw.pick(
            [f"{o} {op} where({inside}, {a}, 0) * {b}"],
            [f"{o} {op} where({inside}, {term}, 0)"],
            [f"if {inside}", f"  {o} {op} {term}"],
        )
    start = draw.pick([f"{o} = 0"], [f"{o} = 1"], [])
    found.body = nest(loops, [*start, *nest(inner, update), *draw.pick([], [f"{o} = max({o}, 0)"])])
    return found


def in_place(draw: Draw) -> Drawn:
    """Updates that read what they write: prefix sums, sweeps, reversals, recurrences over time."""
    dtype = draw.pick("float32", "float64", "int32", "int32")
    found = Drawn(
        ["size n in 0:60", f"inout A: {dtype}[n]"],
        data=draw.pick("whole", "specials") if dtype != "int32" else "whole",
    )
    form = draw.pick(
        "prefix", "seidel", "shift", "double", "rows", "columns", "time", "down", "pairs", "wave"
    )
    update = draw.pick("=", "+=") if form != "seidel" else "="
    if form == "prefix":
        found.body = nest(["for i in 1:n"], [f"A[i] {update} A[i - {draw.pick(1)}]"])
    elif form == "seidel":
        found.body = nest(["for i in 1:n - 1"], ["A[i] = max(A[i - 1], A[i + 1])"])
    elif form == "shift":
        found.body = nest(["for i in 0:n - 1"], [f"A[i] {update} A[i + 1]"])
    elif form == "double":
        found.body = nest(["for i in 0:n"], ["A[i] = 2*A[i]", *draw.pick([], ["A[i] += 1"])])
    elif form == "down":
        found.body = nest(["for i in 0:n"], [f"A[n - 1 - i] {update} A[max(0, n - 2 - i)]"])
    elif form == "pairs":
        found.body = nest(["for i in 0:n//2"], [f"A[2*i] {update} A[2*i + 1]"])
    else:
        found.head += ["size m in 0:40", f"inout B: {dtype}[n, m]"]
        if form == "rows":
            found.body = nest(["for i in 0:n", "for j in 1:m"], [f"B[i, j] {update} B[i, j - 1]"])
        elif form == "columns":
            found.body = nest(
                draw.mixed(["for i in 1:n", "for j in 0:m"]), [f"B[i, j] {update} B[i - 1, j]"]
            )
        elif form == "wave":
            found.body = nest(
                ["for i in 1:n", "for j in 1:m"],
                [f"B[i, j] = max(B[i - 1, j], B[i, j - 1]) + {draw.pick('1', 'A[i]')}"],
            )
        else:
            found.body = nest(
                ["for t in 0:m"],
                [
                    *nest(["for i in 1:n - 1"], ["A[i] = max(A[i - 1], A[i]) - 1"]),
                    *draw.pick([], nest(["for i in 0:n"], ["B[i, t] = A[i]"])),
                ],
            )
    return found
