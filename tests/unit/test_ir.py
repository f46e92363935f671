"""`offcut.ir`: the walker, the rewriter, and plain loops that compute what the cut ones do."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differential.checking import runs_of
from differential.cuts import case_of
from differential.reading import read
from partition_cases import CASES

import offcut as oc
import offcut.ir as ir
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.interpret.interpreter import run as interpreted
from offcut.core.interpret.values import evaluate
from offcut.errors import OffcutError
from offcut.partition import STRATEGIES

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = sorted(str(path.relative_to(GOLDEN).with_suffix("")) for path in GOLDEN.rglob("*.offcut"))
LARGE = ("planned/dense", "planned/int8_product", "schedule_paper")  # of many instances at any size
NOT_PLAIN = ir.Tile | ir.Choose | ir.Alloc | ir.Let
CUTS = {
    f"{name}, {tail.name}": (case, tail.name)
    for name, case in CASES.items()
    if case.tile
    for tail in STRATEGIES
}


def golden(name: str) -> ir.Program:
    return oc.parse((GOLDEN / f"{name}.offcut").read_text(encoding="utf-8"))


def shallow(name: str) -> ir.Program:
    """A golden program whose uncut sums have two terms: what takes long to interpret tells no more."""
    text = str(golden(name))
    if name.startswith("dense_") and "k_tile" not in text:
        for old, new in (("0:64", "0:2"), ("[n, 64]", "[n, 2]"), ("[64, 70]", "[2, 70]")):
            text = text.replace(old, new)
    return oc.parse(text)


def arrays(program: ir.Program, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Numbers for everything that a call gives."""
    rng = np.random.default_rng(sum(sizes.values()))
    given: dict[str, Any] = {}
    for buffer in program.buffers:
        if buffer.kind in (ir.Kind.INPUT, ir.Kind.CONSTANT, ir.Kind.INOUT):
            shape = [int(evaluate(extent, sizes)) for extent in buffer.shape]
            real = buffer.dtype in FLOATS
            drawn = rng.standard_normal(shape) if real else rng.integers(0, 9, shape)
            given[buffer.name] = drawn.astype(numpy_dtype(buffer.dtype))
    return given


def same(
    program: ir.Program, sizes: Mapping[str, int], given: Mapping[str, Any] | None = None
) -> None:
    """A program and its plain loops give the same bits."""
    given = arrays(program, sizes) if given is None else given
    wanted, found = interpreted(program, given, sizes), interpreted(ir.plain(program), given, sizes)
    assert wanted.keys() == found.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name].astype("float64"), array.astype("float64"))


def is_plain(program: ir.Program) -> bool:
    """Whether it is loops, conditions and stores that say nothing of how they run."""
    marked = [
        stmt
        for stmt in ir.walk(program)
        if isinstance(stmt, ir.For) and stmt != ir.For(stmt.iter, stmt.lo, stmt.hi, stmt.body)
    ]
    bare = all(b.layout is None and b.scope is None for b in program.buffers)
    return bare and not marked and not any(isinstance(s, NOT_PLAIN) for s in ir.walk(program))


@pytest.mark.every(4)
@pytest.mark.parametrize("name", FILES)
def test_a_cut_program_has_a_plain_one_that_is_read_back_and_is_its_own_plain_one(
    name: str,
) -> None:
    plain = ir.plain(golden(name))
    assert is_plain(plain)
    assert oc.parse(str(plain)) == plain
    assert ir.plain(plain) is plain
    assert not ir.free(plain)


@pytest.mark.every(5)
@pytest.mark.parametrize("value", [0, 1, 15, pytest.param(31, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in FILES if name not in LARGE])
def test_plain_loops_compute_what_the_cut_program_does(name: str, value: int) -> None:
    program = shallow(name)
    cuts_sums = "k_tile" in str(program)
    most = 3 if name.startswith("planned/") else 15 if cuts_sums else value  # of many instances
    sizes = {size.name: max(size.min, min(value, most) + k) for k, size in enumerate(program.sizes)}
    same(program, sizes)


@pytest.mark.every(18)
@pytest.mark.parametrize("name", CUTS)
def test_the_plain_loops_of_a_cut_are_proved_to_compute_what_was_cut(name: str) -> None:
    case, tail = CUTS[name]
    try:
        loops = oc.partition(case.program, tile=case.tile, tail=tail).loops
    except OffcutError as refused:
        pytest.skip(f"this case has no such cut: {refused}")
    plain = ir.plain(loops)
    assert is_plain(plain)
    for sizes in case.sizes:
        same(loops, sizes)
    # A value that is computed is not quasi-affine; a second visit of an element is another value to the proof.
    if tail != "shift" and not any(isinstance(stmt, ir.Let) for stmt in ir.walk(loops)):
        oc.prove_equal(case.program, plain)


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(16))
def test_plain_loops_of_a_random_cut_compute_what_it_does(seed: int) -> None:
    case = case_of(seed, quick=True)
    program = oc.parse(case.text)
    try:
        loops = oc.partition(program, tile=case.tile, tail=case.tail).loops
    except OffcutError:
        loops = program
    assert oc.parse(str(ir.plain(loops))) == ir.plain(loops)
    for run in runs_of(case, read(case.text)):
        same(loops, run.sizes, run.given)


