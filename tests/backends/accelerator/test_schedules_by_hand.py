"""Schedules by hand on machines of queues: the accelerator's listing of the TVM paper, in int8."""

from __future__ import annotations

import numpy as np
import pytest
from accelerators import bytes_of, clipped
from conftest import rejection

import offcut as oc
from offcut import Microkernel, Tensor
from tests.facade import HandSchedule


def block_of(words: int) -> Microkernel:
    """The paper's instruction in bytes: body, reset, update."""
    a, b = (oc.placeholder((words, words), "int8", name=name) for name in "ab")
    r = oc.reduce_axis(words, name="r")
    block = oc.compute(
        (words, words),
        lambda i, j: oc.sum(a[r, i].astype("int32") * b[r, j].astype("int32"), axis=r),
        name="block",
    )

    def lower(inputs, outputs):  # type: ignore[no-untyped-def]
        one, other = (operand.access_ptr("r") for operand in inputs)
        into = outputs[0].access_ptr("w")
        return (
            oc.hardware_intrinsic(f"gemm{words}", one, other, into),
            oc.hardware_intrinsic(f"fill_zero{words}", into),
            oc.hardware_intrinsic(f"fused_gemm{words}_add", one, other, into),
        )

    return oc.decl_tensor_intrin(block, lower)


def listing(columns: int, rows: int, depth: int) -> tuple[list[Tensor], Tensor, HandSchedule]:
    """The paper's schedule of ``clip((A^T @ B) >> 6)``."""
    a = oc.placeholder((depth, columns), "int8", name="A")
    b = oc.placeholder((depth, rows), "int8", name="B")
    k = oc.reduce_axis(depth, name="k")
    c = oc.compute(
        (columns, rows),
        lambda y, x: oc.sum(a[k, y].astype("int32") * b[k, x].astype("int32"), axis=k),
        name="C",
    )
    result = oc.compute(
        (columns, rows),
        lambda y, x: oc.maximum(oc.minimum(c[y, x] // 64, 127), -128).astype("int8"),
        name="Y",
    )
    s = oc.create_schedule(result)
    cl = s.cache_write(c, "accumulators")
    al, bl = s.cache_read(a, "inputs", [cl]), s.cache_read(b, "weights", [cl])
    s[c].compute_inline()
    _, xo, _, _ = s[result].tile("y", "x", 16, 16)
    s[cl].compute_at(s[result], xo)
    ko, ki = s[cl].split("k", 16)
    s[cl].reorder(ko, "y", "x", ki)
    s[al].compute_at(s[cl], ko)
    s[bl].compute_at(s[cl], ko)
    s[cl].tensorize("y", block_of(16))
    return [a, b], result, s


@pytest.mark.every(2)
@pytest.mark.parametrize("machine", ["vta", "vta-osdi18"])
def test_the_listing_of_the_paper_becomes_instructions_that_run(machine: str) -> None:
    inputs, result, s = listing(64, 48, 80)
    kernel = oc.compile(result, inputs=inputs, schedule=s.schedule, target=machine)
    rng = np.random.default_rng(0)
    a, b = bytes_of(rng, (80, 64)), bytes_of(rng, (80, 48))
    expected = clipped(a.T.astype(np.int64) @ b.astype(np.int64), 6)
    np.testing.assert_array_equal(kernel(a, b), expected)
    run = kernel.timeline()
    assert not run.races
    assert not run.unwritten
    assert not any(run.left.values())
    again = oc.compile(oc.parse(kernel.source("loops")), target=machine)
    np.testing.assert_array_equal(again(a, b), expected)


def tiled(n: object) -> tuple[list[Tensor], Tensor, HandSchedule]:
    """A dense layer of any batch in tiles of 8 rows and 16 columns."""
    a = oc.placeholder((n, 80), "int8", name="A")
    w = oc.placeholder((80, 48), "int8", name="W")
    k = oc.reduce_axis(80, name="k")
    total = oc.compute(
        (n, 48),
        lambda i, j: oc.sum(a[i, k].astype("int32") * w[k, j].astype("int32"), axis=k),
        name="S",
    )
    result = oc.compute((n, 48), lambda i, j: oc.maximum(total[i, j], 0).astype("int8"), name="Y")
    s = oc.create_schedule(result)
    sl = s.cache_write(total, "accumulators")
    al, wl = s.cache_read(a, "inputs", [sl]), s.cache_read(w, "weights", [sl])
    s[total].compute_inline()
    _, at, _, _ = s[result].tile("i", "j", 8, 16)
    s[sl].compute_at(s[result], at, 2)
    ko, ki = s[sl].split("k", 32)
    s[sl].reorder(ko, "i", "j", ki)
    s[al].compute_at(s[sl], ko, 2)
    s[wl].compute_at(s[sl], ko, 2)
    return [a, w], result, s


def test_tiles_by_hand_run_at_every_size() -> None:
    inputs, result, s = tiled(oc.dim("n", min=1, max=64))
    assert "at AL SL.ko depth 2" in str(s.schedule)
    assert oc.Schedule.parse(str(s.schedule)) == s.schedule
    rng = np.random.default_rng(1)
    w = bytes_of(rng, (80, 48))
    kernel = oc.compile(
        result, inputs=inputs, constants={"W": w}, schedule=s.schedule, target="vta"
    )
    for n in (1, 7, 8, 9, 29):
        a = bytes_of(rng, (n, 80))
        wide = np.maximum(a.astype(np.int64) @ w.astype(np.int64), 0)
        np.testing.assert_array_equal(kernel(a), wide.astype(np.int8))
        run = kernel.timeline(n=n)
        assert not run.races
        assert not any(run.left.values())


def test_what_lies_in_no_memory_of_the_machine_is_refused() -> None:
    inputs, result, s = tiled(32)
    text = str(s.schedule).replace("as AL in inputs", "as AL in shared").replace(" depth 2", "")
    with rejection("""\
TargetError: compile: cannot keep AL in shared
  at       line 3: stage read A for SL as AL in shared
  because  vta has no memory of that name
  help     micro-ops, inputs, weights, accumulators, outputs"""):
        oc.compile(result, inputs=inputs, schedule=oc.Schedule.parse(text), target="vta")
