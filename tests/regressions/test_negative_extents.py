"""An array between stages may have an extent below 0 at a size of 0: it takes no scratch, and none from the others."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import offcut as oc
from offcut import Kernel
from tests.facade import WORKSPACE

_PANELS = 64 * 32  # bytes of the kernel in panels: 16 channels as 64 rows, 24 columns as 32


def _thinned(threads: int) -> Kernel:
    """A 1×1 convolution of stride 2: of its input 2*((h + 1)//2) - 1 rows are copied."""
    n, h, w = (oc.dim(name, max=64) for name in "nhw")
    x = oc.placeholder((n, 16, h, w), "int8", name="X")
    k = oc.placeholder((24, 16, 1, 1), "int8", name="K")
    return oc.compile(oc.ops.conv2d(x, k, stride=2), inputs=[x, k], threads=threads)


@pytest.mark.isa("amx-int8")
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_scratch_holds_the_arrays_that_have_elements(threads: int) -> None:
    kernel, weights = _thinned(threads), np.ones((24, 16, 1, 1), "int8")
    asked = WORKSPACE(kernel.entry.workspace)
    for n, h, w in ((1, 0, 3), (64, 0, 64), (64, 64, 0), (64, 0, 0), (2, 3, 5)):
        assert asked((ctypes.c_int64 * 3)(n, h, w)) >= _PANELS
        found = kernel(np.ones((n, 16, h, w), "int8"), weights)
        assert found.shape == (n, 24, (h + 1) // 2, (w + 1) // 2)
        assert (found == 16).all()
