"""What nests take in numbers is what the closed form of the program says that they become; it follows the machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

import offcut as oc
from offcut import Cost, Schedule, Target, Tensor
from offcut.core import index as ix
from offcut.core.expr import Var
from offcut.costmodel import Machine
from offcut.costmodel.arrays import Calls
from offcut.costmodel.nests import SchedulePrices
from offcut.costmodel.nests.tile_runs import Run, tiles_of
from offcut.errors import PartitionError
from offcut.partition import AxisCut
from offcut.search import Price
from offcut.tuning.schedule_prices import ClosedForm
from tests.agree import nearly
from tests.facade import (
    Nest,
    Problem,
    Strategy,
    Together,
    nests_in,
    parts_of,
    processor,
    proved_plan,
    requested,
    stand_ins,
    with_parts,
)
from tests.spaces import space_of

Program = tuple[list[Tensor], Tensor, list[str]]

n = oc.dim("n", min=1, max=4096)
SIZES = (1, 13, 14, 43, 128, 500)


def dense() -> Program:
    a, w = oc.placeholder((n, 768), name="A"), oc.placeholder((768, 768), name="W")
    return [a, w], oc.ops.dense(a, w), ["W"]


def attention() -> Program:
    q, k, v = (oc.placeholder((2, n, 64), name=name) for name in "qkv")
    return [q, k, v], oc.ops.attention(q, k, v), []


def convolution() -> Program:
    """Of which the functions of float32 run the loops over the filter, too."""
    x, w = oc.placeholder((n, 14, 14, 64), name="x"), oc.placeholder((3, 3, 64, 64), name="W")
    return [x, w], oc.ops.conv2d(x, w, None, 1, 1, layout="NHWC"), ["W"]


def half_convolution() -> Program:
    """Likewise of bfloat16, whose functions are called once for each element of the filter."""
    x = oc.placeholder((n, 14, 14, 64), "bfloat16", name="x")
    w = oc.placeholder((3, 3, 64, 64), "bfloat16", name="W")
    return [x, w], oc.ops.conv2d(x, w, None, 1, 1, layout="NHWC"), ["W"]


def softmax() -> Program:
    x = oc.placeholder((n, 300), name="x")
    return [x], oc.ops.softmax(x), []


def stencil() -> Program:
    x = oc.placeholder((n + 2, n + 2), name="x")
    made = oc.compute(
        (n, n), lambda i, j: x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2], name="S"
    )
    return [x], made, []


def prices(made: Program, target: Target, every: bool = False) -> tuple[SchedulePrices, Schedule]:
    """The prices of schedules at `SIZES`, and the target's own.

    every  whether variants stay that gain nothing
    """
    inputs, output, constants = made
    request = requested(output, inputs, stand_ins(constants, output, inputs, "tune"), "tune")
    options = replace(target.options("tune"), keep_pruned=every)
    space = space_of(request, options, target, 3)
    computation = space.computation
    assert computation is not None

    names = dict(request.users.sizes)
    calls = Calls({names["n"]: np.array(SIZES)}, len(SIZES))
    resolving = target.variant_resolver(computation, options)
    return SchedulePrices(target.hardware(options), calls, resolving), space.first


def cost_at(made: Program, target: Target, size: int) -> Cost:
    """The closed form of the program that the target's own schedule makes, with all products that nests have."""
    inputs, output, constants = made
    request = requested(output, inputs, stand_ins(constants, output, inputs, "tune"), "tune")
    options = replace(target.options("tune"), keep_padding_terms=True)
    found = target.predict_cost(
        proved_plan(target, request, options), request, options, {"n": size}
    )
    assert isinstance(found, Cost)
    return found


def cascade_lake() -> Target:
    return oc.target("cpu", machine="cascade-lake")


