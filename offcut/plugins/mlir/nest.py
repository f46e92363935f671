"""A loop nest of MLIR as a loop program: the MLIR value of each name, equivalent operators, signs of indices.

The table of operators of `offcut.ir` and the equivalent operations of `arith` and `math`.

Decide from the terms of an index alone whether it is never negative.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from xdsl.dialects import arith, builtin, math
from xdsl.ir import Attribute, Operation, SSAValue

from offcut.core import index as ix
from offcut.core.function_table import FUNCTIONS
from offcut.errors import DescribeError
from offcut.ir import Binary, Const, Expr, Program, Var

DTYPES: dict[Attribute, str] = {
    builtin.f64: "float64",
    builtin.f32: "float32",
    builtin.f16: "float16",
    builtin.bf16: "bfloat16",
    builtin.i64: "int64",
    builtin.i32: "int32",
    builtin.IntegerType(16): "int16",
    builtin.IntegerType(8): "int8",
    builtin.i1: "bool",
    builtin.IndexType(): "index",
}
TYPES = {name: kind for kind, name in DTYPES.items()}


@dataclass(frozen=True)
class Extent:
    """``memref.dim memref, axis``: a size that is never negative."""

    memref: SSAValue
    axis: int


@dataclass(frozen=True)
class Nest:
    """A loop `op` and the `program` that computes the same, with the values of its names.

    buffers      the memref of each array that is not local, by name
    scalars      the value of each array of no axes that stands for a scalar, by name
    sizes        by name, an extent or a value of type index; such a value may be negative, and the
                 program holds only where it is not
    held_arrays  the local arrays of which an instance writes, then reads one element: SSA values
    results      of `op`, in order: the arrays of no axes that hold them
    """

    op: Operation
    program: Program
    buffers: dict[str, SSAValue]
    scalars: dict[str, SSAValue]
    sizes: dict[str, SSAValue | Extent]
    held_arrays: frozenset[str]
    results: tuple[str, ...]

    @property
    def signed_sizes(self) -> tuple[str, ...]:
        """Return the sizes that may be negative."""
        return tuple(name for name, source in self.sizes.items() if isinstance(source, SSAValue))


def import_error(op: Operation, because: str, *help: str) -> DescribeError:
    """Return the error for an operation that cannot be imported."""
    line = str(op).strip().splitlines()[0].rstrip(" {")
    return DescribeError(
        "offcut-partition", f"cannot read {op.name}", at=line, because=because, help=help
    )


FLOAT: Mapping[str, str] = {
    "+": "arith.addf",
    "-": "arith.subf",
    "*": "arith.mulf",
    "/": "arith.divf",
    "neg": "arith.negf",
    **{name: row.mlir for name, row in FUNCTIONS.items() if row.mlir},
}
"""Of floats."""
BITS: Mapping[str, str] = {
    "bitand": "arith.andi",
    "bitor": "arith.ori",
    "bitxor": "arith.xori",
    "shl": "arith.shli",
    "shr": "arith.shrsi",
}
"""On bits of integers; shifts mean the same where they are by less than the width."""
INTEGER: Mapping[str, str] = {
    "+": "arith.addi",
    "-": "arith.subi",
    "*": "arith.muli",
    "max": "arith.maxsi",
    "min": "arith.minsi",
    "abs": "math.absi",
    **BITS,
}
"""Of integers and coordinates."""
SIGNED = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}
"""Predicates of ``arith.cmpi``."""
ORDERED = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
"""Predicates of ``arith.cmpf``, of which none but != holds for NaN."""

OPERATIONS: Mapping[str, type[Operation]] = {
    one.name: one for dialect in (arith.Arith, math.Math) for one in dialect.operations
}
"""The operations of both dialects by name."""


def is_natural(expr: Expr, natural_names: Container[str]) -> bool:
    """Return whether ``expr >= 0`` is shown; False means unknown.

    natural_names  coordinates and sizes that are never negative
    """
    form = ix.to_linear(expr)
    return form.const >= 0 and all(
        factor > 0 and _is_natural_atom(atom, natural_names) for atom, factor in form.terms
    )


def _is_natural_atom(atom: Expr, natural_names: Container[str]) -> bool:
    match atom:
        case Var(name):
            return name in natural_names
        case Binary("//" | "min" | "max" | "*", a, b):
            return is_natural(a, natural_names) and is_natural(b, natural_names)
        case Binary("%", _, Const()):
            return True
        case _:
            return False
