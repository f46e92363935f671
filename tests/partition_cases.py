"""Nests that other partitioners' tests and defect reports name, and what must hold once they are cut.

A case says how it is cut, how many copies of its statements the cut may make, and how many of
these a condition may still guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import offcut as oc
from offcut import Program
from offcut.ir import For, If, Select, Stmt, Store, Tile, blocks, walk

Array = npt.NDArray[Any]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Shape:
    """What the emitted program looks like, at most.

    copies      stores in the text of the program
    conditions  those of them whose instances ask a condition: an `if` with no loop between, the
                `where` of a tile, a select
    """

    copies: int
    conditions: int = 0


@dataclass(frozen=True)
class Case:
    """One nest.

    text       the loop program
    reference  from its arrays (and sizes, where it asks for them) to its result
    sizes      those to run at
    tile       how it is cut; empty: only its conditions are divided
    shape      what must hold of the emitted program
    because    why a condition stays, in words that the plan says
    """

    text: str
    reference: Callable[..., Array]
    shape: Shape
    sizes: tuple[Sizes, ...] = ({},)
    tile: Mapping[str, int] = field(default_factory=dict)
    tail: str = "cut"
    because: str = ""

    @property
    def program(self) -> Program:
        """The loop program."""
        return oc.parse(self.text)

    def expected(self, given: Mapping[str, Array], sizes: Sizes) -> Array:
        """The result in numpy."""
        asked = self.reference.__code__.co_varnames[: self.reference.__code__.co_argcount]
        known: dict[str, Any] = {**sizes, **given}
        return self.reference(**{name: known[name] for name in asked})


def stores(body: tuple[Stmt, ...], guarded: bool = False) -> Iterator[tuple[Store, bool]]:
    """Every store of `body`, and whether each of its instances asks a condition."""
    for stmt in body:
        match stmt:
            case Store():
                yield stmt, guarded or any(isinstance(node, Select) for node in walk(stmt.value))
            case For():
                yield from stores(stmt.body)
            case Tile():
                yield from stores(stmt.body, stmt.where is not None)
            case _:
                for block in blocks(stmt):
                    yield from stores(block, guarded or isinstance(stmt, If))


def measured(program: Program) -> Shape:
    """The copies and the conditions of an emitted program."""
    found = list(stores(program.body))
    return Shape(len(found), sum(guarded for _, guarded in found))


def at(*values: int) -> tuple[Sizes, ...]:
    """Sizes n of these values."""
    return tuple({"n": value} for value in values)


EDGES = at(0, 1, 2, 3, 4, 5, 8, 13)

BASIC = """\
program basic
size n in 0:4097
input A: int32[n]
output B: int32[n]
for io in 0:(n + 3)//4
  for ii in 0:4
    if 4*io + ii < n
      B[4*io + ii] = A[4*io + ii] * 3
"""

CONST_LOOP = """\
program const_loop
input A: int32[21]
output B: int32[21]
for io in 0:6
  for ii in 0:4
    if 4*io + ii < 21
      B[4*io + ii] = A[4*io + ii] * 3
"""

MULTI_LOOP = """\
program multi_loop
size n in 0:65
size m in 0:65
input A: int32[n]
output B: int32[4, n, m]
for i in 0:4
  for j in 0:n
    for k in 0:m
      if 8*i + j + k < n
        B[i, j, k] = A[8*i + j + k]
      else
        B[i, j, k] = 0 - 1
"""

PRODUCT_OF_SIZES = """\
program product_of_sizes
size n in 0:65
size m in 0:65
input A: int32[n]
output B: int32[4, n, m]
for i in 0:4
  for j in 0:n
    for k in 0:m
      if i*m + j + k < n
        B[i, j, k] = A[j]
      else
        B[i, j, k] = 0 - 1
"""


def spread(A: Array, n: int, m: int, step: int) -> Array:
    i, j, k = np.ogrid[:4, :n, :m]
    where = step * i + j + k
    value = A[np.clip(where, 0, n - 1)] if n else np.zeros((4, 0, m), np.int32)
    return np.where(where < n, value, -1)


def spread_plain(A: Array, n: int, m: int) -> Array:
    i, j, k = np.ogrid[:4, :n, :m]
    return np.where(i * m + j + k < n, A[None, :, None], -1)


CONDITION_EQ = """\
program condition_eq
input A: int32[10]
output B: int32[10]
for i in 0:10
  B[i] = where(i == 5, A[i] * 2, A[i] + 1)
"""

CONDITION_EQ_IF = """\
program condition_eq_if
size n in 0:4097
input A: int32[n]
output B: int32[n]
for i in 0:n
  if i == 5
    B[i] = A[i] * 2
  else
    B[i] = A[i] + 1
