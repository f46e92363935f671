"""Any loop program against any other: legal rewritings are proved, and mutants refused.

Each mutant is judged twice: by the reference interpreter at small sizes, and by isl. Where the
interpreter sees another result (or an access out of bounds, or an element never written), isl must
refuse, and so must the proof that reads two programs side by side. A mutant whose results agree at every small
size may be refused or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut import Program, dim, parse
from offcut.core import index as ix
from offcut.core.expr import rewrite
from offcut.core.interpret.interpreter import run
from offcut.describe.computation import computation, source
from offcut.errors import CallError, InternalError, PartitionError
from offcut.ir import Alloc, Binary, Compare, Expr, For, If, Kind, Let, Load, Stmt, Store, Tile
from offcut.partition import BALANCE, LADDER, AxisCut
from offcut.proof.by_structure.places import NotStructural
from offcut.proof.by_structure.structure import check_structure
from offcut.schedule import LoopVariant, Nest, Schedule, apply, cut, decisions_of
from offcut.schedule.apply.group_loops import FREE
from tests.facade import check_equal, evaluate, numpy_dtype

SIZES = (0, 1, 2, 3, 4, 5, 7, 9)


def shifted(exprs: tuple[Expr, ...]) -> Iterator[tuple[Expr, ...]]:
    """`exprs` with one of them off by one."""
    for k, expr in enumerate(exprs):
        for by in (-1, 1):
            yield (*exprs[:k], ix.add(expr, by), *exprs[k + 1 :])


def changed_values(value: Expr) -> Iterator[Expr]:
    """`value` with the first read off by one, or the first operator another one."""
    for by in (-1, 1):
        todo = [True]

        def move(node: Expr, by: int = by, todo: list[bool] = todo) -> Expr | None:
            if isinstance(node, Load) and node.index and todo.pop():
                todo.append(False)
                return replace(node, index=(*node.index[:-1], ix.add(node.index[-1], by)))
            todo.append(False) if not todo else None
            return None

        yield rewrite(value, move)
    if isinstance(value, Binary):
        yield replace(value, op={"+": "-", "*": "+"}.get(value.op, "+"))


def edits(stmt: Stmt) -> Iterator[Stmt]:
    """`stmt` itself changed in one place, its blocks left as they are."""
    match stmt:
        case For():
            for lo, hi in shifted((stmt.lo, stmt.hi)):
                yield replace(stmt, lo=lo, hi=hi)
        case If(Compare() as condition, then, other):
            for (b,) in shifted((condition.b,)):
                yield replace(stmt, condition=replace(condition, b=b))
            yield replace(stmt, then=other, other=then)
        case Let():
            for (value,) in shifted((stmt.value,)):
                yield replace(stmt, value=value)
        case Tile():
            for k, axis in enumerate(stmt.axes):
                for start, extent in shifted((axis.start, axis.extent)):
                    axes = (*stmt.axes[:k], replace(axis, start=start, extent=extent))
                    yield replace(stmt, axes=(*axes, *stmt.axes[k + 1 :]))
            if stmt.where is not None:
                yield replace(stmt, where=None)
            if isinstance(stmt.where, Compare):
                for (b,) in shifted((stmt.where.b,)):
                    yield replace(stmt, where=replace(stmt.where, b=b))
        case Alloc():
            for k, (start, extent) in enumerate(stmt.axes):
                for pair in shifted((start, extent)):
                    window = (*stmt.axes[:k], (pair[0], pair[1]), *stmt.axes[k + 1 :])
                    yield replace(stmt, axes=window)
        case Store():
            for index in shifted(stmt.index):
                yield replace(stmt, index=index)
            yield replace(stmt, reduce={None: "sum", "sum": None}.get(stmt.reduce, "sum"))
            for value in changed_values(stmt.value):
                yield replace(stmt, value=value)
        case _:
            pass


def mutated(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """`body` with one change, at any depth: an edit, a statement dropped or said twice, two swapped."""
    for k, stmt in enumerate(body):
        yield body[:k] + body[k + 1 :]
        yield (*body[:k], stmt, *body[k:])
        if k and body[k - 1] != stmt:
            yield (*body[: k - 1], stmt, body[k - 1], *body[k + 1 :])
        for new in edits(stmt):
            yield (*body[:k], new, *body[k + 1 :])
        match stmt:
            case For() | Let() | Tile() | Alloc():
                for inner in mutated(stmt.body):
                    yield (*body[:k], replace(stmt, body=inner), *body[k + 1 :])
            case If():
                for inner in mutated(stmt.then):
                    yield (*body[:k], replace(stmt, then=inner), *body[k + 1 :])
                for inner in mutated(stmt.other):
                    yield (*body[:k], replace(stmt, other=inner), *body[k + 1 :])
            case _:
                pass


def results(program: Program) -> list[Any]:
    """Every result at small sizes, or the fault that ends it."""
    found: list[Any] = []
    rng = np.random.default_rng(7)
    for turn, size in enumerate(SIZES):
        sizes = {
            s.name: (size, SIZES[(turn * 3 + k) % 6])[k > 0] for k, s in enumerate(program.sizes)
        }
        try:
            given = {}
            for b in program.buffers:
                if b.kind in (Kind.INPUT, Kind.CONSTANT, Kind.INOUT):
                    shape = tuple(int(evaluate(extent, sizes)) for extent in b.shape)
                    given[b.name] = (rng.standard_normal(shape) + 3).astype(numpy_dtype(b.dtype))
            got = run(program, given, sizes)
            found.append([got[b.name] for b in program.results])
        except CallError:
            found.append(None)
        except InternalError as fault:
            found.append(fault)
    return found


def same(a: list[Any], b: list[Any]) -> bool:
    """Whether two programs give the same bits at every small size, and none fails."""
    for x, y in zip(a, b, strict=True):
        if isinstance(y, InternalError):
            return False
        if x is not None and not all(
            np.array_equal(p, q, equal_nan=True) for p, q in zip(x, y, strict=True)
        ):
            return False
    return True


@cache
def contraction(fused: bool = True, columns: int = 4) -> Any:
    """``C = A @ B``; `fused`: with a bias that runs in the same tile."""
    n = dim("n", max=64)
    A, B = oc.placeholder((n, 5), "float64", "A"), oc.placeholder((5, columns), "float64", "B")
    k = oc.reduce_axis(5, "k")

    def term(i: Any, j: Any) -> Any:
        total = oc.sum(A[i, k] * B[k, j], axis=k)
        return total + 1.0 if fused else total

    return computation([oc.compute((n, columns), term, name="C")])


def described(fused: bool = True, **tails: str) -> tuple[Program, Program]:
    tile = {axis: {"i": 3, "j": 8, "k": 2}[axis] for axis in tails}
    of = contraction(fused, 21 if "j" in tails else 4)
    return source(of), cut(of, tile, tails, []).loops


def texts(head: str, first: str, second: str) -> tuple[Program, Program]:
    return parse(head + first), parse(head + second)


def cut_text(text: str, tail: str, **tile: int) -> tuple[Program, Program]:
    program = parse(text)
    named = {axis.replace("_", "."): size for axis, size in tile.items()}
    return program, oc.partition(program, tile=named, tail=tail).loops


BY_HEIGHT = (((1, 1), 8, (8, 4)), ((2, 2), 4, (4, 2, 1)), ((3, 3), 8, (8,)))


def nested(*cuts: AxisCut, outer: tuple[str, ...] = ()) -> tuple[Program, Program]:
    """A sum in tiles whose columns go by the height of its rows, or with rows outside."""
    of = contraction(False, 21)
    nest = Nest("C", (LoopVariant(splits=cuts, loops=outer),))
    applied = apply(of, Schedule(of.name, decisions_of((nest,))), [], lambda *_: FREE)
    return source(of), applied.partition.loops


def symbolic_terms() -> tuple[Program, Program]:
    """A sum of any number of terms, in balanced tiles."""
    n, depth = dim("n", max=64), dim("K", max=64)
    A, B = oc.placeholder((n, depth), "float64", "A"), oc.placeholder((depth,), "float64", "B")
    k = oc.reduce_axis(depth, "k")
    of = computation([oc.compute((n,), lambda i: oc.sum(A[i, k] * B[k], axis=k), name="C")])
    return source(of), cut(of, {"i": 2, "k": 3}, {"i": "mask", "k": "balance"}, []).loops


LU = """program lu
size n in 1:100
inout A: float64[n, n]
"""
LU_PLAIN = """for k in 0:n
  for i in k + 1:n
    A[i, k] = A[i, k] / A[k, k]
    for j in k + 1:n
      A[i, j] -= A[i, k] * A[k, j]
