"""Kernels on machines of queues: the bits of integers, at sizes around words and tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from accelerators import (
    Array,
    bytes_of,
    clipped,
    convolved,
    dense,
    pooling,
    requantised,
)
from conftest import rejection, slow

import offcut as oc
from offcut import Kernel
from offcut.backends.accelerator.planning.planner import layout_labels
from offcut.backends.accelerator.planning.roles import Roles
from offcut.polyhedral.sync import Agents
from offcut.schedule import Choose
from tests.agree import nearly

MACHINES = ("vta", "vta-osdi18", "gemmini")


@pytest.mark.every(4)
@pytest.mark.parametrize("machine", MACHINES)
def test_products_are_those_of_integers_at_every_size(machine: str) -> None:
    inputs, result = dense(70, 45)
    rng = np.random.default_rng(0)
    w = bytes_of(rng, (70, 45))
    kernel = oc.compile(result, inputs=inputs, constants={"W": w}, target=machine)
    for n in (0, 1, 15, 16, 17, 48, 53):
        a = bytes_of(rng, (n, 70))
        out = np.full((n, 45), -128, np.int8)
        assert kernel(a, out=out) is out
        np.testing.assert_array_equal(out, clipped(a.astype(np.int64) @ w.astype(np.int64), 6))
        run = kernel.timeline(n=n)
        assert not run.races
        assert not run.unwritten
        assert not any(run.left.values())


@pytest.mark.slow
def test_convolutions_are_those_of_integers_at_odd_sizes() -> None:
    n, h, w = (oc.dim(name, min=0, max=64) for name in "nhw")
    x = oc.placeholder((n, 40, h, w), "int8", name="X")
    k = oc.placeholder((24, 40, 3, 3), "int8", name="K")
    total = oc.ops.conv2d(x, k, stride=2, padding=1)
    rng = np.random.default_rng(1)
    weights = bytes_of(rng, (24, 40, 3, 3))
    run = oc.compile(requantised(total, 9), inputs=[x, k], constants={"K": weights}, target="vta")
    for shape in ((1, 1, 1), (1, 5, 7), (2, 17, 15), (1, 33, 47), (0, 5, 7)):
        image = bytes_of(rng, (shape[0], 40, *shape[1:]))
        wide = convolved(image, weights, 2, 1)
        np.testing.assert_array_equal(run(image), clipped(wide, 9))


@pytest.mark.every(2)
@pytest.mark.parametrize(("machine", "channels"), [("vta", 16), ("gemmini", 100)])
def test_a_convolution_of_one_pixel_is_tiled_along_its_channels_or_not_at_all(
    machine: str, channels: int
) -> None:
    x = oc.placeholder((1, 1, 1, channels), "int8", name="X")
    k = oc.placeholder((1, 1, channels, 4), "int8", name="K")
    total = oc.ops.conv2d(x, k, layout="NHWC", name="S")
    run = oc.compile(requantised(total, 9), inputs=[x, k], target=machine)
    rng = np.random.default_rng(2)
    image, weights = bytes_of(rng, (1, 1, 1, channels)), bytes_of(rng, (1, 1, channels, 4))
    wide = image.astype(np.int64) @ weights.astype(np.int64)[0, 0]
    np.testing.assert_array_equal(run(image, weights), clipped(wide, 9))


COLUMNS = """\
schedule Y
stage read W for S as W_in in inputs
stage read A for S as A_wgt in weights
stage value S[i, j]//64 for Y as Y_1(i, j) in accumulators
stage value min(Y_1[i, j], 127) for Y as Y_2(i, j) in accumulators
stage value max(Y_2[i, j], -128) for Y as Y_3(i, j) in accumulators
split Y.j guard 16 as j_tile j_in
split Y.i pad 32 as i_tile i_in
order Y j_tile i_tile j_in i_in
at Y_3 Y.i_tile in accumulators depth 2
at Y_2 Y.i_tile in accumulators depth 2
at Y_1 Y.i_tile in accumulators depth 2
at S Y.i_tile in accumulators depth 2
at W_in Y.j_tile depth 2
at A_wgt Y.i_tile depth 2
order S j i k
cover S at j gemm_1x16x16(j=i, p=k)
order Y_1 j i
cover Y_1 at j alu_divide(j=i)
order Y_2 j i
cover Y_2 at j alu_min(j=i)
order Y_3 j i
cover Y_3 at j alu_max(j=i)
cover Y at j_in store_outputs
"""


def test_a_schedule_says_which_axis_words_run_along() -> None:
    inputs, result = dense(70, 45)
    schedule = oc.Schedule.parse(COLUMNS)
    kernel = oc.compile(result, inputs=inputs, target="vta", schedule=schedule)
    assert str(kernel.schedule) == COLUMNS.rstrip()
    rng = np.random.default_rng(2)
    for n in (0, 1, 16, 17, 33):
        a, w = bytes_of(rng, (n, 70)), bytes_of(rng, (70, 45))
        wide = a.astype(np.int64) @ w.astype(np.int64)
        np.testing.assert_array_equal(kernel(a, w), clipped(wide, 6))


@cache
def pooled() -> Kernel:
    """Images of 24 channels, an open batch: words lie along channels or along images."""
    inputs, result = pooling(64)
    return oc.compile(result, inputs=inputs, target="vta")


@cache
def pooled_in_one_way(number: int) -> Kernel:
    """The same, by one of the alternatives that its schedule chooses among."""
    inputs, result = pooling(64)
    schedule = pooled().schedule
    (choice,) = schedule.steps
    assert isinstance(choice, Choose)
    alone = replace(schedule, steps=choice.options[number].steps)
    return oc.compile(result, inputs=inputs, target="vta", schedule=alone)


def maxima(images: Array) -> Array:
    """The greatest of windows of 3×3, every second, one place of padding around images of 7×7."""
    ends = np.full((len(images), 9, 9, 24), -128, np.int8)
    ends[:, 1:8, 1:8] = images
    views = [ends[:, r : r + 8 : 2, c : c + 8 : 2][:, :4, :4] for r in range(3) for c in range(3)]
    return np.max(views, axis=0)


@pytest.mark.every(3)
@pytest.mark.parametrize("machine", MACHINES)
def test_images_are_pooled_alike_whichever_way_words_lie(machine: str) -> None:
    inputs, result = pooling(64)
    kernel = oc.compile(result, inputs=inputs, target=machine)
    images = bytes_of(np.random.default_rng(3), (33, 7, 7, 24))
    for n in (0, 1, 3, 16, 17, 33):
        np.testing.assert_array_equal(kernel(images[:n]), maxima(images[:n]))


def test_a_call_takes_the_way_that_words_are_filled_better_by() -> None:
    kernel, alone = pooled(), [pooled_in_one_way(number) for number in range(2)]
    taken = set()
    for n in (1, 5, 12, 16, 17, 33, 64):
        each = [one.timeline(n=n).cycles for one in alone]
        assert kernel.timeline(n=n).cycles == kernel.cost(n=n).cycles == min(each)
        taken.add(each.index(min(each)))
    assert taken == {0, 1}
    assert [kernel.plan(n=n).notes for n in (1, 64)] == [
        ("Y runs as chip_c",),
        ("Y runs as chip_n_",),
    ]
    assert kernel.timeline(n=1).cycles < kernel.timeline(n=8).cycles / 5
    assert kernel.timeline(n=64).cycles < 100_000


@cache
def two_layers() -> Kernel:
    """Two dense layers, and something beside that is stored as well."""
    (a, w), first = dense(70, 45)
    v, k = oc.placeholder((45, 33), "int8", name="V"), oc.reduce_axis(45, name="m")
    sums = oc.compute(
        (a.shape[0], 33),
        lambda i, j: oc.sum(first[i, k].astype("int32") * v[k, j].astype("int32"), axis=k),
        name="T",
    )
    last = oc.ops.requantize(sums, 6, name="Z")
    beside = oc.compute(a.shape, lambda i, j: oc.maximum(a[i, j], 3), name="B")
    return oc.compile([last, beside], inputs=[a, w, v], target="vta")


def test_a_plan_has_a_piece_for_each_nest_and_the_seconds_of_its_streams() -> None:
    kernel = two_layers()
    plan, cost = kernel.plan(n=20), kernel.cost(n=20)
    assert [(one.stage, one.instances) for one in plan.pieces] == [
        ("Y", 20 * 45 * 70),
        ("Z", 20 * 33 * 45),
        ("B", 20 * 70),
    ]
    assert plan.pieces[0].ranges == {"i": (0, 20), "j": (0, 45), "k": (0, 70)}
    assert plan.pieces[0].tile["i"] <= 20
    kinds = [one.microkernel for one in plan.pieces]
    assert kinds == ["gemm_1x16x16", "gemm_1x16x16", "store_outputs"]
    assert plan.seconds == nearly(cost.seconds)
    assert sum(one.seconds for one in plan.pieces) == nearly(cost.seconds)
    assert kernel.plan(n=0).pieces == ()
    assert kernel.plan(n=0).seconds == 0.0


def test_what_several_streams_move_is_told_by_operand() -> None:
    cost = two_layers().cost(n=20)
    assert {tuple(piece.bytes) for piece in cost.pieces} == {tuple(cost.bytes)}
    assert "from accumulators" in str(cost)


def test_a_plan_says_what_the_ways_that_competed_would_take() -> None:
    considered = pooled().plan(n=1).considered
    assert [(one.stage, one.label, one.chosen) for one in considered] == [
        ("Y", "chip_c", True),
        ("Y", "chip_n_", False),
    ]
    assert considered[0].seconds < considered[1].seconds


def test_the_pieces_of_a_machine_of_queues_are_drawn_as_a_timeline_alone() -> None:
    with pytest.raises(oc.DescribeError, match="its pieces are of no partition"):
        pooled().plan(n=1).plot()


def test_ways_that_lie_along_the_same_axes_have_names_of_their_own() -> None:
    ways = Roles("i", None, "k"), Roles(None, "i", "k"), Roles(None, "j", "k")
    assert layout_labels(ways) == ["chip_i_k_1", "chip_i_k_2", "chip_j_k"]
    assert layout_labels(ways[:1]) == ["chip"]


LAID_BY_HOST = """\
schedule Y
stage write Y as Y_acc in accumulators
stage value where(2*y + r - 1 >= 0 and 2*y + r - 1 < 7 and 2*x + s - 1 >= 0 and 2*x + s - 1 < 7, X[n_, 2*y + r - 1, \
2*x + s - 1, c], -128) for Y_acc as X_acc_laid(n_, y, x, c, r, s)
stage read X_acc_laid for Y_acc as X_acc in accumulators
order Y n_ x c y
at Y_acc Y.n_ in accumulators
at X_acc Y.n_
order Y_acc n_ x c y r s
cover Y_acc at n_ alu_max(j=y)
cover Y at x store_outputs"""
WITH_A_HALO = """\
schedule Y
stage write Y as Y_acc in accumulators
stage value where(y_ - 1 >= 0 and y_ - 1 < 7 and x_ - 1 >= 0 and x_ - 1 < 7, X[n_, y_ - 1, x_ - 1, c], -128) for Y_acc \
as X_acc(n_, y_ = 2*y + r, x_ = 2*x + s, c) in accumulators
order Y n_ y x c
at Y_acc Y.n_ in accumulators
at X_acc Y.n_
order Y_acc n_ y x c r s
cover Y_acc at n_ alu_max
cover Y at y store_outputs"""


@pytest.mark.parametrize(
    ("text", "older", "lane"),
    [(LAID_BY_HOST, "words columns y", "y"), slow(WITH_A_HALO, "words", "c")],
)
def test_words_lie_as_a_schedule_says(text: str, older: str, lane: str) -> None:
    inputs, result = pooling(64)
    kernel = oc.compile(result, inputs=inputs, target="vta", schedule=oc.Schedule.parse(text))
    assert str(kernel.schedule) == text
    assert f"alu_max; j={lane};" in str(kernel.loops)
    images = bytes_of(np.random.default_rng(4), (3, 7, 7, 24))
    np.testing.assert_array_equal(kernel(images), maxima(images))
    older = f"schedule Y\nnest Y\n  way mine\n    {older}\n    loops n_\n    split n_ ladder 1"
    again = oc.compile(result, inputs=inputs, target="vta", schedule=oc.Schedule.parse(older))
    assert again.schedule == kernel.schedule


def test_words_along_an_axis_that_a_copy_steps_over_are_refused_by_their_line() -> None:
    inputs, result = pooling(64)
    text = WITH_A_HALO.replace("alu_max", "alu_max(j=x)").replace("n_ y x c r s", "n_ y c x r s")
    with pytest.raises(oc.TargetError) as refused:
        oc.compile(result, inputs=inputs, target="vta", schedule=oc.Schedule.parse(text))
    assert refused.value.at == "line 8: cover Y_acc at n_ alu_max(j=x)"
    assert refused.value.because == (
        "X_acc[n_, 2*y + r, 2*x + s, c] does not move by itself along x"
    )


def test_a_formula_is_that_of_the_way_that_is_taken() -> None:
    formulas = pooled().cost()
    assert formulas.ways == (("chip_c", "chip_n_"),)
    (size,) = formulas.flop.free_symbols
    for n in (1, 7, 16, 40, 64):
        at = pooled().cost(n=n)
        assert float(formulas.cycles.xreplace({size: n}).doit()) == nearly(at.cycles, rel=0.05)
        found = {name: int(one.xreplace({size: n}).doit()) for name, one in formulas.bytes.items()}
        del found["micro-ops"]  # those of a middle size
        assert found == {name: at.bytes[name] for name in found}


def test_options_of_a_program_are_taken_by_what_they_cost() -> None:
    kernel = pooled()
    text = str(kernel.loops)
    assert text.count("costs 0.0") == 2
    for number in range(2):
        parts = text.split("costs 0.0")
        costs = ["costs 2.0", "costs 2.0"]
        costs[number] = "costs 1.0"
        dearer = oc.parse(parts[0] + costs[0] + parts[1] + costs[1] + parts[2])
        one = oc.compile(dearer, target="vta")
        alone = pooled_in_one_way(number)
        for n in (1, 33):
            assert one.timeline(n=n).cycles == alone.timeline(n=n).cycles


@pytest.mark.parametrize(
    ("tail", "machine"),
    [("balance", "vta"), slow("shift", "gemmini")],
)
def test_several_results_of_one_sum_are_stored_from_the_same_tile(tail: str, machine: str) -> None:
    (a, w), _ = dense(20, 24)
    total = oc.ops.dense(a, w, name="S")
    parts = tuple(
        oc.compute(
            total.shape, lambda i, j, b=b: (total[i, j] // 256**b).astype("uint8"), name=f"S{b}"
        )
        for b in range(4)
    )
    kernel = oc.compile(parts, inputs=[a, w], target=machine, strategy=tail)
    assert str(kernel.schedule).count("stage read W for S") == str(kernel.schedule).count(
        "cover S at"
    )
    rng = np.random.default_rng(7)
    for n in (1, 31, 32, 33, 64):
        x, y = bytes_of(rng, (n, 20)), bytes_of(rng, (20, 24))
        found = np.stack(kernel(x, y), axis=-1).view("<i4")[..., 0]
        np.testing.assert_array_equal(found, x.astype(np.int64) @ y)
        assert not kernel.timeline(n=n).races


@pytest.mark.parametrize("machine", ["vta", slow("gemmini")])
def test_a_result_that_another_one_reads_is_stored_and_loaded_again(machine: str) -> None:
    (a, w), first = dense(20, 24)
    last = oc.compute(first.shape, lambda i, j: oc.maximum(first[i, j], 3), name="Z")
    kernel = oc.compile([first, last], inputs=[a, w], target=machine)
    rng = np.random.default_rng(8)
    for n in (0, 1, 33):
        x, y = bytes_of(rng, (n, 20)), bytes_of(rng, (20, 24))
        one, other = kernel(x, y)
        np.testing.assert_array_equal(one, clipped(x.astype(np.int64) @ y, 6))
        np.testing.assert_array_equal(other, np.maximum(one, 3))


def test_a_listing_at_a_size_names_its_arrays() -> None:
    kernel = pooled()
    listing = kernel.source("listing", n=1)
    assert " = X[" in listing
    assert " Y[" in listing
    assert listing.endswith("finish")
    with rejection("""\
