"""Kernels in the manner of PolyBench, written for offcut: loop programs, front-end versions, numpy.

The loop names of a program are all different, so that a tile names one loop. References are
float64 and written another way than the loops: products of matrices, slices, solvers, wavefronts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

import offcut as oc
from offcut import Tensor
from offcut.core import index as ix
from offcut.ir import Kind, Var
from tests.facade import evaluate

Array = npt.NDArray[Any]
Sizes = Mapping[str, int]


class Carries(Enum):
    """What the iterations of a loop owe each other, and so which cuts of it are legal."""

    NOTHING = "nothing"  # each writes its own elements, and reads none that it overwrites
    ITSELF = "itself"  # each reads elements that it overwrites: never twice
    SUM = "sum"  # they add to the same elements: never twice, any fixed order
    MIXED = "mixed"  # they add to the same elements, and write their own: not on padded copies
    CHAIN = (
        "chain"  # one reads what another wrote, and none overwrites what one read: in this order
    )
    ORDER = "order"  # one reads what another overwrites: never twice, in this order


ASCENDING = ("guard", "cut", "mask", "ladder", "balance", "even", "residue", "version", "mix")
LEGAL = {
    Carries.NOTHING: (*ASCENDING, "pad", "shift"),
    Carries.ITSELF: (*ASCENDING, "pad"),
    Carries.SUM: (*ASCENDING, "pad"),
    Carries.MIXED: ASCENDING,
    Carries.CHAIN: ASCENDING,
    Carries.ORDER: ASCENDING,
}
ILLEGAL = {
    Carries.NOTHING: ("exact",),
    Carries.ITSELF: ("exact", "shift"),
    Carries.SUM: ("exact", "shift"),
    Carries.MIXED: ("exact", "shift"),
    Carries.CHAIN: ("exact",),
    Carries.ORDER: ("exact", "shift"),
}


@dataclass(frozen=True)
class Polybench:
    """One kernel.

    text       the loop program, in float64
    reference  from the arrays of the program's inputs (and sizes, where it asks for them) to its
               results, in their order
    carries    what each loop that may be cut alone carries
    sizes      small ones, at the edges
    front      the same by `compute` (its outputs give the results) or by `recurrence`
    prepare    makes random inputs ones that the kernel is defined for
    blocks     loops that may be tiled together
    crossed    perfectly nested loops whose tiles would reorder a dependence
    """

    text: str
    reference: Callable[..., tuple[Array, ...]]
    carries: Mapping[str, Carries]
    sizes: tuple[Sizes, ...]
    front: Callable[[], Tensor | Sequence[Tensor] | oc.Program] | None = None
    prepare: Callable[[dict[str, Array]], None] = field(default=lambda arrays: None)
    blocks: tuple[tuple[str, ...], ...] = ()
    crossed: tuple[tuple[str, ...], ...] = ()

    def program(self, dtype: str = "float64") -> oc.Program:
        """The loop program with elements of `dtype`."""
        return oc.parse(self.text.replace("float64", dtype))

    def inputs(self, sizes: Sizes, dtype: str = "float64") -> dict[str, Array]:
        """Random arrays for the buffers that a call gives, the same ones each time."""
        made = arrays(self.program(), sizes)
        self.prepare(made)
        return {name: array.astype(dtype) for name, array in made.items()}

    def expected(self, given: Mapping[str, Array], sizes: Sizes) -> tuple[Array, ...]:
        """The results in float64."""
        asked = self.reference.__code__.co_varnames[: self.reference.__code__.co_argcount]
        wide: dict[str, Any] = {name: array.astype("float64") for name, array in given.items()}
        with np.errstate(all="ignore"):
            return self.reference(**{name: {**sizes, **wide}[name] for name in asked})


def arrays(program: oc.Program, sizes: Sizes, seed: int = 7) -> dict[str, Array]:
    """A random array in -1 … 1 for each input, constant and inout buffer, of its type and shape."""
    random = np.random.default_rng(seed)
    made = {}
    for buffer in program.buffers:
        if buffer.kind in (Kind.INPUT, Kind.CONSTANT, Kind.INOUT):
            shape = tuple(int(evaluate(extent, sizes)) for extent in buffer.shape)
            made[buffer.name] = random.uniform(-1, 1, shape).astype(buffer.dtype)
    return made


def unsolved(program: oc.Program, sizes: Sizes) -> dict[str, int]:
    """Those of `sizes` that a call must name: no extent of what it gives is affine in them alone."""
    solved = set()
    for buffer in program.buffers:
        if buffer.kind in (Kind.INPUT, Kind.CONSTANT, Kind.INOUT):
            for extent in buffer.shape:
                terms = ix.to_linear(extent).terms
                if len(terms) == 1 and isinstance(terms[0][0], Var):
                    solved.add(terms[0][0].name)
    return {name: value for name, value in sizes.items() if name not in solved}


def squares(*values: int, **fixed: int) -> tuple[Sizes, ...]:
    """Sizes n of these values, the others fixed."""
    return tuple({"n": value, **fixed} for value in values)


def mixed(names: str) -> tuple[Sizes, ...]:
    """Each size empty, one, and awkward, against the others."""
    letters = names.split()
    picks = [(0, 5, 3, 2), (5, 0, 3, 4), (3, 2, 0, 5), (1, 1, 1, 1), (2, 5, 3, 4), (5, 8, 13, 3)]
    return tuple(dict(zip(letters, pick, strict=False)) for pick in (*picks, (8, 9, 4, 7)))


NOTHING, ITSELF, SUM, MIXED, CHAIN, ORDER = Carries
EDGES = (0, 1, 2, 3, 5, 8, 13)

m, n, p, q = (oc.dim(name, max=4096) for name in "mnpq")
steps = oc.dim("steps", max=4096)


def tensor(name: str, *shape: Any) -> Tensor:
    """A float64 placeholder."""
    return oc.placeholder(shape, "float64", name)


def matvec(name: str, A: Tensor, x: Tensor) -> Tensor:
    """``A @ x``."""
    r = oc.reduce_axis(A.shape[1], "r")
    return oc.compute((A.shape[0],), lambda i: oc.sum(A[i, r] * x[r], axis=r), name)


def vecmat(name: str, x: Tensor, A: Tensor) -> Tensor:
    """``x @ A``."""
    r = oc.reduce_axis(A.shape[0], "r")
    return oc.compute((A.shape[1],), lambda j: oc.sum(x[r] * A[r, j], axis=r), name)


def matmul(name: str, A: Tensor, B: Tensor) -> Tensor:
    """``A @ B``."""
    r, shape = oc.reduce_axis(A.shape[1], "r"), (A.shape[0], B.shape[1])
    return oc.compute(shape, lambda i, j: oc.sum(A[i, r] * B[r, j], axis=r), name)


GEMM = """\
program gemm
size m in 0:4097
size n in 0:4097
size p in 0:4097
inout C: float64[m, n]
input A: float64[m, p]
input B: float64[p, n]
for i in 0:m
  for j in 0:n
    C[i, j] = 1.2 * C[i, j]
  for k in 0:p
    for jk in 0:n
      C[i, jk] += 1.5 * A[i, k] * B[k, jk]