"""

ONE_D_POOL = """\
program one_d_pool
input A: int32[16]
output B: int32[16]
for ow in 0:16
  B[ow] = 0 - 1000
  for kw in 0:3
    B[ow] max= where(ow + kw >= 1 and ow + kw < 17, A[ow + kw - 1], 0 - 1000)
"""

CONCAT = """\
program concat
input A: int32[64]
input B: int32[32]
input C: int32[32]
output D: int32[128]
for i in 0:128
  D[i] = where(i < 64, A[i], where(i < 96, B[i - 64], C[i - 96]))
"""

CONCAT_SYMBOLIC = """\
program concat_symbolic
size n in 0:4097
size m in 0:4097
input A: int32[n]
input B: int32[m]
output D: int32[n + m]
for i in 0:n + m
  D[i] = where(i < n, A[i], B[i - n])
"""

NESTED_POINT = """\
program nested_point
input A: int32[5, 5]
output B: int32[5, 5]
for i in 0:5
  for j in 0:5
    if i == 1
      if j > 2
        B[i, j] = A[i, j] * 2
      else
        B[i, j] = A[i, j] + 1
    else
      B[i, j] = A[i, j]
"""

CANNOT_SPLIT = """\
program cannot_split
size n in 0:65
size m in 1:33
input A: int32[n, 32]
output B: int32[n, 32]
for i in 0:n
  for j in 0:32
    if i // (j + 1) < m
      B[i, j] = A[i, j]
    else
      B[i, j] = 0 - 1
"""

DATA_DEPENDENT = """\
program data_dependent
size n in 0:4097
input A: int32[n]
output B: int32[n]
for i in 0:n
  if A[i] > 0
    B[i] = A[i]
  else
    B[i] = 0
"""

IMPERFECT_SPLITS = """\
program imperfect_splits
input A: int32[48]
output B: int32[48]
for io in 0:5
  for im in 0:1
    for ii in 0:32
      if ii < 10 and 10*io + ii < 48
        B[10*io + 32*im + ii] = A[10*io + 32*im + ii] * 3
"""

FIVE_BUFFERS = """\
program five_buffers
input A: int32[129]
input B: int32[129]
output C: int32[129]
output D: int32[129]
output E: int32[129]
for i in 0:130
  if i < 129
    C[i] = A[i] + B[i]
    D[i] = A[i] - B[i]
    E[i] = A[i] * B[i]
"""

UNIT_TAIL = """\
program unit_tail
input A: int32[33]
output B: int32[33]
for i in 0:33
  B[i] = A[i] * 3
"""

ODD_EXTENT = """\
program odd_extent
size n in 0:4097
input A: int32[2*n + 1]
output B: int32[2*n + 1]
for i in 0:2*n + 1
  B[i] = A[i] * 3
"""

EMPTY = """\
program empty
input A: int32[0]
output B: int32[4]
for j in 0:4
  B[j] = 7
for i in 0:0
  B[i] = A[i]
for k in 4:2
  B[k] = A[k]
"""

NEGATIVE = """\
program negative
size n in 0:4097
input A: int32[n]
output B: int32[n]
for j in 0:n
  B[j] = A[j]
for i in 0:n - 3
  B[i + 3] = A[i] * 3
"""

TRIANGLE = """\
program triangle
size n in 0:4097
input A: int32[n, n]
output B: int32[n, n]
for i in 0:n
  for j in 0:n
    if j <= i
      B[i, j] = A[i, j]
    else
      B[i, j] = 0
"""

BAND = """\
program band
size n in 0:4097
input A: int32[n, n]
output B: int32[n, n]
for i in 0:n
  for j in 0:n
    B[i, j] = where(j >= i - 1 and j <= i + 2, A[i, j] * 3, 0)
"""

CONVOLUTION = """\
program convolution
size n in 0:4097
size m in 0:4097
input A: int32[n, m]
input W: int32[3, 3]
output B: int32[n, m]
for y in 0:n
  for x in 0:m
    B[y, x] = 0
    for ky in 0:3
      for kx in 0:3
        B[y, x] += where(y + ky >= 1 and y + ky < n + 1 and x + kx >= 1 and x + kx < m + 1, A[y + ky - 1, x + kx - 1] * W[ky, kx], 0)
