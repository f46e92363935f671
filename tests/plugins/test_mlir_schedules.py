"""Schedules told to `offcut-partition`: what the module that comes back computes, by xDSL's interpreter beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("xdsl", reason="the extra mlir is not installed")


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
