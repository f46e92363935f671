"""The proof of a cut: it accepts what is cut, and no mutant of its text that computes something else.

The reference interpreter judges it at every size from 0 to two tiles and three. Axes alone are judged
by enumeration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut import Program, dim, parse
from offcut.core import index as ix
from offcut.core.interpret.interpreter import run
from offcut.describe.computation import computation, source
from offcut.errors import OffcutError, PartitionError
from offcut.ir import Compare, Const, Expr, For, If, Size, Stmt, Tile, Var, walk
from offcut.partition import BALANCE, LADDER, AxisCut
from offcut.polyhedral import Space
from offcut.proof.by_axis.coverage import prove_coverage
from offcut.proof.by_axis.decision import decide_coverage
from offcut.proof.by_axis.strips import NotSeparable, Strip, X
from offcut.schedule import LoopVariant, Nest, Schedule, apply, cut, decisions_of
from offcut.schedule.apply.group_loops import FREE
from tests.facade import Computation, check_equal, substitute

TILE = 3
COLUMNS = 21
SIZES = range(2 * TILE + 4)


@dataclass(frozen=True)
class Case:
    computation: Computation
    program: Program


def dense(fused: bool, columns: Any = COLUMNS, reducer: str = "sum") -> Computation:
    n = dim("n", max=64)
    A, B = oc.placeholder((n, 5), "float64", "A"), oc.placeholder((5, columns), "float64", "B")
    k = oc.reduce_axis(5, "k")
    reduce = getattr(oc, reducer)

    def term(i: Any, j: Any) -> Any:
        total = reduce(A[i, k] * B[k, j], axis=k)
        return total + 1.0 if fused else total

    return computation([oc.compute((n, columns), term, name="C")])


def tailed(fused: bool = False, **tails: str) -> Case:
    tile = {axis: {"i": TILE, "j": 8, "k": 2}[axis] for axis in tails}
    c = dense(fused)
    return Case(c, cut(c, tile, tails, []).loops)


def nested(*cuts: AxisCut, outer: tuple[str, ...] = ()) -> Case:
    c = dense(False)
    nest = Nest("C", (LoopVariant(splits=cuts, loops=outer),))
    applied = apply(c, Schedule(c.name, decisions_of((nest,))), [], lambda *_: FREE)
    return Case(c, applied.partition.loops)


BY_HEIGHT = (((1, 1), 8, (8, 4)), ((2, 2), 4, (4, 2, 1)), ((3, 3), 8, (8,)))
PROGRAMS: dict[str, Callable[[], Case]] = {
    "balance": partial(tailed, i="balance"),
    "balance, terms cut": partial(tailed, i="balance", k="cut"),
    "balance and mask": partial(tailed, i="balance", j="mask"),
    "mask and pad, terms padded": partial(tailed, i="mask", j="pad", k="pad"),
    "uncut": tailed,
    "terms alone": partial(tailed, True, k="cut"),
    "terms even": partial(tailed, i="ladder", k="even"),
    "terms in a version of their own": partial(tailed, i="mask", k="version"),
    "shift": partial(tailed, i="shift", j="shift"),
    "shift and cut, terms masked": partial(tailed, i="shift", j="cut", k="mask"),
    "ladder, fused": partial(tailed, True, i="ladder", j="mask"),
    "guard": partial(tailed, i="guard", j="cut", k="guard"),
    "columns by height, balanced": lambda: nested(
        AxisCut("i", BALANCE, TILE), AxisCut("j", LADDER, 0, None, BY_HEIGHT)
    ),
    "columns by height, ladder, in groups": lambda: nested(
        AxisCut("i", LADDER, TILE),
        AxisCut("j", LADDER, 0, None, BY_HEIGHT, group=8),
    ),
    "rows outside": lambda: nested(AxisCut("j", LADDER, 8, (8, 4)), outer=("i",)),
}


LONG = (
    "terms in a version of their own",
    "shift and cut, terms masked",
    "mask and pad, terms padded",
    "columns by height, balanced",
    "columns by height, ladder, in groups",
    "terms alone",
    "shift",
    "ladder, fused",
    "balance, terms cut",
    "guard",
    "balance",
    "balance and mask",
)
"""Whose mutants take seconds: `make test` leaves them to others."""


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_what_is_cut_is_proved(make: Callable[[], Case]) -> None:
    case = make()
    assert check_equal(source(case.computation), case.program)


def deep() -> Computation:
    n, depth = dim("n", max=64), dim("K", max=64)
    A, B = oc.placeholder((n, depth), "float64", "A"), oc.placeholder((depth,), "float64", "B")
    k = oc.reduce_axis(depth, "k")
    return computation([oc.compute((n,), lambda i: oc.sum(A[i, k] * B[k], axis=k), name="C")])


def test_the_terms_of_a_sum_in_balanced_tiles_run_once_and_ascend() -> None:
    c = deep()
    loops = cut(c, {"i": 2, "k": 3}, {"i": "mask", "k": "balance"}, []).loops
    assert check_equal(source(c), loops)
    uncut = walk(cut(c, {}, "cut", []).loops.body)
    whole = next(stmt for stmt in uncut if isinstance(stmt, For) and stmt.iter == "k")
    wrong: dict[str, Callable[[Stmt, Stmt, Stmt], tuple[Stmt, ...]]] = {
        "a piece that is not there": lambda start, high, low: (start, high),
        "a piece twice": lambda start, high, low: (start, high, low, low),
        "all terms once more": lambda start, high, low: (start, high, low, whole),
        "the lower tiles first": lambda start, high, low: (start, low, high),
        "a start between": lambda start, high, low: (start, high, start, low),
    }
    for what, order in wrong.items():
        with pytest.raises(PartitionError) as refused:
            check_equal(source(c), replace(loops, body=reordered(loops.body, order)))
        assert refused.value.op == "prove", what


def reordered(body: tuple[Stmt, ...], order: Callable[..., tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """`body` with the statements of its tiles in another order."""
    made: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Tile):
            made.append(replace(stmt, body=order(*stmt.body)))
        elif isinstance(stmt, If):
            made.append(replace(stmt, then=reordered(stmt.then, order)))
        else:
            assert isinstance(stmt, For)
            made.append(replace(stmt, body=reordered(stmt.body, order)))
    return tuple(made)


def results(program: Program) -> list[Any]:
    """The result at each size, or the fault that ends it."""
    found: list[Any] = []
    for n in SIZES:
        rng = np.random.default_rng(n)
        inputs = {"A": rng.standard_normal((n, 5)), "B": rng.standard_normal((5, COLUMNS))}
        try:
            found.append(run(program, inputs)["C"])
        except OffcutError as fault:
            found.append(fault)
    return found


def same(a: list[Any], b: list[Any]) -> bool:
    arrays = all(isinstance(x, np.ndarray) for x in b)
    return arrays and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def mutants(text: str) -> Iterator[str]:
    """`text` with an integer changed by one, a line left out, or two lines of a level swapped."""
    for number in re.finditer(r"(?<![\w.])\d+(?![\w.])", text):
        for by in (-1, 1):
            yield text[: number.start()] + str(int(number[0]) + by) + text[number.end() :]
    lines = text.splitlines()
    for k, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        end = k + 1
        while end < len(lines) and len(lines[end]) - len(lines[end].lstrip()) > depth:
            end += 1
        yield "\n".join([*lines[:k], *lines[end:]])
        if end < len(lines) and len(lines[end]) - len(lines[end].lstrip()) == depth:
            stop = end + 1
            while stop < len(lines) and len(lines[stop]) - len(lines[stop].lstrip()) > depth:
                stop += 1
            yield "\n".join([*lines[:k], *lines[end:stop], *lines[k:end], *lines[stop:]])


def is_accepted(case: Case, mutant: Program) -> bool:
    try:
        check_equal(source(case.computation), mutant)
    except PartitionError:
        return False
    return True


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=pytest.mark.slow if name in LONG else ())
        for name, make in PROGRAMS.items()
    ],
)
def test_no_mutant_of_the_text_that_changes_a_result_is_accepted(
    make: Callable[[], Case],
) -> None:
    case = make()
    text = str(case.program)
    right = results(case.program)
    refused, slipped = 0, []
    for changed in dict.fromkeys(mutants(text)):
        try:
            mutant = parse(changed)
        except OffcutError:
            continue
        if not is_accepted(case, mutant):
            refused += 1
        elif not same(right, results(mutant)):
            slipped.append(changed)
    assert not slipped, "\n\n".join([f"{len(slipped)} slipped through", *slipped])
    assert refused >= 15


N = Var("n")
BOUNDS = [ix.const(0), N, ix.floordiv(N, 3), ix.mod(N, 3), ix.ceildiv(N, 3), ix.sub(N, 1)]
STARTS = [ix.const(0), ix.mul(3, ix.floordiv(N, 3)), ix.sub(N, 3), ix.const(1)]


def value(expr: Expr, names: dict[str, int]) -> int:
    found = ix.literal_value(
        ix.simplify(substitute(expr, {k: ix.const(v) for k, v in names.items()}))
    )
    assert found is not None
    return found


def met(strip: Strip, n: int) -> list[int]:
    """The coordinates that a strip of one loop meets, in its order."""
    ((name, lo, hi),) = strip.loops
    return [
        x
        for t in range(value(lo, {"n": n}), value(hi, {"n": n}))
        for x in range(value(strip.lower, {"n": n, name: t}), value(strip.upper, {"n": n, name: t}))
        if all(holds(c, {"n": n, X.name: x, name: t}) for c in strip.holds)
    ]


def holds(condition: Expr, names: dict[str, int]) -> bool:
    assert isinstance(condition, Compare)
    found = ix.compare(
        condition.op, *(ix.const(value(e, names)) for e in (condition.a, condition.b))
    )
    assert isinstance(found, Const)
    return bool(found.value)


STRIPS = st.builds(
    lambda hi, start, step, height, limited: Strip(
        ix.add(start, ix.mul(step, Var("t"))),
        ix.add(start, ix.mul(step, Var("t")), height),
        (("t", ix.const(0), hi),),
        (Compare("<", X, N),) if limited else (),
    ),
    st.sampled_from(BOUNDS),
    st.sampled_from(STARTS),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 3]),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STRIPS, min_size=1, max_size=2), st.booleans())
def test_a_line_is_accepted_exactly_where_enumeration_agrees(
    strips: list[Strip], ordered: bool
) -> None:
    space = Space((Size("n"),))
    try:
        broken = prove_coverage(space, N, strips, ordered=ordered)
    except NotSeparable:
        return
    right = []
    for n in range(12):
        coordinates = [x for strip in strips for x in met(strip, n)]
        right.append((coordinates if ordered else sorted(coordinates)) == list(range(n)))
    assert (broken is None) == all(right)
    if broken is not None:
        assert not right[dict(broken.sizes)["n"]]


def test_a_line_is_one_theorem_wherever_it_lies() -> None:
    """``lo:hi`` in tiles is ``0:n`` in tiles: where nothing but the extent matters, isl is asked once."""

    def tiles(extent: Expr) -> list[Strip]:
        full = ix.mul(13, ix.floordiv(extent, 13))
        counter = ("t", ix.const(0), ix.floordiv(extent, 13))
        at = ix.mul(13, Var("t"))
        return [
            Strip(at, ix.add(at, 13), (counter,)),
            Strip(full, ix.add(full, ix.mod(extent, 13))),
        ]

    m, k = Var("m"), Var("k")
    space = Space((Size("n"), Size("m"), Size("k")), (ix.compare("<=", k, m),))
    assert prove_coverage(space, Var("n"), tiles(Var("n"))) is None
    for extent in (ix.sub(m, k), ix.minimum(m, ix.add(k, 7)), ix.sub(m, ix.minimum(m, k))):
        before = decide_coverage.cache_info().misses
        assert prove_coverage(space, extent, tiles(extent)) is None
        assert decide_coverage.cache_info().misses == before
    assert prove_coverage(space, ix.sub(k, m), tiles(ix.sub(k, m))) is not None
