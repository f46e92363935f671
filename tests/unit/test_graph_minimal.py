"""Sums over windows of three take fewer multiplications where that pays; what they give is that of the plain sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import slow

from tests.agree import agree, of_peer
from tests.compiled import floats
from tests.facade import (
    Bound,
    Builder,
    Model,
    Nest,
    Together,
    compile_graph,
    interpret_graph,
    numpy_dtype,
    parts_of,
)
from tests.graphs import arrays
from tests.machines import host_with_memories_of

DEEP, LANES = 40, 48


def windows(
    axes: int,
    least: int = 1,
    depth: int = DEEP,
    lanes: int = LANES,
    dtype: str = "float32",
    **options: Any,
) -> Bound:
    """A convolution, a factor and a bias of each channel, and an activation."""
    made = Builder("windows")
    sizes = [made.size(name, least, 64) for name in "hwd"[:axes]]
    x = made.input("x", dtype, (made.size("n", 0, 16), depth, *sizes))
    grouped = depth // options.get("groups", 1)
    window = (options.pop("window", 3),) * axes
    shapes = {"weights": (lanes, grouped, *window), "factor": (lanes, *(1,) * axes)}
    shapes["bias"] = shapes["factor"]
    weights, factor, bias = (
        made.constant(name, floats(name, *shape).astype(numpy_dtype(dtype)) / 4)
        for name, shape in shapes.items()
    )
    x = made.node(f"conv{axes}d", x, weights, **options)
    x = made.node("add", made.node("multiply", x, factor), bias)
    made.output(made.node("relu", x))
    return made.bound


def is_minimal(model: Model) -> bool:
    """Whether its last kernel sums over points of tiles."""
    return any(buffer.name.endswith("_products") for buffer in model.steps[-1].kernel.loops.buffers)


def agrees(bound: Bound, *sizes: dict[str, int], models: tuple[Model, ...]) -> None:
    """Models give what the graph means."""
    (name,) = bound.graph.outputs
    for at in sizes:
        given = arrays(bound, sum(at.values()), **at)
        wanted = np.asarray(interpret_graph(bound, given)[name])
        for one in models:
            agree(one(given)[name], of_peer(wanted))


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("padding", "threads"),
    [(1, 2), (0, 1), (((1, 0), (0, 2)), 1)],
    ids=["same, threads", "none", "uneven"],
)
def test_images_of_every_size_are_those_of_the_plain_sums(padding: Any, threads: int) -> None:
    least = 1 if padding == 1 else 3
    bound = windows(2, least, padding=padding)
    model, plain = compile_graph(bound, threads), compile_graph(bound, threads, distributive=False)
    assert is_minimal(model)
    assert not is_minimal(plain)
    said = "products distributed over sums, unless distributive=False: "
    assert [said in str(one.plan()) for one in (model, plain)] == [True, False]
    images = ((0, 3, 3), (1, least, least), (2, 3, 4), (1, 5, least), (3, 6, 7), (1, 9, 16))
    agrees(bound, *({"n": n, "h": h, "w": w} for n, h, w in images), models=(model, plain))


ROWS = ((1, 1), (2, 2), (1, 3), (3, 8), (1, 13))
CUT: dict[str, tuple[dict[str, Any], list[dict[str, int]]]] = {
    "four products for six of deep rows": (
        {"axes": 1, "depth": 96, "lanes": 96},
        [{"n": n, "h": h} for n, h in ROWS],
    ),
    "three axes": ({"axes": 3}, [{"n": 2, "h": 3, "w": 2, "d": 4}]),
    "doubles": ({"axes": 2, "dtype": "float64"}, [{"n": 2, "h": 5, "w": 6}]),
}


@pytest.mark.parametrize("what", [slow(what) if what == "three axes" else what for what in CUT])
def test_windows_are_cut_into_products_where_these_are_deep_enough(what: str) -> None:
    options, sizes = CUT[what]
    bound = windows(**options, padding=1)
    model = compile_graph(bound, threads=1)
    assert is_minimal(model)
    if what == "three axes":
        assert parts_of(model.steps[-1].kernel.schedule)
    agrees(bound, *sizes, models=(model,))


@pytest.mark.slow
def test_what_is_summed_is_no_less_exact() -> None:
    bound = windows(2, depth=64, lanes=64, padding=1)
    given = arrays(bound, 5, n=1, h=14, w=14)
    (name,) = bound.graph.outputs
    wide = windows(2, depth=64, lanes=64, dtype="float64", padding=1)
    wanted = interpret_graph(wide, {"x": given["x"].astype("float64")})[name]
    off = [
        np.abs(compile_graph(bound, 1, distributive=each)(given)[name] - wanted).max()
        for each in (True, False)
    ]
    assert off[0] <= off[1]


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "options",
    [
        {"depth": 8, "lanes": 8, "padding": 1},
        {"stride": 2, "padding": 1},
        {"dilation": 2, "padding": 2},
        {"window": 5, "padding": 2},
        {"groups": 4, "padding": 1},
        {"dtype": "bfloat16", "padding": 1},
    ],
    ids=["few channels", "stride", "dilation", "window", "groups", "small type"],
)
def test_what_would_gain_nothing_is_summed_as_it_is(options: dict[str, Any]) -> None:
    assert not is_minimal(compile_graph(windows(2, **options), threads=1))


@pytest.mark.slow
@pytest.mark.isa("avx512f")  # by its prices, whose vectors are half as many
def test_weights_that_no_cache_holds_pass_once_for_each_image() -> None:
    machine = host_with_memories_of("zen4")
    around = []
    for width in (48, 192):
        bound = windows(2, depth=width, lanes=width, padding=1)
        schedule = compile_graph(bound, 1, machine).steps[-1].kernel.schedule
        (images,) = (part for part in parts_of(schedule) if isinstance(part, Together))
        alone = [part.stage for part in images.parts if isinstance(part, Nest)]
        around.append(any(stage.endswith("_products") for stage in alone))
    assert around == [False, True]


def test_weights_whose_points_would_be_infinite_are_summed_as_they_are() -> None:
    bound = windows(2, padding=1)
    weights = np.array(bound.arrays["weights"])
    weights[0] = 3e38
    factor = np.ones_like(bound.arrays["factor"])
    large = Bound(bound.graph, {**bound.arrays, "weights": weights, "factor": factor})
    assert not is_minimal(compile_graph(large, threads=1))


def test_data_that_is_guarded_in_part_is_read_within_its_bounds() -> None:
    made = Builder("both")
    n, h = made.size("n", 1, 9), made.size("h", 1, 9)
    x = made.input("x", "float32", (n, 96, h))
    y = made.node(
        "conv1d",
        made.node("pad", x, (0, 0, 1), (0, 0, 1)),
        made.constant("w", floats("w", 96, 96, 3)),
    )
    made.output(y)
    model = compile_graph(made.bound, threads=1)
    agrees(made.bound, *({"n": 2, "h": h} for h in (1, 2, 5, 8)), models=(model,))


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("value", "before"), [(np.inf, ""), (3e38, ""), (1e36, "sigmoid"), (np.nan, "sigmoid")]
)
def test_what_leaves_the_finite_numbers_is_summed_as_it_is(value: float, before: str) -> None:
    made = Builder("around")
    n, h = made.size("n", 0, 9), made.size("h", 1, 9)
    x = made.input("x", "float32", (n, DEEP, h, h))
    data = made.node("multiply", x, made.node(before, x)) if before else x
    weights = made.constant("w", floats("w", LANES, DEEP, 3, 3))
    y = made.node("conv2d", data, weights, padding=1)
    made.output(made.node("sigmoid", y))
    model, plain = compile_graph(made.bound, 1), compile_graph(made.bound, 1, distributive=False)
    assert is_minimal(model)
    (name,) = made.bound.graph.outputs
    given = arrays(made.bound, 3, n=2, h=6)
    for at in ((0, 1, 2, 3), (1, 0, 0, 0)):
        given["x"][at] = value
        np.testing.assert_array_equal(model(given)[name], plain(given)[name])
        given["x"][at] = 0.0
    assert not np.array_equal(model(given)[name], plain(given)[name])  # by fewer products again
    assert model.at_known_sizes(given["x"]) is not None
    given["x"][1, 0, 0, 0] = value
    assert model.at_known_sizes(given["x"]) is None
    np.testing.assert_array_equal(model(given)[name], plain(given)[name])


def test_a_largest_element_is_sought_along_memory() -> None:
    made = Builder("reduced")
    n, h = made.size("n", 0, 9), made.size("h", 1, 9)
    x = made.input("x", "float32", (n, 8, h, h))
    made.output(made.node("max", x, (3, 1, 2)))
    model = compile_graph(made.bound, 1)
    assert len(model.steps[-1].kernel.loops.buffers[0].shape) == 2
    for size in (1, 2, 7):
        given = arrays(made.bound, size, n=3, h=size)
        (name,) = made.bound.graph.outputs
        np.testing.assert_array_equal(model(given)[name], given["x"].max((1, 2, 3)))