"""


def convolved(A: Array, W: Array) -> Array:
    padded, (n, m) = np.pad(A, 1), A.shape
    total = np.zeros_like(A)
    for y, x in np.ndindex(3, 3):
        total += W[y, x] * padded[y : y + n, x : x + m]
    return total


POOLING = """\
program pooling
size n in 1:4097
size m in 1:4097
input A: int32[n, m]
output B: int32[(n + 1)//2, (m + 1)//2]
for y in 0:(n + 1)//2
  for x in 0:(m + 1)//2
    B[y, x] = 0 - 1000
    for ky in 0:3
      for kx in 0:3
        B[y, x] max= where(2*y + ky >= 1 and 2*y + ky <= n and 2*x + kx >= 1 and 2*x + kx <= m, A[2*y + ky - 1, 2*x + kx - 1], 0 - 1000)
"""


def pooled(A: Array) -> Array:
    padded = np.pad(A, 1, constant_values=-1000)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))
    largest: Array = windows[::2, ::2].max(axis=(2, 3))
    return largest


BOUNDARY = """\
program boundary
size n in 0:4097
size m in 0:4097
input A: int32[n, m]
output B: int32[n, m]
for i in 0:n
  for j in 0:m
    B[i, j] = where(i >= 1 and i < n - 1 and j >= 1 and j < m - 1, A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1], A[i, j])
"""


def inside_summed(A: Array) -> Array:
    B = A.copy()
    B[1:-1, 1:-1] = A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:]
    return B


CLAMPED = """\
program clamped
size n in 1:4097
input A: int32[n]
output B: int32[n]
for i in 0:n
  B[i] = A[max(0, i - 1)] + A[min(n - 1, i + 1)]
