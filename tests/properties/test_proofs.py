"""What proofs say and accept beside mutants, which are in `test_equivalence`: of axes, of lines, of two programs side by side."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut import Partition, Program, dim, parse
from offcut.core import index as ix
from offcut.describe.computation import Stage, StageAxis, computation, source
from offcut.errors import PartitionError
from offcut.ir import (
    Buffer,
    Compare,
    Const,
    Expr,
    Kind,
    Load,
    Size,
    Var,
)
from offcut.partition import BALANCE, LADDER, MIX, check_axis
from offcut.polyhedral import Space
from offcut.proof.by_axis.coverage import prove_coverage
from offcut.proof.by_axis.decision import decide_coverage
from offcut.proof.by_axis.strips import NotSeparable, Strip, X
from offcut.proof.by_structure.places import NotStructural
from offcut.proof.by_structure.structure import check_structure
from offcut.schedule import cut
from tests.facade import STRATEGIES, Computation, Strategy, check_equal, substitute

TILE = 3


@cache
def contraction(fused: bool = False) -> Computation:
    """``C = A @ B``, 5 terms a point; `fused`: with a bias that runs in the same tile."""
    n = dim("n", max=64)
    A, B = oc.placeholder((n, 5), "float64", "A"), oc.placeholder((5, 4), "float64", "B")
    k = oc.reduce_axis(5, "k")

    def term(i: Any, j: Any) -> Any:
        total = oc.sum(A[i, k] * B[k, j], axis=k)
        return total + 1.0 if fused else total

    return computation([oc.compute((n, 4), term, name="C")])


def partition(fused: bool = False, **tails: str) -> Partition:
    """The contraction with the axes in `tails` cut, rows by 3 and terms by 2."""
    tile = {axis: {"i": TILE, "k": 2}[axis] for axis in tails}
    return cut(contraction(fused), tile, tails, [])


def mutant(p: Partition, old: str, new: str) -> Program:
    text = str(p)
    assert old in text
    return parse(text.replace(old, new, 1))


def test_a_term_outside_the_loop_of_its_reduction_is_refused() -> None:
    p = partition(i="cut")
    with pytest.raises(PartitionError) as refused:
        check_equal(
            source(contraction()), mutant(p, "C[i, j] = 0.0", "C[i, j] += A[i, 0] * B[0, j]")
        )
    wrong = (
        "with n = 3, C[0, 0] = 0.0 (i = 0, j = 0) is never run, and "
        "C[0, 0] += A[0, 0] * B[0, 0] (i = 0, j = 0, k = 0) reads it"
    )
    assert refused.value.because == wrong


def refusal(c: Computation, program: Program) -> str:
    with pytest.raises(PartitionError) as refused:
        check_equal(source(c), program)
    return str(refused.value)


def test_a_follower_that_reads_another_point_of_its_tile_is_refused() -> None:
    p = partition(fused=True, i="cut")
    assert check_equal(source(contraction(True)), p.loops)
    elsewhere = mutant(p, "C[i, j] = C_sum[i, j] + 1.0", "C[i, j] = C_sum[i, 3 - j] + 1.0")
    assert refusal(contraction(True), elsewhere) == (
        "prove: the emitted program does not compute what the source does\n"
        "  at       C\n"
        "  because  with n = 3, C_sum[0, 0] = 0.0 (i_tile = 0, i = 0, j = 0) and C[0, 3] = C_sum[0, 0] + 1.0 (i_tile = 0, i = 0, j = 3) are lanes of one tile and touch one element of C_sum"
    )


def test_a_copy_that_is_described_is_proved() -> None:
    n = dim("n", max=64)
    P = oc.placeholder((n,), "float64", "P")
    V = oc.compute((n,), lambda i: P[i], name="V")
    c = computation([oc.compute((n,), lambda i: V[n - 1 - i] + 1.0, name="W")])
    assert check_equal(source(c), cut(c, {}, {}, []).loops)


def test_a_packed_copy_that_is_read_and_never_made_is_refused() -> None:
    p = partition(i="cut")
    r, c = (StageAxis(name, ix.const(extent), name) for name, extent in (("r", 5), ("c", 4)))
    copy = Stage("P", "P", (r, c), (), Load("B", (Var("r"), Var("c")), "float64"))
    local = Buffer("P", "float64", (r.extent, c.extent), Kind.LOCAL)
    packing = replace(
        contraction(),
        buffers=(*contraction().buffers, local),
        groups=((copy,), *contraction().groups),
    )
    reading = str(p).replace("* B[k, j]", "* P[k, j]")
    head, body = reading.split("for i_tile", 1)
    without = head + "local P: float64[5, 4]\n"
    made = "tile r in 0 +: 5, c in 0 +: 4\n  P[r, c] = B[r, c]\n"
    assert check_equal(source(packing), parse(without + made + "for i_tile" + body))
    assert refusal(packing, parse(without + "for i_tile" + body)) == (
        "prove: the emitted program does not compute what the source does\n"
        "  at       C\n"
        "  because  with n = 1, C[0, 0] += A[0, 0] * B[0, 0] (i = 0, j = 0, k = 0) reads P[0, 0] of the initial P[0, 0], not of the initial B[0, 0]"
    )


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s not in (BALANCE, MIX)], ids=str)
def test_each_strategy_is_proved_for_every_extent(strategy: Strategy) -> None:
    for tile in (1, 2, 3, 14):
        names = [theorem.name for theorem in check_axis(strategy, tile, False)]
        assert names == ["disjoint", "covering", "in bounds"]
        if not strategy.repeats(tile):
            names = [theorem.name for theorem in check_axis(strategy, tile, True)]
            assert names == ["disjoint", "covering", "in bounds", "ascending"]


def test_balance_is_proved_height_by_height() -> None:
    for tile in (1, 2, 3, 8):
        assert check_axis(BALANCE, tile, True)


@pytest.mark.parametrize("heights", [(8, 4, 2, 1), (8, 6, 4, 2), (32, 16), (14, 5)])
def test_a_ladder_of_any_heights_is_proved(heights: tuple[int, ...]) -> None:
    assert check_axis(LADDER.with_heights(heights), heights[0], False)


def test_a_certificate_says_what_was_proved_and_of_what() -> None:
    assert (
        str(partition(i="shift", k="pad").prove())
        == """\
