"""Programs of one size with their results in numpy, of which schedules by hand are drawn (`tests.hand_schedules`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import offcut as oc
from offcut import Tensor, ops
from offcut.ir import Buffer, Kind
from tests.agree import Exact, computed, exact_matmul, total

Array = npt.NDArray[Any]
MAX_SIZE = 40
"""The largest value of the size of each program."""


@dataclass(frozen=True)
class Case:
    """A program with one size ``n``, from 0 to `MAX_SIZE`.

    exact    the result in numpy, from the inputs in their order
    inputs   the shape of each input at a size
    values   expressions of its stages that ``stage value`` may name, each with its readers and axes
    """

    output: Tensor | oc.Program
    arguments: tuple[Tensor | Buffer, ...]
    exact: Callable[..., Exact | Array]
    inputs: Callable[[int], Sequence[tuple[int, ...]]]
    values: tuple[str, ...] = ()

    @property
    def request(self) -> dict[str, Any]:
        """Return what is compiled, or scheduled, as `offcut.compile` and `offcut.create_schedule` take it."""
        if isinstance(self.output, oc.Program):
            return {"output": self.output}
        return {"output": self.output, "inputs": list(self.arguments)}

    def arrays(self, size: int) -> list[Array]:
        """Return inputs at a size, the same ones each time: small integers, and no NaN."""
        rng = np.random.default_rng(size)
        made = []
        for tensor, shape in zip(self.arguments, self.inputs(size), strict=True):
            dtype = ml_dtypes.bfloat16 if tensor.dtype == "bfloat16" else tensor.dtype
            made.append(rng.integers(-4, 5, shape).astype(dtype))
        return made


def _size() -> oc.Expr:
    return oc.dim("n", min=0, max=MAX_SIZE)


def _product(
    n: Any, dtype: str, depth: int, columns: int, name: str
) -> tuple[Tensor, list[Tensor]]:
    a, w = oc.placeholder((n, depth), dtype, "A"), oc.placeholder((depth, columns), dtype, "W")
    k, wide = oc.reduce_axis(depth, name="k"), "int32" if dtype == "int8" else "float32"

    def term(i: Any, j: Any) -> Any:
        one, other = a[i, k], w[k, j]
        return one * other if dtype == wide else one.astype(wide) * other.astype(wide)

    made = oc.compute((n, columns), lambda i, j: oc.sum(term(i, j), axis=k), name=name)
    return made, [a, w]


def dense(dtype: str = "float32", depth: int = 24, columns: int = 40) -> Case:
    """A product."""
    made, arguments = _product(_size(), dtype, depth, columns, "C")
    return Case(
        made,
        tuple(arguments),
        exact_matmul,
        lambda n: ((n, depth), (depth, columns)),
        ("A[i, k] for C as V(i, k)", "W[k, j] for C as V(k, j)"),
    )


def epilogue(dtype: str = "float32", depth: int = 24, columns: int = 40) -> Case:
    """A product, a bias, and what is below zero cut."""
    made, arguments = _product(_size(), dtype, depth, columns, "C")
    b = oc.placeholder((columns,), made.dtype, "b")
    zero = 0 if made.dtype == "int32" else 0.0
    cut = oc.compute(made.shape, lambda i, j: oc.maximum(made[i, j] + b[j], zero), name="D")

    def exact(a: Array, w: Array, bias: Array) -> Exact:
        product = exact_matmul(a, w)
        value = np.maximum(product.value + bias.astype(product.value.dtype), 0)
        return Exact(value, product.terms + np.abs(bias.astype("float64")), product.units + 1)

    shapes = (depth, columns), (columns,)
    values = ("C[i, j] + b[j] for D as V(i, j)", "A[i, k] for C as V(i, k)")
    return Case(cut, (*arguments, b), exact, lambda n: ((n, depth), *shapes), values)


def two_stages(dtype: str = "float32") -> Case:
    """Two stages element by element; the second reads two elements of the first."""
    n = _size()
    a = oc.placeholder((n, 24), dtype, "A")
    b = oc.compute((n, 24), lambda i, j: a[i, j] * 3, name="B")
    c = oc.compute((n, 23), lambda i, j: b[i, j] + b[i, j + 1], name="C")

    def exact(x: Array) -> Exact:
        wide = x.astype("float64") * 3
        value = wide[:, :-1] + wide[:, 1:]
        return Exact(value, np.abs(wide[:, :-1]) + np.abs(wide[:, 1:]), 4)

    values = ("A[i, j]*3 for B as V(i, j)", "A[i, j] for B as V(i, j)")
    return Case(c, (a,), exact, lambda n: ((n, 24),), values)


def softmax() -> Case:
    """Rows that add up to one."""
    n = _size()
    a = oc.placeholder((n, 24), name="A")
    k, q = oc.reduce_axis(24, name="k"), oc.reduce_axis(24, name="q")
    most = oc.compute((n,), lambda i: oc.max(a[i, k], axis=k), name="M")
    power = oc.compute((n, 24), lambda i, j: oc.exp(a[i, j] - most[i]), name="E")
    whole = oc.compute((n,), lambda i: oc.sum(power[i, q], axis=q), name="S")
    share = oc.compute((n, 24), lambda i, j: power[i, j] / whole[i], name="Y")

    def exact(x: Array) -> Exact:
        def values(wide: Array) -> Array:
            powers = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf))
            return powers / powers.sum(axis=1, keepdims=True)

        made: Exact = computed(values, x)
        return made

    values = ("A[i, j] - M[i] for E as V(i, j)", "E[i, j] for Y as V(i, j)")
    return Case(share, (a,), exact, lambda n: ((n, 24),), values)


def stencil(dtype: str = "float32") -> Case:
    """Three neighbours in each of two directions, one after the other."""
    n = _size()
    a = oc.placeholder((n + 2, 20), dtype, "A")
    b = oc.compute((n + 2, 18), lambda y, x: a[y, x] + a[y, x + 1] + a[y, x + 2], name="B")
    c = oc.compute((n, 18), lambda y, x: b[y, x] + b[y + 1, x] + b[y + 2, x], name="C")

    def exact(x: Array) -> Exact:
        wide = x.astype("float64")

        def values(z: Array) -> Array:
            rows = z[:, :-2] + z[:, 1:-1] + z[:, 2:]
            return np.asarray(rows[:-2] + rows[1:-1] + rows[2:])

        return Exact(values(wide), values(np.abs(wide)), 12)

    values = ("A[y, x] for B as V(y, x)",)
    return Case(c, (a,), exact, lambda n: ((n + 2, 20),), values)


def convolution(dtype: str = "float32") -> Case:
    """Windows of an image of `n` rows, of several channels."""
    n, wide = _size(), "int32" if dtype == "int8" else "float32"
    x, f = oc.placeholder((n + 2, 9, 3), dtype, "X"), oc.placeholder((3, 2, 3, 8), dtype, "F")
    r, s, c = (oc.reduce_axis(e, name=a) for e, a in ((3, "r"), (2, "s"), (3, "c")))

    def term(h: Any, w: Any, o: Any) -> Any:
        one, other = x[h + r, w + s, c], f[r, s, c, o]
        return one * other if dtype == wide else one.astype(wide) * other.astype(wide)

    y = oc.compute((n, 8, 8), lambda h, w, o: oc.sum(term(h, w, o), axis=[r, s, c]), name="Y")

    def exact(image: Array, kernel: Array) -> Exact:
        rows = len(image) - 2
        windows = np.zeros((rows, 8, 3, 2, 3))
        for k in range(3):
            for q in range(2):
                windows[:, :, k, q] = image[k : k + rows, q : q + 8].astype("float64")
        made = exact_matmul(windows, kernel.astype("float64"), spec="hwrsc,rsco->hwo")
        return made if dtype != "int8" else Exact(made.value.astype("int64"), made.terms)

    return Case(y, (x, f), exact, lambda n: ((n + 2, 9, 3), (3, 2, 3, 8)))


def attention() -> Case:
    """Weighted means of rows, the weights from the rows themselves."""
    n = _size()
    q, k, v = (oc.placeholder((n, 8), name=name) for name in "QKV")

    def exact(*inputs: Array) -> Exact:
        def values(one: Array, other: Array, rows: Array) -> Array:
            scores = one @ other.T / np.sqrt(8.0)
            powers = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
            return np.asarray(powers / powers.sum(axis=1, keepdims=True) @ rows)

        made: Exact = computed(values, *inputs)
        return made

    return Case(ops.attention(q, k, v), (q, k, v), exact, lambda n: ((n, 8),) * 3)


def row_sums(dtype: str = "float32") -> Case:
    """The sum of each row."""
    n = _size()
    a, k = oc.placeholder((n, 37), dtype, "A"), oc.reduce_axis(37, name="k")
    wide = "int32" if dtype == "int8" else dtype
    r = oc.compute((n,), lambda i: oc.sum(a[i, k].astype(wide), axis=k), name="R")
    exact = (lambda x: x.astype("int64").sum(1)) if dtype == "int8" else (lambda x: total(x, 1))
    return Case(r, (a,), exact, lambda n: ((n, 37),))


def column_maxima() -> Case:
    """The greatest of each column, of no rows the least float."""
    n = _size()
    a, k = oc.placeholder((n, 18), name="A"), oc.reduce_axis(n, name="k")
    r = oc.compute((18,), lambda j: oc.max(a[k, j], axis=k), name="R")
    return Case(
        r, (a,), lambda x: x.astype("float64").max(0, initial=-np.inf), lambda n: ((n, 18),)
    )


RECURRENCE = """\
program recurrence
size n in 0:41
input A: float32[n, 8, 16]
input W: float32[16, 20]
local H: float32[8, 20]
output Y: float32[n, 8, 20]
for t in 0:n
  for i in 0:8
    for j in 0:20
      H[i, j] = 0.0
      for k in 0:16
        H[i, j] += A[t, i, k] * W[k, j]
  for i in 0:8
    for j in 0:20
      Y[t, i, j] = max(H[i, j], 0.0)