"""


def gemm() -> Tensor:
    C, AB = tensor("C", m, n), matmul("AB", tensor("A", m, p), tensor("B", p, n))
    return oc.compute((m, n), lambda i, j: 1.2 * C[i, j] + 1.5 * AB[i, j], "D")


TWO_MM = """\
program two_mm
size m in 0:4097
size n in 0:4097
size p in 0:4097
size q in 0:4097
inout D: float64[m, q]
input A: float64[m, p]
input B: float64[p, n]
input C: float64[n, q]
local T: float64[m, n]
for i in 0:m
  for j in 0:n
    T[i, j] = 0.0
    for k in 0:p
      T[i, j] += 1.5 * A[i, k] * B[k, j]
for i2 in 0:m
  for j2 in 0:q
    D[i2, j2] = 1.2 * D[i2, j2]
    for k2 in 0:n
      D[i2, j2] += T[i2, k2] * C[k2, j2]
"""


def two_mm() -> Tensor:
    D = tensor("D", m, q)
    ABC = matmul("ABC", matmul("AB", tensor("A", m, p), tensor("B", p, n)), tensor("C", n, q))
    return oc.compute((m, q), lambda i, j: 1.2 * D[i, j] + 1.5 * ABC[i, j], "E")


THREE_MM = """\
program three_mm
size m in 0:4097
size n in 0:4097
size p in 0:4097
size q in 0:4097
input A: float64[m, p]
input B: float64[p, n]
input C: float64[n, q]
input D: float64[q, p]
local E: float64[m, n]
local F: float64[n, p]
output G: float64[m, p]
for i in 0:m
  for j in 0:n
    E[i, j] = 0.0
    for k in 0:p
      E[i, j] += A[i, k] * B[k, j]
for i2 in 0:n
  for j2 in 0:p
    F[i2, j2] = 0.0
    for k2 in 0:q
      F[i2, j2] += C[i2, k2] * D[k2, j2]
for i3 in 0:m
  for j3 in 0:p
    G[i3, j3] = 0.0
    for k3 in 0:n
      G[i3, j3] += E[i3, k3] * F[k3, j3]
