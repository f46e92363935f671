"""Staged tiles are proved, body by body; faults planted in them are refused with the smallest size.

What a proof says is held against the reference interpreter at edge sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from staged import Staging

import offcut as oc
from offcut.core import index as ix
from offcut.core.expr import Const, Load, Var, rewrite
from offcut.core.interpret.values import evaluate
from offcut.core.program import Alloc, Program, Stmt, Store, Tile, walk
from offcut.core.traversal import map_blocks, map_expressions, rewrite_body
from offcut.errors import InternalError, OffcutError

SOFTMAX = """program softmax
size n in 1:129
input A: float32[n, 3]
local M: float32[n]
local E: float32[n, 3]
local S: float32[n]
output C: float32[n, 3]
for i in 0:n
  M[i] = -inf
  for k in 0:3
    M[i] max= A[i, k]
  for j in 0:3
    E[i, j] = exp(A[i, j] - M[i])
  S[i] = 0.0
  for p in 0:3
    S[i] += E[i, p]
  for m in 0:3
    C[i, m] = E[i, m] / S[i]
"""
LAYERNORM = """program layernorm
size n in 1:129
input A: float32[n, 4]
input G: float32[4]
local M: float32[n]
local V: float32[n]
output C: float32[n, 4]
for i in 0:n
  M[i] = 0.0
  for k in 0:4
    M[i] += A[i, k]
  V[i] = 0.0
  for j in 0:4
    V[i] += (A[i, j] - M[i] * 0.25) * (A[i, j] - M[i] * 0.25)
  for m in 0:4
    C[i, m] = (A[i, m] - M[i] * 0.25) / sqrt(V[i] + 0.5) * G[m]
"""
PRODUCT = """program product
size n in 1:129
size w in 1:33
input A: int8[n, 3]
input W: int8[3, w]
local S: int32[n, w]
output C: int32[n, w]
for i in 0:n
  for j in 0:w
    S[i, j] = 0
    for k in 0:3
      S[i, j] += int32(A[i, k]) * int32(W[k, j])
    C[i, j] = S[i, j] // 2
"""
HALO = """program halo
size n in 1:129
input A: int32[n + 2]
local S: int32[n]
output C: int32[n]
for i in 0:n
  S[i] = 0
  for k in 0:3
    S[i] += A[i + k]
  C[i] = S[i] // 2
