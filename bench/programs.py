"""The programs that cost models and search are judged on, and that shipped records are of.

Each has sizes that it is tuned at, and others that nobody fits or tunes anything to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import offcut as oc
from offcut.core.program import Program
from offcut.describe.tensor import Tensor

KINDS = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class Judged:
    """A program with its sizes.

    output     a tensor or a loop program
    inputs     in call order; None: those that the program declares
    constants  names of inputs that are known before any call
    tuned      values by size
    held_out   others
    """

    name: str
    output: Tensor | Program
    inputs: tuple[Tensor, ...] | None
    constants: tuple[str, ...]
    tuned: Mapping[str, list[int]]
    held_out: Mapping[str, list[int]]


def programs() -> dict[str, Callable[[], Judged]]:
    """What makes each of them, by name."""
    made = (dense, attention, convolution, softmax, layernorm, stencil)
    return {f"{make.__name__} {kind}": partial(make, kind) for make in made for kind in KINDS}


ROWS = [1, 7, 16, 43, 128, 512]
OTHER_ROWS = [3, 20, 77, 300]


def dense(kind: str) -> Judged:
    """A dense layer of 768 to 3072 features, of any rows, summed and left in float32."""
    n = oc.dim("n", min=1, max=4096)
    A, W = oc.placeholder((n, 768), kind, name="A"), oc.placeholder((768, 3072), kind, name="W")
    k = oc.reduce_axis(768, name="k")

    def element(i: Any, j: Any) -> Any:
        a, w = A[i, k], W[k, j]
        if kind != "float32":
            a, w = oc.cast(a, "float32"), oc.cast(w, "float32")
        return oc.sum(a * w, axis=k)

    C = oc.compute((n, 3072), element, name="C")
    return Judged(f"dense {kind}", C, (A, W), ("W",), {"n": ROWS}, {"n": OTHER_ROWS})


def attention(kind: str) -> Judged:
    """Attention of 12 heads of 64 features, of any batch and lengths."""
    batch, heads, s, t = (oc.dim(name, min=1, max=512) for name in ("batch", "heads", "s", "t"))
    Q = oc.placeholder((batch, heads, s, 64), kind, name="Q")
    K, V = (oc.placeholder((batch, heads, t, 64), kind, name=name) for name in "KV")
    alone = {"batch": [1], "heads": [12]}
    return Judged(
        *(f"attention {kind}", oc.ops.attention(Q, K, V), (Q, K, V), ()),
        {**alone, "s": [17, 128], "t": [17, 128]},
        {**alone, "s": [43, 100], "t": [43, 100]},
    )


def convolution(kind: str) -> Judged:
    """The 3×3 layer of 64 channels of ResNet-50, of any batch and image, its channels last."""
    b, h, w = (oc.dim(letter, min=1, max=2**16) for letter in "bhw")
    X = oc.placeholder((b, h, w, 64), kind, name="X")
    W = oc.placeholder((3, 3, 64, 64), kind, name="W")
    Y = oc.ops.conv2d(X, W, None, 1, 1, layout="NHWC", name="Y")
    tuned, held = {"b": [1], "h": [14, 56], "w": [14, 56]}, {"b": [1], "h": [13, 37], "w": [37]}
    return Judged(f"convolution {kind}", Y, (X, W), ("W",), tuned, held)


def softmax(kind: str) -> Judged:
    """Softmax of any rows of any length."""
    m, n = (oc.dim(letter, min=1, max=2**16) for letter in "mn")
    X = oc.placeholder((m, n), kind, name="X")
    tuned, held = {"m": [16, 256], "n": [64, 512]}, {"m": [77], "n": [43, 333]}
    return Judged(f"softmax {kind}", oc.ops.softmax(X, name="result"), (X,), (), tuned, held)


def layernorm(kind: str) -> Judged:
    """Layer norm of any rows of 768 elements."""
    m = oc.dim("m", min=1, max=2**16)
    X = oc.placeholder((m, 768), kind, name="X")
    gain, bias = (oc.placeholder((768,), kind, name=name) for name in ("gain", "bias"))
    Y = oc.ops.layernorm(X, gain, bias, 1e-5, name="result")
    constants = ("gain", "bias")
    rows, others = {"m": ROWS}, {"m": OTHER_ROWS}
    return Judged(f"layernorm {kind}", Y, (X, gain, bias), constants, rows, others)


def stencil(kind: str) -> Judged:
    """The mean of an element of a matrix and its four neighbours."""
    text = f"""\
program jacobi_2d
size m in 2:8193
size n in 2:8193
input A: {kind}[m, n]
output B: {kind}[m, n]
for i in 1:m - 1
  for j in 1:n - 1
    B[i, j] = {kind}(0.2) * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
"""
    tuned, held = {"m": [64, 512], "n": [64, 512]}, {"m": [253], "n": [100, 1003]}
    return Judged(f"stencil {kind}", oc.parse(text), None, (), tuned, held)