"""


def three_mm() -> Tensor:
    left = matmul("E", tensor("A", m, p), tensor("B", p, n))
    return matmul("G", left, matmul("F", tensor("C", n, q), tensor("D", q, p)))


GEMVER = """\
program gemver
size n in 0:4097
inout A: float64[n, n]
inout x: float64[n]
output w: float64[n]
input u1: float64[n]
input v1: float64[n]
input u2: float64[n]
input v2: float64[n]
input y: float64[n]
input z: float64[n]
for i in 0:n
  for j in 0:n
    A[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
for i2 in 0:n
  for j2 in 0:n
    x[i2] += 1.2 * A[j2, i2] * y[j2]
for i3 in 0:n
  x[i3] = x[i3] + z[i3]
for i4 in 0:n
  w[i4] = 0.0
  for j4 in 0:n
    w[i4] += 1.5 * A[i4, j4] * x[j4]
"""


def gemver() -> list[Tensor]:
    A, x, y, z = tensor("A", n, n), *(tensor(name, n) for name in "xyz")
    u1, v1, u2, v2 = (tensor(name, n) for name in ("u1", "v1", "u2", "v2"))
    hat = oc.compute((n, n), lambda i, j: A[i, j] + u1[i] * v1[j] + u2[i] * v2[j], "hat")
    turned = vecmat("turned", y, hat)
    moved = oc.compute((n,), lambda i: x[i] + 1.2 * turned[i] + z[i], "moved")
    total = matvec("total", hat, moved)
    return [hat, moved, oc.compute((n,), lambda i: 1.5 * total[i], "w")]


def gemver_reference(
    A: Array, x: Array, u1: Array, v1: Array, u2: Array, v2: Array, y: Array, z: Array
) -> tuple[Array, ...]:
    hat = A + np.outer(u1, v1) + np.outer(u2, v2)
    moved = x + 1.2 * hat.T @ y + z
    return hat, moved, 1.5 * hat @ moved


ATAX = """\
program atax
size m in 0:4097
size n in 0:4097
input A: float64[m, n]
input x: float64[n]
local T: float64[m]
output y: float64[n]
for i0 in 0:n
  y[i0] = 0.0
for i in 0:m
  T[i] = 0.0
  for j in 0:n
    T[i] += A[i, j] * x[j]
  for j2 in 0:n
    y[j2] += A[i, j2] * T[i]
"""


def atax() -> Tensor:
    A = tensor("A", m, n)
    return vecmat("y", matvec("T", A, tensor("x", n)), A)


BICG = """\
program bicg
size m in 0:4097
size n in 0:4097
input A: float64[n, m]
input p: float64[m]
input r: float64[n]
output s: float64[m]
output q: float64[n]
for i0 in 0:m
  s[i0] = 0.0
for i in 0:n
  q[i] = 0.0
  for j in 0:m
    s[j] += r[i] * A[i, j]
    q[i] += A[i, j] * p[j]
"""


def bicg() -> list[Tensor]:
    A = tensor("A", n, m)
    return [vecmat("s", tensor("r", n), A), matvec("q", A, tensor("p", m))]


MVT = """\
program mvt
size n in 0:4097
inout x1: float64[n]
inout x2: float64[n]
input A: float64[n, n]
input y1: float64[n]
input y2: float64[n]
for i in 0:n
  for j in 0:n
    x1[i] += A[i, j] * y1[j]
for i2 in 0:n
  for j2 in 0:n
    x2[i2] += A[j2, i2] * y2[j2]
"""


def mvt() -> list[Tensor]:
    A, x1, x2 = tensor("A", n, n), tensor("x1", n), tensor("x2", n)
    d1, d2 = matvec("d1", A, tensor("y1", n)), vecmat("d2", tensor("y2", n), A)
    return [
        oc.compute((n,), lambda i: x1[i] + d1[i], "z1"),
        oc.compute((n,), lambda i: x2[i] + d2[i], "z2"),
    ]


GESUMMV = """\
program gesummv
size n in 0:4097
input A: float64[n, n]
input B: float64[n, n]
input x: float64[n]
local T: float64[n]
output y: float64[n]
for i in 0:n
  T[i] = 0.0
  y[i] = 0.0
  for j in 0:n
    T[i] += A[i, j] * x[j]
    y[i] += B[i, j] * x[j]
  y[i] = 1.5 * T[i] + 1.2 * y[i]
"""


def gesummv() -> Tensor:
    x = tensor("x", n)
    a, b = matvec("a", tensor("A", n, n), x), matvec("b", tensor("B", n, n), x)
    return oc.compute((n,), lambda i: 1.5 * a[i] + 1.2 * b[i], "y")


SYRK = """\
program syrk
size n in 0:4097
size m in 0:4097
inout C: float64[n, n]
input A: float64[n, m]
for i in 0:n
  for j in 0:i + 1
    C[i, j] = 1.2 * C[i, j]
  for k in 0:m
    for jk in 0:i + 1
      C[i, jk] += 1.5 * A[i, k] * A[jk, k]
"""


def syrk() -> Tensor:
    C, A, r = tensor("C", n, n), tensor("A", n, m), oc.reduce_axis(m, "r")
    gram = oc.compute((n, n), lambda i, j: oc.sum(A[i, r] * A[j, r], axis=r), "gram")
    return oc.compute(
        (n, n),
        lambda i, j: oc.where(j <= i, 1.2 * C[i, j] + 1.5 * gram[i, j], C[i, j]),
        "D",
    )


SYR2K = """\
program syr2k
size n in 0:4097
size m in 0:4097
inout C: float64[n, n]
input A: float64[n, m]
input B: float64[n, m]
for i in 0:n
  for j in 0:i + 1
    C[i, j] = 1.2 * C[i, j]
  for k in 0:m
    for jk in 0:i + 1
      C[i, jk] += A[jk, k] * 1.5 * B[i, k] + B[jk, k] * 1.5 * A[i, k]
"""

TRMM = """\
program trmm
size m in 0:4097
size n in 0:4097
inout B: float64[m, n]
input A: float64[m, m]
for i in 0:m
  for j in 0:n
    for k in i + 1:m
      B[i, j] += A[k, i] * B[k, j]
    B[i, j] = 1.5 * B[i, j]
"""


def trmm() -> Tensor:
    A, B, r = tensor("A", m, m), tensor("B", m, n), oc.reduce_axis(m, "r")
    above = oc.compute(
        (m, n),
        lambda i, j: oc.sum(oc.where(r > i, A[r, i] * B[r, j], 0.0), axis=r),
        "above",
    )
    return oc.compute((m, n), lambda i, j: 1.5 * (B[i, j] + above[i, j]), "D")


SYMM = """\
program symm
size m in 0:4097
size n in 0:4097
inout C: float64[m, n]
input A: float64[m, m]
input B: float64[m, n]
local T: float64[]
for i in 0:m
  for j in 0:n
    T[] = 0.0
    for k in 0:i
      C[k, j] += 1.5 * B[i, j] * A[i, k]
      T[] += B[k, j] * A[i, k]
    C[i, j] = 1.2 * C[i, j] + 1.5 * B[i, j] * A[i, i] + 1.5 * T[]
"""


def symm() -> Tensor:
    A, B, C = tensor("A", m, m), tensor("B", m, n), tensor("C", m, n)
    r = oc.reduce_axis(m, "r")
    product = oc.compute(
        (m, n),
        lambda i, j: oc.sum(oc.where(r <= i, A[i, r], A[r, i]) * B[r, j], axis=r),
        "product",
    )
    return oc.compute((m, n), lambda i, j: 1.2 * C[i, j] + 1.5 * product[i, j], "D")


def symmetric(A: Array) -> Array:
    """The symmetric matrix whose lower triangle `A` holds."""
    whole: Array = np.tril(A) + np.tril(A, -1).T
    return whole


LU = """\
program lu
size n in 0:4097
inout A: float64[n, n]
for k in 0:n
  for i in k + 1:n
    A[i, k] = A[i, k] / A[k, k]
  for i2 in k + 1:n
    for j in k + 1:n
      A[i2, j] -= A[i2, k] * A[k, j]
"""


def lu() -> oc.Program:
    A = tensor("A", n, n)
    return oc.recurrence(
        n,
        lambda k: [
            oc.update(A, lambda i, j: A[i, j] / A[k, k], where=lambda i, j: (i > k) & (j == k)),
            oc.update(
                A, lambda i, j: A[i, j] - A[i, k] * A[k, j], where=lambda i, j: (i > k) & (j > k)
            ),
        ],
        name="lu",
    )


def lu_reference(A: Array) -> tuple[Array, ...]:
    if not A.size:
        return (A,)
    packed, pivots = linalg.lu_factor(A)
    assert (pivots == np.arange(len(A))).all()
    return (packed,)


def dominant(arrays: dict[str, Array]) -> None:
    """Make the diagonal of `A` outweigh its columns."""
    A = arrays["A"]
    A[np.diag_indices(len(A))] = len(A) + 1.0


CHOLESKY = """\
program cholesky
size n in 0:4097
inout A: float64[n, n]
for i in 0:n
  for j in 0:i
    for k in 0:j
      A[i, j] -= A[i, k] * A[j, k]
    A[i, j] = A[i, j] / A[j, j]
  for k2 in 0:i
    A[i, i] -= A[i, k2] * A[i, k2]
  A[i, i] = sqrt(A[i, i])
"""


def cholesky() -> oc.Program:
    A, k = tensor("A", n, n), oc.reduce_axis(n, "k")

    def row(r: Any) -> list[Any]:
        return [
            oc.update(
                A,
                lambda i, j: (
                    (A[i, j] - oc.sum(oc.where(k < j, A[i, k] * A[j, k], 0.0), axis=k)) / A[j, j]
                ),
                where=lambda i, j: (i == r) & (j < r),
            ),
            oc.update(
                A,
                lambda i, j: oc.sqrt(
                    A[i, j] - oc.sum(oc.where(k < r, A[i, k] * A[i, k], 0.0), axis=k)
                ),
                where=lambda i, j: (i == r) & (j == r),
            ),
        ]

    return oc.recurrence(n, row, name="cholesky")


def definite(arrays: dict[str, Array]) -> None:
    """Make `A` symmetric and positive definite."""
    A = arrays["A"]
    arrays["A"] = A @ A.T + len(A) * np.eye(len(A))


TRISOLV = """\
program trisolv
size n in 0:4097
input A: float64[n, n]
input b: float64[n]
output x: float64[n]
for i in 0:n
  x[i] = b[i]
  for j in 0:i
    x[i] -= A[i, j] * x[j]
  x[i] = x[i] / A[i, i]
"""

DURBIN = """\
program durbin
size n in 1:4097
input r: float64[n]
output y: float64[n]
local z: float64[n]
local alpha: float64[]
local beta: float64[]
local total: float64[]
y[0] = -(r[0])
beta[] = 1.0
alpha[] = -(r[0])
for k in 1:n
  beta[] = (1.0 - alpha[] * alpha[]) * beta[]
  total[] = 0.0
  for i in 0:k
    total[] += r[k - i - 1] * y[i]
  alpha[] = -((r[k] + total[]) / beta[])
  for i2 in 0:k
    z[i2] = y[i2] + alpha[] * y[k - i2 - 1]
  for i3 in 0:k
    y[i3] = z[i3]
  y[k] = alpha[]
"""


def durbin_reference(r: Array) -> tuple[Array, ...]:
    column = np.concatenate([[1.0], r[:-1]])
    return (np.linalg.solve(linalg.toeplitz(column), -r),)


def mild(arrays: dict[str, Array]) -> None:
    """Make the Toeplitz matrix of `r` diagonally dominant."""
    arrays["r"] /= 2.5 * len(arrays["r"])


JACOBI_1D = """\
program jacobi_1d
size steps in 0:4097
size n in 0:4097
inout A: float64[n]
inout B: float64[n]
for t in 0:steps
  for i in 1:n - 1
    B[i] = (A[i - 1] + A[i] + A[i + 1]) / 3.0
  for i2 in 1:n - 1
    A[i2] = (B[i2 - 1] + B[i2] + B[i2 + 1]) / 3.0
"""


def jacobi_1d() -> oc.Program:
    A, B = tensor("A", n), tensor("B", n)

    def swept(to: Tensor, of: Tensor) -> Any:
        return oc.update(
            to,
            lambda i: (of[i - 1] + of[i] + of[i + 1]) / 3.0,
            where=lambda i: (i >= 1) & (i < n - 1),
        )

    return oc.recurrence(steps, lambda t: [swept(B, A), swept(A, B)], name="jacobi_1d")


def alternated(smooth: Callable[[Array], Array]) -> Callable[..., tuple[Array, ...]]:
    """The reference that writes the inner points of B from A, then of A from B, in each step."""

    def reference(A: Array, B: Array, steps: int) -> tuple[Array, ...]:
        A, B, inner = A.copy(), B.copy(), (slice(1, -1),) * A.ndim
        for _ in range(steps if min(A.shape) > 2 else 0):
            B[inner] = smooth(A)
            A[inner] = smooth(B)
        return A, B

    return reference


def smooth_1d(x: Array) -> Array:
    return np.convolve(x, np.full(3, 1 / 3), "valid")


JACOBI_2D = """\
program jacobi_2d
size steps in 0:4097
size n in 0:4097
inout A: float64[n, n]
inout B: float64[n, n]
for t in 0:steps
  for i in 1:n - 1
    for j in 1:n - 1
      B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
  for i2 in 1:n - 1
    for j2 in 1:n - 1
      A[i2, j2] = 0.2 * (B[i2, j2] + B[i2, j2 - 1] + B[i2, j2 + 1] + B[i2 + 1, j2] + B[i2 - 1, j2])
"""


def jacobi_2d() -> oc.Program:
    A, B = tensor("A", n, n), tensor("B", n, n)

    def swept(to: Tensor, of: Tensor) -> Any:
        return oc.update(
            to,
            lambda i, j: (
                0.2 * (of[i, j] + of[i, j - 1] + of[i, j + 1] + of[i + 1, j] + of[i - 1, j])
            ),
            where=lambda i, j: (i >= 1) & (i < n - 1) & (j >= 1) & (j < n - 1),
        )

    return oc.recurrence(steps, lambda t: [swept(B, A), swept(A, B)], name="jacobi_2d")


def smooth_2d(x: Array) -> Array:
    inner = x[1:-1, 1:-1]
    neighbours: Array = inner + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1]
    return 0.2 * neighbours


HEAT_3D = """\
program heat_3d
size steps in 0:4097
size n in 0:513
inout A: float64[n, n, n]
inout B: float64[n, n, n]
for t in 0:steps
  for i in 1:n - 1
    for j in 1:n - 1
      for k in 1:n - 1
        B[i, j, k] = 0.125 * (A[i + 1, j, k] - 2.0 * A[i, j, k] + A[i - 1, j, k]) + 0.125 * (A[i, j + 1, k] - 2.0 * A[i, j, k] + A[i, j - 1, k]) + 0.125 * (A[i, j, k + 1] - 2.0 * A[i, j, k] + A[i, j, k - 1]) + A[i, j, k]
  for i2 in 1:n - 1
    for j2 in 1:n - 1
      for k2 in 1:n - 1
        A[i2, j2, k2] = 0.125 * (B[i2 + 1, j2, k2] - 2.0 * B[i2, j2, k2] + B[i2 - 1, j2, k2]) + 0.125 * (B[i2, j2 + 1, k2] - 2.0 * B[i2, j2, k2] + B[i2, j2 - 1, k2]) + 0.125 * (B[i2, j2, k2 + 1] - 2.0 * B[i2, j2, k2] + B[i2, j2, k2 - 1]) + B[i2, j2, k2]
"""


def smooth_3d(x: Array) -> Array:
    inner = (slice(1, -1),) * 3
    bent = [np.diff(x, 2, axis=axis) for axis in range(3)]
    a, b, c = bent[0][:, 1:-1, 1:-1], bent[1][1:-1, :, 1:-1], bent[2][1:-1, 1:-1, :]
    result: Array = x[inner] + 0.125 * (a + b + c)
    return result


SEIDEL_2D = """\
program seidel_2d
size steps in 0:4097
size n in 0:4097
inout A: float64[n, n]
for t in 0:steps
  for i in 1:n - 1
    for j in 1:n - 1
      A[i, j] = (A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]) / 9.0
