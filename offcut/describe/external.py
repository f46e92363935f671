"""Microkernels that are not offcut's: a C function, declared by what it computes and how it is called.

The function computes a tile ``C[0:m, 0:n] (+)= A[0:m, 0:k] B[0:k, 0:n]`` of any height and width up to
what its declaration says. It competes with other microkernels by what calls of it take on this
machine, and then runs in all that a kernel of offcut's own runs in: cuts, tails, fused stages. Two
conventions:

tile
    ``void f(const A *a, int64_t lda, const B *b, int64_t ldb, C *c, int64_t ldc, int64_t m, int64_t n,
    int64_t k, int64_t accumulate)``. Row r of a matrix begins ``ld * r`` elements after its first
    one, and lies next to each other; ld may be less than a row where all rows are one. C is
    added to where accumulate is not 0, and written without being read where it is. k may be 0.
blas_gemm
    ``void f(char *transa, char *transb, int *m, int *n, int *k, T *alpha, T *a, int *lda, T *b, int *ldb,
    T *beta, T *c, int *ldc)``: gemm as Fortran has it, columns first; offcut swaps the operands.

What is promised of a result's bits elsewhere, that they depend on no other size, is here the
function's to keep: a gemm may add in another order for another m.
"""

from __future__ import annotations

import ctypes
from _ctypes import CFuncPtr
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from offcut.core.dtypes import DTYPES, ITEM_BYTES
from offcut.core.expr import Binary, Cast, Expr, Load, Reduce, Var
from offcut.core.sizes import MAX_SIZE, Dim
from offcut.describe.microkernel import Microkernel, TileShape
from offcut.describe.tensor import Compute, Tensor
from offcut.errors import DescribeError, TargetError, trim_traceback

CONVENTIONS: Mapping[str, frozenset[str]] = {
    "tile": frozenset(DTYPES),
    "blas_gemm": frozenset({"float32", "float64"}),
}
"""The element types that each convention has."""

COPYING: Mapping[str, float] = {"tile": 0.0, "blas_gemm": 0.2}
"""Cycles per byte of B that a call takes besides: a gemm copies B into an order of its own."""

MOST_CYCLES = 1e12  # of a multiply–add, of an element's copy, or of a call
ROWS, COLUMNS = 256, 4096  # of a tile, at most, whatever the sizes of a declaration allow
_PANEL = 16  # columns: what cuts of columns are a multiple of
_OP = "external_microkernel"


@dataclass(frozen=True, slots=True)
class Routine:
    """A function of the BLAS that scipy carries, at its address in this process."""

    name: str
    address: int = field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return blas, (self.name,)