CallError: source: cannot take m
  because  the sizes of Y are n
  help     source(n=…)"""):
        kernel.source("listing", m=3)
    with rejection("""\
DescribeError: source: cannot show 'loops' at sizes
  because  vta has one for every size
  help     source("loops")"""):
        kernel.source("loops", n=3)


@pytest.mark.parametrize("machine", ["vta", slow("gemmini")])
def test_a_maximum_along_an_axis_that_is_cut_starts_outside_of_its_tiles(machine: str) -> None:
    n, m = oc.dim("n", min=0, max=8), oc.dim("m", min=1, max=70)
    x, r = oc.placeholder((n, 5, m), "int8", name="X"), oc.reduce_axis(m, "r")
    most = oc.compute((n, 5), lambda i, j: oc.max(x[i, j, r], axis=r), name="E")
    kernel = oc.compile(most, inputs=[x], target=machine)
    assert "alu_fill" in str(kernel.loops)
    rng = np.random.default_rng(9)
    for rows, terms in ((0, 1), (1, 1), (3, 65), (8, 70)):
        given = bytes_of(rng, (rows, 5, terms))
        np.testing.assert_array_equal(kernel(given), given.max(axis=2))


def test_the_order_of_units_is_a_text_of_which_every_line_of_tokens_is_needed() -> None:
    inputs, result = dense(70, 45)
    kernel, agents = oc.compile(result, inputs=inputs, target="vta"), oc.target("vta").agents
    assert agents is not None
    order = kernel.source("order", n=29)
    program = oc.parse(order)
    assert str(program) == order
    oc.sync.check(program, agents)
    lines, of = order.splitlines(), {token.name: token for token in program.tokens}

    def unit(line: str) -> str | None:
        """The unit that a line of tokens is of; None of any other line."""
        match line.split():
            case ["wait", name, *_]:
                return of[name].target
            case ["arrive", name, *_]:
                return of[name].source
        return None

    tokens = [at for at, line in enumerate(lines) if unit(line) is not None]
    assert len(tokens) >= 6
    for at in tokens[2::4]:
        rest = [*lines[:at], *lines[at + 1 :]]
        ahead = [*rest[: at - 1], lines[at], *rest[at - 1 :]]  # of another block, at times
        for other in (rest, [*lines[:at], lines[at], *lines[at:]]):
            refused("\n".join(other), agents)
        same = lines[at].split()[1] == lines[at - 1].split()[1]  # a wait follows what it waits for
        if not same and unit(lines[at - 1]) not in (None, unit(lines[at])):
            oc.sync.check(oc.parse("\n".join(ahead)), agents)  # each unit does the same as before
        else:
            refused("\n".join(ahead), agents)
    assert oc.target("gemmini").source_forms == ("listing",)
    assert oc.target("gemmini").agents is None


def refused(text: str, agents: Agents) -> None:
    """Check that a text of an order is none."""
    with pytest.raises(oc.OffcutError, match=r"^(sync: cannot keep the order|parse: )"):
        oc.sync.check(oc.parse(text), agents)
