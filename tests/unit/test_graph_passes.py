"""Passes over graphs: each computes what the graph did, at sizes drawn at random, and gives back its own where it does nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offcut import Kernel
from offcut.graph.passes import (
    DEFAULT,
    convolution_to_matmul,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    merge_products,
    read_unrepeated,
    sink_reshapes,
)
from offcut.ir import Binary, Kind
from tests.compiled import floats
from tests.facade import Bound, Builder, Model, compile_graph, interpret_graph
from tests.graphs import arrays, drawn
from tests.operators import near


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", range(6))
def test_every_pass_computes_what_the_graph_did(seed: int) -> None:
    bound = drawn(seed)
    generator = np.random.default_rng(seed)
    sizes = {"b": int(generator.integers(1, 4)), "n": int(generator.integers(1, 5))}
    given = arrays(bound, seed, **sizes)
    expected = interpret_graph(bound, given)
    for one in DEFAULT:
        made = one(bound)
        found = interpret_graph(made, given)
        assert list(found) == list(expected)
        for name in found:
            near(found[name], expected[name])
        assert one(made) is made or one is sink_reshapes


def mlp() -> Bound:
    made = Builder("mlp")
    b, n = made.size("b", 1, 9), made.size("n", 1, 9)
    x = made.input("x", "float32", (b, n, 6))
    w = made.constant("w", np.ones((4, 6), "float32"))
    r = made.node("reshape", x, [Binary("*", b, n), -1])
    d = made.node("dense", r, made.node("transpose", w))
    y = made.node("reshape", d, [b, n, -1])
    made.node("relu", y, results=["dead"])
    one, other = made.node("gelu", y), made.node("gelu", y)
    made.output(made.node("add", one, other))
    return made.bound


def test_passes_leave_out_what_is_not_needed_or_known_or_there_twice_and_sink_reshapes() -> None:
    bound, seen = mlp(), list[list[str]]()
    assert "dead" not in eliminate_dead_code(bound).graph.values
    folded = fold_constants(bound)
    np.testing.assert_array_equal(folded.arrays["transpose"], np.ones((6, 4)))
    for one in (
        fold_constants,
        eliminate_dead_code,
        eliminate_common_subexpressions,
        sink_reshapes,
    ):
        bound = eliminate_dead_code(one(bound))
        seen.append([node.op for node in bound.graph.nodes])
    assert "transpose" not in seen[0]
    assert [ops.count("gelu") for ops in seen] == [2, 2, 1, 1]
    assert seen[-1] == ["dense", "gelu", "add"]


def test_what_is_repeated_is_read_as_it_was_where_another_operand_has_the_extents() -> None:
    made = Builder("repeated")
    n = made.size("n", 1, 9)
    x, s = made.input("x", "float32", (n, 4)), made.input("s", "float32", (n, 1))
    r = made.node("broadcast_to", s, (n, 4))
    y = made.node("divide", x, r)
    z = made.node("multiply", r, r)  # of these one is kept
    i = made.node("broadcast_to", made.node("cast", s, "int32"), (n, 4))
    t = made.node("scatter_elements", x, i, y, axis=1)  # reads as many places as there are
    made.output(y, z, t)
    after = read_unrepeated(made.bound)
    text = str(after.graph)
    assert "= divide(x, s)" in text
    assert "= multiply(broadcast_to, broadcast_to)" in text
    assert "= scatter_elements(x, broadcast_to_2, divide, axis=1)" in text
    given = {"x": np.ones((3, 4), "f4"), "s": np.array([[1.0], [2.0], [3.0]], "f4")}
    before, now = (interpret_graph(one, given, n=3) for one in (made.bound, after))
    for name in before:
        near(now[name], before[name])


def test_an_option_that_counts_axes_from_the_first_keeps_its_axis() -> None:
    made = Builder("axes")
    b, n = made.size("b", 1, 9), made.size("n", 1, 9)
    x = made.input("x", "float32", (Binary("*", b, n), 3, 4))
    y = made.node("softmax", made.node("reshape", x, [b, n, 3, 4]), axis=2)
    made.output(y)
    after = sink_reshapes(made.bound)
    assert [node.op for node in after.graph.nodes][-1] == "softmax"
    given = {"x": np.random.default_rng(0).random((6, 3, 4), "float32")}
    near(
        interpret_graph(after, given, b=2, n=3)[y.name],
        interpret_graph(made.bound, given, b=2, n=3)[y.name],
    )


def test_a_reshape_that_is_new_takes_no_name_of_a_later_value() -> None:
    made = Builder("names")
    x, w = made.input("x", "float32", (3, 4)), made.input("w", "float32", (3, 4))
    flat = made.node("reshape", x, [1, 12])
    apart = made.node("subtract", flat, made.node("mean", flat, axis=[1], keepdims=True))
    made.output(made.node("multiply", apart, made.node("reshape", w, [1, 12])))
    generator = np.random.default_rng(0)
    given = {name: generator.random((3, 4), "float32") for name in ("x", "w")}
    (found,) = interpret_graph(sink_reshapes(made.bound), given).values()
    (expected,) = interpret_graph(made.bound, given).values()
    near(found, expected)


def test_a_pass_that_changes_nothing_gives_the_same_object() -> None:
    made = Builder("plain")
    made.output(made.node("relu", made.input("x", "float32", (made.size("n"),))))
    bound = made.bound
    assert all(one(bound) is bound for one in DEFAULT)


@pytest.mark.every(2)
@pytest.mark.parametrize("before", [False, True])
def test_windows_side_by_side_are_rows_of_a_product(before: bool) -> None:
    """At images that end within a window, after what stores channels last or not."""
    made = Builder("patches")
    n, h = made.size("n", 0, 9), made.size("h", 3, 99)
    generator = np.random.default_rng(5)
    x = made.input("x", "float32", (n, 3, h, 11))
    if before:
        first = generator.standard_normal((3, 3, 3, 3), np.float32)
        x = made.node("conv2d", x, made.constant("v", first), padding=(1, 1))
    w = made.constant("w", generator.standard_normal((5, 3, 3, 2), np.float32))
    bias = made.constant("bias", generator.standard_normal(5, np.float32))
    y = made.node("conv2d", x, w, bias=bias, activation="relu", stride=(3, 2))
    made.output(y)
    after = convolution_to_matmul(made.bound)
    assert [node.op for node in after.graph.nodes].count("conv2d") == int(before)
    model = compile_graph(made.bound)
    for count, rows in ((2, 9), (1, 11), (3, 4), (0, 5)):
        given = {"x": generator.standard_normal((count, 3, rows, 11), np.float32)}
        expected = interpret_graph(made.bound, given)[y.name]
        assert expected.shape == (count, 5, rows // 3, 5)
        near(interpret_graph(after, given)[y.name], expected)
        near(model(given)[y.name], expected)


def test_windows_that_overlap_or_are_padded_stay_convolutions() -> None:
    made = Builder("kept")
    x, w = made.input("x", "float32", (2, 4, 8, 8)), made.input("w", "float32", (6, 4, 2, 2))
    narrow = made.input("narrow", "float32", (6, 2, 2, 2))
    for given in ({"stride": 1}, {"stride": 2, "padding": 1}, {"stride": 2, "dilation": 2}):
        made.output(made.node("conv2d", x, w, **given))
    made.output(made.node("conv2d", x, narrow, stride=2, groups=2))
    bound = made.bound
    assert convolution_to_matmul(bound) is bound


@pytest.mark.parametrize(
    ("op", "shape", "window"), [("conv1d", (2, 4, 9), (4,)), ("conv3d", (2, 2, 4, 5, 2), (2, 2, 1))]
)
def test_windows_along_a_line_and_in_a_volume_are_rows(
    op: str, shape: tuple[int, ...], window: tuple[int, ...]
) -> None:
    made, generator = Builder("patches"), np.random.default_rng(6)
    x = made.input("x", "float32", shape)
    w = made.constant("w", generator.standard_normal((3, shape[1], *window), np.float32))
    made.output(made.node(op, x, w, stride=window))
    after = convolution_to_matmul(made.bound)
    assert "dense" in [node.op for node in after.graph.nodes]
    given = {"x": generator.standard_normal(shape, np.float32)}
    near(interpret_graph(after, given)[op], interpret_graph(made.bound, given)[op])


@pytest.mark.parametrize("biased", [False, True])
def test_queries_keys_and_values_are_one_product(biased: bool) -> None:
    made, generator = Builder("heads"), np.random.default_rng(8)
    b, n = made.size("b", 0, 5), made.size("n", 0, 9)
    x = made.input("x", "float32", (b, n, 12))
    for name, width in (("q", 8), ("k", 8), ("v", 12)):
        w = made.constant(f"w{name}", generator.standard_normal((width, 12), np.float32))
        bias = generator.standard_normal(width, np.float32)
        options = {"bias": made.constant(f"b{name}", bias)} if biased else {}
        d = made.node("dense", x, w, transpose_w=True, **options)
        made.output(
            made.node("transpose", made.node("reshape", d, [b, n, 4, -1]), axes=(0, 2, 1, 3))
        )
    bound = made.bound
    after = merge_products(bound)
    assert [node.op for node in after.graph.nodes].count("dense") == 1
    model = compile_graph(bound)
    for sizes in ((2, 3), (1, 1), (0, 4), (5, 9)):
        given = {"x": generator.standard_normal((*sizes, 12), np.float32)}
        expected = interpret_graph(bound, given)
        found = interpret_graph(after, given), model(given)
        for name in expected:
            for one in found:
                near(one[name], expected[name])


def test_convolutions_of_one_image_that_views_read_are_one() -> None:
    """By what they read, not by their name; where each group of channels has weights of its own, they stay."""
    made, generator = Builder("windows"), np.random.default_rng(10)
    x = made.input("x", "float32", (made.size("n", 0, 9), 4, 5, 5))
    for name, channels in (("u", 3), ("v", 6)):
        w = made.constant(name, generator.standard_normal((channels, 4, 3, 3), np.float32))
        y = made.node("conv2d", x, w, padding=1)
        made.output(made.node("transpose", y, axes=(0, 2, 3, 1)))
    for name in "pq":
        w = made.constant(name, generator.standard_normal((4, 2, 3, 3), np.float32))
        y = made.node("conv2d", x, w, padding=1, groups=2)
        made.output(made.node("transpose", y, axes=(0, 2, 3, 1)))
    after = merge_products(made.bound)
    assert [node.op for node in after.graph.nodes].count("conv2d") == 3
    for n in (0, 1, 3):
        given = {"x": generator.standard_normal((n, 4, 5, 5), np.float32)}
        expected, found = interpret_graph(made.bound, given), interpret_graph(after, given)
        for name in expected:
            near(found[name], expected[name])


def test_a_product_that_is_followed_point_by_point_or_given_back_keeps_its_kernel() -> None:
    made = Builder("kept")
    x = made.input("x", "float32", (made.size("n", 1, 9), 4))
    u, v = (made.constant(name, np.ones((4, 6), "float32")) for name in "uv")
    gate, up = made.node("dense", x, u), made.node("dense", x, v)
    made.output(made.node("multiply", made.node("silu", gate), up), up)
    bound = made.bound
    assert merge_products(bound) is bound


def test_products_with_matrices_of_other_types_stay_apart() -> None:
    made, generator = Builder("types"), np.random.default_rng(9)
    n, b = made.size("n", 1, 64), made.size("b", 1, 8)
    x = made.input("x", "uint8", (b, n, 16))
    for name, dtype in (("u", "int8"), ("v", "uint8"), ("w", "int8")):
        held = generator.integers(0, 9, (16, 8)).astype(dtype)
        y = made.node("dense", x, made.constant(name, held))
        made.output(made.node("transpose", y, axes=(1, 0, 2)))
    given = {"x": generator.integers(0, 99, (2, 5, 16)).astype("uint8")}
    expected, found = interpret_graph(made.bound, given), compile_graph(made.bound)(given)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_nothing_goes_before_a_product_of_one_array_at_two_places() -> None:
    made = Builder("gram")
    rows = made.size("rows", 0, 9)
    halves = [made.input(name, "float32", (rows, 3, 16)) for name in "xy"]
    both = made.node("concat", halves, axis=1)
    made.output(made.node("matmul", both, both, transpose_b=True))
    model = compile_graph(made.bound, 1)
    assert [step.nodes for step in model.steps] == [("concat",), ("matmul",)]
    given = arrays(made.bound, 1, rows=3)
    (name,) = made.bound.graph.outputs
    near(model(given)[name], interpret_graph(made.bound, given)[name])


# Constants around a sum of products go into its constant operand; what a model computes stays what the interpreter
# says.


C = 19


def normed(
    lanes: int, each: int, channels: int = 4, biased: bool = False, stride: int = 1
) -> Bound:
    """A convolution, a batch norm and an activation, twice: the second one may be in groups of channels.

    each    channels of a group of the second one, which reads what the first stores channels last
    biased  whether convolutions have a bias of their own
    """
    made = Builder("normed")
    n, h, w = (made.size(name, low, 64) for name, low in (("n", 0), ("h", 1), ("w", 1)))
    x = made.input("x", "float32", (n, channels, h, w))
    layers = ((channels, 1, 1), (each, lanes // each, stride))
    for number, (inner, groups, step) in enumerate(layers):
        held = floats(f"w{number}", lanes, inner, 3, 3) / inner
        weights = made.constant(f"w{number}", held)
        bias = made.constant(f"c{number}", floats(f"c{number}", lanes)) if biased else None
        x = made.node("conv2d", x, weights, bias=bias, padding=1, groups=groups, stride=step)
        parts = [
            made.constant(f"{p}{number}", np.abs(floats(f"{p}{number}", lanes)) + np.float32(0.5))
            for p in "mvgb"
        ]
        x = made.node("relu", made.node("batchnorm", x, *parts))
    made.output(x)
    return made.bound


def agrees(model: Model, bound: Bound) -> None:
    """The model gives at images of any extents what the graph means."""
    (name,) = bound.graph.outputs
    for n, h, w in ((0, 5, 5), (1, 1, 1), (2, 3, 1), (3, 7, 8), (1, 9, 18)):
        given = arrays(bound, n + h, n=n, h=h, w=w)
        near(model(given)[name], interpret_graph(bound, given)[name])


@pytest.mark.every(3)
@pytest.mark.parametrize(("each", "biased"), [(C, False), (1, False), (1, True)])
def test_a_batch_norm_leaves_a_bias(each: int, biased: bool) -> None:
    bound = normed(C, each, biased=biased)
    model = compile_graph(bound, threads=1)
    for step in model.steps[-2:]:
        constants = [b.name for b in step.kernel.loops.buffers if b.kind is Kind.CONSTANT]
        assert [name.rpartition("_")[2] for name in constants] == ["scaled", "shift"]
    agrees(model, bound)


def test_kernels_of_one_code_have_constants_of_their_own() -> None:
    made = Builder("twice")
    x = made.input("x", "float32", (made.size("n", 0, 9), 8))
    for number in range(3):
        x = made.node("matmul", x, made.constant(f"w{number}", floats(f"w{number}", 8, 8)))
        x = made.node("multiply", x, made.constant(f"g{number}", floats(f"g{number}", 8)))
        x = made.node("relu", made.node("add", x, made.constant(f"b{number}", floats("b", 8))))
    made.output(x)
    model = compile_graph(made.bound, threads=1)
    assert {step.code for step in model.steps} == {0}
    given = arrays(made.bound, 3, n=7)
    near(model(given)[x.name], interpret_graph(made.bound, given)[x.name])


@pytest.mark.parametrize("extents", [(5,), ("n", 1)], ids=str)
def test_what_is_not_known_stays_outside(extents: tuple[Any, ...]) -> None:
    made = Builder("apart")
    n = made.size("n", 1, 9)
    x = made.input("x", "float32", (n, 8))
    g = made.input("g", "float32", tuple(n if extent == "n" else extent for extent in extents))
    y = made.node("matmul", x, made.constant("w", floats("w", 8, 5)))
    made.output(made.node("relu", made.node("multiply", y, g)))
    model = compile_graph(made.bound, threads=1)
    assert all("scaled" not in str(step.kernel.loops) for step in model.steps)
    given = arrays(made.bound, 3, n=7)
    for name, array in model(given).items():
        near(array, interpret_graph(made.bound, given)[name])


# Convolutions in groups of few channels: lanes run along the channels of all groups, and a batch norm goes into
# their weights.


def second(model: Model) -> Kernel:
    """The kernel of the second convolution."""
    return [step.kernel for step in model.steps if "conv2d" in step.nodes][1]


@pytest.mark.every(2)
@pytest.mark.parametrize(("channels", "each", "stride"), [(32, 4, 1), (24, 8, 2)])
def test_groups_of_few_channels_run_side_by_side(channels: int, each: int, stride: int) -> None:
    bound = normed(channels, each, channels, stride=stride)
    model = compile_graph(bound, threads=1)
    kernel = second(model)
    assert f"{each}*(a3//{each}) + r" in str(kernel.loops)
    assert not any(name.endswith("groups") for name in (b.name for b in kernel.loops.buffers))
    assert [name.rpartition("_")[2] for name in kernel.constants] == ["scaled", "shift"]
    assert "gather" not in kernel.source("llvm")
    agrees(model, bound)


@pytest.mark.slow
def test_groups_that_fill_vectors_stay_products() -> None:
    assert "@cover(" in str(second(compile_graph(normed(64, 16, 64), threads=1)).loops)