@dataclass(frozen=True, slots=True)
class Foreign:
    """How a function that is not offcut's is called.

    convention  a name of `CONVENTIONS`
    types       element types of A, B and C
    function    an address, or what has one and must live as long as kernels that call it
    measured    whether its cost is measured when it is first used, and what is declared only the
                fallback
    """

    convention: str
    types: tuple[str, str, str]
    function: Any = field(repr=False, compare=False)
    address: int = field(repr=False)
    measured: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self.function, Routine):
            raise DescribeError(
                "pickle",
                "cannot pickle an external microkernel",
                because="its function is an address of this process",
                help=('external.blas("sgemm") is found again by its name', "compile it there"),
            )
        return _foreign, (self.convention, self.types, self.function, self.measured)


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
) -> Microkernel:
    """A microkernel that calls a C function, for ``microkernels=`` of `compile` and `partition`.

    computes    ``C[i, j] = sum over p of A[i, p] * B[p, j]``, casts allowed, of three symbolic sizes:
                the maxima of the first two bound a tile, and no tile passes 256 × 4096
    address     of the function: an int, a ctypes function, or `blas`
    cycles      predicted cycles of one multiply–add in a large tile, above 0, at most 1e12
    startup     predicted cycles of a call, 0…1e12
    copying     predicted cycles of a call for each element of its B, 0…1e12, which the fewer rows
                share, the more they cost; None: 0 of "tile", 0.2 a byte of "blas_gemm"
    convention  "tile" or "blas_gemm", as this module says
    measured    whether calls are timed when it is first used, for some milliseconds, on operands of
                zeros, and the three costs are only for where that is not possible; False: they are
                taken as they are

    A kernel takes the cheapest by these costs of all microkernels that compute a sum, of A with its
    terms and B with its columns next to each other, in tiles as large as a call has. The function is called by the thread that calls
    the kernel, whatever its `threads`; one that is written in Python takes the interpreter's lock.

    Raises DescribeError for what is no such declaration.
    """
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise _refused(f"cannot name a microkernel {name!r}", "a name is an ASCII identifier")
    if not isinstance(convention, str) or convention not in CONVENTIONS:
        raise DescribeError(
            _OP,
            f"cannot call {name} by convention={convention!r}",
            because="there is no such convention",
            help=tuple(f'convention="{known}"' for known in CONVENTIONS),
        )
    claims = {"cycles": (cycles, "above 0"), "startup": (startup, "at least 0")}
    if copying is not None:
        claims["copying"] = copying, "at least 0"
    for label, (value, least) in claims.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0 <= value <= MOST_CYCLES or (value == 0 and label == "cycles"):
            why = f"it is a number {least} and at most {MOST_CYCLES:g}"
            raise _refused(f"cannot take {label}={value!r}", why, name)
    rows, columns, types = _shape(name, computes)
    if copying is None:
        copying = COPYING[convention] * ITEM_BYTES[types[1]]
    cycles, startup, copying = float(cycles), float(startup), float(copying)
    unknown = sorted(set(types) - CONVENTIONS[convention])
    if unknown or (convention == "blas_gemm" and len(set(types)) > 1):
        raise DescribeError(
            _OP,
            f"cannot call {name} by convention={convention!r}",
            because=f"A, B and C are {', '.join(types)}, and gemm has one of "
            f"{', '.join(sorted(CONVENTIONS[convention]))} for all",
            help=('convention="tile"',),
        )
    if isinstance(address, Routine):
        _check_routine(name, address, convention, types)
    axes = computes.definition.axes if computes.definition else ()
    reduced = computes.definition.reduce_axes if computes.definition else ()
    return Microkernel(
        name=name,
        computes=computes,
        rows=axes[0].name,
        columns=axes[1].name,
        tiles=tiles_of(rows, columns, cycles, copying, startup),
        predicates=frozenset(axis.name for axis in (*axes, *reduced)),
        panel=min(_PANEL, columns),
        lowering=_foreign(convention, types, address, measured),
    )


def tiles_of(
    rows: int, columns: int, cycles: float, copying: float, startup: float
) -> tuple[TileShape, ...]:
    """The tiles of a function of up to `rows` × `columns`, whose calls cost as `external_microkernel` says."""
    return tuple(
        TileShape(height, columns, (cycles * height + copying) * columns, startup)
        for height in range(1, rows + 1)
    )


def blas(name: str) -> Routine:
    """The routine of scipy's BLAS of that name, such as "sgemm" or "dgemm".

    Raises TargetError where scipy is not installed, or its BLAS has no such routine.
    """
    try:
        from scipy.linalg import cython_blas
    except ImportError:
        raise TargetError(
            "blas",
            f"cannot find {name}",
            because="scipy, which carries a BLAS, is not installed",
            help=("pip install scipy",),
        ) from None
    found = cython_blas.__pyx_capi__.get(name)
    if found is None:
        raise TargetError(
            "blas",
            f"cannot find {name}",
            because="the BLAS of scipy has no routine of this name",
            help=('blas("sgemm")', 'blas("dgemm")'),
        )
    api = ctypes.pythonapi
    get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", api)
    )
    return Routine(name, int(get(found, get_name(found))))