"""
LU_CUT = """for k in 0:n
  for i in k + 1:n
    A[i, k] = A[i, k] / A[k, k]
  for i_tile in 0:(n + 3)//4
    for j in k + 1:n
      for i in max(4*i_tile, k + 1):min(4*i_tile + 4, n)
        A[i, j] -= A[i, k] * A[k, j]
"""
JACOBI = """program jacobi
size n in 3:100
size steps in 0:50
inout A: float64[n]
inout B: float64[n]
"""
JACOBI_PLAIN = """for t in 0:steps
  for i in 1:n - 1
    B[i] = (A[i - 1] + A[i] + A[i + 1]) * 0.3
  for i in 1:n - 1
    A[i] = (B[i - 1] + B[i] + B[i + 1]) * 0.3
"""
JACOBI_SKEWED = """for t in 0:steps
  for i in 1:n
    if i < n - 1
      B[i] = (A[i - 1] + A[i] + A[i + 1]) * 0.3
    if i >= 2
      A[i - 1] = (B[i - 2] + B[i - 1] + B[i]) * 0.3
"""
SEIDEL = """program seidel
size n in 3:100
size steps in 0:50
inout A: float64[n]
"""
SEIDEL_PLAIN = """for t in 0:steps
  for i in 1:n - 1
    A[i] = (A[i - 1] + A[i] + A[i + 1]) * 0.3
