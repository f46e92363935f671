"""Loops whose bounds and conditions depend on other loops, sizes and data."""

from __future__ import annotations

from ..drawing import Draw, Drawn, nest

LOWS = ("0", "0", "0", "1", "2", "n//2", "min(n, m)//2", "n//4")
HIGHS = (
    "n",
    "n",
    "m",
    "min(n, m)",
    "n - 1",
    "n//2",
    "(n + m)//2",
    "max(n, m)",
    "n + 1",
    "5",
    "n - m",
)


def _loop(draw: Draw, name: str, around: list[str]) -> str:
    low, high = draw.pick(*LOWS), draw.pick(*HIGHS)
    if around and draw.chance(0.6):
        x = draw.pick(*around)
        low, high = draw.pick(
            ("0", f"{x} + 1"), (x, "n"), (f"{x} + 1", "n"), (f"max(0, {x} - 2)", f"min(n, {x} + 3)"),
            ("0", f"n - {x}"), (f"{x}//2", f"{x} + 1"), (f"{x} % 3", "n"), ("0", f"min(m, 2*{x})"),
            (x, f"min(n, {x} + 4)"),
        )  # fmt: skip
    step = draw.pick(*("",) * 6, ":2", ":3", ":4")
    return f"for {name} in {low}:{high}{step}"


def _condition(draw: Draw, around: list[str]) -> str:
    x, y = draw.pick(*around), draw.pick(*around, "n", "m")
    found = draw.pick(
        f"{x} >= 1", f"{x} < n - 1", f"{x} == 2", f"{x} != 0", f"{x} + {y} < m", f"{x} <= {y}",
        f"2*{x} < n + 1", f"{x} % 2 == 0", f"({x} + {y}) % 3 == 1", f"{x}//2 < {y}", "n < m",
        f"A[{x}] > 0", f"A[{x}] != A[{x} + 1]", f"{x} == n - 1", f"{x}*{y} < 9",
    )  # fmt: skip
    if draw.chance(0.25):
        return draw.pick(
            f"{found} and {_condition(draw, around)}",
            f"{found} or {_condition(draw, around)}",
            f"not {found}",
        )
    return found


SPACE = "n + m + 8"


def _head(dtype: str) -> list[str]:
    return [
        "size n in 0:60",
        "size m in 0:60",
        f"input A: {dtype}[{SPACE}]",
        f"input X: {dtype}[{SPACE}, {SPACE}]",
        f"inout S: {dtype}[{SPACE}]",
        f"inout Z: {dtype}[{SPACE}, {SPACE}]",
    ]


def bounds(draw: Draw) -> Drawn:
    """Triangles, bands, strides: one statement, or two, at every point."""
    dtype = draw.pick("int32", "int32", "float32", "float64")
    names = ["i", "j", "k"][: draw.pick(1, 2, 2, 2, 3)]
    loops = [_loop(draw, name, names[:place]) for place, name in enumerate(names)]
    a, b = names[0], names[-1]
    stores = (
        f"Z[{a}, {b}] = X[{a}, {b}]", f"Z[{b}, {a}] = X[{a}, {b}] + A[{a}]", f"S[{a}] += X[{a}, {b}]",
        f"S[{b}] += X[{a}, {b}]", f"Z[{a}, {b}] += A[{a}] * A[{b}]", f"S[{a}] max= X[{a}, {b}]",
        f"S[{a}] min= X[{b}, {a}] + A[{b}]", f"Z[{a}, {b}] = Z[{a}, {b}] * 2", f"S[{b}] = A[{b}]",
    )  # fmt: skip
    body = [draw.pick(*stores) for _ in range(draw.pick(1, 1, 2))]
    return Drawn(_head(dtype), nest(loops, body), data=draw.pick("whole", "specials"))


def branches(draw: Draw) -> Drawn:
    """Conditions on loops, sizes and data, with and without an else, in one or two nests."""
    dtype = draw.pick("int32", "int32", "float32")
    found = Drawn(_head(dtype), data=draw.pick("whole", "specials"))
    for _ in range(draw.pick(1, 1, 2)):
        names = ["i", "j"][: draw.pick(1, 2, 2)]
        loops = [_loop(draw, name, names[:place]) for place, name in enumerate(names)]
        a, b = names[0], names[-1]
        stores = (
            f"Z[{a}, {b}] = X[{a}, {b}]", f"S[{a}] += X[{a}, {b}]", f"Z[{a}, {b}] += A[{b}]",
            f"S[{b}] = A[{b}]", f"S[{a}] max= A[{b}]", f"Z[{a}, {b}] = 1",
            f"Z[{a}, {b}] = where({_condition(draw, names)}, X[{a}, {b}], A[{a}])",
            f"S[{a}] += where({_condition(draw, names)}, X[{a}, {b}] * A[{b}], 0)",
        )  # fmt: skip
        body = nest(
            [f"if {_condition(draw, names)}"],
            [draw.pick(*stores) for _ in range(draw.pick(1, 1, 2))],
        )
        if draw.chance(0.4):
            body += nest(["else"], [draw.pick(*stores)])
        if draw.chance(0.3):
            body = nest([f"if {_condition(draw, names)}"], body)
        if draw.chance(0.3):
            body.append(draw.pick(*stores))
        if draw.chance(0.2):
            outer = nest([f"if {_condition(draw, ['i'])}"], nest(loops[1:], body))
            found.body += nest(loops[:1], outer)
        else:
            found.body += nest(loops, body)
    return found
