"""Loops that conditions become: the points that they visit, and how they read."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.core import index as ix
from offcut.core.scan import Range, ScanContext, scan_rectangle
from offcut.core.text.printer import format_stmt
from offcut.ir import Buffer, Compare, Expr, For, If, Kind, Logic, Stmt, Store, Var, walk
from tests.facade import evaluate, parse_expr

N, M = 6, 4
AXES = [("i", Var("n")), ("j", Var("m"))]
KNOWN = ScanContext(
    (
        Range("n", (ix.const(0),), (ix.const(9),)),
        Range("m", (ix.const(0),), (ix.const(9),)),
        Range("t", (ix.const(0),), (ix.sub(Var("n"), 1),)),
    )
)


def here(known: ScanContext) -> tuple[Stmt, ...]:
    return (Store("B", (Var("i"), Var("j")), Var("t")),)


def text(*conditions: str) -> str:
    parts = [ix.fold_indices(parse_expr(condition)) for condition in conditions]
    return "\n".join(map(format_stmt, scan_rectangle(AXES, parts, KNOWN, here)))


def visited(body: tuple[Stmt, ...], values: dict[str, int]) -> list[tuple[int, int]]:
    """The points at which the store runs, in order."""
    found: list[tuple[int, int]] = []
    for stmt in body:
        match stmt:
            case For(iter, lo, hi, inner):
                for at in range(int(evaluate(lo, values)), int(evaluate(hi, values))):
                    found += visited(inner, {**values, iter: at})
            case If(condition, then):
                found += visited(then, values) if evaluate(condition, values) else []
            case _:
                found.append((values["i"], values["j"]))
    return found


@pytest.mark.parametrize(
    ("conditions", "loops"),
    [
        (("j <= i",), "for i in 0:n\n  for j in 0:min(m, i + 1)"),
        (("i >= 1", "i < n - 1"), "for i in 1:n - 1\n  for j in 0:m"),
        (("t < i", "j == t"), "for i in t + 1:n\n  for j in t:min(m, t + 1)"),
        (("i == t",), "for i in t:t + 1\n  for j in 0:m"),
        (("2*j <= i",), "for i in 0:n\n  for j in 0:min(m, i//2 + 1)"),
        (("2*j >= i",), "for i in 0:n\n  for j in (i + 1)//2:m"),
        (("i + j == 3",), "for i in 0:n\n  for j in max(0, 3 - i):min(m, 4 - i)"),
        (("i < 3", "i < n + 1", "i >= 0 - 2"), "for i in 0:min(n, 3)\n  for j in 0:m"),
        (("i < j",), "for i in 0:n\n  for j in i + 1:m"),
        (("t < 3",), "if t < 3\n  for i in 0:n\n    for j in 0:m"),
        (("i != 2", "j >= 1"), "for i in 0:n\n  if i != 2\n    for j in 1:m"),
        (
            ("i % 2 == 0", "i * t < 5"),
            "for i in 0:n\n  if i % 2 == 0 and i * t < 5\n    for j in 0:m",
        ),
        (("i < 2 or j < 2",), "for i in 0:n\n  for j in 0:m\n    if i < 2 or j < 2"),
        (("i // 2 <= j",), "for i in 0:n\n  for j in i//2:m"),
        (("j <= i - j",), "for i in 0:n\n  for j in 0:min(m, i//2 + 1)"),
    ],
)
def test_a_comparison_becomes_a_bound_of_its_innermost_axis(
    conditions: tuple[str, ...], loops: str
) -> None:
    written = text(*conditions)
    assert written.rpartition("\n")[0] == loops


def test_a_condition_on_elements_stands_around_the_instance() -> None:
    reads = parse_expr("A[i] > 0.0", buffers=(Buffer("A", "float32", (Var("n"),), Kind.INPUT),))
    found = scan_rectangle(AXES, [reads, ix.compare("<=", Var("j"), Var("i"))], KNOWN, here)
    assert "\n".join(map(format_stmt, found)).splitlines()[:3] == [
        "for i in 0:n",
        "  for j in 0:min(m, i + 1)",
        "    if A[i] > 0.0",
    ]


def test_the_ranges_show_signs_and_claim_no_other() -> None:
    assert KNOWN.at_least_zero(ix.sub(Var("n"), 0))
    assert KNOWN.at_least_zero(ix.sub(ix.sub(Var("n"), 1), Var("t")))
    assert not KNOWN.at_least_zero(ix.sub(Var("n"), Var("m")))
    assert KNOWN.at_least_zero(ix.sub(Var("n"), ix.floordiv(Var("n"), 2)))
    assert KNOWN.at_least_zero(ix.sub(ix.add(Var("n"), 1), ix.mod(Var("m"), 2)))
    assert not KNOWN.at_least_zero(ix.sub(Var("n"), ix.mod(Var("m"), 2)))
    assert not KNOWN.at_least_zero(ix.floordiv(ix.sub(Var("n"), 1), 2))
    assert not KNOWN.at_least_zero(Var("unknown"))


small = st.integers(-3, 3)


@st.composite
def comparisons(draw: st.DrawFn) -> Expr:
    """``a*i + b*j + c*t + d*n + e`` compared with 0, its axes sometimes under ``//`` or ``%``."""
    total: Expr = ix.const(draw(st.integers(-6, 6)))
    for name in ("i", "j", "t", "n"):
        atom: Expr = Var(name)
        match draw(st.sampled_from(("plain", "plain", "plain", "half", "odd"))):
            case "half":
                atom = ix.floordiv(atom, 2)
            case "odd":
                atom = ix.mod(atom, 2)
        total = ix.add(total, ix.mul(draw(small), atom))
    compare = Compare(draw(st.sampled_from(("<", "<=", ">", ">=", "==", "!="))), total, ix.const(0))
    return Logic("not", (compare,)) if draw(st.integers(0, 9)) == 0 else compare


@settings(max_examples=60, deadline=None)
@given(st.lists(comparisons(), max_size=3), st.integers(1, N), st.integers(0, M), st.data())
def test_the_loops_visit_the_points_where_all_conditions_hold_in_order(
    conditions: list[Expr], n: int, m: int, data: st.DataObject
) -> None:
    sizes = {"n": n, "m": m, "t": data.draw(st.integers(0, n - 1))}
    wanted = [
        (i, j)
        for i, j in product(range(n), range(m))
        if all(evaluate(c, {**sizes, "i": i, "j": j}) for c in conditions)
    ]
    body = scan_rectangle(AXES, conditions, KNOWN, here)
    assert visited(body, sizes) == wanted
    assert sum(isinstance(stmt, Store) for stmt in walk(body)) == 1
