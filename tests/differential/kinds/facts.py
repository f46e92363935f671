"""What is promised between sizes, and extents that are made of several of them."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest


def facts(draw: Draw) -> Drawn:
    """Loops that are right, or tiles that are exact, by a fact alone."""
    dtype = draw.pick("float32", "int32", "float64")
    form = draw.pick("ordered", "divisible", "derived", "derived", "equal", "least", "even")
    multiple = draw.pick(2, 4, 8, 16)
    if form == "ordered":
        head = [
            "size n in 0:60",
            "size m in 0:60",
            "assume n <= m",
            f"input A: {dtype}[m]",
            f"inout B: {dtype}[m]",
        ]
        body = nest(
            ["for i in 0:n"],
            [
                draw.pick(
                    "B[i] = A[m - n + i]",
                    "B[m - 1 - i] += A[i]",
                    "B[i] = A[i] + B[m - n]",
                    "B[i + m - n] = A[i]",
                )
            ],
        )
    elif form == "divisible":
        head = [
            f"size n in 0:200 multiple_of {multiple}",
            f"input A: {dtype}[n]",
            f"inout B: {dtype}[n]",
            f"inout S: {dtype}[n//{multiple}]",
        ]
        inner = nest(
            [f"for i in 0:n//{multiple}", f"for j in 0:{multiple}"],
            [
                draw.pick(
                    f"S[i] += A[{multiple}*i + j]",
                    f"B[{multiple}*i + j] = A[{multiple}*i + {multiple - 1} - j]",
                )
            ],
        )
        body = draw.pick(
            inner,
            nest(["for i in 0:n"], ["B[i] = A[i] * 2"]),
            nest(["for i in 0:n"], [f"S[i//{multiple}] max= A[i]"]),
        )
    elif form == "derived":
        extent = draw.pick(
            "2*n + 1", "n + m", "3*n", "n//2 + 1", "max(n, m)", "(n + m)//2", "n - 1"
        )
        low = 1 if extent == "n - 1" else 0
        head = [
            f"size n in {low}:60",
            "size m in 0:60",
            f"input A: {dtype}[{extent}]",
            f"inout B: {dtype}[n, m]",
            f"inout O: {dtype}[{extent}]",
        ]
        body = nest(
            [f"for i in 0:{extent}{draw.pick('', '', ':2')}"],
            [
                draw.pick(
                    "O[i] = A[i]", f"O[i] += A[({extent}) - 1 - i]", "O[i] = where(i < n, A[i], 2)"
                )
            ],
        )
        body += draw.pick(
            [], nest(["for i in 0:n", "for j in 0:m"], ["B[i, j] += where(i + j < n, 1, 2)"])
        )
    elif form == "equal":
        head = [
            "size n in 0:60",
            "size m in 0:60",
            "assume n == m",
            f"input A: {dtype}[n, m]",
            f"inout B: {dtype}[m, n]",
        ]
        body = nest(
            ["for i in 0:n", "for j in 0:m"],
            [draw.pick("B[i, j] = A[j, i]", "B[i, j] += A[i, j]", "B[j, i] = A[i, j] * A[j, i]")],
        )
    elif form == "least":
        head = ["size n in 4:60", f"input A: {dtype}[n]", f"output B: {dtype}[n]"]
        body = [
            *nest(["for i in 0:4"], ["B[i] = A[n - 1 - i]"]),
            *nest(
                ["for i in 4:n"],
                [draw.pick("B[i] = A[i - 4] + B[i - 4]", "B[i] = A[i]", "B[i] = B[i - 1]")],
            ),
        ]
    else:
        head = [
            "size n in 0:200",
            f"assume n % {multiple} == 0",
            f"input A: {dtype}[n]",
            f"output B: {dtype}[n]",
        ]
        body = nest(
            ["for i in 0:n"],
            [
                draw.pick(
                    "B[i] = A[i]", "B[n - 1 - i] = A[i]", f"B[i] = A[i//{multiple}*{multiple}]"
                )
            ],
        )
    return Drawn(head, body, data=draw.pick("whole", "specials"))