"""

AROUND = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]


def seidel_2d() -> oc.Program:
    A = tensor("A", n, n)

    def mean(i: Any, j: Any) -> Any:
        total = A[i - 1, j - 1]
        for a, b in AROUND[1:]:
            total = total + A[i + a, j + b]
        return total / 9.0

    inside = lambda i, j: (i >= 1) & (i < n - 1) & (j >= 1) & (j < n - 1)  # noqa: E731
    return oc.recurrence(steps, lambda t: oc.update(A, mean, where=inside), name="seidel_2d")


def seidel_2d_reference(A: Array, steps: int) -> tuple[Array, ...]:
    """Points of one ``2*i + j`` need each other not at all: they are updated together."""
    A, inner = A.copy(), range(1, len(A) - 1)
    for _ in range(steps):
        for front in range(3, 3 * len(A)):
            i = np.array([i for i in inner if front - 2 * i in inner], dtype=int)
            A[i, front - 2 * i] = sum(A[i + a, front - 2 * i + b] for a, b in AROUND) / 9
    return (A,)


FDTD_2D = """\
program fdtd_2d
size steps in 0:4097
size m in 1:4097
size n in 1:4097
inout ex: float64[m, n]
inout ey: float64[m, n]
inout hz: float64[m, n]
input source: float64[steps]
for t in 0:steps
  for j0 in 0:n
    ey[0, j0] = source[t]
  for i in 1:m
    for j in 0:n
      ey[i, j] = ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])
  for i2 in 0:m
    for j2 in 1:n
      ex[i2, j2] = ex[i2, j2] - 0.5 * (hz[i2, j2] - hz[i2, j2 - 1])
  for i3 in 0:m - 1
    for j3 in 0:n - 1
      hz[i3, j3] = hz[i3, j3] - 0.7 * (ex[i3, j3 + 1] - ex[i3, j3] + ey[i3 + 1, j3] - ey[i3, j3])
