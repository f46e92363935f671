"""Constants of a loop program: arrays whose values are known before any call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from offcut.core import index as ix
from offcut.core.conditions import conjuncts, negate
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Compare, Expr, dtype_of, substitute, variables
from offcut.core.program import Buffer, For, If, Kind, Program, Stmt
from offcut.core.text.printer import format_expr
from offcut.core.traversal import map_blocks, substitute_coordinates
from offcut.describe.request import Array, checked_constants, solved_sizes
from offcut.errors import DescribeError


def bind_constants(
    program: Program, constants: Mapping[str, Any] | None, op: str
) -> tuple[Program, dict[str, Array]]:
    """Return `program` with these inputs constant and their sizes fixed, and the arrays, copied.

    constants   an array for every ``constant`` buffer, and for any ``input`` that never changes

    Raises DescribeError where one is missing, or does not fit its declaration.
    """
    checked = checked_constants(constants, op)
    known = {b.name: b for b in program.buffers if b.kind in (Kind.CONSTANT, Kind.INPUT)}
    for name in checked:
        if name not in known:
            raise DescribeError(
                op,
                f"cannot take a constant for {name!r}",
                because=f"the inputs are {', '.join(known) or 'none'}",
            )
    missing = [b.name for b in known.values() if b.kind is Kind.CONSTANT and b.name not in checked]
    if missing:
        raise DescribeError(
            op,
            f"cannot run without {', '.join(missing)}",
            because=f"the program declares constant {missing[0]}",
            help=(f'constants={{"{missing[0]}": …}}', f"input {missing[0]}: … in the program"),
        )
    arrays = {name: _fitting(known[name], value, op) for name, value in checked.items()}
    sizes = solved_sizes(
        {name: known[name].shape for name in arrays},
        arrays,
        {size.name: size for size in program.sizes},
        [(f"assume {format_expr(fact)}", fact) for fact in program.assumptions],
        op,
    )
    for name, array in arrays.items():
        for axis, extent in enumerate(known[name].shape):
            if not variables(extent) <= sizes.keys():
                raise DescribeError(
                    op,
                    f"cannot take a constant of shape {array.shape}",
                    at=f"{name}, axis {axis}",
                    because=f"its extent {format_expr(extent)} does not say what the sizes are",
                )
    values: dict[str, Expr] = {name: ix.const(value) for name, value in sizes.items()}

    def fixed(expr: Expr) -> Expr:
        return ix.fold_indices(substitute(expr, values))

    buffers = tuple(
        replace(
            buffer,
            shape=tuple(map(fixed, buffer.shape)),
            kind=Kind.CONSTANT if buffer.name in arrays else buffer.kind,
        )
        for buffer in program.buffers
    )
    bound = Program(
        program.name,
        tuple(size for size in program.sizes if size.name not in sizes),
        tuple(map(fixed, program.assumptions)) if sizes else program.assumptions,
        buffers if sizes or arrays else program.buffers,
        _reachable(substitute_coordinates(program.body, values)) if sizes else program.body,
        program.tokens,
    )
    return bound, arrays


def _reachable(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return `body` without what the sizes exclude: it may divide by one that is 0."""
    statements: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, If) and any(map(_fails, conjuncts(stmt.condition))):
            statements += _reachable(stmt.other)
        elif isinstance(stmt, If) and _fails(negate(stmt.condition)):
            statements += _reachable(stmt.then)
        elif not (isinstance(stmt, For) and _fails(Compare("<", stmt.lo, stmt.hi))):
            statements.append(map_blocks(stmt, _reachable))
    return tuple(statements)


def _fails(condition: Expr) -> bool:
    """Return whether `condition` compares indices that differ by a constant, and does not hold."""
    if not (isinstance(condition, Compare) and dtype_of(condition.a) == "index"):
        return False
    return ix.literal_value(ix.compare(condition.op, condition.a, condition.b)) == 0


def _fitting(buffer: Buffer, value: Any, op: str) -> Array:
    array = np.asarray(value)
    if array.dtype != numpy_dtype(buffer.dtype) or array.ndim != len(buffer.shape):
        shape = ", ".join(map(format_expr, buffer.shape))
        raise DescribeError(
            op,
            f"cannot take a constant of {array.dtype}, rank {array.ndim}",
            at=buffer.name,
            because=f"it is declared {buffer.dtype}[{shape}]",
        )
    return np.array(array, order="C")
