"""Kernels in the manner of PolyBench, written for offcut: loop programs, front-end versions, numpy.

The loop names of a program are all different, so that a tile names one loop. References are
float64 and written another way than the loops: products of matrices, slices, solvers, wavefronts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
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
PROGRAMS = Path(oc.__file__).parent / "studies/suites/polybench"
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


def text_of(name: str) -> str:
    """The loop program of a kernel, which the suite of studies has."""
    return (PROGRAMS / f"{name}.offcut").read_text(encoding="utf-8")


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


def gemm() -> Tensor:
    C, AB = tensor("C", m, n), matmul("AB", tensor("A", m, p), tensor("B", p, n))
    return oc.compute((m, n), lambda i, j: 1.2 * C[i, j] + 1.5 * AB[i, j], "D")


def two_mm() -> Tensor:
    D = tensor("D", m, q)
    ABC = matmul("ABC", matmul("AB", tensor("A", m, p), tensor("B", p, n)), tensor("C", n, q))
    return oc.compute((m, q), lambda i, j: 1.2 * D[i, j] + 1.5 * ABC[i, j], "E")


def three_mm() -> Tensor:
    left = matmul("E", tensor("A", m, p), tensor("B", p, n))
    return matmul("G", left, matmul("F", tensor("C", n, q), tensor("D", q, p)))


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


def atax() -> Tensor:
    A = tensor("A", m, n)
    return vecmat("y", matvec("T", A, tensor("x", n)), A)


def bicg() -> list[Tensor]:
    A = tensor("A", n, m)
    return [vecmat("s", tensor("r", n), A), matvec("q", A, tensor("p", m))]


def mvt() -> list[Tensor]:
    A, x1, x2 = tensor("A", n, n), tensor("x1", n), tensor("x2", n)
    d1, d2 = matvec("d1", A, tensor("y1", n)), vecmat("d2", tensor("y2", n), A)
    return [
        oc.compute((n,), lambda i: x1[i] + d1[i], "z1"),
        oc.compute((n,), lambda i: x2[i] + d2[i], "z2"),
    ]


def gesummv() -> Tensor:
    x = tensor("x", n)
    a, b = matvec("a", tensor("A", n, n), x), matvec("b", tensor("B", n, n), x)
    return oc.compute((n,), lambda i: 1.5 * a[i] + 1.2 * b[i], "y")


def syrk() -> Tensor:
    C, A, r = tensor("C", n, n), tensor("A", n, m), oc.reduce_axis(m, "r")
    gram = oc.compute((n, n), lambda i, j: oc.sum(A[i, r] * A[j, r], axis=r), "gram")
    return oc.compute(
        (n, n),
        lambda i, j: oc.where(j <= i, 1.2 * C[i, j] + 1.5 * gram[i, j], C[i, j]),
        "D",
    )


def trmm() -> Tensor:
    A, B, r = tensor("A", m, m), tensor("B", m, n), oc.reduce_axis(m, "r")
    above = oc.compute(
        (m, n),
        lambda i, j: oc.sum(oc.where(r > i, A[r, i] * B[r, j], 0.0), axis=r),
        "above",
    )
    return oc.compute((m, n), lambda i, j: 1.5 * (B[i, j] + above[i, j]), "D")


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


def durbin_reference(r: Array) -> tuple[Array, ...]:
    column = np.concatenate([[1.0], r[:-1]])
    return (np.linalg.solve(linalg.toeplitz(column), -r),)


def mild(arrays: dict[str, Array]) -> None:
    """Make the Toeplitz matrix of `r` diagonally dominant."""
    arrays["r"] /= 2.5 * len(arrays["r"])


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


def smooth_3d(x: Array) -> Array:
    inner = (slice(1, -1),) * 3
    bent = [np.diff(x, 2, axis=axis) for axis in range(3)]
    a, b, c = bent[0][:, 1:-1, 1:-1], bent[1][1:-1, :, 1:-1], bent[2][1:-1, 1:-1, :]
    result: Array = x[inner] + 0.125 * (a + b + c)
    return result


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


def doitgen() -> Tensor:
    A, C, r = tensor("A", m, n, p), tensor("C", p, p), oc.reduce_axis(p, "r")
    return oc.compute((m, n, p), lambda a, b, c: oc.sum(A[a, b, r] * C[r, c], axis=r), "B")


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


def correlation_reference(data: Array) -> tuple[Array, ...]:
    rows, count = data.shape
    corr = np.corrcoef(data.T).reshape(count, count) if count else np.zeros((0, 0))
    return (data - data.mean(axis=0)) / (np.sqrt(rows) * data.std(axis=0)), corr


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
        text_of("gemm"),
        lambda A, B, C: (1.5 * A @ B + 1.2 * C,),
        {"i": ITSELF, "j": ITSELF, "k": SUM, "jk": SUM},
        mixed("m n p"),
        gemm,
        blocks=(("i", "k", "jk"), ("k", "jk")),
    ),
    "2mm": Polybench(
        text_of("2mm"),
        lambda A, B, C, D: (1.5 * A @ B @ C + 1.2 * D,),
        {"i": NOTHING, "j": NOTHING, "k": SUM, "i2": ITSELF, "j2": ITSELF, "k2": SUM},
        mixed("m n p q"),
        two_mm,
        blocks=(("i", "j"), ("i2", "j2"), ("i", "j", "i2", "j2", "k2")),
    ),
    "3mm": Polybench(
        text_of("3mm"),
        lambda A, B, C, D: (A @ B @ C @ D,),
        {"i": NOTHING, "j": NOTHING, "k": SUM, "i2": NOTHING, "j2": NOTHING, "k2": SUM}
        | {"i3": NOTHING, "j3": NOTHING, "k3": SUM},
        mixed("m n p q"),
        three_mm,
        blocks=(("i", "j"), ("i3", "j3"), ("i", "i2", "i3")),
    ),
    "gemver": Polybench(
        text_of("gemver"),
        gemver_reference,
        {"i": ITSELF, "j": ITSELF, "i2": SUM, "j2": SUM, "i3": ITSELF, "i4": NOTHING, "j4": SUM},
        squares(*EDGES),
        gemver,
        blocks=(("i", "j"), ("i2", "j2"), ("i4", "j4")),
    ),
    "atax": Polybench(
        text_of("atax"),
        lambda A, x: (A.T @ (A @ x),),
        {"i0": NOTHING, "i": MIXED, "j": SUM, "j2": SUM},
        mixed("m n"),
        atax,
    ),
    "bicg": Polybench(
        text_of("bicg"),
        lambda A, p, r: (r @ A, A @ p),
        {"i0": NOTHING, "i": MIXED, "j": MIXED},
        mixed("m n"),
        bicg,
    ),
    "mvt": Polybench(
        text_of("mvt"),
        lambda A, x1, x2, y1, y2: (x1 + A @ y1, x2 + y2 @ A),
        {"i": SUM, "j": SUM, "i2": SUM, "j2": SUM},
        squares(*EDGES),
        mvt,
        blocks=(("i", "j"), ("i2", "j2")),
    ),
    "gesummv": Polybench(
        text_of("gesummv"),
        lambda A, B, x: ((1.5 * A + 1.2 * B) @ x,),
        {"i": NOTHING, "j": SUM},
        squares(*EDGES),
        gesummv,
    ),
    "syrk": Polybench(
        text_of("syrk"),
        lambda A, C: (np.tril(1.5 * A @ A.T + 1.2 * C) + np.triu(C, 1),),
        {"i": ITSELF, "j": ITSELF, "k": SUM, "jk": SUM},
        mixed("n m"),
        syrk,
        blocks=(("i", "k", "jk"),),
    ),
    "syr2k": Polybench(
        text_of("syr2k"),
        lambda A, B, C: (np.tril(1.5 * (A @ B.T + B @ A.T) + 1.2 * C) + np.triu(C, 1),),
        {"i": ITSELF, "j": ITSELF, "k": SUM, "jk": SUM},
        mixed("n m"),
        blocks=(("i", "k", "jk"),),
    ),
    "trmm": Polybench(
        text_of("trmm"),
        lambda A, B: (1.5 * (np.tril(A, -1).T @ B + B),),
        {"i": ORDER, "j": ITSELF, "k": SUM},
        mixed("m n"),
        trmm,
        blocks=(("i", "j"),),
    ),
    "symm": Polybench(
        text_of("symm"),
        lambda A, B, C: (1.2 * C + 1.5 * symmetric(A) @ B,),
        {"i": ORDER, "j": ORDER, "k": MIXED},
        mixed("m n"),
        symm,
    ),
    "lu": Polybench(
        text_of("lu"),
        lu_reference,
        {"k": ORDER, "i": ITSELF, "i2": SUM, "j": SUM},
        squares(*EDGES),
        lu,
        dominant,
        blocks=(("i2", "j"),),
    ),
    "cholesky": Polybench(
        text_of("cholesky"),
        lambda A: (np.linalg.cholesky(A) + np.triu(A, 1),),
        {"i": ORDER, "j": ORDER, "k": SUM, "k2": SUM},
        squares(*EDGES),
        cholesky,
        definite,
    ),
    "trisolv": Polybench(
        text_of("trisolv"),
        lambda A, b: (np.linalg.solve(np.tril(A), b),),
        {"i": CHAIN, "j": SUM},
        squares(*EDGES),
        prepare=dominant,
    ),
    "durbin": Polybench(
        text_of("durbin"),
        durbin_reference,
        {"k": ORDER, "i": SUM, "i2": NOTHING, "i3": NOTHING},
        squares(*EDGES[1:]),
        prepare=mild,
    ),
    "jacobi-1d": Polybench(
        text_of("jacobi-1d"),
        alternated(smooth_1d),
        {"t": ORDER, "i": NOTHING, "i2": NOTHING},
        (*squares(*EDGES, steps=3), {"n": 13, "steps": 0}),
        jacobi_1d,
    ),
    "jacobi-2d": Polybench(
        text_of("jacobi-2d"),
        alternated(smooth_2d),
        {"t": ORDER, "i": NOTHING, "j": NOTHING, "i2": NOTHING, "j2": NOTHING},
        (*squares(*EDGES, steps=2), {"n": 8, "steps": 0}),
        jacobi_2d,
        blocks=(("i", "j"), ("i", "j", "i2", "j2")),
    ),
    "heat-3d": Polybench(
        text_of("heat-3d"),
        alternated(smooth_3d),
        {"t": ORDER, "i": NOTHING, "j": NOTHING, "k": NOTHING},
        squares(0, 1, 2, 3, 5, 8, steps=2),
        blocks=(("i", "j", "k"), ("j", "k")),
    ),
    "seidel-2d": Polybench(
        text_of("seidel-2d"),
        seidel_2d_reference,
        {"t": ORDER, "i": ORDER, "j": ORDER},
        (*squares(*EDGES, steps=2), {"n": 8, "steps": 0}),
        seidel_2d,
        crossed=(("i", "j"), ("t", "i"), ("t", "j"), ("t", "i", "j")),
    ),
    "fdtd-2d": Polybench(
        text_of("fdtd-2d"),
        fdtd_2d_reference,
        {"t": ORDER, "j0": NOTHING} | dict.fromkeys(("i", "j", "i2", "j2", "i3", "j3"), ITSELF),
        tuple({"m": a, "n": b, "steps": 3} for a, b in ((1, 1), (1, 5), (5, 1), (2, 3), (8, 13))),
        fdtd_2d,
        blocks=(("i", "j"), ("i", "j", "i2", "j2", "i3", "j3")),
    ),
    "doitgen": Polybench(
        text_of("doitgen"),
        lambda A, C: (A @ C,),
        {"s": NOTHING, "k": SUM, "s2": NOTHING},
        mixed("m n p"),
        doitgen,
    ),
    "covariance": Polybench(
        text_of("covariance"),
        covariance_reference,
        {"j": NOTHING, "i": SUM, "i2": ITSELF, "j2": ITSELF, "i3": NOTHING, "j3": NOTHING}
        | {"k": SUM},
        tuple({"n": a, "m": b} for a, b in ((2, 0), (2, 1), (3, 2), (5, 8), (13, 5))),
        covariance,
        blocks=(("i2", "j2"), ("i3", "j3")),
    ),
    "correlation": Polybench(
        text_of("correlation"),
        correlation_reference,
        {"j": NOTHING, "i": SUM, "j2": NOTHING, "i2": SUM, "i3": ITSELF, "j3": ITSELF}
        | {"i4": NOTHING, "j4": NOTHING, "k": SUM},
        tuple({"n": a, "m": b} for a, b in ((3, 0), (3, 1), (3, 2), (5, 8), (13, 5))),
        blocks=(("i3", "j3"),),
    ),
    "floyd-warshall": Polybench(
        text_of("floyd-warshall"),
        floyd_warshall_reference,
        {"k": ORDER, "i": ORDER, "j": ORDER},
        squares(*EDGES),
        floyd_warshall,
        distances,
        blocks=(("i", "j"),),
        crossed=(("k", "i"), ("k", "j"), ("k", "i", "j")),
    ),
    "adi": Polybench(
        text_of("adi"),
        adi_reference,
        {"t": ORDER, "j": CHAIN, "jr": CHAIN, "j2": CHAIN, "jr2": CHAIN},
        (*squares(2, 3, 5, 8, 13, steps=2), {"n": 5, "steps": 0}),
    ),
}