disjoint   no coordinate is owned twice  (shift by 3)
covering   every coordinate is owned  (shift by 3)
in bounds  what is executed and kept lies inside the extent  (shift by 3)
disjoint   no coordinate is owned twice  (pad by 2)
covering   every coordinate is owned  (pad by 2)
in bounds  what is executed and kept lies inside the extent  (pad by 2)
ascending  tiles run in the order of the coordinate  (pad by 2)
int64      index arithmetic stays within 2^62  (C)
instances  every emitted instance is one of the source  (C)
in bounds  every access lies in its buffer and its window  (C)
data flow  every read sees what the source's read sees  (C)
results    every result is left by the source's last write  (C)"""
    )


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


HEAD = "program p\nsize n in 1:40\n"
SIDE_BY_SIDE = {
    "a loop that carries nothing runs once for each statement inside": (
        "input A: int32[n]\noutput B: int32[n]\noutput C: int32[n]\nfor i in 0:n\n"
        "  B[i] = A[i]\n  C[i] = B[i] + 1\n",
        "input A: int32[n]\noutput B: int32[n]\noutput C: int32[n]\nfor i in 0:n\n  B[i] = A[i]\n"
        "for t in 0:n\n  tile i in t +: 1\n    C[i] = B[i] + 1\n",
    ),
    "a loop around the parts of another one is in the tiles of each part": (
        "output B: int32[n, n]\nfor i in 0:n\n  for j in 0:1\n    B[i, j] = 1\n"
        "  for j in 1:n\n    B[i, j] = 2\n",
        "output B: int32[n, n]\ntile i in 0 +: n, j in 0 +: 1\n  B[i, j] = 1\n"
        "tile i in 0 +: n, j in 1 +: n - 1\n  B[i, j] = 2\n",
    ),
    "bounds that memory holds stay around what is cut inside and outside": (
        "input S: int32[n]\ninput V: int32[n]\ninout O: int32[n]\nfor i in 0:n\n"
        "  for j in index(S[i]):n\n    O[i] += V[i]\n",
        "input S: int32[n]\ninput V: int32[n]\ninout O: int32[n]\nfor t in 0:n\n"
        "  tile i in t +: 1\n    for j in index(S[i]):n\n      O[i] += V[i]\n",
    ),
}
UNEQUAL = {
    "a loop that carries a dependence runs once for each statement inside": (
        "inout B: int32[n + 1]\ninout C: int32[n]\nfor i in 0:n\n"
        "  B[i + 1] = C[i]\n  C[i] = B[i]\n",
        "inout B: int32[n + 1]\ninout C: int32[n]\nfor i in 0:n\n  B[i + 1] = C[i]\n"
        "for i in 0:n\n  C[i] = B[i] + 0\n",
        r".",
    ),
    "bounds that a statement inside writes are read again by a second loop": (
        "inout S: int32[n]\noutput C: int32[n]\nfor i in 0:n\n  for j in index(S[i]):1\n"
        "    if j >= 0\n      S[i] = 1\n    if j >= 0\n      C[i] = 1\n",
        "inout S: int32[n]\noutput C: int32[n]\nfor i in 0:n\n  for j in index(S[i]):1\n"
        "    if j >= 0\n      S[i] = 1\nfor i in 0:n\n  for j in index(S[i]):1\n"
        "    if j >= 0\n      C[i] = 1\n",
        r".",
    ),
    "two nests in one loop over tiles run in turn": (
        "input A: int32[16]\ninout s: int32[1]\nfor i in 0:16\n  s[0] = s[0] * 2 + A[i]\n",
        "input A: int32[16]\ninout s: int32[1]\nfor t in 0:2\n  for i in 4*t:4*t + 4\n"
        "    s[0] = s[0] * 2 + A[i]\n  for i in 8 + 4*t:12 + 4*t\n    s[0] = s[0] * 2 + A[i]\n",
        r"reads s\[0\] of .* \(i = 11\), not of .* \(i = 3\)$",
    ),
    "a shifted tile repeats an update beside an assignment": (
        "input A: int32[n]\ninout C: int32[2*n]\nassume n >= 8\nfor i in 0:n\n"
        "  C[2*i] = A[i]\n  C[2*i + 1] += 1\n",
        "input A: int32[n]\ninout C: int32[2*n]\nassume n >= 8\nfor t in 0:n//8\n"
        "  tile i in 8*t +: 8\n    C[2*i] = A[i]\n    C[2*i + 1] += 1\n"
        "tile i in n - 8 +: 8  @shift\n  C[2*i] = A[i]\n  C[2*i + 1] += 1\n",
        r"C\[1\] \+= 1 \(i = 0\) reads C\[1\] of C\[1\] \+= 1 \(i = 0\), not of the initial C\[1\]$",
    ),
    "a shifted tile asks again what it has changed": (
        "inout E: int32[n]\noutput F: int32[n]\nassume n >= 8\nfor i in 0:n\n"
        "  F[i] = 0\n  if E[i] < 100\n    F[i] = 1\n  E[i] = 700\n",
        "inout E: int32[n]\noutput F: int32[n]\nassume n >= 8\nfor t in 0:n//8\n"
        "  tile i in 8*t +: 8\n    F[i] = 0\n    if E[i] < 100\n      F[i] = 1\n    E[i] = 700\n"
        "tile i in n - 8 +: 8  @shift\n  F[i] = 0\n  if E[i] < 100\n    F[i] = 1\n  E[i] = 700\n",
        r"^E\[i\] < 100 reads E, which the program writes, .* when it is evaluated",
    ),
    "a masked instance leaves the array": (
        "input A: int32[n]\ninout C: int32[n]\nfor i in 0:n\n  C[i] += A[i]\n",
        "input A: int32[n]\ninout C: int32[n]\nfor i in 0:n + 8\n  C[i] += where(i < n, A[i], 0)\n",
        r"C\[1\] \+= A\[1\] \(i = 1\) touches C\[1\], outside C of shape \(n\)$",
    ),
    "a condition is asked before what changes it": (
        "inout y: int32[n]\ninout f: int32[1]\nfor i in 0:n\n  if f[0] > 0\n    y[i] = 1\n    f[0] = 0\n",
        "inout y: int32[n]\ninout f: int32[1]\nif f[0] > 0\n  for i in 0:n\n    y[i] = 1\n    f[0] = 0\n",
        r"^f\[0\] > 0 reads f, which the program writes, .* when it is evaluated",
    ),
    "a condition reads past the array": (
        "input A: int32[n]\ninout B: int32[n]\nfor i in 0:n\n  if A[i] > 0\n    B[i] = 2\n",
        "input A: int32[n]\ninout B: int32[n]\nfor i in 0:n + 1\n  if A[i] > 0 and i < n\n    B[i] = 2\n",
        r"A\[i\] is \[1\], which lies outside of its array$",
    ),
    "iterations at once that need each other": (
        "input A: int32[n]\ninout s: int32[1]\nfor i in 0:n\n  s[0] = s[0] * 2 + A[i]\n",
        "input A: int32[n]\ninout s: int32[1]\nfor i in 0:n  @thread\n  s[0] = s[0] * 2 + A[i]\n",
        r"at i = 0 writes what the instance i = 1 overwrites$",
    ),
}