"""
SEIDEL_WAVES = """for w in 0:2*steps + n
  for t in 0:steps
    if w - 2*t >= 1 and w - 2*t < n - 1
      A[w - 2*t] = (A[w - 2*t - 1] + A[w - 2*t] + A[w - 2*t + 1]) * 0.3
"""
SEIDEL_BLOCKS = """for t_tile in 0:(steps + 3)//4
  for t_in in 0:4
    if 4*t_tile + t_in < steps
      for i in 1:n - 1
        A[i] = (A[i - 1] + A[i] + A[i + 1]) * 0.3
"""
UNROLLED = """program unrolled
size n in 3:100
inout A: float64[n]
inout B: float64[n]
"""
UNROLLED_PLAIN = (
    2
    * """for i in 1:n - 1
  B[i] = (A[i - 1] + A[i + 1]) * 0.3
for i in 1:n - 1
  A[i] = (B[i - 1] + B[i + 1]) * 0.3
"""
)
UNROLLED_FUSED = (
    2
    * """for i in 1:n
  if i < n - 1
    B[i] = (A[i - 1] + A[i + 1]) * 0.3
  if i >= 2
    A[i - 1] = (B[i - 2] + B[i]) * 0.3
"""
)
TRMM = """program trmm
size n in 0:100
size m in 0:100
input A: float64[n, n]
inout B: float64[n, m]
"""
TRMM_PLAIN = """for i in 0:n
  for j in 0:m
    for k in i + 1:n
      B[i, j] += A[k, i] * B[k, j]
    B[i, j] = B[i, j] * 1.5
