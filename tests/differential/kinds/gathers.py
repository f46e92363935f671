"""Elements found by what memory holds: lookups, scatters, histograms, ragged rows."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest


def gather(draw: Draw) -> Drawn:
    dtype = draw.pick("float32", "float32", "int32", "float64")
    kind = draw.pick("int32", "int32", "int64", "uint8")
    found = Drawn(
        [
            "size n in 0:60",
            "size m in 0:60",
            f"input I: {kind}[n]",
            f"input T: {dtype}[{draw.pick('4', 'm + 4')}, m]",
        ]
    )
    at = "index(I[i])"
    form = draw.pick(
        "rows",
        "rows",
        "sum",
        "scatter",
        "histogram",
        "guarded",
        "product",
        "pick",
        "ragged",
        "rows of lists",
        "twice",
    )
    if form == "rows":
        found.head.append(f"output O: {dtype}[n, m]")
        value = draw.pick(
            f"T[{at}, j]",
            f"T[{at}, j] * 2",
            f"max(T[{at}, j], 0)",
            f"where(I[i] > 0, T[{at}, j], 1)",
        )
        found.body = nest(draw.mixed(["for i in 0:n", "for j in 0:m"]), [f"O[i, j] = {value}"])
    elif form == "sum":
        found.head.append(f"output O: {dtype}[n]")
        found.body = nest(
            ["for i in 0:n"],
            [
                f"O[i] = {draw.pick('0', '3')}",
                *nest(["for j in 0:m"], [f"O[i] {draw.pick('+=', 'max=')} T[{at}, j]"]),
            ],
        )
    elif form == "scatter":
        found.head.append(f"inout O: {dtype}[4, m]")
        found.body = nest(
            ["for i in 0:n", "for j in 0:m"],
            [f"O[{at}, j] {draw.pick('+=', '=', 'max=')} T[i % 4, j]"],
        )
    elif form == "histogram":
        found.head.append(f"inout O: {dtype}[4]")
        found.body = nest(["for i in 0:n"], [f"O[{at}] += {draw.pick('1', f'{dtype}(i)', '2')}"])
    elif form == "guarded":
        found.head.append(f"output O: {dtype}[n, m]")
        found.body = nest(
            ["for i in 0:n", "for j in 0:m"],
            [f"O[i, j] = where(I[i] < 3, T[{at} + 1, j], T[0, j])"],
        )
    elif form == "product":
        found.head += ["size K in 0:40", f"input W: {dtype}[m, K]", f"output O: {dtype}[n, K]"]
        found.head.sort(key=lambda line: not line.startswith("size"))
        found.body = nest(
            ["for i in 0:n", "for k in 0:K"],
            ["O[i, k] = 0", *nest(["for j in 0:m"], [f"O[i, k] += T[{at}, j] * W[j, k]"])],
        )
    elif form == "pick":
        found.head.append(f"inout O: {dtype}[n]")
        found.body = nest(
            ["for i in 0:n"],
            [
                f"if {draw.pick(f'{at} < m', f'{at} + 1 <= m')}",
                f"  O[i] {draw.pick('=', '+=')} T[i % 4, {at}]",
            ],
        )
    elif form == "rows of lists":
        found.head += ["input P: int32[n + 1]", f"input Z: {dtype}[m + 4]", f"inout O: {dtype}[n]"]
        start = draw.pick([], ["O[i] = 0"], ["O[i] = 2"])
        found.body = nest(
            ["for i in 0:n"],
            [
                *start,
                *nest(
                    ["for j in index(P[i]):index(P[i + 1])"],
                    [f"O[i] {draw.pick('+=', 'max=')} {draw.pick('Z[j]', 'Z[j] * 2')}"],
                ),
            ],
        )
    elif form == "twice":
        found.head += ["input J: int32[m + 4]", f"output O: {dtype}[n]"]
        found.body = nest(
            ["for i in 0:n"],
            [
                f"O[i] = {draw.pick('float32(index(J[index(I[i])]))' if dtype == 'float32' else f'{dtype}(J[{at}])')}"
            ],
        )
    else:
        found.head.append(f"inout O: {dtype}[n]")
        found.body = nest(
            ["for i in 0:n"], [*nest([f"for j in 0:min(m, {at})"], ["O[i] += T[i % 4, j]"])]
        )
    if draw.chance(0.3):
        found.data = "specials"
    return found
