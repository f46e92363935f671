"""Kernels of bytes against numpy in exact integers: windows, rows of any length, copies in another order, weights beside floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut import ops
from offcut.graph import Builder, compile_graph

Array = np.ndarray[Any, Any]


def drawn(dtype: str, *shape: int) -> Array:
    """Bytes of a type, the same for a shape each time."""
    info = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(info.min, info.max + 1, shape).astype(dtype)


@pytest.mark.every(4)
@pytest.mark.parametrize("machine", [None, "avx2"])
@pytest.mark.parametrize("channels", [1, 3, 5, 17])
@pytest.mark.parametrize("window", [(1, 1), (2, 3)])
def test_convolutions_of_bytes_are_exact(
    machine: str | None, channels: int, window: tuple[int, int]
) -> None:
    """Every term at the end of its type, in half of the image: what 16 bits would saturate at."""
    made = Builder()
    n, w = made.size("n", 1, 9), made.size("w", 7, 40)
    x = made.input("x", "uint8", (n, channels, 9, w))
    weights = drawn("int8", 18, channels, *window)
    weights[:4] = np.array([127, -128, 127, -1])[:, None, None, None]
    wide = [made.node("cast", one, "int32") for one in (x, made.constant("w0", weights))]
    wide[0] = made.node("subtract", wide[0], 255)
    made.output(made.node("conv2d", *wide, padding=((1, 0), (2, 1)), stride=(1, 2)))
    target = oc.target("cpu") if machine is None else oc.target("cpu", machine=machine)
    model = compile_graph(made.bound, target=target)
    for count, width in ((1, 7), (2, 14), (1, 33)):
        image = drawn("uint8", count, channels, 9, width)
        image[..., : width // 2] = 255
        padded = np.pad(image.astype(np.int64) - 255, ((0, 0), (0, 0), (1, 0), (2, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=(2, 3))[
            :, :, :, ::2
        ]
        expected = np.einsum("nchwij,ocij->nohw", windows, weights.astype(np.int64))
        np.testing.assert_array_equal(model(image), expected)


@pytest.mark.every(3)
@pytest.mark.parametrize("machine", [None, "avx2"])
@pytest.mark.parametrize("k", [1, 3, 16, 33, 100])
def test_weights_of_bytes_beside_floats_are_widened(machine: str | None, k: int) -> None:
    """Within what rounding may part them, at rows of every tile; and the bits of a row are those that it has alone."""
    n = oc.dim("n", min=0)
    x = oc.placeholder((n, k), "float32", name="x")
    w = oc.placeholder((k, 37), "int8", name="w")
    y = ops.dense(x, w)
    target = oc.target("cpu") if machine is None else oc.target("cpu", machine=machine)
    weights = drawn("int8", k, 37)
    kernel = oc.compile(y, inputs=[x, w], constants={"w": weights}, target=target)
    rows = np.random.default_rng(k).standard_normal((47, k)).astype(np.float32)
    exact = rows.astype(np.float64) @ weights
    bound = (
        (k + 2) * 2.0**-24 * (np.abs(rows).astype(np.float64) @ np.abs(weights.astype(np.float64)))
    )
    for count in (0, 1, 5, 14, 15, 47):
        found = kernel(rows[:count])
        assert (np.abs(found - exact[:count]) <= bound[:count]).all()
        np.testing.assert_array_equal(found, kernel(rows)[:count])


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (16, 16), (17, 31), (64, 5)])
def test_copies_in_another_order_at_any_size(dtype: str, shape: tuple[int, int]) -> None:
    made = Builder()
    x = made.input("x", dtype, (made.size("n", 1), shape[0], 3, shape[1]))
    around = made.node("pad", x, (0, 0, 1, 2), (0, 0, 0, 1), value=7)
    made.output(made.node("transpose", around, axes=(0, 2, 3, 1)))
    model = compile_graph(made.bound)
    for count in (1, 2):
        image = (
            np.arange(count * shape[0] * 3 * shape[1])
            .reshape(count, shape[0], 3, shape[1])
            .astype(dtype)
        )
        padded = np.pad(image, ((0, 0), (0, 0), (1, 0), (2, 1)), constant_values=7)
        np.testing.assert_array_equal(model(image), padded.transpose(0, 2, 3, 1))


def test_numbers_that_are_cut_off_become_integers_as_others_do() -> None:
    """The ends and what is beyond, NaN and infinities, at both sides of rounding to even."""
    special = [
        np.nan,
        np.inf,
        -np.inf,
        0.5,
        1.5,
        -0.5,
        -1.5,
        127.5,
        128,
        -128.5,
        -129,
        65536,
        1e30,
        -1e30,
    ]
    x = oc.placeholder((oc.dim("n"),), "float32", name="x")
    values = np.array(special * 3, np.float32)
    for dtype, zero in (("uint8", 0), ("uint8", 255), ("int8", -128), ("int8", 127), ("int8", 3)):
        info = np.iinfo(dtype)
        whole = np.rint(
            np.nan_to_num(values.astype(np.float64) / 0.5, nan=-1e9, posinf=1e9, neginf=-1e9)
        )
        expected = np.clip(whole + zero, info.min, info.max).astype(dtype)
        kernel = oc.compile(ops.quantize(x, 0.5, zero, dtype), inputs=[x])
        np.testing.assert_array_equal(kernel(values), expected)
