"""Schedules told to `offcut-partition`: what the module that comes back computes, by xDSL's interpreter beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("xdsl", reason="the extra mlir is not installed")


from xdsl.utils.exceptions import PassFailedException

import offcut as oc
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
from tests.plugins.mlir_programs import AXPY, context, floats, parsed

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
FAST = ("shift of i", "lanes", "choose", "cover", "a grid")


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
    "split C.i 4 as io ii\nsplit C.j 4 as jo ji\norder C io jo ii ji\nbind C.io blockIdx.x\nbind C.ii threadIdx.y\n"
    "bind C.ji threadIdx.x\nat acc C.ii\nbind acc.j threadIdx.x": (
        "line 6: bind C.ii threadIdx.y",
        "threads of it meet inside of its loop, where not all threads of a block come",
    ),
    "bind * lane": (
        "line 2: bind * lane",
        "a target decides so, and offcut-partition has none",
    ),
    "bind acc.p thread": (
        "line 2: bind acc.p thread",
        "with n = 1, m = 1, acc[i, j] += A[i, p] * B[p, j] at i = 0, j = 0, p = 0 writes what the instance "
        "i = 0, j = 0, p = 1 overwrites",
    ),
    "cover acc at j nothing": (
        "line 2: cover acc at j nothing",
        "it is not a declared instruction",
    ),
}


@pytest.mark.parametrize("text", REFUSALS)
def test_what_the_module_cannot_say_is_refused_at_its_line(text: str) -> None:
    at, because = REFUSALS[text]
    assert refusal(text).splitlines()[1:3] == [f"  at       {at}", f"  because  {because}"]


FMA = next(k for k in oc.target("cpu").microkernels() if k.name.startswith("fma_float32"))
TARGETS = {
    (
        "cpu",
        FMA.name,
    ): f"{FMA.name} takes B as panels(0, 1, {FMA.operands['B'].layout.multiple[1]}), and a call of offcut-partition says strides",
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
    lines[-3] = "  } {offcut.schedule = 3 : i64}"
    with pytest.raises(PassFailedException, match="it is not text"):
        OffcutPartition().apply(context(), parsed("\n".join(lines)))


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


# Each kind of nest beside the product: bits and functions on vectors, a value that a nest gives back, a covered stencil, a negative extent.
BITS = """
func.func @bits(%X: memref<?xi32>, %S: memref<?xi32>, %F: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %mask = arith.constant 1023 : i32
  %n = memref.dim %X, %c0 : memref<?xi32>
  scf.for %i = %c0 to %n step %c1 {
    %x = memref.load %X[%i] : memref<?xi32>
    %s = memref.load %S[%i] : memref<?xi32>
    %f = memref.load %F[%i] : memref<?xf32>
    %low = arith.andi %x, %mask : i32
    %both = arith.xori %low, %s : i32
    memref.store %both, %X[%i] : memref<?xi32>
    %g = math.absf %f : f32
    memref.store %g, %F[%i] : memref<?xf32>
  }
  return
}
"""
TOTAL = """
func.func @total(%A: memref<?xf32>, %R: memref<1xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %A, %c0 : memref<?xf32>
  %p = scf.for %i = %c0 to %n step %c1 iter_args(%u = %zero) -> (f32) {
    %a = memref.load %A[%i] : memref<?xf32>
    %s = arith.addf %u, %a : f32
    scf.yield %s : f32
  }
  memref.store %p, %R[%c0] : memref<1xf32>
  return
}
"""
STENCIL = """
func.func @stencil(%A: memref<?xf32>, %W: memref<3xf32>, %C: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %C, %c0 : memref<?xf32>
  scf.for %x = %c0 to %n step %c1 {
    memref.store %zero, %C[%x] : memref<?xf32>
    scf.for %r = %c0 to %c3 step %c1 {
      %xr = arith.addi %x, %r : index
      %a = memref.load %A[%xr] : memref<?xf32>
      %w = memref.load %W[%r] : memref<3xf32>
      %c = memref.load %C[%x] : memref<?xf32>
      %aw = arith.mulf %a, %w : f32
      %s = arith.addf %c, %aw : f32
      memref.store %s, %C[%x] : memref<?xf32>
    }
  }
  return
}
"""


def stencil(a: np.ndarray, w: np.ndarray, c: np.ndarray) -> None:
    for x in range(len(c)):
        c[x] = (a[x : x + 3] * w).sum()


def _stencil(a: np.ndarray, w: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    c = np.empty_like(c)
    stencil(a, w, c)
    return [a, w, c]


def declare_stencil() -> None:
    x, w = oc.placeholder((6,), "float32", name="x"), oc.placeholder((3,), "float32", name="w")
    k = oc.reduce_axis(3, name="k")
    z = oc.compute((4,), lambda i: oc.sum(x[i + k] * w[k], axis=k), name="z")
    oc.decl_tensor_intrin(
        z,
        lambda ins, outs: oc.hardware_intrinsic(
            "stencil4", ins[0].access_ptr("r"), ins[1].access_ptr("r"), outs[0].access_ptr("w")
        ),
    )


OTHERS = {
    "bits on vectors": (
        BITS,
        "schedule bits\nsplit X.i 4 as io ii\nsplit F.i 4 as io ii\nbind X.ii lane\nbind F.ii lane",
        lambda n, rng: [*rng.integers(0, 9999, (2, n)).astype(np.int32), floats(rng, n)],
        lambda x, s, f: [(x & 1023) ^ s, s, abs(f)],
    ),
    "a value that a nest gives back": (
        TOTAL,
        "schedule total\nsplit u.i 4 as io ii\nrfactor u.io as part\nbind part.io thread",
        lambda n, rng: [floats(rng, n), np.zeros(1, np.float32)],
        lambda a, r: [a, a.sum(keepdims=True)],
    ),
    "a covered stencil": (
        STENCIL,
        "schedule stencil\nsplit C.x pad 4 as xo xi\nstage read A for C as AL in near\nat AL C.xo depth 2\n"
        "cover C at xi stencil4",
        lambda n, rng: [floats(rng, n + 2), floats(rng, 3), np.full(n, np.nan, np.float32)],
        _stencil,
    ),
    "a halo that a grid shares": (
        STENCIL,
        "schedule stencil\nsplit C.x mask 4 as xo xi\nstage read A for C as AL\nat AL C.xo\n"
        "bind C.xo blockIdx.x\nbind C.xi threadIdx.x\nbind AL.a0 threadIdx.x",
        lambda n, rng: [floats(rng, n + 2), floats(rng, 3), np.full(n, np.nan, np.float32)],
        _stencil,
    ),
    "an extent that may be negative": (
        AXPY,
        "schedule axpy\nsplit Y.i mask 4 as io ii\nbind Y.io blockIdx.x\nbind Y.ii threadIdx.x",
        lambda n, rng: [n - 1, floats(rng, 20), floats(rng, 20), 3.0],
        lambda n, x, y, a: [x, np.where(np.arange(20) < n, y + np.float32(a) * x, y)],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_nests_compute_what_they_did(name: str) -> None:
    source, text, arguments, expected = OTHERS[name]
    declare_stencil()
    module = parsed(str(scheduled(text, source)))
    for n in SIZES:
        given = arguments(n, np.random.default_rng(n))
        found = run(module, given, {"stencil4": stencil}, seed=n)
        arrays_ = [one for one in found if isinstance(one, np.ndarray)]
        for array, wanted in zip(arrays_, expected(*given), strict=True):
            np.testing.assert_array_equal(array, wanted, err_msg=f"n = {n}")
