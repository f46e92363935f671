"""What the units of a machine of queues do with one word of each operand, declared from its description.

A word of inputs is `rows` × `terms` bytes, one of weights `columns` × `terms`, one of accumulators `rows` ×
`columns` int32. A larger operand is words one after the other, row by row of blocks; what its blocks lack is
zero. The weights' rows are the columns of the result.

Source: Moreau et al., "A Hardware–Software Blueprint for Flexible Deep Learning Specialization",
IEEE Micro 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcut.backends.accelerator.spec import Spec
from offcut.core.expr import Binary, Cast, Const, Load, Unary
from offcut.core.layout import words
from offcut.core.program import Store
from offcut.describe.functions import absolute, maximum, minimum, reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.microkernel import Microkernel, Place, TileShape
from offcut.describe.tensor import compute, placeholder
from offcut.describe.value import cast

MATRIX, VECTOR = "matrix unit", "vector unit"
START = "gemm_reset"


def gemm(rows: int, columns: int, terms: int, cycles: float = 1.0) -> Microkernel:
    """``C[i, j] += int32(A[i, p]) * int32(B[j, p])`` of one word each.

    cycles  of a word of each
    """
    a = placeholder((rows, terms), "int8", name="A")
    b = placeholder((columns, terms), "int8", name="B")
    k = reduce_axis(terms, name="p")
    return Microkernel(
        name=f"gemm_{rows}x{columns}x{terms}",
        computes=compute(
            (rows, columns),
            lambda i, j: sum_over(cast(a[i, k], "int32") * cast(b[j, k], "int32"), axis=k),
            name="C",
        ),
        tiles=(TileShape((rows, columns), cycles / terms, 0.0),),
        repeats=frozenset({"p"}),
        accumulate="adds",
        reset=START,
        operands={
            "A": Place(layout=words((0, rows), (1, terms))),
            "B": Place(layout=words((0, columns), (1, terms))),
            "C": Place(layout=words((0, rows), (1, columns))),
        },
        unit=MATRIX,
    )


def on_words(
    name: str,
    of: Callable[[Any, Any], Any],
    rows: int,
    columns: int,
    cycles: float = 1.0,
    unit: str = VECTOR,
) -> Microkernel:
    """``C[i, j] = of(A[i, j], B[i, j])`` on words of accumulators, as many cycles a word."""
    a = placeholder((rows, columns), "int32", name="A")
    b = placeholder((rows, columns), "int32", name="B")
    made = compute((rows, columns), lambda i, j: of(a[i, j], b[i, j]), name="C")
    assert made.definition is not None
    read = (tensor.name for tensor in made.definition.reads)
    return Microkernel(
        name=name,
        computes=made,
        tiles=(TileShape((rows, columns), cycles, 0.0),),
        operands={
            operand: Place(layout=words((0, rows), (1, columns))) for operand in (*read, "C")
        },
        unit=unit,
    )


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "alu_add": lambda a, b: a + b,
    "alu_subtract": lambda a, b: a - b,
    "alu_multiply": lambda a, b: a * b,
    "alu_min": minimum,
    "alu_max": maximum,
    "alu_divide": lambda a, b: a // 2,
    "alu_modulo": lambda a, b: a % 2,
    "alu_negate": lambda a, b: -a,
    "alu_absolute": lambda a, b: absolute(a),
    "alu_cut": lambda a, b: cast(cast(a, "int8"), "int32"),
    "alu_copy": lambda a, b: a,
    "alu_fill": lambda a, b: cast(1, "int32"),
}
_NAMES = {
    "+": "alu_add",
    "-": "alu_subtract",
    "*": "alu_multiply",
    "//": "alu_divide",
    "%": "alu_modulo",
    "neg": "alu_negate",
    "abs": "alu_absolute",
    "sum": "alu_add",
}


def product_name(spec: Spec) -> str:
    """What the product of words is called."""
    return f"gemm_{spec.rows}x{spec.columns}x{spec.terms}"


def name_of(store: Store, spec: Spec) -> str:
    """What runs a statement on accumulators is called; of constants, powers of two above all, it takes any."""
    match store.value:
        case Binary("*", Cast(Load()), Cast(Load())) if store.reduce == "sum":
            return product_name(spec)
        case Binary(op) | Unary(op) if store.reduce is None:
            return _NAMES.get(op, f"alu_{op}")
        case Const(0):
            return START
        case Const():
            return "alu_fill"
    if store.reduce is not None:
        return _NAMES.get(store.reduce, f"alu_{store.reduce}")
    return "alu_cut" if isinstance(store.value, Cast) else "alu_copy"


def microkernels(spec: Spec) -> tuple[Microkernel, ...]:
    """What the units of a machine run, the product first. A constant in one stands for any."""
    shape = spec.rows, spec.columns
    single, double = spec.immediate_cycles, spec.operand_cycles
    return (
        gemm(*shape, spec.terms, spec.gemm_cycles),
        on_words(START, lambda a, b: cast(0, "int32"), *shape, spec.gemm_cycles, MATRIX),
        *(
            on_words(name, of, *shape, double if name in _WITH_TWO else single)
            for name, of in _OPERATIONS.items()
        ),
    )


_WITH_TWO = ("alu_add", "alu_subtract", "alu_multiply", "alu_min", "alu_max", "alu_copy")
