"""Programs made wrong: what a refusal says of each, and what else the proof of a cut says; mutants are in `test_equivalence`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import Partition, Program, dim, parse
from offcut.core import index as ix
from offcut.describe.computation import Stage, StageAxis, computation, source
from offcut.errors import PartitionError
from offcut.ir import (
    Buffer,
    Kind,
    Load,
    Var,
)
from offcut.partition import BALANCE, LADDER, MIX, check_axis
from offcut.schedule import cut
from tests.facade import STRATEGIES, Computation, Strategy, check_equal

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


SMALLEST = refusals(
    """
given "mask", "for i_tile in 0:n//3", "for i_tile in 0:n//3 - 1"
with n = 3, C[0, 0] has no value: C[0, 0] += A[0, 4] * B[4, 0] (i = 0, j = 0, k = 4) is not run

given "mask", "where i < n", "where i < n + 1"
with n = 1, C[1, 0] = 0.0 (i = 1, j = 0) is not an instance of the source

given "cut", "i in 3*(n//3) + i_tile", "i in 3*(n//3)"
with n = 2, C[1, 0] has no value: C[1, 0] += A[1, 4] * B[4, 0] (i = 1, j = 0, k = 4) is not run
""",
    {},
)


@pytest.mark.parametrize("what", SMALLEST)
def test_a_refusal_shows_the_smallest_instance_that_is_wrong(what: str) -> None:
    tail, old, new, because = SMALLEST[what]
    p = partition(i=tail)
    with rejection(
        "PartitionError: prove: the emitted program does not compute what the source does\n"
        f"  at       C\n  because  {because}"
    ):
        check_equal(source(contraction()), mutant(p, old, new))


def test_terms_out_of_order_are_refused() -> None:
    p = partition(i="cut", k="cut")
    backwards = mutant(p, "k in 2*k_tile:2*k_tile + 2", "k in 2 - 2*k_tile:4 - 2*k_tile")
    with rejection(
        "PartitionError: prove: the emitted program does not compute what the source does\n"
        "  at       C\n"
        "  because  with n = 3, C[0, 0] += A[0, 2] * B[2, 0] (i = 0, j = 0, k = 2) runs before C[0, 0] += A[0, 1] * B[1, 0] (i = 0, j = 0, k = 1)"
    ):
        check_equal(source(contraction()), backwards)


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


def test_a_tile_that_starts_a_finished_sum_again_is_refused() -> None:
    p = partition(i="cut")
    again = """
tile i in 0 +: n, j in 0 +: 4
  C[i, j] = 0.0"""
    assert refusal(contraction(), parse(str(p) + again)) == (
        "prove: the emitted program does not compute what the source does\n"
        "  at       C\n"
        "  because  with n = 1, C[0, 0] is left by C[0, 0] = 0.0 (i = 0, j = 0), not by C[0, 0] += A[0, 4] * B[4, 0] (i = 0, j = 0, k = 4)"
    )


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


@pytest.mark.parametrize("tile", [1, 2, 3, 8, 14])
@pytest.mark.parametrize(
    "strategy",
    [s for s in STRATEGIES if s not in (BALANCE, MIX)],
    ids=str,
)
def test_each_strategy_is_proved_for_every_extent(strategy: Strategy, tile: int) -> None:
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
