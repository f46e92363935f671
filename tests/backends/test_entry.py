"""The address of a kernel: other programs call it as C does."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import ops

SIZES = (0, 1, 13, 14, 15, 42, 47)


def called(kernel: oc.Kernel, arrays: list[np.ndarray], sizes: list[int]) -> int:
    """The status of a call through the address alone."""
    entry = kernel.entry
    pointers = (ctypes.c_void_p * (len(arrays) + len(entry.constants)))(
        *(array.ctypes.data for array in arrays), *entry.constants
    )
    extents = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
    steps = [step // array.itemsize for array in arrays for step in array.strides]
    strides = (ctypes.c_int64 * max(len(steps), 1))(*steps)
    needed = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(entry.workspace)(extents)
    scratch = np.zeros(needed + 64, np.uint8)
    aligned = -(-scratch.ctypes.data // 64) * 64
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *([ctypes.c_void_p] * 4))(kernel.address)
    return call(pointers, extents, strides, aligned)


@pytest.mark.every(4)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_a_call_by_address_gives_the_bits_of_a_call(packed: bool, threads: int) -> None:
    n = oc.dim("n", max=64)
    a, w = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 40), name="W")
    rng = np.random.default_rng(0)
    held = rng.standard_normal((24, 40), dtype=np.float32)
    constants = {"W": held} if packed else {}
    kernel = oc.compile(ops.matmul(a, w), inputs=[a, w], constants=constants, threads=threads)
    assert len(kernel.entry.constants) == len(constants)
    for size in SIZES:
        x = rng.standard_normal((size, 24), dtype=np.float32)
        given = [x] if packed else [x, held]
        result = np.full((size, 40), np.nan, np.float32)
        assert called(kernel, [*given, result], [size]) == 0
        np.testing.assert_array_equal(result, kernel(*given))


def test_an_index_that_leads_outside_is_said_by_the_status() -> None:
    n = oc.dim("n", max=64)
    ids, t = oc.placeholder((n,), "int32", name="ids"), oc.placeholder((9, 4), name="T")
    kernel = oc.compile(ops.embedding(t, ids), inputs=[ids, t])
    rows, table = np.array([3, 9], np.int32), np.ones((9, 4), np.float32)
    assert called(kernel, [rows, table, np.empty((2, 4), np.float32)], [2]) == 1


def test_what_makes_no_machine_code_has_no_address() -> None:
    n = oc.dim("n", max=64)
    a = oc.placeholder((n,), name="A")
    kernel = oc.compile(ops.relu(a), target="interpret")
    with rejection(
        f"TargetError: entry: cannot give the address of {kernel.signature.name}\n"
        "  because  interpret makes no machine code\n"
        "  help     kernel(…) calls it"
    ):
        _ = kernel.address
