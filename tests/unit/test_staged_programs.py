"""Staged rows, tiles of two axes, of a sum, and windows that overlap are proved; faults planted in them are refused with sizes.

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
from offcut.core.interpret.values import evaluate
from offcut.core.program import Alloc, Program, Stmt, Store, Tile, walk
from offcut.core.traversal import map_blocks
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
# Text, tiles, and which arrays lie in windows.
PROGRAMS: dict[str, tuple[str, dict[str, int], Staging]] = {
    "softmax": (SOFTMAX, {"i": 4}, Staging(("A",), ("C",), ("M", "E", "S"))),
    "layernorm": (LAYERNORM, {"i": 4}, Staging(("A",), ("C",), ("M", "V"))),
    "two axes": (PRODUCT, {"i": 4, "j": 3}, Staging(("A",), ("C",), ("S",))),
    "overlapping windows": (HALO, {"i": 4}, Staging(("A",), ("C",), ("S",))),
}
TAILS = ("guard", "cut", "mask", "ladder", "balance", "even", "residue", "mix", "shift")
SIZES = (0, 1, 3, 4, 5, 12, 17)
FAST = (
    ("softmax", "cut", "a copy one row short"),
    ("layernorm", "ladder", "a result one row too many"),
)


@cache
def cut(name: str, tail: str) -> oc.Partition:
    text, tiles, _ = PROGRAMS[name]
    return oc.partition(oc.parse(text), tile=tiles, tail=tail)


def staged(name: str, tail: str) -> Program:
    return PROGRAMS[name][2].of(cut(name, tail).loops)


def is_equal(one: Program, other: Program, n: int) -> bool:
    """Whether both give the same with all sizes n, or as near to it as they may; what breaks gives nothing."""
    sizes = {size.name: min(max(n, size.min), size.last) for size in one.sizes}
    wanted, found = (_values(program, sizes) for program in (one, other))
    return found is not None and np.array_equal(wanted, found)


def _values(program: Program, sizes: dict[str, int]) -> Any:
    random = np.random.default_rng(0)
    given = {}
    for buffer in program.buffers:
        if buffer.kind.value in ("input", "inout"):
            shape = tuple(int(evaluate(e, sizes)) for e in buffer.shape)
            given[buffer.name] = random.integers(1, 9, shape).astype(buffer.dtype)
    try:
        return program.run(given, **sizes)
    except (OffcutError, InternalError):
        return None


def _stores(tile: Tile, buffer: str) -> bool:
    return any(isinstance(s, Store) and s.buffer == buffer for s in tile.body)


def _moved(buffer: str, start: int, extent: int) -> Callable[[Stmt], Stmt]:
    """The last axis but for those of the columns, of the tiles that store an array, begins and ends elsewhere."""

    def rule(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Tile) or not _stores(stmt, buffer):
            return stmt
        where = next(k for k, axis in enumerate(stmt.axes) if ix.literal_value(axis.start) is None)
        axes = list(stmt.axes)
        axes[where] = replace(
            axes[where],
            start=ix.add(axes[where].start, start),
            extent=ix.add(axes[where].extent, extent),
        )
        return replace(stmt, axes=tuple(axes))

    return rule


def _window(start: int, extent: int) -> Callable[[Stmt], Stmt]:
    def rule(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Alloc) or stmt.buffer != "A_in":
            return stmt
        where = next(k for k, (first, _) in enumerate(stmt.axes) if ix.literal_value(first) is None)
        axes = list(stmt.axes)
        axes[where] = ix.add(axes[where][0], start), ix.add(axes[where][1], extent)
        return replace(stmt, axes=tuple(axes))

    return rule


def _accumulates(stmt: Stmt) -> Stmt:
    mine = isinstance(stmt, Store) and stmt.buffer == "C" and stmt.reduce is None
    return replace(stmt, reduce="sum") if mine and isinstance(stmt, Store) else stmt


FAULTS: dict[str, Callable[[Stmt], Stmt]] = {
    "a copy one row short": _moved("A_in", 0, -1),
    "a copy one row too long": _moved("A_in", 0, 1),
    "a copy moved by one": _moved("A_in", 1, 0),
    "a window one row short": _window(0, -1),
    "a window off by one": _window(1, 0),
    "a result one row short": _moved("C", 0, -1),
    "a result one row too many": _moved("C", 0, 1),
    "a result that accumulates": _accumulates,
}


def broken(program: Program, rule: Callable[[Stmt], Stmt]) -> Program:
    """`program` with a rule at all of its last statement, which has the last tiles."""

    def at(stmt: Stmt) -> Stmt:
        return rule(map_blocks(stmt, lambda body: tuple(map(at, body))))

    number = max(
        k
        for k, stmt in enumerate(program.body)
        if any(isinstance(s, Alloc) and s.buffer == "A_in" for s in walk((stmt,)))
    )
    body = list(program.body)
    body[number] = at(body[number])
    return replace(program, body=tuple(body))


def check(name: str, tail: str) -> None:
    """A staged program is proved beside its cut and beside its source, and gives the same."""
    program, made = cut(name, tail), staged(name, tail)
    oc.prove_equal(program.loops, made)
    oc.prove_equal(program.source, made)
    assert all(is_equal(program.source, made, n) for n in SIZES)


def verdict(name: str, tail: str, fault: str) -> str:
    """What is said of a fault: refused with sizes, or the same at every edge size."""
    program = cut(name, tail).loops
    wrong = broken(staged(name, tail), FAULTS[fault])
    if wrong == staged(name, tail):
        return "none"
    differs = [n for n in SIZES if not is_equal(program, wrong, n)]
    try:
        oc.prove_equal(program, wrong)
    except OffcutError as error:
        said = str(error)
        assert "cannot tell" not in said, (fault, said)
        assert "with " in said, (fault, said)
        return "refused"
    assert not differs, f"{name}, {tail}, {fault}: proved, and differs at {differs}"
    return "same"


@pytest.mark.every(2)
@pytest.mark.parametrize(("name", "tail", "fault"), FAST)
def test_staged_rows_are_proved_and_a_row_too_few_or_too_many_is_refused(
    name: str, tail: str, fault: str
) -> None:
    oc.prove_equal(cut(name, tail).source, staged(name, tail))
    assert verdict(name, tail, fault) == "refused"


@pytest.mark.slow
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_staged_programs_are_proved(name: str, tail: str) -> None:
    check(name, tail)


@pytest.mark.slow
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_faults_in_staged_programs_are_refused_with_sizes(name: str, tail: str) -> None:
    verdicts = {fault: verdict(name, tail, fault) for fault in FAULTS}
    assert list(verdicts.values()).count("refused") >= 2, verdicts


DEEP = """program deep
size d in 0:129
input A: int32[3, d]
inout C: int32[3]
"""
SUM = """for k in 0:d
  for i in 0:3
    C[i] += A[i, k]
"""
SUM_IN_TILES = """for t in 0:d//4
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
    "a copy one column short": (
        "tile i in 0 +: 3, k in 4*t +: 4",
        "tile i in 0 +: 3, k in 4*t +: 3",
    ),
    "a window off by one": ("alloc A_in[0 +: 3, 4*t +: 4]", "alloc A_in[0 +: 3, 4*t + 1 +: 4]"),
    "a term too many": ("for k in 4*t:4*t + 4", "for k in 4*t:4*t + 5"),
    "a term too few": ("for k in 4*(d//4):d", "for k in 4*(d//4):d - 1"),
}


@pytest.mark.parametrize("fault", IN_SUMS)
def test_a_fault_in_tiles_of_a_sum_is_refused_with_a_size(fault: str) -> None:
    wrong = SUM_IN_TILES.replace(*IN_SUMS[fault])
    with pytest.raises(OffcutError, match="with d = "):
        oc.prove_equal(oc.parse(DEEP + SUM), oc.parse(_in_tiles(wrong)))


def _in_tiles(text: str) -> str:
    return f"{DEEP}local A_in: int32[3, d]\n{text}"
