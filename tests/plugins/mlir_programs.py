"""Loop nests as MLIR text, and what each computes by numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser


def context() -> Context:
    made = Context()
    for name, dialect in get_all_dialects().items():
        made.register_dialect(name, dialect)
    return made


def parsed(text: str) -> ModuleOp:
    return Parser(context(), text).parse_module()


def nest(name: str, arguments: str, body: str) -> str:
    """A function of loops, behind the constants 0 to 3 as indices and 0 as a float."""
    lines = [f"func.func @{name}({arguments}) {{"]
    lines += [f"  %c{n} = arith.constant {n} : index" for n in range(4)]
    return "\n".join([*lines, f"  %zero = arith.constant 0.0 : f32{body}", "  return", "}", ""])


Rng = np.random.Generator


@dataclass(frozen=True)
class Case:
    """A program, arguments for a size, and what numpy says of the arrays after it.

    tile   what to cut
    tails  by which strategies
    """

    text: str
    arguments: Callable[[int, Rng], list[Any]]
    expected: Callable[..., list[np.ndarray]]
    tile: str
    tails: tuple[str, ...] = ("cut",)


def floats(rng: Rng, *shape: int) -> np.ndarray:
    """Small integers as floats: sums of them are exact."""
    return rng.integers(-8, 9, shape).astype(np.float32)


MATMUL = nest(
    "matmul", "%A: memref<?x?xf32>, %B: memref<?x?xf32>, %C: memref<?x?xf32>, %alpha: f32", """
  %m = memref.dim %A, %c0 : memref<?x?xf32>
  %k = memref.dim %A, %c1 : memref<?x?xf32>
  %n = memref.dim %B, %c1 : memref<?x?xf32>
  scf.for %i = %c0 to %m step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %s = scf.for %p = %c0 to %k step %c1 iter_args(%acc = %zero) -> (f32) {
        %a = memref.load %A[%i, %p] : memref<?x?xf32>
        %b = memref.load %B[%p, %j] : memref<?x?xf32>
        %ab = arith.mulf %a, %b : f32
        %next = arith.addf %acc, %ab : f32
        scf.yield %next : f32
      }
      %r = arith.mulf %s, %alpha : f32
      memref.store %r, %C[%i, %j] : memref<?x?xf32>
    }
  }"""
)  # fmt: skip

# The extent is an argument, which may be negative; the memrefs' own are asked for nowhere.
AXPY = nest(
    "axpy", "%n: index, %X: memref<?xf32>, %Y: memref<?xf32>, %a: f32", """
  scf.for %i = %c0 to %n step %c1 {
    %x = memref.load %X[%i] : memref<?xf32>
    %y = memref.load %Y[%i] : memref<?xf32>
    %ax = arith.mulf %a, %x : f32
    %s = arith.addf %y, %ax : f32
    memref.store %s, %Y[%i] : memref<?xf32>
  }"""
)  # fmt: skip

BITS = nest(
    "bits", "%n: index, %X: memref<?xi32>, %S: memref<?xi32>", """
  %mask = arith.constant 1023 : i32
  scf.for %i = %c0 to %n step %c1 {
    %x = memref.load %X[%i] : memref<?xi32>
    %s = memref.load %S[%i] : memref<?xi32>
    %low = arith.andi %x, %mask : i32
    %up = arith.shli %low, %s : i32
    %down = arith.shrsi %x, %s : i32
    %both = arith.xori %up, %down : i32
    %all = arith.ori %both, %s : i32
    memref.store %all, %X[%i] : memref<?xi32>
  }"""
)  # fmt: skip

# A slice: both ends are arguments, and the start may be negative where nothing runs.
SLICE = nest(
    "slice", "%lo: index, %hi: index, %X: memref<?xi32>", """
  %two = arith.constant 2 : i32
  scf.for %i = %lo to %hi step %c1 {
    %x = memref.load %X[%i] : memref<?xi32>
    %y = arith.muli %x, %two : i32
    memref.store %y, %X[%i] : memref<?xi32>
  }"""
)  # fmt: skip

# A padded sum of three: conditions at both ends, one of them compared without sign.
PADDED = nest(
    "padded", "%A: memref<?xf32>, %B: memref<?xf32>", """
  %n = memref.dim %A, %c0 : memref<?xf32>
  scf.for %i = %c0 to %n step %c1 {
    memref.store %zero, %B[%i] : memref<?xf32>
    scf.for %k = %c0 to %c3 step %c1 {
      %ik = arith.addi %i, %k : index
      %x = arith.subi %ik, %c1 : index
      %inside = arith.cmpi ult, %x, %n : index
      scf.if %inside {
        %a = memref.load %A[%x] : memref<?xf32>
        %b = memref.load %B[%i] : memref<?xf32>
        %s = arith.addf %b, %a : f32
        memref.store %s, %B[%i] : memref<?xf32>
      }
    }
  }"""
)  # fmt: skip

# In place: each iteration reads what the one before wrote; every second element, from 1 on.
SWEEP = nest(
    "sweep", "%A: memref<?xf32>", """
  %n = memref.dim %A, %c0 : memref<?xf32>
  scf.for %i = %c1 to %n step %c2 {
    %before = arith.subi %i, %c1 : index
    %a = memref.load %A[%before] : memref<?xf32>
    %b = memref.load %A[%i] : memref<?xf32>
    %s = arith.subf %a, %b : f32
    memref.store %s, %A[%i] : memref<?xf32>
  }"""
)  # fmt: skip

# The lower triangle's row maxima, clipped by a condition that gives a value, in a buffer of its own.
TRIANGLE = nest(
    "triangle", "%A: memref<?x?xf32>, %B: memref<?xf32>, %top: f32", """
  %n = memref.dim %A, %c0 : memref<?x?xf32>
  scf.for %i = %c0 to %n step %c1 {
    %T = memref.alloc() : memref<2xf32>
    %first = memref.load %A[%i, %c0] : memref<?x?xf32>
    memref.store %first, %T[%c1] : memref<2xf32>
    %end = arith.addi %i, %c1 : index
    scf.for %j = %c0 to %end step %c1 {
      %a = memref.load %A[%i, %j] : memref<?x?xf32>
      %t = memref.load %T[%c1] : memref<2xf32>
      %m = arith.maximumf %t, %a : f32
      memref.store %m, %T[%c1] : memref<2xf32>
    }
    %most = memref.load %T[%c1] : memref<2xf32>
    %high = arith.cmpf ogt, %most, %top : f32
    %clipped = scf.if %high -> (f32) {
      memref.store %top, %T[%c0] : memref<2xf32>
      scf.yield %top : f32
    } else {
      scf.yield %most : f32
    }
    memref.store %clipped, %B[%i] : memref<?xf32>
    memref.dealloc %T : memref<2xf32>
  }"""
)  # fmt: skip

# What a loop hands out: a sum and the last element, in one pass; the two change places each time.
CARRIED = nest(
    "carried", "%A: memref<?xf32>, %R: memref<2xf32>", """
  %n = memref.dim %A, %c0 : memref<?xf32>
  %p, %q = scf.for %i = %c0 to %n step %c1 iter_args(%u = %zero, %v = %zero) -> (f32, f32) {
    %a = memref.load %A[%i] : memref<?xf32>
    %s = arith.addf %u, %a : f32
    scf.yield %v, %s : f32, f32
  }
  memref.store %p, %R[%c0] : memref<2xf32>
  memref.store %q, %R[%c1] : memref<2xf32>"""
)  # fmt: skip

# Two values that a loop carries, one of them an integer.
ARGMAX = nest(
    "argmax", "%A: memref<?x?xf32>, %M: memref<?xf32>, %K: memref<?xi64>", """
  %n = memref.dim %A, %c0 : memref<?x?xf32>
  %m = memref.dim %A, %c1 : memref<?x?xf32>
  %zi = arith.constant 0 : i64
  scf.for %i = %c0 to %n step %c1 {
    %a0 = memref.load %A[%i, %c0] : memref<?x?xf32>
    %b, %k = scf.for %j = %c0 to %m step %c1 iter_args(%best = %a0, %at = %zi) -> (f32, i64) {
      %a = memref.load %A[%i, %j] : memref<?x?xf32>
      %g = arith.cmpf ogt, %a, %best : f32
      %nb = arith.select %g, %a, %best : f32
      %ji = arith.index_cast %j : index to i64
      %nk = arith.select %g, %ji, %at : i64
      scf.yield %nb, %nk : f32, i64
    }
    memref.store %b, %M[%i] : memref<?xf32>
    memref.store %k, %K[%i] : memref<?xi64>
  }"""
)  # fmt: skip

# A value that is read before memory changes, and used after.
STALE = nest(
    "stale", "%A: memref<?xf32>, %B: memref<?x?xf32>", """
  %n = memref.dim %A, %c0 : memref<?xf32>
  %m = memref.dim %B, %c1 : memref<?x?xf32>
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %A[%i] : memref<?xf32>
    scf.for %j = %c0 to %m step %c1 {
      %b = memref.load %B[%i, %j] : memref<?x?xf32>
      %x = memref.load %A[%i] : memref<?xf32>
      %s = arith.addf %b, %x : f32
      memref.store %s, %A[%i] : memref<?xf32>
      %t = arith.mulf %a, %b : f32
      memref.store %t, %B[%i, %j] : memref<?x?xf32>
    }
    %y = memref.load %A[%i] : memref<?xf32>
    %u = arith.subf %y, %a : f32
    memref.store %u, %A[%i] : memref<?xf32>
  }"""
)  # fmt: skip

# Where it adds up, memory says.
HISTOGRAM = nest(
    "histogram", "%A: memref<?xi32>, %C: memref<16xi64>", """
  %one = arith.constant 1 : i64
  %n = memref.dim %A, %c0 : memref<?xi32>
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %A[%i] : memref<?xi32>
    %x = arith.index_cast %a : i32 to index
    %c = memref.load %C[%x] : memref<16xi64>
    %d = arith.addi %c, %one : i64
    memref.store %d, %C[%x] : memref<16xi64>
  }"""
)  # fmt: skip

# The extent of one memref runs over three; the smaller of two indices by a select.
CLAMPED = nest(
    "clamped", "%A: memref<?xf32>, %B: memref<?xf32>, %C: memref<?xf32>", """
  %n = memref.dim %A, %c0 : memref<?xf32>
  %m = memref.dim %B, %c0 : memref<?xf32>
  scf.for %i = %c0 to %n step %c1 {
    %q = arith.subi %m, %c1 : index
    %lt = arith.cmpi slt, %i, %q : index
    %p = arith.select %lt, %i, %q : index
    %a = memref.load %A[%i] : memref<?xf32>
    %b = memref.load %B[%p] : memref<?xf32>
    %s = arith.addf %a, %b : f32
    memref.store %s, %C[%i] : memref<?xf32>
  }"""
)  # fmt: skip

# Blocks that somebody cut already; the columns of the result are asked for nowhere.
BLOCKED = nest(
    "blocked", "%A: memref<?x?xf32>, %B: memref<?x?xf32>", """
  %n = memref.dim %A, %c0 : memref<?x?xf32>
  %m = memref.dim %A, %c1 : memref<?x?xf32>
  scf.for %ii = %c0 to %n step %c3 {
    %end = arith.addi %ii, %c3 : index
    %lt = arith.cmpi slt, %end, %n : index
    %hi = arith.select %lt, %end, %n : index
    scf.for %i = %ii to %hi step %c1 {
      scf.for %j = %c0 to %m step %c1 {
        %a = memref.load %A[%i, %j] : memref<?x?xf32>
        memref.store %a, %B[%j, %i] : memref<?x?xf32>
      }
    }
  }"""
)  # fmt: skip


def _padded(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    wide = np.pad(a, 1)
    return [a, wide[:-2] + wide[1:-1] + wide[2:]]


def _sweep(a: np.ndarray) -> list[np.ndarray]:
    a = a.copy()
    for i in range(1, len(a), 2):
        a[i] = a[i - 1] - a[i]
    return [a]


def _triangle(a: np.ndarray, b: np.ndarray, top: float) -> list[np.ndarray]:
    rows = [min(a[i, : i + 1].max(), top) for i in range(len(a))]
    return [a, np.array(rows, np.float32)]


def _carried(a: np.ndarray, r: np.ndarray) -> list[np.ndarray]:
    u = v = np.float32(0)
    for x in a:
        u, v = v, u + x
    return [a, np.array([u, v], np.float32)]


def _argmax(a: np.ndarray, m: np.ndarray, k: np.ndarray) -> list[np.ndarray]:
    return [a, a.max(1) if len(a) else m, a.argmax(1) if len(a) else k]


def _stale(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    return [b.sum(1), a[:, None] * b]


def _histogram(a: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    return [a, c + np.bincount(a, minlength=16)]


def _clamped(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    return [a, b, a + b[np.minimum(np.arange(len(a)), len(b) - 1)]]


CASES = {
    "matmul": Case(
        MATMUL,
        lambda n, rng: [floats(rng, n, 3), floats(rng, 3, n + 1), floats(rng, n, n + 1), 2.0],
        lambda a, b, c, alpha: [a, b, (a @ b) * np.float32(alpha)],
        "i=4,j=4",
        ("cut", "mask"),
    ),
    "axpy": Case(
        AXPY,
        lambda n, rng: [n, floats(rng, n), floats(rng, n), 3.0],
        lambda n, x, y, a: [x, y + np.float32(a) * x],
        "i=4",
        ("cut", "mask", "balance", "ladder", "pad", "version"),
    ),
    "bits": Case(
        BITS,
        lambda n, rng: [n, *(rng.integers(0, 9, (2, n)).astype(np.int32) * [[999], [1]])],
        lambda n, x, s: [((x & 1023) << s) ^ (x >> s) | s, s],
        "i=4",
        ("cut", "mask"),
    ),
    "padded": Case(
        PADDED,
        lambda n, rng: [floats(rng, n), floats(rng, n)],
        _padded,
        "i=4",
        ("cut", "mask"),
    ),
    "sweep": Case(SWEEP, lambda n, rng: [floats(rng, n)], _sweep, "i=4"),
    "triangle": Case(
        TRIANGLE, lambda n, rng: [floats(rng, n, n), floats(rng, n), 5.0], _triangle, "i=4"
    ),
    "carried": Case(CARRIED, lambda n, rng: [floats(rng, n), floats(rng, 2)], _carried, "i=4"),
    "argmax": Case(
        ARGMAX,
        lambda n, rng: [floats(rng, n, n + 2), floats(rng, n), np.zeros(n, np.int64)],
        _argmax,
        "i=4,j=4",
    ),
    "stale": Case(STALE, lambda n, rng: [floats(rng, n), floats(rng, n, n + 1)], _stale, "i=4,j=4"),
    "histogram": Case(
        HISTOGRAM,
        lambda n, rng: [rng.integers(0, 16, n).astype(np.int32), np.zeros(16, np.int64)],
        _histogram,
        "i=4",
        ("cut", "balance"),
    ),
    "clamped": Case(
        CLAMPED,
        lambda n, rng: [floats(rng, n), floats(rng, n // 2 + 1), floats(rng, n)],
        _clamped,
        "i=4",
        ("cut", "pad"),
    ),
    "blocked": Case(
        BLOCKED,
        lambda n, rng: [floats(rng, n, n + 1), floats(rng, n + 1, n)],
        lambda a, b: [a, a.T],
        "j=4",
        ("cut", "mask"),
    ),
}
