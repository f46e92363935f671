"""What is no external microkernel, or cannot be called, in words."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import contraction
from conftest import rejection
from foreign import Own, product

import offcut as oc
from offcut import Microkernel, Tensor
from offcut.backends.cpu.external import declaration
from offcut.search.job_runner import JobResult, JobStatus


def _declare(**changed: Any) -> Microkernel:
    asked = {"name": "own", "computes": product(), "address": 4096, "cycles": 1.0, "verify": False}
    asked |= changed
    return oc.external_microkernel(**asked)


def _routine(name: str) -> Any:
    pytest.importorskip("scipy", reason="scipy, which brings the BLAS, is not installed")
    return oc.external.blas(name)


def _with(*microkernels: Any, **request: Any) -> oc.Kernel:
    case = contraction("mk,kn->mn")
    return oc.compile(case.result, microkernels=microkernels, **request)


def _sum() -> Tensor:
    m, k = oc.dim("m"), oc.reduce_axis(oc.dim("k"), name="p")
    a = oc.placeholder((m, oc.dim("k")), name="A")
    return oc.compute((m,), lambda i: oc.sum(a[i, k], axis=k), name="C")


def _instruction() -> Microkernel:
    a = oc.placeholder((8,), name="A")
    return oc.decl_tensor_intrin(
        oc.compute((8,), lambda i: a[i] * 2.0, name="C"),
        lambda inputs, outputs: oc.hardware_intrinsic(
            "twice", inputs[0].access_ptr("r"), outputs[0].access_ptr("w")
        ),
    )


REFUSED = refusals(
    r"""
>>> _declare(address=0)
external_microkernel: cannot call 0
  because  it is not an address of a function
  help     an int that is not 0
  help     a ctypes function
  help     external.blas("sgemm")

>>> _declare(address=None)
external_microkernel: cannot call None
  because  it is not an address of a function
  help     an int that is not 0
  help     a ctypes function
  help     external.blas("sgemm")

>>> _declare(address='sgemm')
external_microkernel: cannot call 'sgemm'
  because  it is not an address of a function
  help     an int that is not 0
  help     a ctypes function
  help     external.blas("sgemm")

>>> _declare(convention='fastcall')
external_microkernel: cannot call own by convention='fastcall'
  because  there is no such convention
  help     convention="tile"
  help     convention="blas_gemm"

>>> _declare(computes=product('float16'), convention='blas_gemm')
external_microkernel: cannot call own by convention='blas_gemm'
  because  A, B and C are float16, float16, float16, and gemm has one of float32, float64 for all
  help     convention="tile"

>>> _declare(computes=product('float32', 'float64'), convention='blas_gemm')
external_microkernel: cannot call own by convention='blas_gemm'
  because  A, B and C are float32, float32, float64, and gemm has one of float32, float64 for all
  help     convention="tile"

>>> _declare(computes=product('float64'), address=_routine('sgemm'), convention='blas_gemm')
external_microkernel: cannot call sgemm by convention='blas_gemm'
  at       own
  because  A, B and C are float64, float64, float64, and of a BLAS the conventions have sgemm, of float32, and dgemm, of float64
  help     external.blas("dgemm"), convention="blas_gemm"

>>> _declare(address=_routine('sgemm'))
external_microkernel: cannot call sgemm by convention='tile'
  at       own
  because  A, B and C are float32, float32, float32, and of a BLAS the conventions have sgemm, of float32, and dgemm, of float64
  help     external.blas("sgemm"), convention="blas_gemm"

>>> _declare(name='my gemm')
external_microkernel: cannot name a microkernel 'my gemm'
  because  a name is an ASCII identifier

>>> _declare(computes=_sum())
external_microkernel: cannot declare own by C: float32[m]
  because  an external microkernel computes a product of matrices
  help     compute((m, n), lambda i, j: sum(A[i, p] * B[p, j], axis=p))

