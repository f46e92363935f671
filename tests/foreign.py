"""Functions that are not offcut's, for tests: scipy's gemm, and a product that counts its calls."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut import Microkernel, Tensor
from tests.facade import numpy_dtype

ROWS = 24  # of the tallest tile that the tests declare
CHEAP, DEAR = 1 / 4096, 4.0
_TILE = ctypes.CFUNCTYPE(
    None,
    *(ctypes.c_void_p, ctypes.c_int64) * 3,
    *(ctypes.c_int64,) * 4,
)


def product(
    dtype: str = "float32", wide: str = "", rows: Any = None, columns: Any = None
) -> Tensor:
    """``C = A B``, of `dtype`, multiplied and added up in `wide`."""
    m = oc.dim("m", min=1, max=ROWS) if rows is None else rows
    n = oc.dim("n", min=1) if columns is None else columns
    k = oc.reduce_axis(oc.dim("k"), name="p")
    a = oc.placeholder((m, oc.dim("k")), dtype, name="A")
    b = oc.placeholder((oc.dim("k"), n), dtype, name="B")

    def term(i: Any, j: Any) -> Any:
        x, y = a[i, k], b[k, j]
        return oc.sum(oc.cast(x, wide) * oc.cast(y, wide) if wide else x * y, axis=k)

    return oc.compute((m, n), term, name="C")


def gemm(dtype: str = "float32", cycles: float = CHEAP) -> Microkernel:
    """scipy's sgemm or dgemm, which claims to copy nothing."""
    pytest.importorskip("scipy", reason="scipy, which brings the BLAS, is not installed")
    name = {"float32": "sgemm", "float64": "dgemm"}[dtype]
    function = oc.external.blas(name)
    return oc.external_microkernel(
        name,
        product(dtype),
        function,
        convention="blas_gemm",
        cycles=cycles,
        copying=0.0,
        measured=False,
        verify=False,
    )


class Own:
    """A function of the user's, of the convention "tile", written in numpy."""

    def __init__(self, dtype: str = "float32", wide: str = "float32", scale: int = 1) -> None:
        self.item, self.wide, self.scale = numpy_dtype(dtype), numpy_dtype(wide), scale
        self.calls: list[tuple[int, int, int, int]] = []
        self.threads: set[int] = set()
        self.function = _TILE(self.run)

    def run(self, a: int, lda: int, b: int, ldb: int, c: int, ldc: int, *rest: int) -> None:
        m, n, k, accumulate = rest
        self.calls.append((m, n, k, accumulate))
        self.threads.add(threading.get_ident())
        left, right = self.matrix(a, lda, m, k, self.item), self.matrix(b, ldb, k, n, self.item)
        result = self.matrix(c, ldc, m, n, self.wide)
        total = self.scale * (left.astype(self.wide) @ right.astype(self.wide))
        result[...] = result + total if accumulate else total

    @staticmethod
    def matrix(at: int, step: int, rows: int, columns: int, dtype: Any) -> Any:
        if not rows or not columns:
            return np.zeros((rows, columns), dtype)
        count = ((rows - 1) * step + columns) * dtype.itemsize
        memory = np.frombuffer((ctypes.c_char * count).from_address(at), dtype)
        strides = (step * dtype.itemsize, dtype.itemsize)
        return np.lib.stride_tricks.as_strided(memory, (rows, columns), strides)

    def declared(
        self,
        name: str = "own",
        cycles: float = CHEAP,
        computes: Tensor | None = None,
        measured: bool = False,
        verify: bool = False,
    ) -> Microkernel:
        return oc.external_microkernel(
            name,
            computes or product(),
            self.function,
            cycles=cycles,
            measured=measured,
            verify=verify,
        )


def taken(kernel: oc.Kernel, **sizes: int) -> set[str | None]:
    """The microkernels of the pieces that run at these sizes."""
    return {piece.microkernel for piece in kernel.plan(**sizes).pieces}
