"""Schedules told to `offcut-partition`: what the module that comes back computes, by xDSL's interpreter beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("xdsl", reason="the extra mlir is not installed")


from xdsl.utils.exceptions import PassFailedException

from offcut.plugins.mlir import OffcutPartition
from tests.plugins.host_schedules import (
    COVERS,
    DECISIONS,
    INTRINSICS,
    KERNELS,
    SIZES,
    SUMS,
    TAILS,
    arrays,
    declare,
)
from tests.plugins.mlir_interpreter import run
from tests.plugins.mlir_programs import context, parsed

PRODUCT = """
func.func @product(%A: memref<?x6xf32>, %B: memref<6x?xf32>, %C: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %n = memref.dim %A, %c0 : memref<?x6xf32>
  %m = memref.dim %B, %c1 : memref<6x?xf32>
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %m step %c1 {
      %s = scf.for %p = %c0 to %c6 step %c1 iter_args(%acc = %zero) -> (f32) {
        %a = memref.load %A[%i, %p] : memref<?x6xf32>
        %b = memref.load %B[%p, %j] : memref<6x?xf32>
        %ab = arith.mulf %a, %b : f32
        %next = arith.addf %acc, %ab : f32
        scf.yield %next : f32
      }
      %r = arith.mulf %s, %two : f32
      memref.store %r, %C[%i, %j] : memref<?x?xf32>
    }
  }
  return
}
"""
TEXTS = TAILS | SUMS | DECISIONS | COVERS | KERNELS


def scheduled(text: str, source: str = PRODUCT, **options: str) -> object:
    module = parsed(source)
    OffcutPartition(schedule=text, **options).apply(context(), module)
    module.verify()
    return module


def check(text: str, sizes: tuple[int, ...] = SIZES) -> str:
    module = parsed(str(scheduled("schedule product\n" + text.replace("{n}", "n"))))
    for n in sizes:
        a, b, c = arrays(n, n + 1)
        found = run(module, [a, b, c], INTRINSICS, seed=n)
        np.testing.assert_array_equal(found[2], 2 * (a @ b), err_msg=f"n = {n}")
    return str(module)


# One of each kind; all of them at all sizes are slow.
FAST = ("shift of i", "levels", "stage read", "lanes", "choose", "cover", "a grid")


@pytest.mark.parametrize("name", FAST)
def test_what_comes_back_computes_the_product(name: str) -> None:
    declare()
    check(TEXTS[name], (0, 1, 5, 7))


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_what_comes_back_computes_the_product_at_all_sizes(name: str) -> None:
    declare()
    check(TEXTS[name])


def refusal(text: str, source: str = PRODUCT, **options: str) -> str:
    """The words after the pass's name."""
    module = parsed(source)
    before = str(module)
    with pytest.raises(PassFailedException) as refused:
        OffcutPartition(schedule="schedule product\n" + text, **options).apply(context(), module)
    assert str(module) == before
    return str(refused.value).partition('\n"builtin.module"')[0]


GRID = "bind C.i blockIdx.x\n"
REFUSALS = {
    "bind C.j warp": (
        "line 2: bind C.j warp",
        "offcut-partition has no warp that runs a loop: thread, lane, unroll, blockIdx.x, blockIdx.y, "
        "blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z",
    ),
    "bind C.i lane": (
        "line 2: bind C.i lane",
        "it runs a loop whose extent is a number, and none of the pieces of this loop has one",
    ),
    "split C.i 4 as io ii\nbind C.ii lane": (
        "line 3: bind C.ii lane",
        "vectors of MLIR load and store elements that lie beside each other, and no statement has such",
    ),
    "bind C.i thread\nbind C.j thread": (
        "line 3: bind C.j thread",
        "another loop around is run by threads already",
    ),
    GRID + "bind C.j thread": (
        "line 3: bind C.j thread",
        "threads of the processor run no loop inside of a grid",
    ),
    GRID + "bind C.j blockIdx.x": (
        "line 3: bind C.j blockIdx.x",
        "a loop around it is run by blockIdx.x already",
    ),
    "bind C.i threadIdx.x\nbind C.j blockIdx.x": (
        "line 2: bind C.i threadIdx.x",
        "it stands around a loop over blockIdx.x",
    ),
    GRID + "at acc C.i": (
        "line 3: at acc C.i",
        "nothing bounds its extent m, and an array inside of a kernel has a number of elements",
    ),
    "split C.i 4 as io ii\nat acc C.io\nbind C.io blockIdx.x\nbind C.ii threadIdx.x\nbind acc.j threadIdx.y": (
        "line 3: at acc C.io",
        "nothing bounds its extent m, and an array inside of a kernel has a number of elements",
    ),
    "mark lanes": (
        "line 2: mark lanes",
        "a target decides so, and offcut-partition has none",
    ),
    "bind acc.p thread": (
        "line 2: bind acc.p thread",
        "with n = 1, m = 1, acc[i, j] += A[i, p] * B[p, j] at i = 0, j = 0, p = 0 writes what the instance "
        "i = 0, j = 0, p = 1 overwrites",
    ),
    "cover acc at j nothing": ("line 2: cover acc at j nothing", "it is no declared instruction"),
}


