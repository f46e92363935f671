"""Each strategy, counted point by point at every way a size can sit against a tile."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import edge_sizes, points

import offcut as oc
from offcut import Partition, assume, dim
from offcut.core.expr import Var
from offcut.core.interpret.values import evaluate
from offcut.describe.computation import computation
from offcut.ir import Form
from offcut.partition import parse_strategy, runs
from offcut.schedule import cut

ALWAYS = ["guard", "cut", "mask", "pad", "shift", "ladder", "balance"]
TILES = [1, 2, 3, 8, 14]


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    """Small integers, so that float64 sums are exact in any order."""
    return np.random.default_rng(sum(shape)).integers(-9, 10, shape).astype(np.float64)


def line(extent: Any, tile: int, tail: str) -> Partition:
    A = oc.placeholder((extent,), "float64", "A")
    C = oc.compute((extent,), lambda i: A[i] * 2.0 + 1.0, name="C")
    return cut(computation([C]), {"i": tile}, tail, [])


@cache
def symbolic_line(tail: str, tile: int) -> Partition:
    return line(dim("n", multiple_of=tile if tail == "exact" else 1), tile, tail)


def assert_disjoint_cover(p: Partition, domain: set[tuple[int, ...]], *sizes: int) -> None:
    owners = Counter(point for piece in p.pieces for point in points(piece.owned, *sizes))
    assert set(owners) == domain
    assert set(owners.values()) <= {1}
    for piece in p.pieces:
        assert set(points(piece.owned, *sizes)) <= set(points(piece.executed, *sizes))


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("tail", "tile"),
    [
        *product([*ALWAYS, "exact"], TILES),
        *product(["balance(4)", "even(4)", "residue(4)"], [4, 8, 16]),
    ],
)
def test_pieces_are_a_disjoint_cover_and_the_loops_run_it(tail: str, tile: int) -> None:
    symbolic = symbolic_line(tail, tile)
    around = range(2 * tile - 5, 2 * tile + 6) if "(" in tail else ()
    for n in (*edge_sizes(tile), *around):
        if tail == "exact" and n % tile:
            continue
        constant = line(n, tile, tail) if tail in ALWAYS else None
        for p, sizes in ((symbolic, (n,)), *(((constant, ()),) if constant else ())):
            assert_disjoint_cover(p, {(i,) for i in range(n)}, *sizes)
            a = numbers(n)
            np.testing.assert_array_equal(p.run({"A": a}), a * 2 + 1)
        assert constant is None or tail == "guard" or "if " not in str(constant)


def test_shift_repeats_pad_runs_past_the_end_and_mask_and_guard_do_not() -> None:
    def executed(tail: str, form: Form) -> list[tuple[int, ...]]:
        (piece,) = (piece for piece in symbolic_line(tail, 8).pieces if piece.form is form)
        return points(piece.executed, 11)

    assert executed("shift", Form.SHIFT) == [(i,) for i in range(3, 11)]
    assert executed("pad", Form.PAD) == [(i,) for i in range(8, 16)]
    assert executed("mask", Form.MASK) == [(i,) for i in range(8, 11)]
    assert executed("guard", Form.GUARD) == [(i,) for i in range(11)]


def test_balance_by_multiples_has_no_more_tiles_than_needed_and_heights_one_multiple_apart() -> (
    None
):
    tiles = runs(parse_strategy("balance(4)", at="axis i"), Var("e"), 16)
    for n in range(1, 100):
        counts = [
            (int(evaluate(count, {"e": n})), int(evaluate(height, {"e": n})))
            for count, height in tiles
        ]
        heights = [height for count, height in counts for _ in range(count)]
        assert (len(heights), sum(heights)) == (-(-n // 16), n)
        units = [-(-height // 4) for height in heights]
        assert max(units) - min(units) <= 1
        assert sum(height % 4 != 0 for height in heights) <= 1


def test_balance_has_two_heights_that_differ_by_one_and_no_more_tiles_than_needed() -> None:
    p = symbolic_line("balance", 14)
    assert [piece.role for piece in p.pieces] == ["body", "body"]
    loops = str(p)
    assert "n//((n + 13)//14)" in loops
    for n, heights in ((15, [8, 7]), (28, [14, 14]), (29, [10, 10, 9]), (5, [5])):
        tall, low = (len(points(piece.owned, n)) for piece in p.pieces)
        q = n // len(heights)
        assert (tall, low) == (sum(h for h in heights if h > q), sum(h for h in heights if h == q))


def product_of(K: Any, n: Any = None) -> oc.Tensor:
    n = dim("n", max=64) if n is None else n
    A = oc.placeholder((n, K), "float64", "A")
    B = oc.placeholder((K, 6), "float64", "B")
    k = oc.reduce_axis(K, "k")
    return oc.compute((n, 6), lambda i, j: oc.sum(A[i, k] * B[k, j], axis=k), name="C")


@pytest.mark.parametrize("promise", ["multiple_of", "assume"])
def test_exact_is_accepted_where_the_tile_divides_every_allowed_size(promise: str) -> None:
    n = dim("n", max=64, multiple_of=8 if promise == "multiple_of" else 1)
    with assume(*([n % 8 == 0] if promise == "assume" else [])):
        p = cut(computation([product_of(n, n)]), {"i": 4, "k": 8}, "exact", [])
    p.prove()
    assert {piece.role for piece in p.pieces} == {"body"}
    for size in (0, 8, 24):
        a, b = numbers(size, size), numbers(size, 6)
        np.testing.assert_array_equal(p.run({"A": a, "B": b}, n=size), a @ b)


@pytest.mark.parametrize(("extreme", "tail"), [("max", "pad"), ("min", "shift"), ("min", "mask")])
def test_max_and_min_may_meet_a_term_again(extreme: str, tail: str) -> None:
    n = dim("n", max=64)
    A = oc.placeholder((3, n), "float64", "A")
    k = oc.reduce_axis(n, "k")
    reduce = {"max": oc.max, "min": oc.min}[extreme]
    C = oc.compute((3,), lambda i: reduce(A[i, k], axis=k), name="C")
    p = cut(computation([C]), {"k": 4}, tail, [])
    neutral = -np.inf if extreme == "max" else np.inf
    for size in edge_sizes(4):
        a = numbers(3, size)
        wanted = getattr(np, extreme)(a, axis=1, initial=neutral)
        np.testing.assert_array_equal(p.run({"A": a}, n=size), wanted)
        assert_disjoint_cover(p, set(product(range(3), range(size))), size)
    p.prove()


def test_two_groups_are_cut_each_by_its_own_axis() -> None:
    n = dim("n", max=64)
    A = oc.placeholder((n, 5), "float64", "A")
    k, r = oc.reduce_axis(5, "k"), oc.reduce_axis(n, "r")
    C = oc.compute((n,), lambda i: oc.sum(A[i, k], axis=k), name="C")
    D = oc.compute((n,), lambda i: C[i] + oc.sum(C[r], axis=r), name="D")
    p = cut(computation([D]), {"C.i": 4, "D.i": 3, "r": 2}, {"C.i": "mask", "D.i": "shift"}, [])
    p.prove()
    for size in edge_sizes(4):
        a = numbers(size, 5)
        np.testing.assert_array_equal(p.run({"A": a}), a.sum(1) + a.sum())
