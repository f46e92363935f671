"""What conditions leave in the loops around them, and what is said of it; whole programs are in `tests/golden`."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import pattern

import offcut as oc
from offcut.core import index as ix
from offcut.core.plain_loops import strip_annotations
from offcut.core.scan import Range, ScanContext, scan_rectangle
from offcut.core.text.printer import format_stmt
from offcut.ir import Buffer, Compare, Expr, For, If, Kind, Logic, Stmt, Store, Var, walk
from offcut.partition.separate import separate
from offcut.proof import concatenate_loops
from tests.facade import evaluate, parse_expr


@pytest.mark.parametrize(
    ("extent", "window", "cut"),
    [
        ("n", "max(0, 3 - i):min(7, n - i + 3)", ["0:min(3, n)", "3:n - 3", "max(3, n - 3):n"]),
        (
            "(n + 1)//2",
            "max(0, 1 - 2*i):min(3, n - 2*i + 1)",
            ["0:min(1, (n + 1)//2)", "1:n//2", "max(1, n//2):(n + 1)//2"],
        ),
    ],
)
def test_borders_of_a_window_are_as_short_as_they_can_be(
    extent: str, window: str, cut: list[str]
) -> None:
    made = separate(
        oc.parse(f"""\
size n in 0:1000
input X: float32[n, 7]
output C: float32[{extent}]
for i in 0:{extent}
  C[i] = 0.0
  for j in {window}
    C[i] += X[i, j]""")
    )
    loops = [line for line in str(made.program).splitlines() if line.startswith("for")]
    assert loops == [f"for i in {bounds}" for bounds in cut]


HEAD = "size n in 0:1000\nsize m in 0:1000\ninput X: int32[n]\noutput C: int32[n]\n"


def test_what_is_said_to_be_kept_is_there() -> None:
    text = """\
for i in 0:n
  if i % 2 == 1 or i < 3
    C[i] = X[i]
  if i*i < m
    C[i] = 1
  if i < 0 and i*i < n
    C[i] = 2"""
    made = separate(oc.parse(HEAD + text))
    kept = [note.text for note in made.notes if note.text.startswith("keeps")]
    assert "keeps i * i < m: it is not quasi-affine" in kept
    for text in kept:
        assert text.removeprefix("keeps ").partition(":")[0] in str(made.program)


def test_a_loop_that_is_joined_again_is_not_said_to_be_cut() -> None:
    text = "for t in 0:(n + 7)//8\n  tile i in 8*t +: min(8, n - 8*t)\n    C[i] = X[i]"
    made = separate(oc.parse(HEAD + text))
    assert str(made.program).count("for t in") == 1
    assert made.notes == ()


def test_steps_that_take_too_many_copies_are_not_said_to_be_taken() -> None:
    lines = ["for i in 0:n", *(f"  if i % {k} == 0\n    C[i] += X[i]" for k in (5, 7, 8))]
    made = separate(oc.parse(HEAD + "\n".join(lines)), 4)
    said = [note.text for note in made.notes]
    assert not any(text.startswith("in steps of") for text in said)
    assert "for i in 0:n" in str(made.program)
    assert any("copies of its statements" in text for text in said)


# Loops that conditions become: the points that they visit, and how they read.


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
        (("t < i", "j == t"), "for i in t + 1:n\n  for j in t:min(m, t + 1)"),
        (("2*j >= i",), "for i in 0:n\n  for j in (i + 1)//2:m"),
        (("i + j == 3",), "for i in 0:n\n  for j in max(0, 3 - i):min(m, 4 - i)"),
        (("i < 3", "i < n + 1", "i >= 0 - 2"), "for i in 0:min(n, 3)\n  for j in 0:m"),
        (("t < 3",), "if t < 3\n  for i in 0:n\n    for j in 0:m"),
        (("i != 2", "j >= 1"), "for i in 0:n\n  if i != 2\n    for j in 1:m"),
        (
            ("i % 2 == 0", "i * t < 5"),
            "for i in 0:n\n  if i % 2 == 0 and i * t < 5\n    for j in 0:m",
        ),
        (("i < 2 or j < 2",), "for i in 0:n\n  for j in 0:m\n    if i < 2 or j < 2"),
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


# Loops that follow each other are one loop, where their bounds say so at every size.


COUNTED = """program p
size n in 0:100
size m in 0:100
output y: float32[n]
"""
ONE = "for i in 0:n\n  y[i] = float32(i)\n"


def read(loops: str) -> oc.Program:
    return oc.parse(COUNTED + loops)


@pytest.mark.parametrize("end", ["n - n % 2", "n // 3", "min(n, m)", "n", "0"])
def test_ranges_that_follow_each_other_are_one(end: str) -> None:
    split = f"for i in 0:{end}\n  y[i] = float32(i)\nfor i in {end}:n\n  y[i] = float32(i)\n"
    assert concatenate_loops(read(split)) == strip_annotations(read(ONE))


@pytest.mark.parametrize(
    "split",
    [
        "for i in 0:m\n  y[i] = float32(i)\nfor i in m:n\n  y[i] = float32(i)\n",  # m > n
        "for i in 0:n // 2\n  y[i] = float32(i)\nfor i in n // 3:n\n  y[i] = float32(i)\n",
        "for i in n // 2:n\n  y[i] = float32(i)\nfor i in 0:n // 2\n  y[i] = float32(i)\n",
        "for i in 0:n // 2\n  y[i] = float32(i)\nfor i in n // 2:n\n  y[i] = float32(i + 1)\n",
        "for i in 0:n // 2\n  y[i] = float32(i)\nfor j in n // 2:n\n  y[j] = float32(j)\n",
    ],
)
def test_other_loops_stay(split: str) -> None:
    assert concatenate_loops(read(split)) == strip_annotations(read(split))


# Loops that conditions were taken out of are compared with their cuts one by one, and as any loop that runs.


CASES = [
    ("i - j <= 4 and j - i <= 4 and (i + j) % 2 == 0", 8, "residue"),
    ("j < i // 2", 8, "mix"),
    ("j // 16 <= i // 16", 14, "balance"),
]


@pytest.mark.every(3)
@pytest.mark.parametrize(("condition", "tile", "tail"), CASES)
def test_the_inner_loop_of_a_pattern_is_cut(condition: str, tile: int, tail: str) -> None:
    program = pattern(condition)
    cut = oc.partition(program, tile={"j": tile}, tail=tail)
    rng = np.random.default_rng(0)
    for n in (0, 1, tile + 1):
        shapes = {"x": (n,), "A": (n, n), "y": (n,)}
        given = {name: rng.integers(-4, 5, at).astype("float32") for name, at in shapes.items()}
        np.testing.assert_array_equal(cut.run(given), program.run(given))
