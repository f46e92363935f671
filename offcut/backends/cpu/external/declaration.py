"""The declaration of an external microkernel, which is compared with its function."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from offcut.backends.cpu.external.calls import (
    GUARD,
    INTEGER_POISON,
    POISON,
    Call,
    Drawn,
    Operand,
    Place,
    Region,
    calls_of,
    fill,
    item_bytes,
    needed_bytes,
    place,
)
from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.microkernels import external
from offcut.backends.cpu.microkernels.family import WIDE_PARAMETERS
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.describe.external import Foreign, Routine, declare
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError, InternalError, TargetError, trim_traceback
from offcut.search.job_runner import JobResult, JobStatus, run_in_fork


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


# An external function is called, in a fork of this process, and compared with what it is declared to compute; or refused.
#
# The fork has the function's address, and what the function breaks is the fork's. Each call goes through the shim that kernels call it by.
# A function is refused with the first call that differs; calls come by the sum of their sizes, so it is the smallest of those that are tried.

PROCESSOR_SECONDS, SECONDS = 10.0, 120.0
"""What a call may take, of the processor's time and on the wall."""
MEMORY = 4 << 30
"""Bytes that the function may take."""
UNCHECKED = "verify=False takes it unchecked, and plans say so"
NO_THREADS = "; threads of this process are not in the one that it is called in"
_NAMES = "ABC"

Declaration: TypeAlias = tuple[object, ...]
_routines = set[Declaration]()
_functions = dict[int, tuple[weakref.ref[Any], set[Declaration]]]()
"""What was checked: of routines of a BLAS, and of functions of ctypes by their number, as long as these live."""


def check_external(kernel: Microkernel) -> None:
    """Check that the function of an external microkernel computes what it is declared to; once for a function and a declaration.

    Raises DescribeError with the first call that differs.
    """
    foreign = kernel.lowering
    assert isinstance(foreign, Foreign)
    checked, key = _memory_of(foreign, kernel)
    if key not in checked:
        _check(kernel, foreign)
        checked.add(key)


def _memory_of(foreign: Foreign, kernel: Microkernel) -> tuple[set[Declaration], Declaration]:
    """Return what is known to be right of a function, and what is asked now; of a bare address nothing is remembered."""
    function = foreign.function
    claim = (foreign.convention, foreign.types, kernel.max_rows, kernel.columns_for(1))
    if isinstance(function, Routine):
        return _routines, (*claim, function.name)
    if isinstance(function, int):
        return set(), claim
    number = id(function)
    entry = _functions.get(number)
    if entry is None or entry[0]() is not function:
        entry_weakref = weakref.ref(function, lambda _: _functions.pop(number, None))
        entry = _functions[number] = entry_weakref, set()
    return entry[1], claim


def _check(kernel: Microkernel, foreign: Foreign) -> None:
    calls = calls_of(kernel.max_rows, kernel.columns_for(1), foreign.types[2] in FLOATS)
    function = _Function(kernel, foreign.types)
    ended = function.run_all(calls)
    if ended.status is JobStatus.RETURNED and ended.value is None:
        return
    if ended.status is JobStatus.RETURNED:
        number, because = ended.value
        raise _refusal(kernel.name, calls[number], because)
    if ended.last_message is None and ended.status is not JobStatus.RAISED:
        raise TargetError(
            "external_microkernel",
            f"cannot check {kernel.name}",
            because=f"its process ended before the first call: {ended.because}",
            help=("declare it again, when memory is there", UNCHECKED),
        )
    if ended.status is JobStatus.RAISED or ended.last_message is None:
        raise InternalError(f"{kernel.name} could not be checked: {ended.because}\n{ended.details}")
    call = calls[ended.last_message]
    raise _refusal(kernel.name, call, function.explain(call, ended))


def _refusal(name: str, call: Call, because: str) -> DescribeError:
    return DescribeError(
        "external_microkernel",
        f"cannot take {name}",
        at=str(call),
        because=because,
        help=(UNCHECKED,),
    )