"""


def fdtd_2d() -> oc.Program:
    ex, ey, hz = (tensor(name, m, n) for name in ("ex", "ey", "hz"))
    source = tensor("source", steps)
    return oc.recurrence(
        steps,
        lambda t: [
            oc.update(ey, lambda i, j: source[t], where=lambda i, j: i == 0),
            oc.update(
                ey,
                lambda i, j: ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j]),
                where=lambda i, j: i >= 1,
            ),
            oc.update(
                ex,
                lambda i, j: ex[i, j] - 0.5 * (hz[i, j] - hz[i, j - 1]),
                where=lambda i, j: j >= 1,
            ),
            oc.update(
                hz,
                lambda i, j: hz[i, j] - 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j]),
                where=lambda i, j: (i < m - 1) & (j < n - 1),
            ),
        ],
        name="fdtd_2d",
    )


def fdtd_2d_reference(ex: Array, ey: Array, hz: Array, source: Array) -> tuple[Array, ...]:
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    for now in source:
        ey[0] = now
        ey[1:] -= 0.5 * np.diff(hz, axis=0)
        ex[:, 1:] -= 0.5 * np.diff(hz, axis=1)
        hz[:-1, :-1] -= 0.7 * (np.diff(ex, axis=1)[:-1] + np.diff(ey, axis=0)[:, :-1])
    return ex, ey, hz


DOITGEN = """\
program doitgen
size m in 0:513
size n in 0:513
size p in 0:513
inout A: float64[m, n, p]
input C: float64[p, p]
local T: float64[p]
for r in 0:m
  for q in 0:n
    for s in 0:p
      T[s] = 0.0
      for k in 0:p
        T[s] += A[r, q, k] * C[k, s]
    for s2 in 0:p
      A[r, q, s2] = T[s2]