"""
TRMM_CUT = """for j_tile in 0:(m + 3)//4
  for i in 0:n
    for j in 4*j_tile:min(4*j_tile + 4, m)
      for k in i + 1:n
        B[i, j] += A[k, i] * B[k, j]
    for j in 4*j_tile:min(4*j_tile + 4, m)
      B[i, j] = B[i, j] * 1.5
"""
MATMUL = """program mm
size n in 0:100
size m in 0:100
input A: float64[n, m]
input B: float64[m, n]
local AL: float64[n, m]
local CL: float64[n, n]
output C: float64[n, n]
"""
MATMUL_PLAIN = """for i in 0:n
  for j in 0:n
    C[i, j] = 0.0
    for k in 0:m
      C[i, j] += A[i, k] * B[k, j]
"""
MATMUL_CACHED = """for io in 0:(n + 3)//4
  for jo in 0:(n + 3)//4
    alloc CL[4*io +: 4, 4*jo +: 4]
      for i in 4*io:min(4*io + 4, n)
        for j in 4*jo:min(4*jo + 4, n)
          CL[i, j] = 0.0
      for ko in 0:(m + 3)//4
        alloc AL[4*io +: 4, 4*ko +: 4]
          for i in 4*io:min(4*io + 4, n)
            for k in 4*ko:min(4*ko + 4, m)
              AL[i, k] = A[i, k]
          for i in 4*io:min(4*io + 4, n)
            for j in 4*jo:min(4*jo + 4, n)
              for k in 4*ko:min(4*ko + 4, m)
                CL[i, j] += AL[i, k] * B[k, j]
      for i in 4*io:min(4*io + 4, n)
        for j in 4*jo:min(4*jo + 4, n)
          C[i, j] = CL[i, j]
"""
CONV = """program conv
size n in 1:100
input A: float64[n]
input W: float64[3]
output C: float64[n]
"""
CONV_PLAIN = """for i in 0:n
  C[i] = 0.0
  for r in 0:3
    C[i] += where(i + r >= 1 and i + r < n + 1, A[i + r - 1], 0.0) * W[r]
"""
CONV_SPLIT = """for i in 0:n
  C[i] = 0.0
if n >= 2
  C[0] += 0.0 * W[0]
  for r in 1:3
    C[0] += A[r - 1] * W[r]
  for i in 1:n - 1
    for r in 0:3
      C[i] += A[i + r - 1] * W[r]
  for r in 0:2
    C[n - 1] += A[n + r - 2] * W[r]
  C[n - 1] += 0.0 * W[2]
else
  for i in 0:n
    for r in 0:3
      C[i] += where(i + r >= 1 and i + r < n + 1, A[i + r - 1], 0.0) * W[r]
"""
MASKED_PLAIN = """for i in 0:n
  C[i] = 0.0
  for r in 0:3
    C[i] += where(i + r >= 1 and i + r < n + 1, A[i + r - 1] * W[r], 0.0)
"""
MASKED_SPLIT = """for i in 0:n
  C[i] = 0.0
  for r in max(0, 1 - i):min(3, n + 1 - i)
    C[i] += A[i + r - 1] * W[r]
"""
CHAIN = """program chain
size n in 0:100
input A: float64[n]
local B: float64[n]
output C: float64[n]
"""
CHAIN_PLAIN = """for i in 0:n
  B[i] = A[i] * 2.0
for i in 0:n
  C[i] = where(i >= 1, B[i - 1], 0.0) + B[i]
"""
CHAIN_HALO = """for io in 0:(n + 3)//4
  alloc B[4*io - 1 +: 5]
    for i in max(0, 4*io - 1):min(n, 4*io + 4)
      B[i] = A[i] * 2.0
    for i in 4*io:min(n, 4*io + 4)
      C[i] = where(i >= 1, B[i - 1], 0.0) + B[i]
"""
GUARDED = """program guarded
size n in 0:100
size m in 1:50
input A: float64[n]
output C: float64[n]
"""
GUARDED_PLAIN = """for i in 0:n
  C[i] = 0.0