@pytest.mark.every(6)
@pytest.mark.parametrize(
    ("make", "compute", "far"),
    [
        (dense, 0.001, 0.02),
        (convolution, 0.02, 0.02),
        (half_convolution, 0.02, 0.02),
        (attention, 0.02, 0.1),
        (softmax, 0.001, 0.02),
        (stencil, 0.02, 0.02),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nests_take_what_the_program_that_they_become_takes(
    make: Callable[[], Program], compute: float, far: float
) -> None:
    target = cascade_lake()
    priced, first = prices(make(), target)
    nests = priced.nests(first)
    for call, size in enumerate(SIZES):
        taken = [
            variants[int(np.argmin([variant.own[call] for variant in variants]))]
            for variants in nests
        ]
        parts = [part for variant in taken for part in variant.parts]
        whole = cost_at(make(), target, size)
        ours = sum(part.compute[call] for part in parts)
        theirs = sum(piece.resources["compute"] for piece in whole.pieces)
        assert ours == nearly(theirs, rel=compute, abs=500)
        near = sum(part.bytes[0, call] for part in parts)
        assert near == nearly(whole.bytes["L1"], rel=far, abs=2000)
        behind = sum(part.bytes[1, call] for part in parts)
        assert (behind > 0) == (whole.bytes["L2"] > 0), "both say whether L1 holds the call"


def runs_at(
    cut: AxisCut, extents: npt.NDArray[np.int64], around: npt.NDArray[np.float64] | None = None
) -> tuple[Run, ...]:
    count = len(extents)
    rows = np.ones(count) if around is None else around
    return tiles_of(cut, Var("n"), Calls({"n": extents}, count), rows)


def test_widths_go_by_the_height_around() -> None:
    cut = AxisCut(
        "j", Strategy("ladder"), 0, None, (((1, 4), 64, (64, 32, 16)), ((5, 14), 32, (32, 16)))
    )
    runs = runs_at(cut, np.full(3, 180), np.array([1.0, 4.0, 5.0]))
    tiles = [[(int(r.count[k]), int(r.height[k])) for r in runs if r.count[k]] for k in range(3)]
    assert tiles[0] == tiles[1] == [(2, 64), (1, 32), (1, 16), (1, 4)]
    assert tiles[2] == [(5, 32), (1, 16), (1, 4)]


def test_what_is_known_of_ways_is_asked_once() -> None:
    target, asked = cascade_lake(), []
    priced, first = prices(dense(), target, every=True)
    variant_cost = priced.variant_cost
    priced.variant_cost = lambda schedule, key: asked.append(key) or variant_cost(schedule, key)  # type: ignore[func-returns-value,method-assign]
    (nest,) = parts_of(first)
    assert isinstance(nest, Nest)
    both = priced(first)
    alone = [with_parts(first, (replace(nest, variants=(variant,)),)) for variant in nest.variants]
    each = [priced(one) for one in alone]
    for one in (first, *alone):
        priced(one)
    assert len(asked) == len(set(asked)) == 2 * len(nest.variants)
    choice = 2 * processor(target.machine).call.way_seconds
    assert (np.minimum(*each) <= both).all()
    assert (both <= np.maximum(*each) + 1.001 * choice).all()


def test_what_a_nest_before_left_in_a_cache_does_not_come_there_again() -> None:
    """Softmax reads a row once from behind L1, not once for each of its sums; rows beyond L1 come each time."""
    target = cascade_lake()
    priced, first = prices(softmax(), target)
    (together,) = parts_of(first)
    assert isinstance(together, Together)
    apart = tuple(
        Nest(
            nest.stage,
            tuple(
                replace(variant, loops=(*together.axes, *variant.loops))
                for variant in nest.variants
            ),
        )
        for nest in nests_in((together,))
    )
    large = SIZES.index(500)  # all rows fit L2, and not L1

    def moved(schedule: Schedule) -> list[float]:
        return [float(variants[0].parts[-1].bytes[1, large]) for variants in priced.nests(schedule)]

    shared, alone = moved(first), moved(with_parts(first, apart))
    rows = 500 * 300 * 4
    assert shared[0] >= rows, "the first nest fetches the rows"
    assert sum(shared) < sum(alone) - rows


def test_tiles_of_a_known_extent_have_fixed_heights() -> None:
    cut = AxisCut("j", Strategy("balance"), 16)
    any_of = runs_at(cut, np.full(3, 64))
    known = tiles_of(cut, ix.const(64), Calls({}, 3), np.ones(3))

    assert any(run.shape.height is None for run in any_of if run.count.any())
    assert all(run.shape.height for run in known if run.count.any())
    for runs in (any_of, known):
        assert (sum(run.count * run.height for run in runs) == 64).all()


def test_groups_follow_the_caches() -> None:
    """The group that is predicted to be the fastest holds what the cache does, whatever the cache."""

    def best(bytes: int) -> int:
        target = cascade_lake()
        machine = target.machine
        assert isinstance(machine, Machine)
        changed = oc.target("cpu", machine=machine.with_memory(1, bytes, 16))
        priced, first = prices(dense(), changed)
        found = {}
        for group in (192, 384, 768):
            text = str(first)
            one = Schedule.parse(re.sub(r"ladder \d+ then", f"ladder {group} then", text))
            found[group] = float(priced(one)[-1])
        return min(found, key=lambda group: found[group])

    small, large = best(3 << 18), best(1 << 23)
    assert small < large


SEIDEL = oc.parse("""\
program seidel
size n in 2:4097
inout A: float32[n, n]
for i in 1:n - 1
  for j in 1:n - 1
    A[i, j] = 0.2 * (A[i, j - 1] + A[i - 1, j] + A[i, j] + A[i, j + 1] + A[i + 1, j])
""")
SMOOTHED = oc.parse("""\
program smoothed
size n in 2:4097
input A: float32[n, n]
output B: float32[n, n]
for i in 1:n - 1
  for j in 1:n - 1
    B[i, j] = 0.25 * (A[i, j - 1] + A[i - 1, j] + A[i, j + 1] + A[i + 1, j])
""")


def test_loops_that_no_nest_describes_are_cut_and_counted() -> None:
    """Tiles of two instances fill no vector; what is one by one takes longer than lanes."""
    target = cascade_lake()
    weights = (({"n": 64}, 1.0), ({"n": 500}, 1.0))

    def price(program: oc.Program) -> Price:
        request = requested(program, None, {}, "tune")
        return ClosedForm(Problem(request, target.options("tune"), target, weights, 0), None)

    smooth = price(SMOOTHED)
    thin, wide = (
        smooth(
            Schedule.parse(
                f"schedule smoothed\nseparate 8\nsplit *.j mask {tile} as j_tile j_in\nbind * lane"
            )
        )
        for tile in (2, 64)
    )
    assert set(thin) == {(("n", 64),), (("n", 500),)}
    assert all(thin[key] > 2 * wide[key] > 0 for key in thin)
    in_order = price(SEIDEL)(Schedule.parse("schedule seidel\nbind * lane"))
    assert all(in_order[key] > wide[key] for key in in_order)
    with pytest.raises(PartitionError, match="z"):
        smooth(
            Schedule.parse("schedule smoothed\nseparate 1\nsplit *.z mask 8 as a b\nbind * lane")
        )


def test_a_unit_that_is_no_vector_unit_is_not_bound_by_issuing_vectors() -> None:
    target = oc.target("cpu", machine="sapphire-rapids")
    a, w = (oc.placeholder(s, "bfloat16", name=x) for s, x in (((n, 768), "A"), ((768, 768), "W")))
    made: Program = [a, w], oc.ops.dense(a, w), ["W"]
    priced, first = prices(made, target)
    assert "amx" in str(first)
    whole = cost_at(made, target, 500)
    body = max(whole.pieces, key=lambda piece: piece.flop)
    assert body.microkernel.startswith("amx")
    assert body.registers == 0
    assert body.resources["issue"] < body.resources["compute"]
    (part,) = (part for variants in priced.nests(first) for part in variants[0].parts)
    assert (part.issue < part.compute).all()