"""


def doitgen() -> Tensor:
    A, C, r = tensor("A", m, n, p), tensor("C", p, p), oc.reduce_axis(p, "r")
    return oc.compute((m, n, p), lambda a, b, c: oc.sum(A[a, b, r] * C[r, c], axis=r), "B")


COVARIANCE = """\
program covariance
size n in 2:4097
size m in 0:4097
inout data: float64[n, m]
local mean: float64[m]
output cov: float64[m, m]
for j in 0:m
  mean[j] = 0.0
  for i in 0:n
    mean[j] += data[i, j]
  mean[j] = mean[j] / float64(n)
for i2 in 0:n
  for j2 in 0:m
    data[i2, j2] = data[i2, j2] - mean[j2]
for i3 in 0:m
  for j3 in i3:m
    cov[i3, j3] = 0.0
    for k in 0:n
      cov[i3, j3] += data[k, i3] * data[k, j3]
    cov[i3, j3] = cov[i3, j3] / float64(n - 1)
    cov[j3, i3] = cov[i3, j3]
"""

rows = oc.dim("n", min=2, max=4096)


def covariance() -> list[Tensor]:
    data, r, s = tensor("data", rows, m), oc.reduce_axis(rows, "r"), oc.reduce_axis(rows, "s")
    count, left = oc.cast(rows, "float64"), oc.cast(rows - 1, "float64")
    mean = oc.compute((m,), lambda j: oc.sum(data[r, j], axis=r) / count, "mean")
    centred = oc.compute((rows, m), lambda i, j: data[i, j] - mean[j], "centred")
    return [
        centred,
        oc.compute(
            (m, m), lambda i, j: oc.sum(centred[s, i] * centred[s, j], axis=s) / left, "cov"
        ),
    ]


def covariance_reference(data: Array) -> tuple[Array, ...]:
    count = data.shape[1]
    cov = np.cov(data.T).reshape(count, count) if count else np.zeros((0, 0))
    return data - data.mean(axis=0), cov


CORRELATION = """\
program correlation
size n in 2:4097
size m in 0:4097
inout data: float64[n, m]
local mean: float64[m]
local dev: float64[m]
output corr: float64[m, m]
for j in 0:m
  mean[j] = 0.0
  for i in 0:n
    mean[j] += data[i, j]
  mean[j] = mean[j] / float64(n)
for j2 in 0:m
  dev[j2] = 0.0
  for i2 in 0:n
    dev[j2] += (data[i2, j2] - mean[j2]) * (data[i2, j2] - mean[j2])
  dev[j2] = sqrt(dev[j2] / float64(n))
  dev[j2] = where(dev[j2] <= 0.000001, 1.0, dev[j2])
for i3 in 0:n
  for j3 in 0:m
    data[i3, j3] = (data[i3, j3] - mean[j3]) / (sqrt(float64(n)) * dev[j3])
for i4 in 0:m
  corr[i4, i4] = 1.0
  for j4 in i4 + 1:m
    corr[i4, j4] = 0.0
    for k in 0:n
      corr[i4, j4] += data[k, i4] * data[k, j4]
    corr[j4, i4] = corr[i4, j4]
"""


def correlation_reference(data: Array) -> tuple[Array, ...]:
    rows, count = data.shape
    corr = np.corrcoef(data.T).reshape(count, count) if count else np.zeros((0, 0))
    return (data - data.mean(axis=0)) / (np.sqrt(rows) * data.std(axis=0)), corr


FLOYD_WARSHALL = """\
program floyd_warshall
size n in 0:4097
inout path: float64[n, n]
for k in 0:n
  for i in 0:n
    for j in 0:n
      path[i, j] = min(path[i, j], path[i, k] + path[k, j])
