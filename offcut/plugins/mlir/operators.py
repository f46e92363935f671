"""The table of operators of `offcut.ir` and the equivalent operations of `arith` and `math`."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from offcut.core.function_table import FUNCTIONS

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
