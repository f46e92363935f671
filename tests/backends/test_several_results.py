"""Kernels with several results: called by generated code as those with one, with every check."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiled import Array, floats

import offcut as oc
from offcut import Kernel
from offcut.backends.host import dlpack
from offcut.backends.host.call import make_callable
from offcut.errors import CallError

UPDATES = """\
program updates
size n in 0:65
inout X: float64[n]
inout Y: float64[n]
for i in 0:n
  X[i] = X[i] + 1.0
for i in 0:n
  Y[i] = 2.0 * Y[i] + X[i]
"""
ROWS = """\
program rows
size n in 0:65
input ids: int64[n]
input table: float32[8, 3]
output R: float32[n, 3]
output S: float32[n]
for i in 0:n
  for j in 0:3
    R[i, j] = table[index(ids[i]), j]
for i in 0:n
  S[i] = table[index(ids[i]), 0]
"""


def by_slow_path(kernel: Kernel) -> Callable[..., Any]:
    """The same code, called by the slow path alone."""
    code = kernel.code.loaded.loaded
    entry, workspace = (code.address(f"offcut_{name}") for name in ("entry", "workspace"))
    return make_callable(kernel.signature, entry, workspace, owner=code)


@pytest.fixture(scope="module")
def three() -> Kernel:
    """x + b, the sum of each row, and a count of rows as it was given."""
    n, m = oc.dim("n", max=64), oc.dim("m", max=64)
    x, b = oc.placeholder((n, m), name="x"), oc.placeholder((m,), name="b")
    k = oc.reduce_axis(m, "k")
    y = oc.compute((n, m), lambda i, j: x[i, j] + b[j], name="y")
    z = oc.compute((n,), lambda i: oc.sum(x[i, k], axis=k), name="z")
    w = oc.compute((n, m), lambda i, j: oc.cast(i + j, "int32"), name="w")
    return oc.compile([y, z, w], inputs=[x, b])


def outs(n: int, m: int) -> tuple[Array, Array, Array]:
    """Arrays for the results, of values that none has."""
    nothing = np.full((n, m), np.nan, np.float32)
    return nothing, np.full(n, np.nan, np.float32), np.full((n, m), -1, np.int32)


def test_a_refused_call_writes_nothing_and_says_the_same_by_both_paths(three: Kernel) -> None:
    x, b = floats("x", 3, 4), floats("b", 4)
    y, z, w = outs(3, 4)
    frozen = w.copy()
    frozen.flags.writeable = False
    both = np.full(12, np.nan, np.float32)
    refused = [
        y,
        [y, z, w],
        (y, z),
        (y, z, w, w),
        (y, w, z),
        (y, z[:2], w),
        (y, z, w.astype(np.int64)),
        (y, z, frozen),
        (x, z, w),
        (y, b[:3], w),
        (y, y[:, 0], w),
        (both.reshape(3, 4), both[-3:], w),
        (y, np.broadcast_to(np.float32(0), 3), w),
        (y, None, w),
    ]
    for out in refused:
        texts = []
        for call in (three, by_slow_path(three)):
            with pytest.raises(CallError) as error:
                call(x, b, out=out)
            texts.append(str(error.value))
        assert texts[0] == texts[1]
    assert np.isnan(y).all()
    assert np.isnan(z).all()
    assert np.isnan(both).all()
    assert (w == -1).all()


def test_what_the_fast_path_does_not_know_goes_the_slow_way(
    three: Kernel, slow_calls: list[object]
) -> None:
    x, b = floats("x", 3, 4), floats("b", 4)
    given = namedtuple("Results", "y z w")(*outs(3, 4))
    assert three(x, b, out=given) is given
    y, z, w = outs(4, 3)
    given = (y.T, np.repeat(z, 2)[:6:2], w.T)
    assert three(x, b, out=given) is given
    assert len(slow_calls) == 2
    for result, exact in zip(given, three(x, b), strict=True):
        np.testing.assert_array_equal(result, exact)


def test_each_result_may_be_the_input_that_it_updates_and_no_other(
    slow_calls: list[object],
) -> None:
    kernel = oc.compile(oc.parse(UPDATES))
    X, Y = np.arange(9.0), np.ones(9)
    new, wanted = X + 1, 2 * Y + X + 1

    for result, exact in zip(kernel(X, Y), (new, wanted), strict=True):
        np.testing.assert_array_equal(result, exact)
    np.testing.assert_array_equal(X, np.arange(9.0))
    kernel(X, Y, out=(X, Y))
    np.testing.assert_array_equal(X, new)
    np.testing.assert_array_equal(Y, wanted)
    assert slow_calls == []
    with pytest.raises(CallError, match=r"out\[0\] overlaps Y"):
        kernel(X, Y, out=(Y, X))
    np.testing.assert_array_equal(X, new)


def test_calls_leave_no_references_behind(three: Kernel) -> None:
    rows = oc.compile(oc.parse(ROWS))
    x, b, given = floats("x", 3, 4), floats("b", 4), outs(3, 4)
    ids, table = np.array([1, 9], np.int64), floats("table", 8, 3)
    kept = np.empty((2, 3), np.float32), np.empty(2, np.float32)
    watched = [x, b, given, *given, ids, table, kept, *kept, x.dtype, given[2].dtype, tuple, None]

    def calls(times: int) -> None:
        for _ in range(times):
            three(x, b)
            three(x, b, out=given)
        for _ in range(times // 50):
            with pytest.raises(CallError, match="overlaps"):
                three(x, b, out=(x, *given[1:]))
            for out in (None, kept):
                with pytest.raises(CallError, match="leads outside of an array"):
                    rows(ids, table, out=out)

    calls(50)
    gc.collect()
    before = [sys.getrefcount(each) for each in watched]
    blocks = sys.getallocatedblocks()
    calls(5_000)
    gc.collect()
    after = [sys.getrefcount(each) for each in watched]
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 50
    assert abs(sys.getallocatedblocks() - blocks) < 1_000


def test_results_are_tensors_where_the_first_input_is_one(
    three: Kernel, slow_calls: list[object]
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no DLPack C exchange interface")
    x, b = floats("x", 3, 4), floats("b", 4)
    tensors = torch.from_numpy(x), torch.from_numpy(b)
    three(*tensors)
    slow_calls.clear()
    given = tuple(map(torch.from_numpy, outs(3, 4)))
    assert three(*tensors, out=given) is given
    for results in (three(*tensors), given):
        for result, exact in zip(results, three(x, b), strict=True):
            assert type(result) is torch.Tensor
            np.testing.assert_array_equal(result.numpy(), exact)
    assert slow_calls == []


class Exchanged:
    """An array of a package that makes and reads arrays through DLPack's C exchange functions."""

    allocations = 0
    fails_at = ""
    """The function that refuses its second call since `allocations` was 0."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.words = (ctypes.c_int64 * (2 * array.ndim))(
            *array.shape, *(step // array.itemsize for step in array.strides)
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __array_namespace__(self) -> object:
        return SimpleNamespace(from_dlpack=Exchanged)


_MADE: dict[int, tuple[Any, Array]] = {}  # managed tensors that are no arrays yet


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(dlpack.DLTensor))
def _lend(given: Any, lent: Any) -> int:
    rank, kind = given.array.ndim, given.array.dtype.name
    at = ctypes.addressof(given.words)
    lent[0] = dlpack.DLTensor(
        given.array.ctypes.data,
        *(1, 0, rank, *dlpack.DLPACK_CODES[kind], 1),
        ctypes.cast(at, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(at + 8 * rank, ctypes.POINTER(ctypes.c_int64)),
    )
    return 0


@ctypes.PYFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(dlpack.DLTensor),
    *(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_void_p),
)
def _allocate(like: Any, made: Any, *_: Any) -> int:
    Exchanged.allocations += 1
    if Exchanged.fails_at == "allocate" and Exchanged.allocations == 2:
        return -1
    shape = like[0].shape[: like[0].ndim]
    array = np.empty(shape, dlpack.NAMES[like[0].code, like[0].bits])
    managed = dlpack.Versioned(1, 0, None, None, 0, like[0])
    managed.tensor.data = array.ctypes.data
    made[0] = ctypes.addressof(managed)
    _MADE[made[0]] = managed, array
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
def _hand_over(managed: int, made: Any) -> int:
    array = Exchanged(_MADE.pop(managed)[1])
    if Exchanged.fails_at == "hand over" and Exchanged.allocations == 2:
        return -1
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(array))
    made[0] = id(array)
    return 0


_API = dlpack.ExchangeApi(
    *(1, 0, None),
    *(ctypes.cast(_allocate, ctypes.c_void_p).value, 0),
    *(ctypes.cast(each, ctypes.c_void_p).value for each in (_hand_over, _lend)),
    0,
)
_NAME = b"dlpack_exchange_api"  # which the capsule points to
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
Exchanged.__dlpack_c_exchange_api__ = _new_capsule(  # type: ignore[attr-defined]
    ctypes.addressof(_API), _NAME, None
)


@pytest.mark.parametrize("fails_at", ["", "allocate", "hand over"])
def test_results_are_made_by_the_package_of_the_first_input(
    three: Kernel, slow_calls: list[object], monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    x, b = floats("x", 3, 4), floats("b", 4)
    given = Exchanged(x), Exchanged(b)
    three(*given)  # its type is known from now on
    slow_calls.clear()
    monkeypatch.setattr(Exchanged, "fails_at", fails_at)
    monkeypatch.setattr(Exchanged, "allocations", 0)
    for result, exact in zip(three(*given), three(x, b), strict=True):
        assert type(result) is Exchanged
        np.testing.assert_array_equal(result.array, exact)
    assert len(slow_calls) == bool(fails_at)
    _MADE.clear()
