"""The declaration of an external microkernel, which is compared with its function."""

from __future__ import annotations

from typing import Any

from offcut.backends.cpu.external.verification import check_external
from offcut.describe.external import declare
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError, trim_traceback


@trim_traceback
def external_microkernel(
    name: str,
    computes: Tensor,
    address: Any,
    *,
    cycles: float,
    startup: float = 100.0,
    copying: float | None = None,
    convention: str = "tile",
    measured: bool = True,
    verify: bool = True,
) -> Microkernel:
    """Return a microkernel that calls a C function, for ``microkernels=`` of `compile` and `partition`.

    computes    ``C[i, j] = sum over p of A[i, p] * B[p, j]``, casts allowed, of three symbolic sizes:
                the maxima of the first two bound a tile, and no tile passes 256 × 4096
    address     of the function: an int, a ctypes function, or `offcut.external.blas`
    cycles      predicted cycles of one multiply–add in a large tile, above 0, at most 1e12
    startup     predicted cycles of a call, 0…1e12
    copying     predicted cycles of a call for each element of its B, 0…1e12, which the fewer rows
                share, the more they cost; None: 0 of "tile", 0.2 a byte of "blas_gemm"
    convention  "tile" or "blas_gemm", as `offcut.external` says
    measured    whether calls are timed when it is first used, for some milliseconds, on operands of
                zeros, and the three costs are only for where that is not possible; False: they are
                taken as they are
    verify      whether the function is called now, some hundred times in a fork of this process, and compared with
                `computes`; False: it is believed, and the plan of each kernel that calls it says so

    A kernel takes the cheapest by these costs of all microkernels that compute a sum, of A with its
    terms and B with its columns next to each other, in tiles as large as a call has. The function is called by the thread that calls
    the kernel, whatever its `threads`; one that is written in Python takes the interpreter's lock.

    Raises DescribeError for what is no such declaration, and for a function that computes something else, touches memory
    outside of its operands or does not return, with the smallest call of those that are tried.
    """
    if not isinstance(verify, bool):
        raise DescribeError(
            "external_microkernel",
            f"cannot take verify={verify!r}",
            because="it is True or False",
        )
    kernel = declare(
        name,
        computes,
        address,
        cycles=cycles,
        startup=startup,
        copying=copying,
        convention=convention,
        measured=measured,
        verified=verify,
    )
    if verify:
        check_external(kernel)
    return kernel
