"""Bounds of what kernels compute in 32 bits, against all values that their indices take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from test_text import kernel

import offcut as oc
from offcut.backends.gpu.launches import Launch, LaunchPlan
from offcut.core.expr import Expr, dtype_of, walk
from offcut.core.interpret.values import evaluate
from offcut.core.program import For, If, Let, Stmt, Sync, Tile, blocks
from offcut.core.traversal import expressions
from offcut.polyhedral.index_maximum import index_bounds

LOOPS = """\
program P
size n in 0:9
size m in 0:9
input A: float32[3*n + m]
output C: float32[n*m]
for i in 0:n  @block
  let q in 0:9 = (2*n - i)//3
    for j in 0:m
      if 5*(i - q) + j < n*m
        C[m*i + j] = A[min(3*i + j, 3*n - 1)] + A[(7*j - 2*i + 5*n) % 3]
"""


def values(stmts: tuple[Stmt, ...], at: Mapping[str, int]) -> Iterator[int]:
    """Yield the value of each index of statements, by enumeration."""
    for stmt in stmts:
        if isinstance(stmt, Sync):
            continue
        inner: list[Mapping[str, int]] = [at]
        if isinstance(stmt, For):
            inner = [{**at, stmt.iter: i} for i in range(*(evaluate(e, at) for e in (stmt.lo, stmt.hi)))]  # fmt: skip
        elif isinstance(stmt, Let):
            inner = [{**at, stmt.name: evaluate(stmt.value, at)}]
        elif isinstance(stmt, Tile):
            for axis in stmt.axes:
                begin, extent = evaluate(axis.start, at), evaluate(axis.extent, at)
                inner = [{**one, axis.iter: i} for one in inner for i in (begin, begin + extent - 1) if extent > 0]  # fmt: skip
        for one in inner if isinstance(stmt, Tile) else (at,):
            for expr in expressions(stmt):
                yield from (int(evaluate(part, one)) for part in indices(expr))
        for one in inner:
            for number, body in enumerate(blocks(stmt)):
                if not isinstance(stmt, If) or bool(evaluate(stmt.condition, one)) == (number == 0):
                    yield from values(body, one)


def indices(expr: Expr) -> list[Expr]:
    parts = [part for part in walk(expr) if dtype_of(part) == "index"]
    return [part for part in parts if not any(dtype_of(one) != "index" for one in walk(part))]


@pytest.mark.parametrize("name", ["loops", "dense_aligned", "centered"])
def test_no_index_is_larger_than_the_bounds(name: str) -> None:
    program = oc.parse(LOOPS) if name == "loops" else kernel(name).loops
    for launch in (stmt for stmt in program.body if not isinstance(stmt, Sync)):
        bounds = index_bounds(program, launch, -1)
        for n in (1, 5):
            at = {size.name: n for size in program.sizes}
            largest = max(map(abs, values((launch,), at)))
            bound = max(int(evaluate(bound, at)) for bound in bounds)
            assert largest <= bound <= 8 * largest + 256


def test_sizes_that_are_all_small_need_no_check() -> None:
    program = oc.parse(LOOPS)
    assert index_bounds(program, program.body[0], 1000) == ()
    assert index_bounds(program, program.body[0], 60) != ()


@pytest.mark.parametrize("text", ["__import__('os')", "n.real", "[n][0]", "(lambda: n)()", "m"])
def test_a_text_that_is_no_arithmetic_of_sizes_is_not_evaluated(text: str) -> None:
    plan = LaunchPlan("P", ("n",), (), (Launch("k", (text,), 32, 0, ()),))
    with pytest.raises(ValueError, match="is not arithmetic of n"):
        plan.grids({"n": 3})
