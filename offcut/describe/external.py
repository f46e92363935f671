"""Microkernels that are not offcut's: a C function, declared by what it computes and how it is called.

The function computes a tile ``C[0:m, 0:n] (+)= A[0:m, 0:k] B[0:k, 0:n]`` of any height and width up to
what its declaration says. It competes with other microkernels by what calls of it take on this
machine, and then runs in all that a kernel of offcut's own runs in: cuts, tails, fused stages. Two
conventions:

tile
    ``void f(const A *a, int64_t lda, const B *b, int64_t ldb, C *c, int64_t ldc, int64_t m, int64_t n,
    int64_t k, int64_t accumulate)``. Row r of a matrix begins ``ld * r`` elements after its first
    one, and its elements are contiguous; lda and ldb may be less than a row, 0 too, where the rows of A or of B
    overlap or are one. Arrays are aligned to their elements, no further. C is
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
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from offcut.core.dtypes import DTYPES, ITEM_BYTES
from offcut.core.expr import Binary, Cast, Expr, Load, Reduce, Var
from offcut.core.program import MAX_SIZE
from offcut.core.sizes import Dim
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Compute, Tensor
from offcut.describe.tile_shapes import Place, TileShape
from offcut.errors import DescribeError, TargetError

CONVENTIONS: Mapping[str, frozenset[str]] = {
    "tile": frozenset(DTYPES),
    "blas_gemm": frozenset({"float32", "float64"}),
}
"""The element types that each convention has."""

COPYING: Mapping[str, float] = {"tile": 0.0, "blas_gemm": 0.2}
"""Cycles per byte of B that a call takes besides: a gemm copies B into an order of its own."""

MOST_CYCLES = 1e12  # of a multiply–add, of an element's copy, or of a call
ROWS, COLUMNS = 256, 4096  # of a tile, at most, whatever the sizes of a declaration allow
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
    verified    whether it was compared with what it is declared to compute
    """

    convention: str
    types: tuple[str, str, str]
    function: Any = field(repr=False, compare=False)
    address: int = field(repr=False)
    measured: bool = True
    verified: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self.function, Routine):
            raise DescribeError(
                "pickle",
                "cannot pickle an external microkernel",
                because="its function is an address of this process",
                help=('external.blas("sgemm") is found again by its name', "compile it there"),
            )
        claims = self.measured, self.verified
        return _foreign, (self.convention, self.types, self.function, *claims)


def declare(
    name: str,
    computes: Tensor,
    address: Any,
    *,
    cycles: float,
    startup: float,
    copying: float | None,
    convention: str,
    measured: bool,
    verified: bool,
) -> Microkernel:
    """Return the microkernel that `offcut.external_microkernel` declares, which is not verified yet.

    Raises DescribeError for what is no such declaration.
    """
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise _refusal(f"cannot name a microkernel {name!r}", "a name is an ASCII identifier")
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
            raise _refusal(f"cannot take {label}={value!r}", why, name)
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
    definition = computes.definition
    assert definition is not None
    operands = _operands(definition)
    assert operands is not None
    a, b = operands
    names = [axis.name for axis in (*definition.axes, *definition.reduce_axes)]
    _, last, depth = names
    return Microkernel(
        name=name,
        computes=computes,
        tiles=tiles_of(rows, columns, cycles, copying, startup),
        predicates=frozenset(names),
        operands={
            a.buffer: Place(beside=depth),
            b.buffer: Place(beside=last),
            computes.name: Place(beside=last),
        },
        lowering=_foreign(convention, types, address, measured, verified),
    )


def tiles_of(
    rows: int, columns: int, cycles: float, copying: float, startup: float
) -> tuple[TileShape, ...]:
    """The tiles of a function of up to `rows` × `columns`, whose calls cost as `offcut.external_microkernel` says."""
    return tuple(
        TileShape((height, columns), (cycles * height + copying) * columns, startup)
        for height in range(1, rows + 1)
    )


def unverified_notes(
    microkernels: Iterable[Microkernel], covers: Collection[str]
) -> tuple[str, ...]:
    """Return a line of a plan for each function that nothing was compared with, of those that cover a tile.

    covers   names of the microkernels that cover tiles
    """
    foreign = (one for one in microkernels if isinstance(one.lowering, Foreign))
    believed = (one.name for one in foreign if one.name in covers and not one.lowering.verified)
    return tuple(f"{name} is not verified: it was declared with verify=False" for name in believed)


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
    capsule = cython_blas.__pyx_capi__.get(name)
    if capsule is None:
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
    return Routine(name, int(get(capsule, get_name(capsule))))


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
    convention: str, types: tuple[str, str, str], function: Any, measured: bool, verified: bool
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
            because="it is not an address of a function",
            help=("an int that is not 0", "a ctypes function", 'external.blas("sgemm")'),
        )
    return Foreign(convention, types, function, value, measured, verified)


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
            raise _refusal(
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
    one, other = (_loaded_element(side) for side in (product.a, product.b))
    for a, b in ((one, other), (other, one)):
        if a is not None and b is not None and a.index == (i, p) and b.index == (p, j):
            return None if a.buffer == b.buffer else (a, b)
    return None


def _loaded_element(value: Expr) -> Load | None:
    inner = value.a if isinstance(value, Cast) else value
    return inner if isinstance(inner, Load) else None


def _refusal(what: str, why: str, at: str = "") -> DescribeError:
    return DescribeError(_OP, what, at=at, because=why)