def test_an_array_that_is_used_beside_its_window_keeps_what_it_holds() -> None:
    program = oc.parse("""\
program kept
input A: float32[8]
output B: float32[8]
local T: float32[8]
for i in 0:8
  T[i] = A[i]
for i in 0:8
  alloc T[i +: 1]
    T[i] = A[i] * 2.0
    alloc T[0 +: 1]
      T[0] = 1.0
    B[i] = T[i]
for i in 0:8
  B[i] += T[i]""")
    plain = ir.plain(program)
    assert [b.name for b in plain.buffers] == ["A", "B", "T", "T_window", "T_window_2"]
    same(program, {})
    np.testing.assert_array_equal(plain.run(arrays(program, {})), arrays(program, {})["A"] * 3)


def test_a_bounded_value_that_is_read_is_held_by_a_loop_of_one_iteration() -> None:
    program = oc.parse("""\
program held
input ids: int32[4]
inout A: int32[4]
let q in 0:4 = index(ids[1])
  A[q] = 7
let h in 1:5 = 1 + 1
  A[h] += 2""")
    assert str(ir.plain(program)).splitlines()[3:] == [
        "for q in index(ids[1]):index(ids[1]) + 1",
        "  A[q] = 7",
        "A[2] += 2",
    ]


def test_of_a_choice_the_first_option_is_left_and_what_no_longer_does_anything_is_not() -> None:
    program = oc.parse("""\
program chosen
size n in 0:9
output A: int32[n]
local T: int32[n]
choose
  option first costs 1.0
    if n > 3
    else
      tile i in 0 +: n where i > 1  @body  @mask
        A[i] = 1
    for j in 0:n
  option second costs 0.0
    for i in 0:n  @thread
      T[i] = 1""")
    assert (
        str(ir.plain(program))
        == """\
program chosen
size n in 0:9
output A: int32[n]
if not n > 3
  for i in 0:n
    if i > 1
      A[i] = 1"""
    )


SQUARES = oc.parse("""\
program squares
size n in 0:65
input A: float32[n]
output B: float32[n]
for i in 0:n
  if i < n - 1
    B[i] = A[i] * A[i]""")


def test_a_walk_visits_parents_first_and_an_expression_node_by_node() -> None:
    loop, test, store = ir.walk(SQUARES)
    assert isinstance(loop, ir.For)
    assert isinstance(test, ir.If)
    assert isinstance(store, ir.Store)
    assert [type(node).__name__ for node in ir.walk(store.value)] == [
        "Binary",
        *("Load", "Var") * 2,
    ]
    assert [path for _, path in ir.around(SQUARES)] == [(), ((loop, 0),), ((loop, 0), (test, 0))]
    assert list(ir.walk(test)) == [test, store]


def test_a_rewrite_sees_what_is_inside_first_and_gives_the_same_object_where_nothing_changes() -> (
    None
):
    seen: list[str] = []
    assert ir.rewrite(SQUARES, lambda stmt: seen.append(type(stmt).__name__)) is SQUARES
    assert seen == ["Store", "If", "For"]
    twice = ir.rewrite(SQUARES, lambda stmt: (stmt, stmt) if isinstance(stmt, ir.Store) else None)
    assert sum(isinstance(stmt, ir.Store) for stmt in ir.walk(twice)) == 2
    gone = ir.rewrite(SQUARES, lambda stmt: () if isinstance(stmt, ir.If) else None)
    assert gone.body == (ir.For("i", ir.Const(0, "index"), ir.Var("n"), ()),)

    def renamed(node: ir.Expr) -> ir.Expr | None:
        return ir.Var("m") if node == ir.Var("n") else None

    text = str(ir.rewrite_expressions(SQUARES, renamed))
    assert "for i in 0:m" in text
    assert "if i < m - 1" in text
    assert ir.rewrite_expressions(SQUARES, lambda node: None) is SQUARES
    assert ir.rewrite(ir.Var("n"), renamed) == ir.Var("m")


def test_free_names_are_those_that_nothing_around_binds() -> None:
    tile = ir.Tile(
        (ir.TileAxis("i", ir.Var("a"), ir.Var("i")),),
        (
            ir.Let(
                "q", 0, 4, ir.Var("q"), (ir.Store("A", (ir.Var("i"), ir.Var("q")), ir.Var("b")),)
            ),
        ),
        ir.Compare("<", ir.Var("i"), ir.Var("c")),
    )
    assert ir.bound(tile) == ("i",)
    assert ir.free(tile) == set("abciq")  # an extent and a value are outside of their names
    assert ir.free(SQUARES) == frozenset()
    assert ir.free(SQUARES.body) == {"n"}


def test_every_name_of_the_page_is_there_and_says_what_it_is() -> None:
    assert all(hasattr(ir, name) for name in ir.__all__)
    said = [getattr(ir, name) for name in ir.__all__ if inspect.isroutine(getattr(ir, name))]
    assert len(said) > 9
    assert all(one.__doc__ for one in said)
    assert oc.ir is ir