for i in 0:n
  if i * i < m and A[i] > 3.0
    C[i] = A[i] * 2.0
"""
GUARDED_FUSED = """for io in 0:(n + 3)//4
  tile i in 4*io +: 4 where i < n  @mask
    C[i] = 0.0
    if i * i < m
      if A[i] > 3.0
        C[i] = A[i] * 2.0
"""
MOST = """program most
size n in 0:100
size m in 0:100
input A: float64[n, m]
local L: float64[n]
output C: float64[n]
"""
MOST_PLAIN = """for i in 0:n
  C[i] = -inf
  for k in 0:m
    C[i] max= A[i, k]
"""
MOST_SHIFTED = """for i in 0:n
  alloc L[i +: 1]
    L[i] = -inf
    for ko in 0:(m + 3)//4
      for k in max(0, min(4*ko, m - 4)):min(4*ko + 4, m)
        L[i] max= A[i, k]
    C[i] = L[i]
"""
TWO = """program two
size n in 0:100
input A: float64[n]
output B: float64[n]
output C: float64[n]
"""
TWO_PLAIN = """for i in 0:n
  B[i] = A[i] + float64(i)
  C[i] = B[i] * 2.0
"""
TWO_SHIFTED = """for i_tile in 0:n//4
  tile i in 4*i_tile +: 4
    B[i] = A[i] + float64(i)
    C[i] = B[i] * 2.0
if n >= 4
  tile i in n - 4 +: 4  @shift
    B[i] = A[i] + float64(i)
    C[i] = B[i] * 2.0
else
  for i in 0:n
    B[i] = A[i] + float64(i)
    C[i] = B[i] * 2.0
"""

IMAGE = """\
program convolution
size n in 0:60
size m in 0:60
input X: int32[n, m]
input W: int32[3, 3]
output C: int32[n, m]
for i in 0:n
  for j in 0:m
    C[i, j] = 0
    for r in 0:3
      for s in 0:3
        C[i, j] += where(i + r >= 1 and i + r <= n and j + s >= 1 and j + s <= m, X[i + r - 1, j + s - 1] * W[r, s], 0)
"""
SWEEP = """\
program sweep
size T in 0:9
size n in 0:60
inout A: int32[n]
inout B: int32[n]
for t in 0:T
  for i in 1:n - 1
    B[i] = A[i - 1] + A[i + 1]
  for i in 1:n - 1
    A[i] = B[i - 1] - B[i]
"""
PREFIX = """\
program prefix
size n in 0:60
input A: int32[n]
inout C: int32[n + 1]
for i in 0:n
  C[i + 1] += C[i] * 3 + A[i]