"""

FOLDED = """\
program folded
size n in 0:4097
input A: int32[(n + 1)//2, 2]
output B: int32[n]
for i in 0:n
  B[i] = A[i//2, i % 2] * 3
"""

PARITY = """\
program parity
size n in 0:4097
input A: int32[n]
output B: int32[n]
for i in 0:n
  B[i] = where(i % 2 == 0, A[i] * 2, A[i] + 1)
"""

REVERSED = """\
program reversed
size n in 0:4097
input A: int32[n]
output B: int32[n]
for i in 0:n
  B[i] = where(i < n - 2, A[n - 1 - i], 0)
"""

DIAGONAL = """\
program diagonal
size n in 0:4097
size m in 0:4097
input A: int32[n, m]
output B: int32[n, m]
for i in 0:n
  for j in 0:m
    if i + j < 8
      B[i, j] = A[i, j]
    else
      B[i, j] = A[i, j] * 3
"""

STRIDED = """\
program strided
size n in 0:4097
input A: int32[3*n + 2]
output B: int32[n]
for i in 0:n
  B[i] = A[3*i + 1]
"""


def pairs(letters: str, *values: tuple[int, int]) -> tuple[Sizes, ...]:
    """Pairs of sizes."""
    return tuple(dict(zip(letters, pair, strict=True)) for pair in values)


RAGGED = ((0, 0), (0, 3), (1, 1), (2, 1), (1, 5), (3, 2), (5, 8), (9, 4))


def tripled(A: Array) -> Array:
    return A * 3


CASES: Mapping[str, Case] = {
    "basic": Case(BASIC, tripled, Shape(2), EDGES),
    "const loop": Case(CONST_LOOP, tripled, Shape(2)),
    "const loop, cut": Case(UNIT_TAIL.replace("33", "21"), tripled, Shape(2), tile={"i": 4}),
    "multi loop": Case(
        MULTI_LOOP,
        lambda A, n, m: spread(A, n, m, 8),
        Shape(8),
        pairs("nm", *RAGGED, (13, 3), (30, 5)),
    ),
    "multi loop, product of sizes": Case(
        PRODUCT_OF_SIZES,
        spread_plain,
        Shape(8),
        pairs("nm", *RAGGED),
        because="written out",
    ),
    "one point of ten": Case(
        CONDITION_EQ,
        lambda A: np.where(np.arange(10) == 5, A * 2, A + 1),
        Shape(3),
    ),
    "one point of n": Case(
        CONDITION_EQ_IF,
        lambda A, n: np.where(np.arange(n) == 5, A * 2, A + 1),
        Shape(4),
        (*EDGES, {"n": 6}, {"n": 7}),
    ),
    "1-D pooling": Case(
        ONE_D_POOL,
        lambda A: np.lib.stride_tricks.sliding_window_view(
            np.pad(A, 1, constant_values=-1000), 3
        ).max(axis=1),
        Shape(8),
    ),
    "concatenation": Case(CONCAT, lambda A, B, C: np.concatenate([A, B, C]), Shape(3)),
    "concatenation of symbolic sizes": Case(
        CONCAT_SYMBOLIC,
        lambda A, B: np.concatenate([A, B]),
        Shape(2),
        pairs("nm", *RAGGED),
    ),
    "nested single point": Case(
        NESTED_POINT,
        lambda A: np.where(np.arange(5)[:, None] == 1, np.where(np.arange(5) > 2, A * 2, A + 1), A),
        Shape(6),
    ),
    "cannot split": Case(
        CANNOT_SPLIT,
        lambda A, n, m: np.where(np.arange(n)[:, None] // np.arange(1, 33) < m, A, -1),
        Shape(2, conditions=2),
        pairs("nm", (0, 1), (1, 1), (5, 2), (40, 3)),
        because="not quasi-affine",
    ),
    "cannot split, cut": Case(
        CANNOT_SPLIT,
        lambda A, n, m: np.where(np.arange(n)[:, None] // np.arange(1, 33) < m, A, -1),
        Shape(4, conditions=4),
        pairs("nm", (0, 1), (1, 1), (5, 2), (40, 3)),
        tile={"i": 4},
        because="not quasi-affine",
    ),
    "data dependent": Case(
        DATA_DEPENDENT,
        lambda A: np.maximum(A, 0),
        Shape(4, conditions=4),
        EDGES,
        tile={"i": 4},
        because="A[i] > 0",
    ),
    "48 split 10 then 32": Case(IMPERFECT_SPLITS, tripled, Shape(2)),
    "five buffers, 130 over 129": Case(
        FIVE_BUFFERS, lambda A, B: np.stack([A + B, A - B, A * B]), Shape(6), tile={"i": 32}
    ),
    "a tail of one": Case(UNIT_TAIL, tripled, Shape(2), tile={"i": 8}),
    "no full tile": Case(UNIT_TAIL.replace("33", "5"), tripled, Shape(2), tile={"i": 8}),
    "an odd extent": Case(ODD_EXTENT, tripled, Shape(2), EDGES, tile={"i": 4}),
    "an odd extent by two": Case(ODD_EXTENT, tripled, Shape(2), EDGES, tile={"i": 2}),
    "no instances": Case(EMPTY, lambda A: np.full(4, 7), Shape(4), tile={"j": 4}),
    "negative extents": Case(
        NEGATIVE,
        lambda A, n: np.concatenate([A[: min(3, n)], 3 * A[: max(0, n - 3)]]),
        Shape(3),
        EDGES,
        tile={"i": 4},
    ),
    "triangle": Case(TRIANGLE, lambda A: np.tril(A), Shape(2), EDGES),
    "triangle, cut": Case(TRIANGLE, lambda A: np.tril(A), Shape(12), EDGES, tile={"i": 4, "j": 4}),
    "band": Case(BAND, lambda A: np.triu(np.tril(A, 2), -1) * 3, Shape(3), EDGES),
    "band, cut": Case(
        BAND,
        lambda A: np.triu(np.tril(A, 2), -1) * 3,
        Shape(8),
        EDGES,
        tile={"j": 4},
    ),
    "convolution": Case(CONVOLUTION, convolved, Shape(64), pairs("nm", *RAGGED)),
    "convolution, cut": Case(
        CONVOLUTION,
        convolved,
        Shape(128),
        pairs("nm", *RAGGED, (10, 13)),
        tile={"y": 2, "x": 4},
    ),
    "pooling by two": Case(POOLING, pooled, Shape(64), pairs("nm", (1, 1), (2, 3), (5, 8), (9, 4))),
    "boundary of a stencil": Case(BOUNDARY, inside_summed, Shape(12), pairs("nm", *RAGGED)),
    "boundary of a stencil, cut": Case(
        BOUNDARY,
        inside_summed,
        Shape(24),
        pairs("nm", *RAGGED, (13, 10)),
        tile={"j": 4},
    ),
    "clamped ends": Case(
        CLAMPED,
        lambda A: np.pad(A, 1, "edge")[:-2] + np.pad(A, 1, "edge")[2:],
        Shape(4),
        EDGES[1:],
    ),
    "folded index": Case(FOLDED, lambda A, n: A.ravel()[:n] * 3, Shape(2), EDGES, tile={"i": 4}),
    "parity": Case(
        PARITY,
        lambda A, n: np.where(np.arange(n) % 2 == 0, A * 2, A + 1),
        Shape(3),
        EDGES,
    ),
    "reversed": Case(
        REVERSED,
        lambda A, n: np.where(np.arange(n) < n - 2, A[::-1], 0),
        Shape(4),
        EDGES,
        tile={"i": 4},
    ),
    "diagonal border": Case(
        DIAGONAL,
        lambda A, n, m: np.where(np.add.outer(np.arange(n), np.arange(m)) < 8, A, A * 3),
        Shape(4),
        pairs("nm", *RAGGED, (13, 3)),
    ),
    "stride of three": Case(
        STRIDED, lambda A, n: A[1 : 3 * n + 1 : 3], Shape(2), EDGES, tile={"i": 4}
    ),
}


def pattern(condition: str) -> Program:
    """A product of a matrix with a vector, by those of its elements at which a condition on i and j holds."""
    return oc.parse(f"""\
program pattern
size n in 0:4097
input x: float32[n]
input A: float32[n, n]
inout y: float32[n]
for i in 0:n
  for j in 0:n
    if {condition}
      y[i] += A[i, j] * x[j]
""")
