"""Extents of arrays as i64, over registers that hold the sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.backends.abi import AffineFact
from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter
from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var


def affine(
    f: FunctionWriter, const: int, terms: Sequence[tuple[str, int]], sizes: Mapping[str, str]
) -> str:
    """Write ``const + sum(factor * size)``."""
    total = str(const)
    for name, factor in terms:
        total = ir.add(f, total, ir.mul(f, sizes[name], str(factor)))
    return total


def holds(f: FunctionWriter, relation: AffineFact, sizes: Mapping[str, str]) -> str:
    """Write whether a fact between sizes holds, an i1."""
    value = affine(f, relation.const, relation.terms, sizes)
    if relation.kind == "mod":
        value = ir.mod(f, value, str(relation.modulus))
    return f.let(f"icmp {'sge' if relation.kind == '>=' else 'eq'} i64 {value}, 0")


def extent_of(f: FunctionWriter, extent: Expr, sizes: Mapping[str, str], without: str = "") -> str:
    """Write an extent of a signature; `without` the term of a size."""
    form = ix.to_linear(extent)
    named = [(atom.name, n) for atom, n in form.terms if isinstance(atom, Var)]
    total = affine(f, form.const, [one for one in named if one[0] != without], sizes)
    for atom, factor in form.terms:
        if isinstance(atom, Binary):
            divisor = str(ix.literal_value(atom.b))
            quotient = ir.floordiv(f, extent_of(f, atom.a, sizes), divisor)
            total = ir.add(f, total, ir.mul(f, quotient, str(factor)))
    return total