@pytest.mark.parametrize("text", REFUSALS)
def test_what_the_module_cannot_say_is_refused_at_its_line(text: str) -> None:
    at, because = REFUSALS[text]
    assert refusal(text).splitlines()[1:3] == [f"  at       {at}", f"  because  {because}"]


TARGETS = {
    (
        "cpu",
        "fma_float32_avx512",
    ): "fma_float32_avx512 takes B as panels(0, 1, 16), and a call of offcut-partition says strides",
    ("vta", "gemm_1x16x16"): "term: its elements are float32, and those of gemm_reset int32",
}


@pytest.mark.parametrize(("target", "name"), TARGETS)
def test_a_microkernel_of_a_target_is_judged(target: str, name: str) -> None:
    words = refusal(f"cover acc at j {name}", target=target).splitlines()
    assert words[1:3] == [
        f"  at       line 2: cover acc at j {name}",
        f"  because  {TARGETS[target, name]}",
    ]


NOT_TAKEN = {
    "a stage that is not there": (
        "split D.i 4 as io ii",
        {},
        "cannot find the nest of schedule product",
    ),
    "beside tiles": ("bind C.i thread", {"tile": "i=4"}, "cannot take schedule='schedule'"),
    "no decision": ("splt C.i 4 as io ii", {}, "cannot read a schedule"),
    "twice": ("separate 2\nseparate 2", {}, "cannot separate conditions twice"),
    "no target": ("bind C.i thread", {"target": "nowhere"}, "cannot plan for 'nowhere'"),
}


@pytest.mark.parametrize("what", NOT_TAKEN)
def test_a_schedule_that_is_none_of_the_nest_is_refused(what: str) -> None:
    text, options, words = NOT_TAKEN[what]
    assert refusal(text, **options).partition(": ")[2].startswith(words)


def test_a_loop_may_carry_its_schedule_and_an_option_has_no_line_breaks() -> None:
    cut = "schedule product\\nsplit C.i 4 as io ii\\nbind C.ii unroll"
    told = str(scheduled(cut))
    lines = PRODUCT.splitlines()
    lines[-3] = f'  }} {{offcut.schedule = "{cut}"}}'
    module = parsed("\n".join(lines))
    OffcutPartition().apply(context(), module)
    assert str(module) == told != str(parsed(PRODUCT))


def test_lanes_that_add_to_one_element_are_a_reduction() -> None:
    rows = """
func.func @rows(%A: memref<?x8xf32>, %R: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %n = memref.dim %A, %c0 : memref<?x8xf32>
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %c8 step %c1 {
      %a = memref.load %A[%i, %j] : memref<?x8xf32>
      %r = memref.load %R[%i] : memref<?xf32>
      %s = arith.addf %r, %a : f32
      memref.store %s, %R[%i] : memref<?xf32>
    }
  }
  return
}
"""
    module = scheduled("schedule rows\nbind R.j lane", rows)
    assert "vector.reduction <add>" in str(module)
    a = np.arange(24, dtype=np.float32).reshape(3, 8)
    found = run(parsed(str(module)), [a, np.ones(3, np.float32)])
    np.testing.assert_array_equal(found[1], 1 + a.sum(1))