class _Function:
    """The function, behind its shim, and what a call of it is compared with."""

    def __init__(self, kernel: Microkernel, types: tuple[str, str, str]) -> None:
        self.name, self.types = kernel.name, types
        host = replace(isa.host(), external=(kernel,), threads=1)
        self.loaded = external.load(
            [jit.object_code(external.text(kernel), host, passes=False)], host
        )
        kinds = [
            ctypes.c_void_p if one == "ptr" else ctypes.c_int64
            for one in WIDE_PARAMETERS.split(", ")
        ]
        address = self.loaded.address(external.symbol(kernel))
        self.function = ctypes.CFUNCTYPE(None, *kinds)(address)

    def run_all(self, calls: Sequence[Call]) -> JobResult:
        """Return what becomes of calls in a fork: None, or the number of the first that differs, and how."""

        def work(say: Callable[[Any], None]) -> tuple[int, str] | None:
            _use_one_thread()
            pools, regions = Drawn(self.types), self._regions(calls)
            with np.errstate(all="ignore"):
                for number, call in enumerate(calls):
                    say(number)
                    because = self._differs(call, pools, regions)
                    if because:
                        return number, because
            return None

        return run_in_fork(work, SECONDS, PROCESSOR_SECONDS, MEMORY)

    def _regions(self, calls: Iterable[Call]) -> tuple[Region, ...]:
        most = [0, 0, 0]
        for call in calls:
            shapes = zip(_shapes(call), call.steps, item_bytes(self.types), strict=True)
            needed = (needed_bytes(*shape, step, size) for shape, step, size in shapes)
            most = list(map(max, most, needed))
        return tuple(map(Region, most))

    def _differs(self, call: Call, pools: Drawn, regions: tuple[Region, ...]) -> str:
        """Return what is wrong with a call; nothing where it is right."""
        a, b, c = self._operands(call, regions)
        expected = fill(call, pools, a, b, c)
        before = [one.around.copy() for one in (a, b, c)]
        c_before = np.array(c.matrix)
        self._call(call, a, b, c)
        c_after = np.array(c.matrix)
        c.matrix[...] = c_before
        for name, one, bytes_before in zip(_NAMES, (a, b, c), before, strict=True):
            at = one.first_changed_element(bytes_before)
            if at is not None:
                rows, columns = one.matrix.shape
                is_element = 0 <= at[0] < rows and at[1] < columns
                why = "may be read alone" if is_element else f"has {rows} × {columns} elements"
                return f"it writes {name}[{at[0]}, {at[1]}]: {name} {why}"
        at = expected.first_wrong(c_after)
        if at is None:
            return ""
        right, got = _digits(expected.value[at], c_after[at])
        fresh = "" if call.add else ", and in C before"
        among = f"; NaN lies around its operands{fresh}" if got == "nan" != right else ""
        return f"C[{at[0]}, {at[1]}] is {right} by the declaration, and {got} by {self.name}{among}"

    def _operands(self, call: Call, regions: tuple[Region, ...]) -> list[Operand]:
        operands = []
        for number, (region, (rows, columns), dtype) in enumerate(
            zip(regions, _shapes(call), self.types, strict=True)
        ):
            poison = POISON if dtype in FLOATS else INTEGER_POISON
            outer_byte = GUARD if number == 2 else poison
            where, step = call.places[number], call.steps[number]
            operands.append(
                place(region, rows, columns, step, numpy_dtype(dtype), where, outer_byte)
            )
        return operands

    def _call(self, call: Call, a: Operand, b: Operand, c: Operand) -> None:
        steps = [one.step * one.matrix.itemsize for one in (a, b, c)]
        head = (a.address, steps[0], call.m, b.address, steps[1], c.address, steps[2])
        self.function(*head, call.k, call.n, int(call.add))

    def explain(self, call: Call, ended: JobResult) -> str:
        """Return why a call did not come back; of one that left its operands, which of these it left."""
        if ended.status is JobStatus.HUNG:
            waits = ended.because.startswith("silent")
            return f"it does not return: it was {ended.because}{NO_THREADS if waits else ''}"
        words = next((line for line in ended.details.splitlines() if line.strip()), "").strip()
        suffix = f"; it said: {words}" if words else ""
        ending = ended.because.removeprefix("it ")
        because = f"its process {ending if ended.because != ending else f'was {ending}'}{suffix}"
        side = {Place.END: "behind the end", Place.START: "before the start"}.get(call.places[0])
        all_apart = (Place.APART,) * 3
        if (
            side is None
            or ended.status is not JobStatus.CRASHED
            or self._ends_so(call, all_apart, ended)
        ):
            return because
        for number, name in enumerate(_NAMES):
            places = (*all_apart[:number], call.places[number], *all_apart[number + 1 :])
            if self._ends_so(call, places, ended):
                return f"it reads or writes {side} of {name}: {because}"
        return because

    def _ends_so(self, call: Call, places: tuple[Place, ...], ended: JobResult) -> bool:
        """Whether a call ends so with its operands at other places."""
        a, b, c = places
        again = self.run_all((replace(call, places=(a, b, c)),))
        return again.because == ended.because


def _shapes(call: Call) -> tuple[tuple[int, int], ...]:
    return (call.m, call.k), (call.k, call.n), (call.m, call.n)


def _digits(right: Any, got: Any) -> tuple[str, str]:
    """Return two elements with as many digits as tell them apart."""
    if np.asarray(right).dtype.kind in "biu":
        return str(int(right)), str(int(got))
    one, other = float(right), float(got)
    short = f"{one:g}", f"{other:g}"
    return short if short[0] != short[1] else (repr(one), repr(other))


def _use_one_thread() -> None:
    """Let OpenMP, where this process has it, run on one thread: those that it made before are not in a fork, which would wait for them."""
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text().splitlines()
        libraries = {
            line.split(maxsplit=5)[-1] for line in lines if "omp" in line.rpartition("/")[2]
        }
        for path in libraries:
            with suppress(OSError, AttributeError):
                ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY).omp_set_num_threads(1)
