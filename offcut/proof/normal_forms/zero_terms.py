"""A program -> the same where sums ask for the terms that padding does not make zero.

    for z in 0:w + 2
      S[z] = where(z >= 1 and z <= w, X[z - 1], 0.0)
    for x in 0:w                                          for x in 0:w
      Y[x] = 0.0                                            Y[x] = 0.0
      for s in 0:3                                 ->       for s in 0:3
        Y[x] += S[x + s] * W[s]                               if x + s >= 1 and x + s <= w
                                                                Y[x] += S[x + s] * W[s]

Theorem: a term that is left out is 0 times a number that is finite, so +0 or -0. A sum that starts from +0
is never -0 (rounded to nearest, x + y is -0 only where both are), and adding a zero to anything else changes
nothing. Elements of an integer type are finite; those of a constant of floats are where its declaration says so.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace

from offcut.core.analysis import analysis
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.dtypes import FLOATS
from offcut.core.expr import (
    Binary,
    Cast,
    Expr,
    Load,
    Select,
    dtype_of,
    is_zero,
    reads_memory,
    variables,
)
from offcut.core.memo import memo
from offcut.core.program import If, Kind, Program, Stmt, Store, Tile
from offcut.core.traversal import map_blocks
from offcut.polyhedral import try_isl
from offcut.proof.normal_forms.copies import forward_copies


def guard_zero_terms(
    program: Program, rows: bool = True, stages: Container[str] | None = None
) -> Program:
    """`program` with conditions on the terms of its sums; itself where padding makes none of them zero.

    rows    whether those on axes of tiles are among them: else all instances of a tile have the same terms
    stages  the sums; None: all
    """
    guards = {
        store: one
        for store, one in conditions(program).items()
        if stages is None or store.buffer in stages
    }

    def rule(stmt: Stmt, axes: frozenset[str]) -> Stmt:
        if isinstance(stmt, Tile) and not rows:
            axes |= {axis.iter for axis in stmt.axes}
        if not isinstance(stmt, Store):
            return map_blocks(stmt, lambda inner: tuple(rule(one, axes) for one in inner))
        atoms = conjuncts(guards[stmt]) if stmt in guards else ()
        atoms = tuple(one for one in atoms if not variables(one) & axes)
        return If(conjunction(atoms), (stmt,)) if atoms else stmt

    return (
        replace(program, body=tuple(rule(stmt, frozenset()) for stmt in program.body))
        if guards
        else program
    )


@memo(16)
def conditions(program: Program, finite: bool = False) -> dict[Store, Expr]:
    """Where a term of a sum may be anything but zero, by its store, of those that padding makes zero elsewhere.

    finite  whether all numbers are taken for finite, whatever is declared
    """
    if finite:
        program = replace(program, buffers=tuple(replace(b, finite=True) for b in program.buffers))
    padded = _padded_arrays(program)
    if not any(_may_be_padded(stmt.value, padded) for stmt in _sums(program)):
        return {}
    plain = try_isl(lambda: forward_copies(program), program)
    before, after = list(_sums(program)), list(_sums(plain))
    if [(s.buffer, s.index) for s in before] != [(s.buffer, s.index) for s in after]:
        return {}
    conditions_by_store: dict[Store, Expr | None] = {}
    for stmt, after_stmt in zip(before, after, strict=True):
        condition = _nonzero_condition(program, after_stmt.value)
        if stmt.buffer not in analysis(program).zero_sums:
            condition = None
        conditions_by_store[stmt] = (
            condition if conditions_by_store.get(stmt, condition) == condition else None
        )
    return {
        stmt: condition for stmt, condition in conditions_by_store.items() if condition is not None
    }


def _padded_arrays(program: Program) -> set[str]:
    """Local arrays of which some store writes zero where a condition on indices fails, and copies of these."""
    own = {buffer.name for buffer in program.buffers if buffer.kind is Kind.LOCAL}
    stores = analysis(program).of(Store)
    copies = [stmt for stmt in stores if stmt.buffer in own and stmt.reduce is None]
    padded: set[str] = set()
    while more := {one.buffer for one in copies if _pads(one.value, padded)} - padded:
        padded |= more
    return padded


def _pads(value: Expr, padded: set[str]) -> bool:
    """Whether a value is zero where a condition on indices fails, or what such an array holds."""
    match _uncast(value):
        case Load(buffer):
            return buffer in padded
        case Select(condition, _, zero):
            return is_zero(zero) and not reads_memory(condition)
    return False


def _may_be_padded(value: Expr, padded: set[str]) -> bool:
    """Whether a term is a product that padding makes zero somewhere."""
    return (
        isinstance(value, Binary)
        and value.op == "*"
        and any(_pads(factor, padded) for factor in (value.a, value.b))
    )


def _sums(program: Program) -> Iterator[Store]:
    for stmt in analysis(program).statements:
        if isinstance(stmt, Store) and stmt.reduce == "sum":
            yield stmt


def _nonzero_condition(program: Program, value: Expr) -> Expr | None:
    """Where a product may be anything but zero; None where that is everywhere, or not said."""
    if not isinstance(value, Binary) or value.op != "*":
        return None
    for padded, other in ((value.a, value.b), (value.b, value.a)):
        if not _is_finite(program, other):
            continue
        match _uncast(padded):
            case Select(condition) if _pads(padded, set()):
                return condition
    return None


def _uncast(value: Expr) -> Expr:
    return _uncast(value.a) if isinstance(value, Cast) else value


def _is_finite(program: Program, value: Expr) -> bool:
    """Whether a number that is read is finite, also as what it is converted to."""
    while isinstance(value, Cast):
        if value.dtype in FLOATS and not _holds(value.dtype, dtype_of(value.a)):
            return False
        value = value.a
    if not isinstance(value, Load):
        return False
    return dtype_of(value) not in FLOATS or program.buffer(value.buffer).finite


def _holds(dtype: str, narrow: str) -> bool:
    """Whether a type of floats goes as far as another type."""
    if dtype == "float16":
        return narrow in ("bool", "int8", "uint8")
    return dtype == "float64" or narrow != "float64"
