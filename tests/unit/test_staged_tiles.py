"""Staged tiles of symbolic height are proved, body by body; planted faults are refused with the smallest size.

What a proof says is held against the reference interpreter at edge sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from staged import Staging

import offcut as oc
from offcut.core import index as ix
from offcut.core.expr import Const, Load, Var, rewrite
from offcut.core.program import Alloc, Program, Stmt, Store, Tile, walk
from offcut.core.traversal import map_blocks, map_expressions, rewrite_body
from offcut.errors import InternalError, OffcutError

T = 4
SIZES = (0, 1, T - 1, T, T + 1, 3 * T, 3 * T + 5)
DEPTH, WIDTH = 3, 2
STAGED = Staging(("A",), ("C",), ("S", "Y"))
STRATEGIES = [
    "guard",
    "cut",
    "mask",
    "pad",
    "shift",
    "ladder",
    "balance",
    "even",
    "version",
    "residue",
    "mix",
    "exact",
]


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


def partitioned(tail: str) -> oc.Partition:
    """The product cut by `T`; `exact` is of rows that it divides."""
    made = dense()
    with oc.assume(*([made.shape[0] % T == 0] if tail == "exact" else [])):
        return oc.partition(made, tile={"C.i": T}, tail=tail)


def values(program: Program, n: int) -> Any:
    """What the reference interpreter makes of it; None where it breaks."""
    random = np.random.default_rng(n)
    shapes = {"A": (n, DEPTH), "W": (DEPTH, WIDTH)}
    given = {name: random.integers(1, 9, shape).astype("int8") for name, shape in shapes.items()}
    try:
        return program.run(given, n=n)
    except (OffcutError, InternalError):
        return None


def is_equal(one: Program, other: Program, n: int) -> bool:
    wanted, found = values(one, n), values(other, n)
    return found is not None and np.array_equal(wanted, found)


# Faults: of the last tile of a program, in its windows.


def _axis(stmt: Tile, start: int = 0, extent: int = 0) -> Tile:
    first = stmt.axes[0]
    moved = replace(first, start=ix.add(first.start, start), extent=ix.add(first.extent, extent))
    return replace(stmt, axes=(moved, *stmt.axes[1:]))


def _tile(buffer: str, change: Callable[[Tile], Stmt | tuple[Stmt, ...]]) -> Callable[..., Any]:
    def rule(stmt: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        mine = isinstance(stmt, Tile) and any(
            isinstance(s, Store) and s.buffer == buffer for s in stmt.body
        )
        return change(stmt) if mine and isinstance(stmt, Tile) else None

    return rule


def _window(buffer: str, start: int, extent: int) -> Callable[..., Any]:
    def rule(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Alloc) or stmt.buffer != buffer:
            return None
        (first, count), *rest = stmt.axes
        return replace(stmt, axes=((ix.add(first, start), ix.add(count, extent)), *rest))

    return rule


def _value(old: str, at: Callable[[Load], Load]) -> Callable[..., Any]:
    def rule(stmt: Stmt) -> Stmt | None:
        def read(node: Any) -> Any:
            return at(node) if isinstance(node, Load) and node.buffer == old else None

        return (
            map_expressions(stmt, lambda e: rewrite(e, read)) if isinstance(stmt, Store) else None
        )

    return rule


def _row(load: Load) -> Load:
    return replace(load, index=(ix.sub(ix.sub(Var("n"), 1), load.index[0]), load.index[1]))


def _slot(load: Load) -> Load:
    return replace(load, index=(load.index[0], ix.sub(DEPTH - 1, load.index[1])))


def _starts(tile: Tile) -> bool:
    (only,) = tile.body
    return isinstance(only, Store) and only.reduce is None


def _stores(change: Callable[[Store], Store]) -> Callable[[Tile], Tile]:
    return lambda tile: replace(
        tile, body=tuple(change(s) if isinstance(s, Store) else s for s in tile.body)
    )


FAULTS: dict[str, Callable[..., Any]] = {
    "a copy one row short": _tile("A_in", lambda t: _axis(t, extent=-1)),
    "a copy one row too long": _tile("A_in", lambda t: _axis(t, extent=1)),
    "a copy moved by one": _tile("A_in", lambda t: _axis(t, start=1)),
    "a window one row short": _window("S", 0, -1),
    "a window off by one": _window("A_in", 1, 0),
    "the row of another tile": _value("A", _row),
    "a wrong slot": _value("A_in", _slot),
    "a result one row short": _tile("C", lambda t: _axis(t, extent=-1)),
    "a result one row too many": _tile("C", lambda t: _axis(t, extent=1)),
    "a result that accumulates": _tile("C", _stores(lambda s: replace(s, reduce="sum"))),
    "a store outside": _tile(
        "C",
        lambda t: (t, Store("C", (ix.const(0), ix.const(0)), Const(7, "int8"))),
    ),
    "a sum without its start": _tile("S", lambda t: () if _starts(t) else t),
}


def broken(program: Program, rule: Callable[..., Any], last: bool = True) -> Program:
    """`program` with the rule at the last of its staged tiles, or at the first."""
    heads = [s for s in walk(program.body) if isinstance(s, Alloc) and s.buffer == "A_in"]
    chosen = heads[-1 if last else 0]
    parent = _outermost(program, chosen)

    def at(stmt: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        if stmt is not parent:
            return None
        return rewrite_body((stmt,), rule)

    def descend(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for stmt in body:
            found = at(stmt)
            if isinstance(found, tuple):
                made += found
            else:
                made.append(map_blocks(stmt, descend))
        return tuple(made)

    return replace(program, body=descend(program.body))


def _outermost(program: Program, chosen: Alloc) -> Stmt:
    tops = [s for s in walk(program.body) if isinstance(s, Alloc)]
    return next(s for s in tops if any(inner is chosen for inner in walk((s,))))


def refusal(source: Program, emitted: Program) -> str | None:
    try:
        oc.prove_equal(source, emitted)
    except OffcutError as error:
        return str(error)
    return None


def check_fault(tail: str, name: str, last: bool) -> str:
    """What is said of a fault: refused with sizes, or the same at every edge size."""
    cut = partitioned(tail).loops
    wrong = broken(STAGED.of(cut), FAULTS[name], last)
    said = refusal(cut, wrong)
    differs = [n for n in SIZES if not is_equal(cut, wrong, n)]
    if said is None:
        assert not differs, f"{tail}, {name}: proved, and differs at {differs}"
        return "same"
    assert "cannot tell" not in said, said
    assert "with n = " in said, said
    return "refused"


def test_a_staged_balance_is_proved_beside_its_cut_and_beside_its_source() -> None:
    program = partitioned("balance")
    staged = STAGED.of(program.loops)
    oc.prove_equal(program.loops, staged)
    oc.prove_equal(program.source, staged)


@pytest.mark.slow
def test_tall_staged_tiles_are_proved() -> None:
    program = oc.partition(dense(64, 64, 1), tile={"C.i": 16}, tail="balance")
    oc.prove_equal(program.source, STAGED.of(program.loops))


@pytest.mark.slow
@pytest.mark.parametrize("tail", STRATEGIES)
def test_staged_tiles_of_a_strategy_are_proved(tail: str) -> None:
    program = partitioned(tail)
    staged = STAGED.of(program.loops)
    oc.prove_equal(program.loops, staged)
    oc.prove_equal(program.source, staged)
    sizes = [n for n in SIZES if tail != "exact" or n % T == 0]
    assert all(is_equal(program.loops, staged, n) for n in sizes)


@pytest.mark.slow
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("tail", STRATEGIES)
def test_faults_in_staged_tiles_are_refused_with_sizes(tail: str, last: bool) -> None:
    verdicts = [check_fault(tail, name, last) for name in FAULTS]
    assert verdicts.count("refused") >= 6, dict(zip(FAULTS, verdicts, strict=True))


def test_a_fault_in_a_staged_balance_is_refused_with_sizes() -> None:
    assert check_fault("balance", "a copy one row short", True) == "refused"


# Each condition of the theorem, violated alone; a source of two statements an iteration.

HEAD = """program p
size n in 0:40
input A: float32[n + 1]
local S: float32[n + 1]
output B: float32[n]
"""
SOURCE = """for i in 0:n
  S[i] = A[i]
  B[i] = S[i]
