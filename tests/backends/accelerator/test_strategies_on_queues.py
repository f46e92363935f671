"""Staged tiles of every strategy run on a machine of queues: heights and counts that are no sets of the sizes, under conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from accelerators import bytes_of, clipped
from conftest import slow
from staged import Staging

import offcut as oc
from offcut.core.program import Program

SOURCE = """\
program dense
size n in 1:513
input A: int8[n, 64]
input W: int8[64, 64]
output C: int8[n, 64]
local S: int32[n, 64] @scope(accumulators)
local Y1: int32[n, 64] @scope(accumulators)
local Y2: int32[n, 64] @scope(accumulators)
local Y3: int32[n, 64] @scope(accumulators)
for i in 0:n
  for j in 0:64
    S[i, j] = 0
    for k in 0:64
      S[i, j] += int32(A[i, k]) * int32(W[k, j])
    Y1[i, j] = S[i, j] // 64
    Y2[i, j] = min(Y1[i, j], 127)
    Y3[i, j] = max(Y2[i, j], -128)
    C[i, j] = int8(Y3[i, j])
"""
SIZES = (1, 17, 128, 129)


def staged(tail: str, tile: int) -> Program:
    cut = oc.partition(oc.parse(SOURCE), tile={"i": tile}, tail=tail).loops
    program = Staging(("A", "W"), (), ("S", "Y1", "Y2", "Y3")).of(cut)
    scopes = {"A_in": "inputs", "W_in": "weights"}
    buffers = tuple(replace(b, scope=scopes.get(b.name, b.scope)) for b in program.buffers)
    return replace(program, buffers=buffers)


def check(program: Program) -> None:
    kernel, rng = oc.compile(program, target="vta"), np.random.default_rng(0)
    w = bytes_of(rng, (64, 64))
    for n in SIZES:
        a = bytes_of(rng, (n, 64))
        expected = clipped(a.astype(np.int64) @ w.astype(np.int64), 6)
        np.testing.assert_array_equal(kernel(a, w), expected)
    assert not kernel.timeline(n=33).races


@pytest.mark.parametrize(
    ("tail", "tile"),
    [
        *(("balance", 128), ("shift", 16)),
        *(slow(*one) for one in (("even", 16), ("mix", 128), ("cut", 16), ("residue", 16))),
    ],
)
def test_staged_tiles_of_a_strategy_run(tail: str, tile: int) -> None:
    check(staged(tail, tile))


@pytest.mark.parametrize(
    ("tail", "columns"),
    [("residue", 16), slow("balance", 32)],
)
def test_a_cut_of_rows_and_of_columns_that_end_inside_of_a_word(tail: str, columns: int) -> None:
    text = SOURCE.replace("W: int8[64, 64]", "W: int8[64, 45]").replace("[n, 64]", "[n, 45]")
    text = text.replace("A: int8[n, 45]", "A: int8[n, 64]").replace("j in 0:64", "j in 0:45")
    tiles, tails = {"i": 16, "j": columns}, {"i": tail, "j": "pad"}
    made = oc.partition(oc.parse(text), tile=tiles, tail=tails, target="vta")
    rng = np.random.default_rng(0)
    w = bytes_of(rng, (64, 45))
    for n in SIZES[:2]:
        a = bytes_of(rng, (n, 64))
        expected = clipped(a.astype(np.int64) @ w.astype(np.int64), 6)
        np.testing.assert_array_equal(made.run({"A": a, "W": w}, n=n), expected)


def convolution() -> tuple[list[oc.Tensor], oc.Tensor]:
    x = oc.placeholder((ROWS + 2, COLUMNS + 2, 16), "int8", name="X")
    w = oc.placeholder((3, 3, 16, 16), "int8", name="W")
    r, s, c = (
        oc.reduce_axis(extent, name=name) for extent, name in ((3, "r"), (3, "s"), (16, "c"))
    )
    total = oc.compute(
        (ROWS, COLUMNS, 16),
        lambda y, x_, o: oc.sum(wide(x[y + r, x_ + s, c]) * wide(w[r, s, c, o]), axis=[r, s, c]),
        name="S",
    )
    return [x, w], oc.compute(total.shape, lambda y, x_, o: narrow(total[y, x_, o]), name="Y")


def perceptron() -> tuple[list[oc.Tensor], oc.Tensor]:
    x = oc.placeholder((ROWS, 16), "int8", name="X")
    weights = [oc.placeholder((16, 16), "int8", name=name) for name in "VW"]
    value = x
    for name, w in zip(("H", "Y"), weights, strict=True):
        value = layer(value, w, name)
    return [x, *weights], value


def layer(x: oc.Tensor, w: oc.Tensor, name: str) -> oc.Tensor:
    k = oc.reduce_axis(16, name=f"{name}_k")
    total = oc.compute(
        x.shape, lambda i, j: oc.sum(wide(x[i, k]) * wide(w[k, j]), axis=k), name=f"{name}_S"
    )
    return oc.compute(x.shape, lambda i, j: narrow(total[i, j]), name=name)


def wide(value: Any) -> Any:
    return value.astype("int32")


def narrow(value: Any) -> Any:
    return oc.maximum(oc.minimum(value // 64, 127), -128).astype("int8")


def test_an_array_that_is_multiplied_and_added_has_a_copy_for_each() -> None:
    x, w = oc.placeholder((ROWS, 32), "int8", name="X"), oc.placeholder((32, 32), "int8", name="W")
    k = oc.reduce_axis(32, name="k")
    s = oc.compute(x.shape, lambda i, j: oc.sum(wide(x[i, k]) * wide(w[k, j]), axis=k), name="S")
    y = oc.compute(
        x.shape,
        lambda i, j: oc.maximum(oc.minimum(s[i, j] // 64 + wide(x[i, j]), 127), -128).astype(
            "int8"
        ),
        name="Y",
    )
    kernel, rng = (
        oc.compile(y, inputs=[x, w], target="vta", strategy="balance"),
        np.random.default_rng(0),
    )
    for n in (1, 19, 20):
        a, b = bytes_of(rng, (n, 32)), bytes_of(rng, (32, 32))
        expected = np.clip((a.astype(np.int64) @ b.astype(np.int64) >> 6) + a, -128, 127)
        np.testing.assert_array_equal(kernel(a, b), expected)


ROWS, COLUMNS = oc.dim("n", min=1, max=20), oc.dim("m", min=1, max=20)


@pytest.mark.parametrize(
    ("made", "tile", "tail", "machine"),
    [
        (convolution, {"Y.y": 3, "Y.x_": 3}, "shift", "gemmini"),
        slow(perceptron, {"Y.i": 8}, "balance", "vta"),
        slow(convolution, {"Y.y": 3, "Y.x_": 3}, "even", "vta"),
    ],
)
def test_tiles_along_two_axes_and_of_two_stages_in_windows_are_proved(
    made: Any, tile: dict[str, int], tail: str, machine: str
) -> None:
    inputs, result = made()
    cut = oc.partition(result, inputs=inputs, tile=tile, tail=tail, target=machine)
    rng, sizes = np.random.default_rng(0), {"n": 7, "m": 4} if made is convolution else {"n": 7}
    shapes = [(9, 6, 16), (3, 3, 16, 16)] if made is convolution else [(7, 16), (16, 16), (16, 16)]
    arrays = {one.name: bytes_of(rng, shape) for one, shape in zip(inputs, shapes, strict=True)}
    expected = oc.create_schedule(result, inputs).run(arrays, **sizes)
    np.testing.assert_array_equal(cut.run(arrays, **sizes), expected)


@pytest.mark.parametrize("strategy", ["even", *map(slow, ("shift", "version", "residue"))])
def test_tiles_of_half_the_rows_run_in_every_strategy(strategy: str) -> None:
    """How many rows and how many tiles there are, halves and their elevenths, are known of each other."""
    n = oc.dim("n", max=200)
    x = oc.placeholder((1, n, 14, 64), "int8", name="X")
    y = oc.ops.max_pool2d(x, 3, 2, 1, layout="NHWC", name="Y")
    kernel = oc.compile(y, inputs=[x], target="vta", strategy=strategy)
    on_cpu = oc.compile(y, inputs=[x])
    for size in (0, 1, 2, 21, 22, 23, 45, 71):
        pixels = bytes_of(np.random.default_rng(size), (1, size, 14, 64))
        np.testing.assert_array_equal(kernel(pixels), on_cpu(pixels))