"""
DEPTH, WIDTH, T = 3, 2, 4
SIZES = (0, 1, T - 1, T, T + 1, 3 * T, 3 * T + 5)


def dense(depth: int = DEPTH, width: int = WIDTH, least: int = 0) -> oc.Tensor:
    """int8 rows times a matrix, requantised."""
    n, k = oc.dim("n", min=least, max=512), oc.reduce_axis(depth, name="k")
    A = oc.placeholder((n, depth), "int8", name="A")
    W = oc.placeholder((depth, width), "int8", name="W")
    S = oc.compute(
        (n, width),
        lambda i, j: oc.sum(oc.cast(A[i, k], "int32") * oc.cast(W[k, j], "int32"), axis=k),
        name="S",
    )
    Y = oc.compute((n, width), lambda i, j: oc.minimum(S[i, j] // 2, 127), name="Y")
    return oc.compute((n, width), lambda i, j: oc.cast(oc.maximum(Y[i, j], -128), "int8"), name="C")


# What is cut, in which tiles, and which arrays lie in windows.
PROGRAMS: dict[str, tuple[Callable[[], Any], dict[str, int], Staging]] = {
    "dense": (dense, {"C.i": T}, Staging(("A",), ("C",), ("S", "Y"))),
    "softmax": (lambda: oc.parse(SOFTMAX), {"i": T}, Staging(("A",), ("C",), ("M", "E", "S"))),
    "layernorm": (lambda: oc.parse(LAYERNORM), {"i": T}, Staging(("A",), ("C",), ("M", "V"))),
    "two axes": (lambda: oc.parse(PRODUCT), {"i": T, "j": 3}, Staging(("A",), ("C",), ("S",))),
    "overlapping windows": (lambda: oc.parse(HALO), {"i": T}, Staging(("A",), ("C",), ("S",))),
}
TAILS = ("guard", "cut", "mask", "ladder", "balance", "even", "residue", "mix", "shift")
CASES = [
    *(("dense", tail) for tail in (*TAILS, "pad", "version", "exact")),
    *((name, tail) for name in PROGRAMS if name != "dense" for tail in TAILS),
]


@cache
def cut(name: str, tail: str) -> oc.Partition:
    """A program in tiles; `exact` is of rows that they divide."""
    make, tiles, _ = PROGRAMS[name]
    made = make()
    with oc.assume(*([made.shape[0] % T == 0] if tail == "exact" else [])):
        return oc.partition(made, tile=tiles, tail=tail)


@cache
def staged(name: str, tail: str) -> Program:
    return PROGRAMS[name][2].of(cut(name, tail).loops)


@cache
def values(program: Program, n: int) -> Any:
    """What the reference interpreter makes of it with all sizes n, as near as they may be; None where it breaks."""
    sizes = {size.name: min(max(n, size.min), size.last) for size in program.sizes}
    random, given = np.random.default_rng(n), {}
    for buffer in program.buffers:
        if buffer.kind.value in ("input", "inout"):
            shape = tuple(int(evaluate(e, sizes)) for e in buffer.shape)
            given[buffer.name] = random.integers(1, 9, shape).astype(buffer.dtype)
    try:
        return program.run(given, **sizes)
    except (OffcutError, InternalError):
        return None


def is_equal(one: Program, other: Program, n: int) -> bool:
    found = values(other, n)
    return found is not None and np.array_equal(values(one, n), found)


# Faults: of the last or the first tile of a program, in its windows.

Rule = Callable[[Stmt], Stmt | tuple[Stmt, ...] | None]


def _tile(buffer: str, change: Callable[[Tile], Stmt | tuple[Stmt, ...]]) -> Rule:
    """Change the tiles that store an array."""

    def rule(stmt: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        if not isinstance(stmt, Tile):
            return None
        mine = any(isinstance(s, Store) and s.buffer == buffer for s in stmt.body)
        return change(stmt) if mine else None

    return rule


def _moved(buffer: str, start: int, extent: int) -> Rule:
    """The first axis that is not of constants, of the tiles that store an array, begins and ends elsewhere."""

    def change(tile: Tile) -> Tile:
        axes = list(tile.axes)
        where = next((k for k, a in enumerate(axes) if ix.literal_value(a.start) is None), 0)
        first, count = axes[where].start, axes[where].extent
        axes[where] = replace(axes[where], start=ix.add(first, start), extent=ix.add(count, extent))
        return replace(tile, axes=tuple(axes))

    return _tile(buffer, change)


def _window(buffer: str, start: int, extent: int) -> Rule:
    def rule(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Alloc) or stmt.buffer != buffer:
            return None
        axes = list(stmt.axes)
        where = next((k for k, (at, _) in enumerate(axes) if ix.literal_value(at) is None), 0)
        axes[where] = ix.add(axes[where][0], start), ix.add(axes[where][1], extent)
        return replace(stmt, axes=tuple(axes))

    return rule


def _value(old: str, at: Callable[[Load], Load]) -> Rule:
    def rule(stmt: Stmt) -> Stmt | None:
        def read(node: Any) -> Any:
            return at(node) if isinstance(node, Load) and node.buffer == old else None

        found = isinstance(stmt, Store)
        return map_expressions(stmt, lambda e: rewrite(e, read)) if found else None

    return rule


def _row(load: Load) -> Load:
    return replace(load, index=(ix.sub(ix.sub(Var("n"), 1), load.index[0]), load.index[1]))


def _slot(load: Load) -> Load:
    return replace(load, index=(load.index[0], ix.sub(DEPTH - 1, load.index[1])))


def _accumulating(tile: Tile) -> Tile:
    return replace(
        tile, body=tuple(replace(s, reduce="sum") for s in tile.body if isinstance(s, Store))
    )


def _without_start(tile: Tile) -> Stmt | tuple[Stmt, ...]:
    (only,) = tile.body
    return () if isinstance(only, Store) and only.reduce is None else tile


FAULTS: dict[str, Rule] = {
    "a copy one row short": _moved("A_in", 0, -1),
    "a copy one row too long": _moved("A_in", 0, 1),
    "a copy moved by one": _moved("A_in", 1, 0),
    "a window one row short": _window("A_in", 0, -1),
    "a window off by one": _window("A_in", 1, 0),
    "a result one row short": _moved("C", 0, -1),
    "a result one row too many": _moved("C", 0, 1),
    "a result that accumulates": _tile("C", _accumulating),
}
OF_DENSE: dict[str, Rule] = {
    "a window of sums one row short": _window("S", 0, -1),
    "the row of another tile": _value("A", _row),
    "a wrong slot": _value("A_in", _slot),
    "a store outside": _tile(
        "C", lambda t: (t, Store("C", (ix.const(0), ix.const(0)), Const(7, "int8")))
    ),
    "a sum without its start": _tile("S", _without_start),
}


def broken(program: Program, rule: Rule, last: bool) -> Program:
    """`program` with the rule at the last of its staged tiles, or at the first."""
    allocs = [s for s in walk(program.body) if isinstance(s, Alloc)]
    chosen = [s for s in allocs if s.buffer == "A_in"][-1 if last else 0]
    parent = next(s for s in allocs if any(inner is chosen for inner in walk((s,))))

    def descend(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for stmt in body:
            made += rewrite_body((stmt,), rule) if stmt is parent else (map_blocks(stmt, descend),)
        return tuple(made)

    return replace(program, body=descend(program.body))


def refusal(source: Program, emitted: Program) -> str | None:
    try:
        oc.prove_equal(source, emitted)
    except OffcutError as error:
        return str(error)
    return None


def verdict(name: str, tail: str, fault: str, last: bool = True) -> str:
    """What is said of a fault: refused with sizes, or the same at every edge size."""
    program, made = cut(name, tail).loops, staged(name, tail)
    wrong = broken(made, {**FAULTS, **OF_DENSE}[fault], last)
    if wrong == made:
        return "none"
    said = refusal(program, wrong)
    if said is not None:
        assert "cannot tell" not in said, (fault, said)
        assert "with " in said, (fault, said)
        return "refused"
    differs = [n for n in SIZES if not is_equal(program, wrong, n)]
    assert not differs, f"{name}, {tail}, {fault}: proved, and differs at {differs}"
    return "same"


@pytest.mark.parametrize(
    ("name", "tail", "fault"),
    [
        ("dense", "balance", "a copy one row short"),
        ("softmax", "cut", "a copy one row short"),
        ("layernorm", "ladder", "a result one row too many"),
    ],
)
def test_staged_rows_are_proved_and_a_row_too_few_or_too_many_is_refused(
    name: str, tail: str, fault: str
) -> None:
    oc.prove_equal(cut(name, tail).source, staged(name, tail))
    assert verdict(name, tail, fault) == "refused"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tail"), CASES)
def test_staged_programs_are_proved_and_faults_in_them_are_refused_with_sizes(
    name: str, tail: str
) -> None:
    program, made = cut(name, tail), staged(name, tail)
    oc.prove_equal(program.loops, made)
    oc.prove_equal(program.source, made)
    assert all(is_equal(program.source, made, n) for n in SIZES if tail != "exact" or n % T == 0)
    faults, least = ([*FAULTS, *OF_DENSE], 6) if name == "dense" else ([*FAULTS], 2)
    for last in (True, False) if name == "dense" else (True,):
        verdicts = {fault: verdict(name, tail, fault, last) for fault in faults}
        assert list(verdicts.values()).count("refused") >= least, verdicts


@pytest.mark.slow
def test_tall_staged_tiles_are_proved() -> None:
    program = oc.partition(dense(64, 64, 1), tile={"C.i": 16}, tail="balance")
    oc.prove_equal(program.source, PROGRAMS["dense"][2].of(program.loops))


DEEP = """program deep
size d in 0:129
input A: int32[3, d]
inout C: int32[3]
"""
SUM = """for k in 0:d
  for i in 0:3
    C[i] += A[i, k]