@pytest.mark.parametrize("what", SIDE_BY_SIDE)
def test_programs_that_are_equal_side_by_side_are_accepted(what: str) -> None:
    source, emitted = (oc.parse(HEAD + text) for text in SIDE_BY_SIDE[what])
    check_structure(source, emitted)


@pytest.mark.parametrize("what", UNEQUAL)
def test_programs_that_differ_are_refused(what: str) -> None:
    *texts, because = UNEQUAL[what]
    source, emitted = (
        oc.parse(HEAD + "".join(sorted(text.splitlines(keepends=True), key=_declares_first)))
        for text in texts
    )
    if "at once" not in what:
        with pytest.raises(NotStructural):
            check_structure(source, emitted)
    with pytest.raises(oc.PartitionError) as refused:
        oc.prove_equal(source, emitted)
    assert re.search(because, refused.value.because)


def _declares_first(line: str) -> int:
    """Promises stand before buffers; the other lines stay where they are."""
    return 0 if line.startswith("assume") else 1


def test_a_zero_is_added_to_what_the_caller_gave() -> None:
    text = (
        "size n in 1:40\ninput A: float32[n]\ninout C: float32[n]\n"
        "C[0] = 0.0\nfor i in 0:n\n  C[i] += where(i < 1, A[i], 0.0)\n"
    )
    given = {"A": np.ones(3, np.float32), "C": np.full(3, -0.0, np.float32)}
    wanted = oc.parse(text).run(given)
    assert np.signbit(oc.partition(oc.parse(text)).run(given)).tolist() == [False] * 3
    assert wanted.tobytes() == oc.partition(oc.parse(text)).run(given).tobytes()


def test_a_zero_is_added_to_what_a_minimum_has_left() -> None:
    text = (
        "size n in 1:40\ninput A: float32[n]\noutput C: float32[n]\nfor i in 0:n\n  C[i] = 0.0\n"
        "  C[i] min= A[i]\n  C[i] += where(i < n, 0.0, A[i])\n"
    )
    given = {"A": np.array([-0.0, 1.0], np.float32)}
    wanted = oc.parse(text).run(given)
    assert not np.signbit(wanted).any()
    assert wanted.tobytes() == oc.partition(oc.parse(text)).run(given).tobytes()
    with pytest.raises(NotStructural):
        check_structure(oc.parse(text), oc.parse("".join(text.splitlines(keepends=True)[:-1])))
