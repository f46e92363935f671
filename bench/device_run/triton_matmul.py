"""The product of Triton's tutorial on matrix multiplication, with its configurations for bfloat16: a contender.

Source: Triton, "Matrix Multiplication" (python/tutorials/03-matrix-multiplication.py).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

_SHAPES = ((128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4))  # fmt: skip
_CONFIGS = [
    triton.Config({"BM": m, "BN": n, "BK": k, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in _SHAPES
]


@triton.autotune(configs=_CONFIGS, key=["m", "n", "k"])  # type: ignore[untyped-decorator,unused-ignore]
@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip  # Triton reads annotations
    number = tl.program_id(0)
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = number // (GROUP * columns)
    first = group * GROUP
    height = min(rows - first, GROUP)
    row = first + (number % (GROUP * columns)) % height
    column = (number % (GROUP * columns)) // height
    i = (row * BM + tl.arange(0, BM)) % m
    j = (column * BN + tl.arange(0, BN)) % n
    p = tl.arange(0, BK)
    at_a, at_b = a + i[:, None] * k + p[None, :], b + p[:, None] * n + j[None, :]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(k, BK)):
        x = tl.load(at_a, mask=p[None, :] < k - step * BK, other=0.0)
        y = tl.load(at_b, mask=p[:, None] < k - step * BK, other=0.0)
        sums = tl.dot(x, y, sums)
        at_a += BK
        at_b += BK * n
    i, j = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    tl.store(c + i[:, None] * n + j[None, :], sums.to(tl.bfloat16), mask=(i[:, None] < m) & (j[None, :] < n))  # fmt: skip


def matmul(a: Any, b: Any, c: Any) -> None:
    """Compute ``c = a @ b`` of contiguous bfloat16 tensors on a GPU, ``(m, k)`` by ``(k, n)``."""
    (m, k), n = a.shape, b.shape[1]

    def grid(meta: Any) -> tuple[int]:
        return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

    _kernel[grid](a, b, c, m, n, k)