"""


def floyd_warshall() -> oc.Program:
    path = tensor("path", n, n)
    return oc.recurrence(
        n,
        lambda k: oc.update(path, lambda i, j: oc.minimum(path[i, j], path[i, k] + path[k, j])),
        name="floyd_warshall",
    )


def floyd_warshall_reference(path: Array) -> tuple[Array, ...]:
    """Paths of at most 1, 2, 4, 8 … edges."""
    for _ in range(max(1, len(path)).bit_length()):
        through = (path[:, :, None] + path[None, :, :]).min(axis=1, initial=np.inf)
        path = np.minimum(path, through)
    return (path,)


def distances(arrays: dict[str, Array]) -> None:
    """Make the edges whole numbers from 1 to 9, so that sums are exact."""
    arrays["path"] = np.rint(5 + 4 * arrays["path"])


ADI = """\
program adi
size steps in 0:4097
size n in 2:4097
inout u: float64[n, n]
local v: float64[n, n]
local p: float64[n, n]
local q: float64[n, n]
for t in 0:steps
  for i in 1:n - 1
    v[0, i] = 1.0
    p[i, 0] = 0.0
    q[i, 0] = 1.0
    for j in 1:n - 1
      p[i, j] = 0.25 / (1.5 - 0.25 * p[i, j - 1])
      q[i, j] = (0.125 * u[j, i - 1] + 0.75 * u[j, i] + 0.125 * u[j, i + 1] + 0.25 * q[i, j - 1]) / (1.5 - 0.25 * p[i, j - 1])
    v[n - 1, i] = 1.0
    for jr in 1:n - 1
      v[n - 1 - jr, i] = p[i, n - 1 - jr] * v[n - jr, i] + q[i, n - 1 - jr]
  for i2 in 1:n - 1
    u[i2, 0] = 1.0
    p[i2, 0] = 0.0
    q[i2, 0] = 1.0
    for j2 in 1:n - 1
      p[i2, j2] = 0.25 / (1.5 - 0.25 * p[i2, j2 - 1])
      q[i2, j2] = (0.125 * v[i2 - 1, j2] + 0.75 * v[i2, j2] + 0.125 * v[i2 + 1, j2] + 0.25 * q[i2, j2 - 1]) / (1.5 - 0.25 * p[i2, j2 - 1])
    u[i2, n - 1] = 1.0
    for jr2 in 1:n - 1
      u[i2, n - 1 - jr2] = p[i2, n - 1 - jr2] * u[i2, n - jr2] + q[i2, n - 1 - jr2]