>>> _declare(computes=oc.placeholder((8, 8), name='A'))
external_microkernel: cannot declare own by A: float32[8, 8]
  because  an external microkernel computes a product of matrices
  help     compute((m, n), lambda i, j: sum(A[i, p] * B[p, j], axis=p))

>>> _declare(computes=product(rows=8))
external_microkernel: cannot declare own
  at       axis i
  because  its extent is 8, and tiles of every size from 1 on are asked for
  help     dim("i", min=1, max=256)

>>> _declare(computes=product(columns=oc.dim('n', max=0)))
external_microkernel: cannot declare own
  at       axis j
  because  its extent ends at 0, and no tile is so small
  help     dim("j", min=1, max=256)

>>> _declare(cycles=10 ** 13)
external_microkernel: cannot take cycles=10000000000000
  at       own
  because  it is a number above 0 and at most 1e+12

>>> _declare(startup=np.True_)
external_microkernel: cannot take startup=np.True_
  at       own
  because  it is a number at least 0 and at most 1e+12

>>> _declare(copying=-0.5)
external_microkernel: cannot take copying=-0.5
  at       own
  because  it is a number at least 0 and at most 1e+12

>>> _declare(cycles=0)
external_microkernel: cannot take cycles=0
  at       own
  because  it is a number above 0 and at most 1e+12

>>> _declare(startup=float('nan'))
external_microkernel: cannot take startup=nan
  at       own
  because  it is a number at least 0 and at most 1e+12

>>> _declare(verify='no')
external_microkernel: cannot take verify='no'
  because  it is True or False

>>> _with('sgemm')
compile: cannot take 'sgemm' as a microkernel
  because  the CPU calls functions: its own, and those that are declared external
  help     microkernels=[external_microkernel(…)]

>>> _with(_instruction())
compile: cannot take the instruction twice as a microkernel
  because  the CPU calls functions: its own, and those that are declared external
  help     microkernels=[external_microkernel(…)]

>>> _with(_declare(), _declare())
compile: cannot take two microkernels named own
  because  a cut names the microkernel of a tile
  help     another name for one of them

>>> _with(_declare(), reassociate=False)
compile: cannot take microkernels= with reassociate=False
  because  in which order an external function adds is not known
  help     microkernels=() leaves sums to functions that add in ascending order

>>> oc.external.blas('tgemm')
blas: cannot find tgemm
  because  the BLAS of scipy has no routine of this name
  help     blas("sgemm")
  help     blas("dgemm")

>>> pickle.dumps(_with(Own().declared()))
pickle: cannot pickle an external microkernel
  because  its function is an address of this process
  help     external.blas("sgemm") is found again by its name
  help     compile it there
""",
    globals(),
)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_microkernel_is_refused_in_words(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises(oc.OffcutError) as error:
        call()
    assert str(error.value) == text


def test_a_cost_may_be_any_real_number() -> None:
    plain = _declare(cycles=0.5, startup=3.0)
    assert _declare(cycles=np.float32(0.5), startup=np.int64(3)).tiles == plain.tiles


def test_without_scipy_the_user_is_told_what_carries_a_blas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.linalg", None)
    with rejection(
        "TargetError: blas: cannot find sgemm\n"
        "  because  scipy, which carries a BLAS, is not installed\n"
        "  help     pip install scipy"
    ):
        oc.external.blas("sgemm")


def test_a_check_whose_process_ends_before_the_first_call_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = JobResult(JobStatus.CRASHED, because="it was ended by SIGKILL, and so was a second run")
    monkeypatch.setattr(declaration._Function, "run_all", lambda *_: ended)
    with pytest.raises(oc.OffcutError) as refused:
        _declare(verify=True)
    assert str(refused.value) == (
        "external_microkernel: cannot check own\n"
        "  because  its process ended before the first call: it was ended by SIGKILL, and so was a second run\n"
        "  help     declare it again, when memory is there\n"
        f"  help     {declaration.UNCHECKED}"
    )
