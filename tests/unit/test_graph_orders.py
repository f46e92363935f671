"""In which order axes of computed values lie in memory: what is computed together lies alike, and products read packed weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offcut.core import index as ix
from offcut.errors import DescribeError, InternalError
from offcut.ir import Binary
from tests.compiled import floats
from tests.facade import Bound, Builder, Model, Ref, compile_graph, interpret_graph
from tests.graphs import arrays
from tests.operators import near

SIZES = ((1, 1, 1), (2, 3, 4), (3, 5, 17))


class Blocks(Builder):
    """Convolutions of images, each with weights of its own."""

    def convolved(
        self, x: Ref, lanes: int, window: int = 1, groups: int = 1, stride: int = 1
    ) -> Ref:
        depth = int(self.values[x.name].shape[1].value) // groups  # type: ignore[union-attr]
        shape = (lanes, depth, window, window)
        name = f"weights{len(self.arrays)}"
        weights = self.constant(name, floats(name, *shape) / 4)
        return self.node("conv2d", x, weights, padding=window // 2, groups=groups, stride=stride)


def agrees(bound: Bound) -> list[list[str]]:
    """The inputs of the kernels of a model that gives what the interpreter does."""
    model = compile_graph(bound, threads=1)
    (name,) = bound.graph.outputs
    for n, h, w in SIZES:
        known = {size.name for size in bound.graph.sizes}
        sizes = {name: one for name, one in {"n": n, "h": h, "w": w}.items() if name in known}
        given = arrays(bound, n + h, **sizes)
        near(model(given)[name], interpret_graph(bound, given)[name])
    return [[one.value for one in step.inputs] for step in model.steps]


def images(depth: int) -> tuple[Blocks, Ref]:
    made = Blocks("images")
    sizes = (made.size(name, low, 32) for name, low in (("n", 0), ("h", 1), ("w", 1)))
    n, h, w = sizes
    return made, made.input("x", "float32", (n, depth, h, w))


@pytest.mark.slow
def test_a_product_is_stored_as_what_is_added_to_it_is() -> None:
    made, x = images(8)
    window = made.convolved(x, 20, window=3)  # stored with channels last
    both = made.node("add", made.convolved(x, 20), made.node("relu", window))
    made.output(made.node("relu", both))
    inputs = agrees(made.bound)
    assert not any(name.startswith("weights") for names in inputs for name in names)


@pytest.mark.every(2)
@pytest.mark.parametrize(("groups", "stride"), [(2, 1), (2, 2)])
def test_groups_of_channels_follow_what_they_read(groups: int, stride: int) -> None:
    made, x = images(8)
    x = made.node("relu", made.convolved(x, 16, window=3))
    x = made.node("relu", made.convolved(x, 16, window=3, groups=groups, stride=stride))
    made.output(made.convolved(x, 8))
    agrees(made.bound)
    plan = str(compile_graph(made.bound, threads=1).plan())
    assert "16, h" not in plan
    assert plan.count(", 16]") == 2


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("op", "options"),
    [("groupnorm", {"groups": 4}), ("log_softmax", {"axis": 1})],
)
def test_what_is_taken_off_its_own_statistics_is_stored_as_it_is_read(
    op: str, options: dict[str, int]
) -> None:
    made, x = images(8)
    x = made.node("silu", made.node(op, made.convolved(x, 16, window=3), **options))
    made.output(made.convolved(x, 8))
    agrees(made.bound)
    plan = str(compile_graph(made.bound, threads=1).plan())
    assert "16, h" not in plan
    assert plan.count(", 16]") == 2


def test_a_transposed_view_is_read_as_it_lies() -> None:
    made, x = images(8)
    last = made.node("transpose", x, axes=(0, 2, 3, 1))
    normed = made.node("layernorm", last)  # by rows, channels last
    x = made.node("transpose", normed, axes=(0, 3, 1, 2))
    x = made.node("relu", made.convolved(x, 8, window=3, groups=8))
    made.output(made.node("relu", made.convolved(x, 20)))
    inputs = agrees(made.bound)
    assert not any(name.startswith("weights") for names in inputs for name in names)
    assert "8, h" not in str(compile_graph(made.bound, threads=1).plan())


def test_rows_that_are_seen_as_an_image_are_read_as_they_lie() -> None:
    made = Blocks("rows")
    n, side = made.size("n", 0, 8), 6
    x = made.input("x", "float32", (n, side * side, 8))
    rows = made.node("relu", made.node("dense", x, made.constant("u", floats("u", 8, 16))))
    turned = made.node("transpose", rows, axes=(0, 2, 1))
    image = made.convolved(made.node("reshape", turned, (n, 16, side, side)), 16, 3, groups=16)
    back = made.node("transpose", made.node("reshape", image, (n, 16, side * side)), axes=(0, 2, 1))
    made.output(made.node("dense", made.node("relu", back), made.constant("v", floats("v", 16, 8))))
    agrees(made.bound)
    plan = str(compile_graph(made.bound, threads=1).plan())
    assert "[n, 6, 6, 16]" in plan
    assert "[n, 16, 6, 6]" not in plan


@pytest.mark.every(4)
@pytest.mark.parametrize(("channels", "groups"), [(16, 4), (16, 16), (3, 3)])
def test_a_grouped_window_of_steps_reads_channels_side_by_side(channels: int, groups: int) -> None:
    made, x = images(channels)
    weights = made.constant("weights", floats("weights", channels, channels // groups, 3, 3))
    options = {"stride": 2, "padding": 1, "groups": groups}
    made.output(
        made.node("conv2d", x, weights, made.constant("bias", floats("bias", channels)), **options)
    )
    agrees(made.bound)
    model = compile_graph(made.bound, threads=1)
    assert [step.nodes for step in model.steps] == [("transpose",), ("conv2d",)]
    assert f"[n, h * w, {channels}]" in str(model.plan())


def test_a_sum_of_one_term_is_no_product_of_a_microkernel() -> None:
    made, x = images(8)
    wide = made.node("relu", made.convolved(x, 16))
    scaled = made.convolved(wide, 16, groups=16)  # a number for each channel
    made.output(made.node("relu", made.node("add", scaled, made.convolved(wide, 16, 3, groups=16))))
    agrees(made.bound)
    assert "p=" not in str(compile_graph(made.bound, threads=1).steps[-1].kernel.schedule)


def test_an_output_is_stored_in_the_order_that_is_asked_for() -> None:
    made, x = images(3)
    y = made.node("relu", x)
    made.output(y, made.node("add", made.node("sum", x, axis=(0, 1, 2, 3)), 1.0))  # and a number
    model = compile_graph(made.bound, threads=1, orders={y.name: (0, 2, 3, 1)})
    given = {"x": floats("x", 2, 3, 4, 5)}
    found, expected = model(given), interpret_graph(made.bound, given)
    assert found[y.name].transpose(0, 2, 3, 1).flags.c_contiguous
    for name, array in found.items():
        near(array, expected[name])


def test_what_is_stored_otherwise_than_asked_is_copied_by_a_kernel() -> None:
    made, x = images(3)
    y = made.node("relu", made.convolved(x, 16, 3))
    made.output(y, made.node("transpose", y, axes=(0, 3, 1, 2)))
    by_rows = dict.fromkeys(made.outputs, (0, 1, 2, 3))
    model, given = compile_graph(made.bound, threads=1, orders=by_rows), floats("x", 2, 3, 4, 5)
    assert [step.nodes for step in model.steps][-2:] == [("transpose",), ("transpose",)]
    found = model({"x": given})
    for name, exact in interpret_graph(made.bound, {"x": given}).items():
        assert found[name].flags.c_contiguous
        near(found[name], exact)


@pytest.mark.parametrize(
    ("orders", "because"),
    [
        ({"relu": (0, 1)}, "it has 4 axes, and an order names each of them once"),
        ({"relu": (0, 1, 1, 2)}, "it has 4 axes, and an order names each of them once"),
        ({"x": (0, 1, 2, 3)}, "the outputs are relu"),
    ],
)
def test_an_order_of_no_output_is_refused(orders: dict[str, tuple[int, ...]], because: str) -> None:
    made, x = images(3)
    made.output(made.node("relu", x))
    with pytest.raises(DescribeError, match="cannot store") as refused:
        compile_graph(made.bound, orders=orders)
    assert refused.value.because == because


def test_what_is_reshaped_of_what_is_stored_otherwise_is_copied_by_rows() -> None:
    made = Blocks("lines")
    n, length = made.size("n", 1, 9), made.size("h", 1, 32)
    x = made.node("relu", made.input("x", "float32", (n, length, 20)))
    weights = made.constant("weights", floats("weights", 20, 1, 4))
    lines = made.node("transpose", x, axes=(0, 2, 1))
    y = made.node("conv1d", lines, weights, padding=((2, 1),), groups=20)  # channels last
    part = made.node("slice", y, 1, 0, 12)
    flat = made.node("reshape", part, (n, ix.mul(12, length)))
    rows = made.node("reshape", flat, (ix.mul(n, length), 12))
    made.output(made.node("dense", rows, made.constant("v", floats("v", 12, 8))))
    agrees(made.bound)


@pytest.mark.slow
def test_a_stage_that_is_read_axis_by_axis_lies_as_the_result_does() -> None:
    made, x = images(8)
    x = made.node("interpolate", made.convolved(x, 20, window=3), scale=3, mode="linear")
    made.output(x)
    agrees(made.bound)
    (stage,) = (
        buffer
        for buffer in compile_graph(made.bound, threads=1).steps[-1].kernel.loops.buffers
        if buffer.name.endswith("_i")
    )
    assert stage.shape[-1] == ix.const(20)


def test_what_is_copied_for_one_reader_is_as_it_is_for_the_next() -> None:
    made = Builder("copied")
    b, n = made.size("b", 1, 5), made.size("n", 1, 6)
    y = made.input("y", "float32", (b, n, 6))
    thinned = made.node("slice", y, 2, 1, 6, 2)
    rows = made.node("reshape", thinned, [b, Binary("*", ix.const(3), n)])
    total = made.node("sum", thinned, axis=2)
    made.output(made.node("matmul", rows, made.node("transpose", rows, axes=[1, 0])), total)
    model = compile_graph(made.bound, threads=1)
    given = arrays(made.bound, 3, b=4, n=5)
    found, expected = model(given), interpret_graph(made.bound, given)
    for name in expected:
        near(found[name], expected[name])


def programs() -> tuple[Builder, Ref, Ref]:
    """The two results of a running maximum, which is a loop program."""
    made = Builder("running")
    x = made.input("x", "float32", (made.size("n", 0, 64), made.size("m", 0, 64), 3))
    values, places = made.node("accumulated", x, axis=1, reduction="max", places=True)
    return made, values, places


@pytest.mark.every(3)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_a_loop_program_writes_an_order_or_a_copy_follows(order: tuple[int, ...]) -> None:
    made, values, places = programs()
    made.output(values, places, made.node("sum", values, axis=2))
    model = compile_graph(made.bound, threads=1, orders={values.name: order, places.name: order})
    given = {"x": floats("x", 5, 17, 3)}
    found = model(given)
    for name, exact in interpret_graph(made.bound, given).items():
        np.testing.assert_array_equal(found[name], exact)
    for name in (values.name, places.name):
        assert found[name].transpose(order).flags.c_contiguous
    copies = [step for step in model.steps if step.nodes == ("transpose",)]
    assert len(copies) == (0 if order[-1] == 2 else 2)


@pytest.mark.every(3)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_what_a_program_or_a_reshape_reads_is_given_in_the_order_asked_for(
    order: tuple[int, ...],
) -> None:
    made = Builder("read")
    n, m = made.size("n", 0, 64), made.size("m", 0, 64)
    y = made.node("relu", made.input("x", "float32", (n, m, 3)))
    values = made.node("accumulated", made.node("transpose", y, axes=(1, 0, 2)), axis=0)
    z = made.node("reshape", made.node("reshape", y, (-1, 3)), (n, ix.mul(3, m)))
    made.output(y, values, z, made.node("reshape", z, (m, n, 3)))
    names = made.outputs
    orders = {name: order for name in names if len(made.shape(Ref(name))) == 3}
    model = compile_graph(made.bound, threads=1, orders=orders | {z.name: (1, 0)})
    given = {"x": floats("x", 5, 17, 3)}
    found = model(given)
    for name, exact in interpret_graph(made.bound, given).items():
        np.testing.assert_array_equal(found[name], exact)
        axes = orders.get(name, (1, 0))
        assert found[name].transpose(axes).flags.c_contiguous


@pytest.mark.parametrize("change", ["shape", "stride", "dtype", "constant"])
def test_a_model_whose_arrays_are_not_what_its_kernels_take_runs_none_of_them(change: str) -> None:
    made = Builder("wrong")
    n = made.size("n", 1, 64)
    x = made.input("x", "float32", (n, 6))
    weights = made.constant("weights", floats("weights", 6, 4))
    made.output(made.node("accumulated", x, axis=0), made.node("transpose", weights, axes=(1, 0)))
    model = compile_graph(made.bound, threads=1)
    step, *others = model.steps
    (out, *rest), bound = step.outputs, model.bound
    if change == "shape":
        out = replace(out, shape=out.shape[::-1], strides=out.strides[::-1])
    elif change == "stride":
        out = replace(out, strides=out.strides[::-1])
    elif change == "dtype":
        out = replace(out, dtype="float64")
    else:
        bound = Bound(bound.graph, {name: floats("w", 6, 4) for name in bound.arrays})
    steps = [replace(step, outputs=(out, *rest)), *others]
    found = model._found._replace(steps=steps)
    with pytest.raises(InternalError, match=r"takes|kernels read"):
        Model(bound, found, model.asked, model._how)(floats("x", 7, 6))