"""


def adi_reference(u: Array, steps: int) -> tuple[Array, ...]:
    """Half a step along columns, half along rows, each a tridiagonal system with ends of 1."""
    u, inner = u.copy(), len(u) - 2
    if inner == 0:
        return (u,)
    system = 1.5 * np.eye(inner) - 0.25 * (np.eye(inner, k=1) + np.eye(inner, k=-1))
    ends = np.zeros((inner, 1))
    ends[0] += 0.25
    ends[-1] += 0.25

    def half(x: Array) -> Array:
        weighted = 0.125 * x[:, :-2] + 0.75 * x[:, 1:-1] + 0.125 * x[:, 2:]
        solved: Array = np.ones((inner + 2, inner))
        solved[1:-1] = np.linalg.solve(system, weighted[1:-1] + ends)
        return solved

    for _ in range(steps):
        v = np.ones((inner + 2, inner + 2))
        v[:, 1:-1] = half(u)
        v[:, 0] = v[:, -1] = np.nan  # never read
        u[1:-1] = half(v.T).T
    return (u,)


KERNELS: Mapping[str, Polybench] = {
    "gemm": Polybench(
        GEMM,
        lambda A, B, C: (1.5 * A @ B + 1.2 * C,),
        {"i": ITSELF, "j": ITSELF, "k": SUM, "jk": SUM},
        mixed("m n p"),
        gemm,
        blocks=(("i", "k", "jk"), ("k", "jk")),
    ),
    "2mm": Polybench(
        TWO_MM,
        lambda A, B, C, D: (1.5 * A @ B @ C + 1.2 * D,),
        {"i": NOTHING, "j": NOTHING, "k": SUM, "i2": ITSELF, "j2": ITSELF, "k2": SUM},
        mixed("m n p q"),
        two_mm,
        blocks=(("i", "j"), ("i2", "j2"), ("i", "j", "i2", "j2", "k2")),
    ),
    "3mm": Polybench(
        THREE_MM,
        lambda A, B, C, D: (A @ B @ C @ D,),
        {"i": NOTHING, "j": NOTHING, "k": SUM, "i2": NOTHING, "j2": NOTHING, "k2": SUM}
        | {"i3": NOTHING, "j3": NOTHING, "k3": SUM},
        mixed("m n p q"),
        three_mm,
        blocks=(("i", "j"), ("i3", "j3"), ("i", "i2", "i3")),
    ),
    "gemver": Polybench(
        GEMVER,
        gemver_reference,
        {"i": ITSELF, "j": ITSELF, "i2": SUM, "j2": SUM, "i3": ITSELF, "i4": NOTHING, "j4": SUM},
        squares(*EDGES),
        gemver,
        blocks=(("i", "j"), ("i2", "j2"), ("i4", "j4")),
    ),
    "atax": Polybench(
        ATAX,
        lambda A, x: (A.T @ (A @ x),),
        {"i0": NOTHING, "i": MIXED, "j": SUM, "j2": SUM},
        mixed("m n"),
        atax,
    ),
    "bicg": Polybench(
        BICG,
        lambda A, p, r: (r @ A, A @ p),
        {"i0": NOTHING, "i": MIXED, "j": MIXED},
        mixed("m n"),
        bicg,
    ),
    "mvt": Polybench(
        MVT,
        lambda A, x1, x2, y1, y2: (x1 + A @ y1, x2 + y2 @ A),
        {"i": SUM, "j": SUM, "i2": SUM, "j2": SUM},
        squares(*EDGES),
        mvt,
        blocks=(("i", "j"), ("i2", "j2")),
    ),
    "gesummv": Polybench(
        GESUMMV,
        lambda A, B, x: ((1.5 * A + 1.2 * B) @ x,),
        {"i": NOTHING, "j": SUM},
        squares(*EDGES),
        gesummv,
    ),
    "syrk": Polybench(
        SYRK,
        lambda A, C: (np.tril(1.5 * A @ A.T + 1.2 * C) + np.triu(C, 1),),
        {"i": ITSELF, "j": ITSELF, "k": SUM, "jk": SUM},
        mixed("n m"),
        syrk,
        blocks=(("i", "k", "jk"),),
    ),
    "syr2k": Polybench(
        SYR2K,
        lambda A, B, C: (np.tril(1.5 * (A @ B.T + B @ A.T) + 1.2 * C) + np.triu(C, 1),),
        {"i": ITSELF, "j": ITSELF, "k": SUM, "jk": SUM},
        mixed("n m"),
        blocks=(("i", "k", "jk"),),
    ),
    "trmm": Polybench(
        TRMM,
        lambda A, B: (1.5 * (np.tril(A, -1).T @ B + B),),
        {"i": ORDER, "j": ITSELF, "k": SUM},
        mixed("m n"),
        trmm,
        blocks=(("i", "j"),),
    ),
    "symm": Polybench(
        SYMM,
        lambda A, B, C: (1.2 * C + 1.5 * symmetric(A) @ B,),
        {"i": ORDER, "j": ORDER, "k": MIXED},
        mixed("m n"),
        symm,
    ),
    "lu": Polybench(
        LU,
        lu_reference,
        {"k": ORDER, "i": ITSELF, "i2": SUM, "j": SUM},
        squares(*EDGES),
        lu,
        dominant,
        blocks=(("i2", "j"),),
    ),
    "cholesky": Polybench(
        CHOLESKY,
        lambda A: (np.linalg.cholesky(A) + np.triu(A, 1),),
        {"i": ORDER, "j": ORDER, "k": SUM, "k2": SUM},
        squares(*EDGES),
        cholesky,
        definite,
    ),
    "trisolv": Polybench(
        TRISOLV,
        lambda A, b: (np.linalg.solve(np.tril(A), b),),
        {"i": CHAIN, "j": SUM},
        squares(*EDGES),
        prepare=dominant,
    ),
    "durbin": Polybench(
        DURBIN,
        durbin_reference,
        {"k": ORDER, "i": SUM, "i2": NOTHING, "i3": NOTHING},
        squares(*EDGES[1:]),
        prepare=mild,
    ),
    "jacobi-1d": Polybench(
        JACOBI_1D,
        alternated(smooth_1d),
        {"t": ORDER, "i": NOTHING, "i2": NOTHING},
        (*squares(*EDGES, steps=3), {"n": 13, "steps": 0}),
        jacobi_1d,
    ),
    "jacobi-2d": Polybench(
        JACOBI_2D,
        alternated(smooth_2d),
        {"t": ORDER, "i": NOTHING, "j": NOTHING, "i2": NOTHING, "j2": NOTHING},
        (*squares(*EDGES, steps=2), {"n": 8, "steps": 0}),
        jacobi_2d,
        blocks=(("i", "j"), ("i", "j", "i2", "j2")),
    ),
    "heat-3d": Polybench(
        HEAT_3D,
        alternated(smooth_3d),
        {"t": ORDER, "i": NOTHING, "j": NOTHING, "k": NOTHING},
        squares(0, 1, 2, 3, 5, 8, steps=2),
        blocks=(("i", "j", "k"), ("j", "k")),
    ),
    "seidel-2d": Polybench(
        SEIDEL_2D,
        seidel_2d_reference,
        {"t": ORDER, "i": ORDER, "j": ORDER},
        (*squares(*EDGES, steps=2), {"n": 8, "steps": 0}),
        seidel_2d,
        crossed=(("i", "j"), ("t", "i"), ("t", "j"), ("t", "i", "j")),
    ),
    "fdtd-2d": Polybench(
        FDTD_2D,
        fdtd_2d_reference,
        {"t": ORDER, "j0": NOTHING} | dict.fromkeys(("i", "j", "i2", "j2", "i3", "j3"), ITSELF),
        tuple({"m": a, "n": b, "steps": 3} for a, b in ((1, 1), (1, 5), (5, 1), (2, 3), (8, 13))),
        fdtd_2d,
        blocks=(("i", "j"), ("i", "j", "i2", "j2", "i3", "j3")),
    ),
    "doitgen": Polybench(
        DOITGEN,
        lambda A, C: (A @ C,),
        {"s": NOTHING, "k": SUM, "s2": NOTHING},
        mixed("m n p"),
        doitgen,
    ),
    "covariance": Polybench(
        COVARIANCE,
        covariance_reference,
        {"j": NOTHING, "i": SUM, "i2": ITSELF, "j2": ITSELF, "i3": NOTHING, "j3": NOTHING}
        | {"k": SUM},
        tuple({"n": a, "m": b} for a, b in ((2, 0), (2, 1), (3, 2), (5, 8), (13, 5))),
        covariance,
        blocks=(("i2", "j2"), ("i3", "j3")),
    ),
    "correlation": Polybench(
        CORRELATION,
        correlation_reference,
        {"j": NOTHING, "i": SUM, "j2": NOTHING, "i2": SUM, "i3": ITSELF, "j3": ITSELF}
        | {"i4": NOTHING, "j4": NOTHING, "k": SUM},
        tuple({"n": a, "m": b} for a, b in ((3, 0), (3, 1), (3, 2), (5, 8), (13, 5))),
        blocks=(("i3", "j3"),),
    ),
    "floyd-warshall": Polybench(
        FLOYD_WARSHALL,
        floyd_warshall_reference,
        {"k": ORDER, "i": ORDER, "j": ORDER},
        squares(*EDGES),
        floyd_warshall,
        distances,
        blocks=(("i", "j"),),
        crossed=(("k", "i"), ("k", "j"), ("k", "i", "j")),
    ),
    "adi": Polybench(
        ADI,
        adi_reference,
        {"t": ORDER, "j": CHAIN, "jr": CHAIN, "j2": CHAIN, "jr2": CHAIN},
        (*squares(2, 3, 5, 8, 13, steps=2), {"n": 5, "steps": 0}),
    ),
}