"""

CASES: dict[str, Callable[[], tuple[Program, Program]]] = {
    **{
        f"rows {tail}": partial(described, i=tail)
        for tail in ("guard", "cut", "mask", "pad", "shift", "ladder", "balance")
    },
    **{f"terms {tail}": partial(described, k=tail) for tail in ("cut", "guard", "pad")},
    "rows in tiles, all axes": partial(described, fused=False, i="mask", j="pad", k="pad"),
    "rows shift, columns cut": partial(described, fused=False, i="shift", j="cut", k="mask"),
    "rows balance, columns mask": partial(described, fused=False, i="balance", j="mask"),
    "terms even": partial(described, fused=False, i="ladder", k="even"),
    "terms in a version of their own": partial(described, fused=False, i="mask", k="version"),
    "terms balanced": symbolic_terms,
    "columns by height, balanced": partial(
        nested, AxisCut("i", BALANCE, 3), AxisCut("j", LADDER, 0, None, BY_HEIGHT)
    ),
    "columns by height, ladder, in groups": partial(
        nested, AxisCut("i", LADDER, 3), AxisCut("j", LADDER, 0, None, BY_HEIGHT, group=8)
    ),
    "rows outside": partial(nested, AxisCut("j", LADDER, 8, (8, 4)), outer=("i",)),
    **{
        f"image {tail}": partial(cut_text, IMAGE, tail, i=3, j=4)
        for tail in ("mask", "residue", "version")
    },
    "sweep": partial(cut_text, SWEEP, "balance", B_i=3, A_i=4),
    "sweep by time": partial(cut_text, SWEEP, "residue", t=3),
    "prefix": partial(cut_text, PREFIX, "ladder", i=4),
    "rows mask, a sum alone": partial(described, fused=False, i="mask"),
    "terms cut, a sum alone": partial(described, fused=False, k="cut"),
    "both cut": partial(described, i="cut", k="cut"),
    "lu": partial(texts, LU, LU_PLAIN, LU_CUT),
    "jacobi skewed": partial(texts, JACOBI, JACOBI_PLAIN, JACOBI_SKEWED),
    "seidel in waves": partial(texts, SEIDEL, SEIDEL_PLAIN, SEIDEL_WAVES),
    "seidel in blocks of time": partial(texts, SEIDEL, SEIDEL_PLAIN, SEIDEL_BLOCKS),
    "statements of one text": partial(texts, UNROLLED, UNROLLED_PLAIN, UNROLLED_FUSED),
    "trmm": partial(texts, TRMM, TRMM_PLAIN, TRMM_CUT),
    "matmul cached": partial(texts, MATMUL, MATMUL_PLAIN, MATMUL_CACHED),
    "border split": partial(texts, CONV, CONV_PLAIN, CONV_SPLIT),
    "neutral terms left out": partial(texts, CONV, MASKED_PLAIN, MASKED_SPLIT),
    "neutral terms added": partial(texts, CONV, MASKED_SPLIT, MASKED_PLAIN),
    "halo recomputed": partial(texts, CHAIN, CHAIN_PLAIN, CHAIN_HALO),
    "guards that isl does not decide": partial(texts, GUARDED, GUARDED_PLAIN, GUARDED_FUSED),
    "maximum shifted in a window": partial(texts, MOST, MOST_PLAIN, MOST_SHIFTED),
    "chain shifted": partial(texts, TWO, TWO_PLAIN, TWO_SHIFTED),
}


STRUCTURAL = ("image", "sweep", "prefix", "rows guard", "both cut")
"""How the names of those begin whose proof needs no instances: both texts are read side by side."""


def is_read_side_by_side(plain: Program, emitted: Program) -> bool:
    try:
        check_structure(plain, emitted)
    except NotStructural:
        return False
    return True


@pytest.mark.every(5)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_legal_rewriting_is_proved(case: str) -> None:
    plain, emitted = CASES[case]()
    assert same(results(plain), results(emitted))
    assert [theorem.name for theorem in check_equal(plain, emitted)] == [
        "instances",
        "in bounds",
        "data flow",
        "results",
    ]
    assert is_read_side_by_side(plain, emitted) or not case.startswith(STRUCTURAL)


QUICK = (
    "prefix",
    "jacobi skewed",
    "halo recomputed",
    "neutral terms left out",
    "rows outside",
    "chain shifted",
)
"""Whose mutants take little time: `make test` leaves the others to the sweep of all mutants."""


def check_mutants(case: str, most: int | None) -> None:
    """Judge mutants of an emitted program, all or at most so many, by what they compute."""
    plain, emitted = CASES[case]()
    right = results(plain)
    mutants = [body for body in mutated(emitted.body) if body != emitted.body]
    step = 1 if most is None else max(1, -(-len(mutants) // most))
    for body in mutants[::step]:
        mutant = replace(emitted, body=body)
        accepted = is_read_side_by_side(plain, mutant)
        try:
            check_equal(plain, mutant)
        except PartitionError:
            if not accepted:
                continue
        assert same(right, results(mutant)), str(mutant)


@pytest.mark.parametrize("case", QUICK)
def test_no_mutant_with_another_result_is_accepted(case: str) -> None:
    check_mutants(case, 24)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_none_of_all_mutants_with_another_result_is_accepted(case: str) -> None:
    check_mutants(case, None)