def _check_routine(
    name: str, routine: Routine, convention: str, types: tuple[str, str, str]
) -> None:
    """Refuse a routine of the BLAS that does not compute what is declared: its name says what it does."""
    wanted = {"float32": "sgemm", "float64": "dgemm"}.get(types[0])
    if convention != "blas_gemm" or routine.name != wanted:
        raise DescribeError(
            _OP,
            f"cannot call {routine.name} by convention={convention!r}",
            at=name,
            because=f"A, B and C are {', '.join(types)}, and of a BLAS the conventions have sgemm, of "
            "float32, and dgemm, of float64",
            help=() if wanted is None else (f'external.blas("{wanted}"), convention="blas_gemm"',),
        )


def _foreign(
    convention: str, types: tuple[str, str, str], function: Any, measured: bool
) -> Foreign:
    """`function`, wherever its address is found."""
    value: Any = function
    if isinstance(function, Routine):
        value = function.address
    elif isinstance(function, CFuncPtr):
        value = ctypes.cast(function, ctypes.c_void_p).value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 64:
        raise DescribeError(
            _OP,
            f"cannot call {function!r}",
            because="it is no address of a function",
            help=("an int that is not 0", "a ctypes function", 'external.blas("sgemm")'),
        )
    return Foreign(convention, types, function, value, measured)


def _shape(name: str, computes: Any) -> tuple[int, int, tuple[str, str, str]]:
    """Rows and columns of the largest tile, and the element types, of a product of matrices."""
    definition = computes.definition if isinstance(computes, Tensor) else None
    operands = _operands(definition) if definition is not None else None
    if definition is None or operands is None:
        raise DescribeError(
            _OP,
            f"cannot declare {name} by {computes!r}",
            because="an external microkernel computes a product of matrices",
            help=("compute((m, n), lambda i, j: sum(A[i, p] * B[p, j], axis=p))",),
        )
    bounds = []
    for axis in (*definition.axes, *definition.reduce_axes):
        depth, extent = axis in definition.reduce_axes, axis.extent
        if not isinstance(extent, Dim) or extent.min > 1 or extent.multiple_of > 1:
            raise DescribeError(
                _OP,
                f"cannot declare {name}",
                at=f"axis {axis.name}",
                because=f"its extent is {extent}, and tiles of every size from 1 on are asked for",
                help=(f'dim("{axis.name}")' if depth else f'dim("{axis.name}", min=1, max=256)',),
            )
        if extent.max < 1:
            raise DescribeError(
                _OP,
                f"cannot declare {name}",
                at=f"axis {axis.name}",
                because=f"its extent ends at {extent.max}, and no tile is so small",
                help=(f'dim("{axis.name}", min=1, max=256)',),
            )
        if depth and extent.max < MAX_SIZE:
            raise _refused(
                f"cannot declare {name}",
                f"its extent ends at {extent.max}, and a sum of any length is asked for",
                f"axis {axis.name}",
            )
        bounds.append(extent.max)
    a, b = operands
    return min(bounds[0], ROWS), min(bounds[1], COLUMNS), (a.dtype, b.dtype, computes.dtype)


def _operands(definition: Compute) -> tuple[Load, Load] | None:
    """A and B of a product of matrices; None where it is none."""
    body = definition.body
    if not isinstance(body, Reduce) or body.op != "sum":
        return None
    if len(definition.axes) != 2 or len(definition.reduce_axes) != 1:
        return None
    i, j, p = (Var(axis.name) for axis in (*definition.axes, *definition.reduce_axes))
    product = body.value
    if not isinstance(product, Binary) or product.op != "*":
        return None
    one, other = (_loaded(side) for side in (product.a, product.b))
    for a, b in ((one, other), (other, one)):
        if a is not None and b is not None and a.index == (i, p) and b.index == (p, j):
            return None if a.buffer == b.buffer else (a, b)
    return None


def _loaded(value: Expr) -> Load | None:
    inner = value.a if isinstance(value, Cast) else value
    return inner if isinstance(inner, Load) else None


def _refused(what: str, why: str, at: str = "") -> DescribeError:
    return DescribeError(_OP, what, at=at, because=why)