"""
SCAN = """\
program scan
size n in 0:41
input A: float32[n, 20]
local S: float32[n + 1, 20]
output Y: float32[n, 20]
for j in 0:20
  S[0, j] = 0.0
for i in 0:n
  for j in 0:20
    S[i + 1, j] = S[i, j] + A[i, j]
for i in 0:n
  for j in 0:20
    Y[i, j] = where(j < 3, S[i + 1, j], S[i + 1, j] * 2.0)
"""


def recurrence() -> Case:
    """A product in each iteration of a loop, in an array that all of them share."""
    program = oc.parse(RECURRENCE)

    def exact(a: Array, w: Array) -> Exact:
        made = exact_matmul(a, w, spec="tik,kj->tij")
        return Exact(np.maximum(made.value, 0), made.terms, made.units)

    return Case(program, _inputs(program), exact, lambda n: ((n, 8, 16), (16, 20)))


def scan() -> Case:
    """Running sums of columns, most of them doubled."""
    program = oc.parse(SCAN)

    def exact(a: Array) -> Exact:
        scale = np.where(np.arange(20) < 3, 1.0, 2.0)
        value, terms = (np.cumsum(x.astype("float64"), 0) * scale for x in (a, np.abs(a)))
        return Exact(value, terms, MAX_SIZE)

    return Case(program, _inputs(program), exact, lambda n: ((n, 20),))


def _inputs(program: oc.Program) -> tuple[Buffer, ...]:
    return tuple(buffer for buffer in program.buffers if buffer.kind is Kind.INPUT)


def requantized(depth: int = 20, columns: int = 24) -> Case:
    """A product of bytes, divided and cut to bytes."""
    sums, arguments = _product(_size(), "int8", depth, columns, "S")
    y = oc.compute(sums.shape, lambda i, j: _byte(sums[i, j] // 4), name="Y")
    return Case(y, tuple(arguments), _layer, lambda n: ((n, depth), (depth, columns)))


def two_layers() -> Case:
    """A product of bytes, cut to bytes, and another one of these."""
    sums, arguments = _product(_size(), "int8", 20, 24, "S")
    y = oc.compute(sums.shape, lambda i, j: _byte(sums[i, j] // 4), name="Y")
    v, q = oc.placeholder((24, 18), "int8", "V"), oc.reduce_axis(24, name="q")

    def term(i: Any, j: Any) -> Any:
        return y[i, q].astype("int32") * v[q, j].astype("int32")

    more = oc.compute((y.shape[0], 18), lambda i, j: oc.sum(term(i, j), axis=q), name="T")
    z = oc.compute(more.shape, lambda i, j: _byte(more[i, j] // 4), name="Z")

    def exact(a: Array, w: Array, u: Array) -> Array:
        return _layer(_layer(a, w), u)

    return Case(z, (*arguments, v), exact, lambda n: ((n, 20), (20, 24), (24, 18)))


def residual() -> Case:
    """A product of bytes, divided, with bytes added, cut to bytes."""
    sums, arguments = _product(_size(), "int8", 20, 24, "S")
    r = oc.placeholder(sums.shape, "int8", "R")
    y = oc.compute(
        sums.shape, lambda i, j: _byte(sums[i, j] // 4 + r[i, j].astype("int32")), name="Y"
    )

    def exact(a: Array, w: Array, rest: Array) -> Array:
        return np.clip(a.astype("int64") @ w.astype("int64") // 4 + rest, -128, 127)

    return Case(y, (*arguments, r), exact, lambda n: ((n, 20), (20, 24), (n, 24)))


def byte_sums() -> Case:
    """Two arrays of bytes added, and cut to bytes."""
    n = _size()
    a, b = oc.placeholder((n, 24), "int8", "A"), oc.placeholder((n, 24), "int8", "B")

    def sums(i: Any, j: Any) -> Any:
        return _byte(a[i, j].astype("int32") + b[i, j].astype("int32"))

    def exact(x: Array, y: Array) -> Array:
        return np.clip(x.astype("int64") + y, -128, 127)

    return Case(oc.compute((n, 24), sums, name="Y"), (a, b), exact, lambda n: ((n, 24),) * 2)


def byte_convolution() -> Case:
    """Windows of images of bytes, divided and cut to bytes."""
    wide = convolution("int8")
    sums = wide.output
    y = oc.compute(sums.shape, lambda h, w, o: _byte(sums[h, w, o] // 2), name="Z")

    def exact(image: Array, kernel: Array) -> Array:
        made = wide.exact(image, kernel)
        assert isinstance(made, Exact)
        return np.clip(made.value // 2, -128, 127)

    return Case(y, wide.arguments, exact, wide.inputs)


def _byte(value: Any) -> Any:
    return oc.maximum(oc.minimum(value, 127), -128).astype("int8")


def _layer(a: Array, w: Array) -> Array:
    return np.clip(a.astype("int64") @ w.astype("int64") // 4, -128, 127)


CASES: Mapping[str, Callable[[], Case]] = {
    "dense": dense,
    "dense bfloat16": lambda: dense("bfloat16"),
    "dense int8": lambda: dense("int8"),
    "epilogue": epilogue,
    "epilogue bfloat16": lambda: epilogue("bfloat16"),
    "epilogue int8": lambda: epilogue("int8"),
    "two stages": two_stages,
    "two stages float64": lambda: two_stages("float64"),
    "two stages int32": lambda: two_stages("int32"),
    "softmax": softmax,
    "stencil": stencil,
    "convolution": convolution,
    "convolution int8": lambda: convolution("int8"),
    "attention": attention,
    "row sums": row_sums,
    "row sums int8": lambda: row_sums("int8"),
    "column maxima": column_maxima,
    "recurrence": recurrence,
    "scan": scan,
    "requantized": requantized,
    "two layers": two_layers,
    "residual": residual,
    "byte sums": byte_sums,
    "byte convolution": byte_convolution,
}
