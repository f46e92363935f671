"""Which ways stay: the fewest that no call misses the others with."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut import ops
from offcut.core import index as ix
from offcut.costmodel import prune_dominated
from offcut.ir import Expr, Select, Size, Var
from tests.facade import Nest, nests_in, parts_of, real

N = Var("n")
SIZES = (Size("n", 0, 4096),)


def near(size: int, cheap: float, dear: float) -> Expr:
    """Cheap where ``n <= size``, dear beyond."""
    return Select(ix.compare("<=", N, size), real(cheap), real(dear))


WAYS: dict[str, tuple[tuple[Expr, ...], tuple[int, ...]]] = {
    "one": ((real(1.0),), (0,)),
    "equal ones": ((real(1.0), real(1.0), real(1.0)), (0,)),
    "never better": ((real(2.0), real(1.0)), (1,)),
    "a little better": ((near(9, 1.0, 1.0), near(9, 0.99, 1.5)), (0,)),
    "each somewhere": ((near(9, 1.0, 2.0), near(9, 2.0, 1.0)), (0, 1)),
    "between the others": ((near(9, 1.0, 2.0), near(9, 1.5, 1.5), near(9, 2.0, 1.0)), (0, 2)),
}


@pytest.mark.parametrize("what", WAYS)
def test_the_ways_that_stay(what: str) -> None:
    costs, stay = WAYS[what]
    assert prune_dominated(costs, SIZES, (), 0.02) == stay


def test_calls_that_are_not_allowed_decide_nothing() -> None:
    costs = (near(9, 1.0, 2.0), near(9, 2.0, 1.0))
    assert prune_dominated(costs, (Size("n", 0, 8),), (), 0.02) == (0,)
    assert prune_dominated(costs, (Size("n", 16, 64, 16),), (), 0.02) == (1,)
    assert prune_dominated(costs, SIZES, (ix.compare(">", N, 100),), 0.02) == (1,)
    assert prune_dominated(costs, SIZES, (ix.compare(">", N, 5000),), 0.02) == (
        0,
        1,
    )  # none is allowed
    assert prune_dominated(costs, (Size("n", 0, 0),), (), 0.02) == (0, 1)


def nests(kernel: oc.Kernel) -> list[Nest]:
    assert kernel.schedule is not None
    return list(nests_in(parts_of(kernel.schedule)))


@pytest.mark.slow
def test_what_a_kernel_left_out_would_have_saved_little() -> None:
    n = oc.dim("n", max=512)
    q, k, v = (oc.placeholder((n, 64), name=name) for name in "QKV")
    result = ops.attention(q, k, v)
    kept = oc.compile(result)
    full = oc.compile(result, price=lambda loops: 0.0)
    few, many = nests(kept), nests(full)
    assert [nest.stage for nest in few] == [nest.stage for nest in many]
    assert sum(len(nest.ways) for nest in few) < sum(len(nest.ways) for nest in many)
    for one, all_ways in zip(few, many, strict=True):
        labels = [way.label for way in all_ways.ways]
        assert {way.label for way in one.ways} <= set(labels)


@pytest.mark.every(6)
@pytest.mark.parametrize("rows", [1, 13, 14, 15, 27, 29, 100, 511])
def test_the_cheapest_that_stays_is_near_the_cheapest(rows: int) -> None:
    n = oc.dim("n", max=512)
    a, w = oc.placeholder((n, 64), name="A"), oc.placeholder((64, 96), name="W")

    def seconds(strategy: str) -> float:
        kernel = oc.compile(ops.matmul(a, w), inputs=[a, w], strategy=strategy)
        return min(one.seconds for one in kernel.plan(n=rows).considered)

    assert seconds("auto") <= 1.02 * min(seconds("ladder"), seconds("balance"))