"""
SUM_IN_TILES = """local A_in: int32[3, d]
for t in 0:d//4
  alloc A_in[0 +: 3, 4*t +: 4]
    tile i in 0 +: 3, k in 4*t +: 4
      A_in[i, k] = A[i, k]
    for k in 4*t:4*t + 4
      for i in 0:3
        C[i] += A_in[i, k]
alloc A_in[0 +: 3, 4*(d//4) +: d - 4*(d//4)]
  tile i in 0 +: 3, k in 4*(d//4) +: d - 4*(d//4)
    A_in[i, k] = A[i, k]
  for k in 4*(d//4):d
    for i in 0:3
      C[i] += A_in[i, k]
"""
IN_SUMS = {
    "a copy one column short": ("k in 4*t +: 4", "k in 4*t +: 3"),
    "a window off by one": ("alloc A_in[0 +: 3, 4*t +: 4]", "alloc A_in[0 +: 3, 4*t + 1 +: 4]"),
    "a term too many": ("for k in 4*t:4*t + 4", "for k in 4*t:4*t + 5"),
    "a term too few": ("for k in 4*(d//4):d", "for k in 4*(d//4):d - 1"),
}


@pytest.mark.parametrize("fault", IN_SUMS)
def test_a_fault_in_tiles_of_a_sum_is_refused_with_a_size(fault: str) -> None:
    wrong = SUM_IN_TILES.replace(*IN_SUMS[fault])
    assert wrong != SUM_IN_TILES
    said = refusal(oc.parse(DEEP + SUM), oc.parse(DEEP + wrong))
    assert said is not None
    assert "with d = " in said


# Each condition of the theorem, violated alone; a source of two statements an iteration.

HEAD = """program p
size n in 0:40
input A: float32[n + 1]
local S: float32[n + 1]
output B: float32[n]
"""
SOURCE = "for i in 0:n\n  S[i] = A[i]\n  B[i] = S[i]\n"
STAGED = "for i in 0:n\n  alloc S[i +: 1]\n    S[i] = A[i]\n    B[i] = S[i]\n"
READ_BEHIND = "for i in 0:n\n  B[i] = S[i]\n"
CONDITIONS = {
    "what one iteration leaves to the next": (
        "S[0] = A[0]\nfor i in 0:n\n  B[i] = S[i]\n  S[i + 1] = A[i + 1]\n",
        "S[0] = A[0]\nfor i in 0:n\n  alloc S[i +: 2]\n    B[i] = S[i]\n    S[i + 1] = A[i + 1]\n",
    ),
    "what is read behind the loop": (SOURCE + READ_BEHIND, STAGED + READ_BEHIND),
    "what a window hides": (
        SOURCE,
        "for i in 0:n\n  S[i] = A[i]\n  alloc S[i +: 1]\n    B[i] = S[i]\n",
    ),
    "an access outside of a window": (SOURCE, STAGED.replace("S[i +: 1]", "S[i + 1 +: 1]")),
    "an element too many": (SOURCE, STAGED + "    B[0] = S[i]\n"),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_of_the_theorem_that_fails_is_refused(name: str) -> None:
    source, emitted = (oc.parse(HEAD + text) for text in CONDITIONS[name])
    said = refusal(source, emitted)
    assert said is not None
    assert "with n = " in said


def test_derived_sizes_are_written_out() -> None:
    head = HEAD.replace("0:40", "1:513").replace("n + 1", "n")
    body = """for i in 0:t1
        {high}
      for i in 0:t2
        {low}
"""
    derived = """let T in 1:33 = (n + 15)//16
  let q in 1:17 = n//T
    let t1 in 0:33 = n - q*T
     let t2 in 0:33 = T - t1
      """

    def program(form: str) -> Program:
        tiles = {"high": ("(q + 1)*i", "q + 1"), "low": ("(q + 1)*t1 + q*i", "q")}
        made = {name: form.format(start=at, count=count) for name, (at, count) in tiles.items()}
        return oc.parse(head + derived + body.format(**made))

    tile = "tile r in {start} +: {count}\n          "
    cut = program(f"{tile}S[r] = A[r]\n          B[r] = S[r]")
    inner = tile.replace("\n", "\n  ")
    made = program(
        f"alloc S[{{start}} +: {{count}}]\n          {inner}S[r] = A[r]\n          {inner}B[r] = S[r]"
    )
    source = oc.parse(head + SOURCE)
    oc.prove_equal(source, cut)
    oc.prove_equal(cut, made)
    oc.prove_equal(source, made)


def test_windows_move_on_with_their_tiles_also_where_sizes_allow_one_alone() -> None:
    program = oc.parse("""\
program w
size n in 0:100
input A: float32[n]
output C: float32[n]
local B: float32[n]
for i in 0:n
  B[i] = A[i] + 1.0
for i in 0:n
  C[i] = B[i]*2.0
""")
    decisions = "schedule w\nsplit C.i balance(2) 8 as i_block i_in\nat B C.i_block"
    loops = str(oc.create_schedule(program).apply(oc.Schedule.parse(decisions)).emitted)
    for height in (6, 8):  # of 6 rows there is one tile at most: of 5 pairs of rows, 3
        assert f"alloc B[{height}*i_block +: {height}]\n" in loops
