"""Products of numbers that bytes stand for: what the pass makes computes the same, and multiplies and moves bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.graph import Builder, Ref
from offcut.graph.graph import Bound
from offcut.graph.interpret import interpret_graph
from offcut.graph.passes import eliminate_dead_code, integer_products
from tests.agree import agree, of_peer

Array = np.ndarray[Any, Any]
ENDS = {"uint8": (0, 255), "int8": (-128, 127)}


def drawn(dtype: str, *shape: int) -> Array:
    """Bytes, the ends of the type among them."""
    low, high = ENDS[dtype]
    array = np.random.default_rng(sum(shape)).integers(low, high + 1, shape)
    array.flat[:2] = low, high
    return array.astype(dtype)


def both(
    made: Builder, feed: dict[str, Array], **sizes: int
) -> tuple[Bound, dict[str, Array], dict[str, Array]]:
    """Return the graph after the pass, and what both graphs give in the reference interpreter."""
    after = eliminate_dead_code(integer_products(made.bound))
    return after, interpret_graph(made.bound, feed, **sizes), interpret_graph(after, feed, **sizes)


def operands(bound: Bound, *ops: str) -> set[str]:
    """Return the types of what operators of these names read as their first two operands."""
    nodes = [node for node in bound.graph.nodes if node.op in ops]
    assert nodes
    return {bound.graph.values[name].dtype for node in nodes for name in node.operands[:2]}


def number(made: Builder, dtype: str, count: int) -> int:
    return ENDS[dtype][1]


def unknown(made: Builder, dtype: str, count: int) -> Ref:
    return made.input(made.fresh("z"), "int32", ())  # type: ignore[no-any-return]


def several(made: Builder, dtype: str, count: int) -> Ref:
    low, high = ENDS[dtype]
    return made.constant(made.fresh("z"), np.resize([low, high, 3], count).astype(np.int32))


DTYPES = st.sampled_from([*ENDS])


@settings(max_examples=30)
@given(
    a=DTYPES,
    b=DTYPES,
    rows=st.sampled_from([None, number, unknown, several]),
    columns=st.sampled_from([None, number, several]),
    rank=st.sampled_from([2, 3]),
)
def test_matrices_of_integers(a: str, b: str, rows: Any, columns: Any, rank: int) -> None:
    made = Builder()
    lead = (made.size("n", 0, 9),) if rank == 3 else ()
    x = made.input("x", a, (*lead, 5, 7))
    w = made.constant("w", drawn(b, 7, 4))
    wide = [made.node("cast", one, "int32") for one in (x, w)]
    for place, (zero, dtype, count) in enumerate(((rows, a, 5), (columns, b, 4))):
        if zero is not None:
            point = zero(made, dtype, count)
            if isinstance(point, Ref) and made.shape(point):
                point = made.node("reshape", point, (count, 1) if place == 0 else (1, count))
            wide[place] = made.node("subtract", wide[place], point)
    made.output(made.node("dense", *wide))
    feed = {"x": drawn(a, *(3,) * len(lead), 5, 7)}
    feed |= {one.name: np.int32(200) for one in made.inputs[1:]}
    after, before, found = both(made, feed, **({"n": 3} if lead else {}))
    for one, other in zip(before.values(), found.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert operands(after, "dense") <= set(ENDS)


def dequantized(made: Builder, x: Ref, scale: Any, zero: Any, axis: int = -1) -> Ref:
    found: Ref = made.node("dequantize", x, scale, zero, axis=axis)
    return found


@settings(max_examples=20)
@given(
    DTYPES,
    st.sampled_from([1, 2, 6]),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.sampled_from([0, 3]),
)
def test_convolutions(dtype: str, groups: int, window: int, odd: bool, zero: int) -> None:
    """Of channels with scales of their own, of an image whose zero point is an end of its type, of weights that have one or none."""
    made = Builder()
    x = made.input("x", dtype, (made.size("n", 1, 9), 6, made.size("h", 3, 20), 7))
    w = made.constant("w", drawn("int8", 6, 6 // groups, window, window))
    scale = made.constant("t", np.linspace(0.01, 0.02, 6, dtype="f4"))
    image, weights = dequantized(made, x, 0.5, ENDS[dtype][0]), dequantized(made, w, scale, zero, 0)
    bias = made.constant("b", np.linspace(-9, 9, 6, dtype="f4"))
    options: dict[str, Any] = {"stride": (2, 1), "dilation": (1, 2), "padding": ((0, 2), (1, 2))}
    options = options if odd else {"padding": window // 2}
    y = made.node("conv2d", image, weights, bias=bias, groups=groups, **options)
    made.output(made.node("quantize", made.node("relu", y), 0.7, 5, dtype="uint8"), y)
    after, before, found = both(made, {"x": drawn(dtype, 2, 6, 5, 7)}, n=2, h=5)
    for one, other in zip(before.values(), found.values(), strict=True):
        if one.dtype == np.uint8:
            assert np.abs(one.astype(int) - other.astype(int)).max() <= 1
        else:
            agree(one, of_peer(other))
    taken = zero == 0 or groups != 2
    assert (operands(after, "conv2d") <= set(ENDS)) == taken


def test_a_bias_in_units_of_the_sums_is_added_to_them() -> None:
    made = Builder()
    x, w = made.input("x", "uint8", (3, 8)), made.constant("w", drawn("int8", 8, 4))
    b = made.constant("b", np.array([-(2**31), 2**31 - 1, 7, 0], np.int32))
    bias = dequantized(made, b, 0.5 * 0.25, 0)
    real = made.node(
        "dense", dequantized(made, x, 0.5, 0), dequantized(made, w, 0.25, 0), bias=bias
    )
    made.output(made.node("quantize", real, 3.0, 1, dtype="int8"))
    after = eliminate_dead_code(integer_products(made.bound))
    (product,) = [node for node in after.graph.nodes if node.op == "dense"]
    assert product.option("bias") == Ref("b")
    multiplied = [node for node in after.graph.nodes if node.op == "multiply"]
    assert [node.arguments[1] for node in multiplied] == [float(np.float32(0.125) / np.float32(3))]


MOVES: dict[str, Callable[[Builder, Ref], Ref]] = {
    "transpose": lambda g, x: g.node("transpose", x, axes=(0, 2, 3, 1)),
    "reshape": lambda g, x: g.node("reshape", x, (12, 36)),
    "slice": lambda g, x: g.node("slice", x, 1, 1, 5, 2),
    "pad": lambda g, x: g.node("pad", x, (0, 0, 1, 2), (0, 0, 0, 1)),
    "edge": lambda g, x: g.node("pad", x, (0, 0, 1, 2), (0, 0, 0, 1), mode="edge"),
    "max_pool2d": lambda g, x: g.node("max_pool2d", x, (2, 3), padding=1),
    "take": lambda g, x: g.node("take", x, g.constant("i", np.array([0, 0, 3, -1])), axis=2),
    "concat": lambda g, x: g.node("concat", (x, x), axis=1),
    "flip": lambda g, x: g.node("flip", x, axes=3),
    "repeat": lambda g, x: g.node("repeat", x, (1, 1, 2, 1)),
    "broadcast_to": lambda g, x: g.node("broadcast_to", x, (2, 2, 6, 6, 6)),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("dtype", ENDS)
def test_what_moves_numbers_moves_bytes(move: str, dtype: str) -> None:
    """And to quantize what was dequantized alike gives the bytes."""
    made = Builder()
    x, zero = made.input("x", dtype, (2, 6, 6, 6)), ENDS[dtype][0] + 7
    y = MOVES[move](made, dequantized(made, x, 0.25, zero))
    made.output(made.node("quantize", y, 0.25, zero, dtype=dtype))
    after, before, found = both(made, {"x": drawn(dtype, 2, 6, 6, 6)})
    np.testing.assert_array_equal(*before.values(), *found.values())
    assert "float32" not in {value.dtype for value in after.graph.values.values()}


def test_numbers_side_by_side_are_quantized_each_by_itself() -> None:
    made = Builder()
    x, y = (made.input(name, "uint8", (2, 3)) for name in "xy")
    parts = dequantized(made, x, 0.5, 3), dequantized(made, y, 0.25, 200)
    made.output(made.node("quantize", made.node("concat", parts, axis=1), 0.5, 3, dtype="uint8"))
    after, before, found = both(made, {"x": drawn("uint8", 2, 3), "y": drawn("uint8", 2, 3)})
    np.testing.assert_array_equal(*before.values(), *found.values())
    (joined,) = [node for node in after.graph.nodes if node.op == "concat"]
    assert {after.graph.values[name].dtype for name in joined.operands} == {"uint8"}
    assert "x" in joined.operands


def test_what_is_read_twice_or_given_back_stays() -> None:
    """Numbers that a product, a sum and a caller read; sums that are quantized twice."""
    made = Builder()
    x, w = made.input("x", "int8", (3, 5)), made.constant("w", drawn("int8", 5, 5))
    real = dequantized(made, x, 0.5, -3)
    y = made.node("dense", real, dequantized(made, w, 0.25, 0))
    scales = [made.node("quantize", y, scale, 0, dtype="int8") for scale in (2.0, 4.0)]
    made.output(real, made.node("add", y, real), *scales)
    after, before, found = both(made, {"x": drawn("int8", 3, 5)})
    for one, other in zip(before.values(), found.values(), strict=True):
        assert np.abs(one.astype(float) - other.astype(float)).max() <= 1
    assert operands(after, "dense") == {"int8"}
    assert list(before) == list(found)


def test_parameters_of_several_places_stay_with_what_picks_by_order() -> None:
    """Of channels with scales of their own the greatest number is not that of the greatest byte; a transposition carries them along."""
    made = Builder()
    x = made.input("x", "uint8", (2, 3, 4, 4))
    scale = made.constant("s", np.array([1, -2, 3], "f4"))
    real = dequantized(made, x, scale, 9, 1)
    turned = made.node("transpose", real, axes=(0, 2, 3, 1))
    made.output(
        made.node("max_pool2d", real, (2, 2)), made.node("quantize", turned, 1.0, 0, dtype="int8")
    )
    after, before, found = both(made, {"x": drawn("uint8", 2, 3, 4, 4)})
    for one, other in zip(before.values(), found.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    dtypes = {node.op: after.graph.values[node.operands[0]].dtype for node in after.graph.nodes}
    assert dtypes["max_pool2d"] == "float32"
    assert dtypes["transpose"] == "uint8"


def test_a_graph_without_bytes_is_the_same_object() -> None:
    made = Builder()
    x = made.input("x", "float32", (2, 3))
    made.output(made.node("quantize", x, 1.0, 0, dtype="int8"))
    bound = Builder().bound
    assert integer_products(bound) is bound
    assert [node.op for node in integer_products(made.bound).graph.nodes] == ["quantize"]