"""
CARRIED = """S[0] = A[0]
for i in 0:n
  B[i] = S[i]
  S[i + 1] = A[i + 1]
"""
CONDITIONS = {
    "what one iteration leaves to the next": (
        CARRIED,
        "S[0] = A[0]\nfor i in 0:n\n  alloc S[i +: 2]\n    B[i] = S[i]\n    S[i + 1] = A[i + 1]\n",
    ),
    "what is read behind the loop": (
        SOURCE + "for i in 0:n\n  B[i] = S[i]\n",
        "for i in 0:n\n  alloc S[i +: 1]\n    S[i] = A[i]\n    B[i] = S[i]\nfor i in 0:n\n  B[i] = S[i]\n",
    ),
    "what a window hides": (
        SOURCE,
        "for i in 0:n\n  S[i] = A[i]\n  alloc S[i +: 1]\n    B[i] = S[i]\n",
    ),
    "an access outside of a window": (
        SOURCE,
        "for i in 0:n\n  alloc S[i + 1 +: 1]\n    S[i] = A[i]\n    B[i] = S[i]\n",
    ),
    "an element too many": (
        SOURCE,
        "for i in 0:n\n  alloc S[i +: 1]\n    S[i] = A[i]\n    B[i] = S[i]\n    B[0] = S[i]\n",
    ),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_of_the_theorem_that_fails_is_refused(name: str) -> None:
    source, emitted = (oc.parse(HEAD + text) for text in CONDITIONS[name])
    said = refusal(source, emitted)
    assert said is not None
    assert "with n = " in said


def test_derived_sizes_are_written_out() -> None:
    def program(sizes: str, high: str, low: str) -> Program:
        return oc.parse(f"""program p
size n in 1:513
input A: float32[n]
local S: float32[n]
output B: float32[n]
{sizes}
        for i in 0:t1
          {high}
        for i in 0:t2
          {low}
""")

    def plain(start: str, count: str) -> str:
        return f"tile r in {start} +: {count}\n            S[r] = A[r]\n            B[r] = S[r]"

    def staged(start: str, count: str) -> str:
        inner = f"tile r in {start} +: {count}"
        return (
            f"alloc S[{start} +: {count}]\n            {inner}\n              S[r] = A[r]\n"
            f"            {inner}\n              B[r] = S[r]"
        )

    sizes = """let T in 1:33 = (n + 15)//16
  let q in 1:17 = n//T
    let t1 in 0:33 = n - q*T
      let t2 in 0:33 = T - t1"""
    tiles = ("(q + 1)*i", "q + 1"), ("(q + 1)*t1 + q*i", "q")
    cut = program(sizes, *(plain(*tile) for tile in tiles))
    made = program(sizes, *(staged(*tile) for tile in tiles))
    source = oc.parse("""program p
size n in 1:513
input A: float32[n]
local S: float32[n]
output B: float32[n]
for r in 0:n
  S[r] = A[r]
  B[r] = S[r]
""")
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
