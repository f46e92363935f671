"""Operators whose description is a loop program: recurrences, and any program of a user's own, on values of a graph.

A program has sizes of its own. What they are over the sizes of the graph is found in the shapes of its operands, as a call
of the program finds them in its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var, substitute
from offcut.core.extents import factor_of, solving_order
from offcut.core.program import Buffer, Kind, Program
from offcut.core.text.parser import parse
from offcut.core.text.printer import format_expr
from offcut.core.traversal import all_bound_names, substitute_coordinates
from offcut.describe.computation import Names
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.graph.sizes import extents

Shape = tuple[Expr, ...]
_GIVEN = (Kind.INPUT, Kind.CONSTANT, Kind.INOUT)


@dataclass(frozen=True)
class ProgramApplication:
    """A program on tensors.

    operands  in the order in which it declares its inputs
    sizes     those that no shape determines
    """

    program: Program
    operands: tuple[Tensor, ...]
    sizes: Mapping[str, Any]


def program(
    text: str, /, *operands: Tensor, name: str = "program", **sizes: Any
) -> ProgramApplication:
    """Return a program that is written in full, as an operator: ``program("program p …", x, u, steps=n)``.

    operands  its inputs, constants and what it updates, in the order in which it declares them
    sizes     those that no shape determines

    Raises ParseError for a text that is none, DescribeError where it takes other operands.
    """
    parsed = _parse(text)
    for label, size in sizes.items():
        if not (isinstance(size, int) or hasattr(size, "free_symbols")):
            raise _refusal(parsed, f"cannot take {label} = {size!r}", "a size is an extent")
    inputs = given_to(parsed)
    if len(inputs) != len(operands):
        raise _refusal(
            parsed,
            f"takes {len(inputs)} operands, got {len(operands)}",
            f"its inputs are {', '.join(buffer.name for buffer in inputs) or 'none'}",
        )
    if not parsed.results:
        raise _refusal(parsed, "cannot be an operator", "it has no output and no inout array")
    return ProgramApplication(parsed, operands, sizes)


PROGRAMS = {"program": program}
"""The operators of graphs that are no functions of `offcut.ops`."""


@lru_cache(maxsize=256)
def _parse(text: str) -> Program:
    return parse(text)


def given_to(program: Program) -> tuple[Buffer, ...]:
    """What a program takes, in order."""
    return tuple(buffer for buffer in program.buffers if buffer.kind in _GIVEN)


def apply_program(program: Program, tensors: Mapping[str, Tensor]) -> ProgramApplication:
    """Return a program whose inputs are called as the tensors that it was made of."""
    return ProgramApplication(program, tuple(tensors[one.name] for one in given_to(program)), {})


@dataclass(frozen=True)
class Call:
    """A program on values of a graph.

    program   whose operands are inputs, or updated
    operands  the names of values, in the order in which it declares its inputs
    sizes     what its sizes are over those of the graph
    """

    program: Program
    operands: tuple[str, ...]
    sizes: Mapping[str, Expr]

    @property
    def results(self) -> tuple[tuple[str, Shape], ...]:
        """Return the element type and the shape of each result."""
        return tuple(
            (one.dtype, tuple(extents.at(extent, self.sizes) for extent in one.shape))
            for one in self.program.results
        )

    def with_own_sizes(self) -> Call:
        """Return the same, its sizes called ``s0, s1, …``: equal for calls that compute the same."""
        program = self.program
        names = Names((*(buffer.name for buffer in program.buffers), *all_bound_names(program)))
        own = {size.name: names.fresh(f"s{n}") for n, size in enumerate(program.sizes)}
        now: dict[str, Expr] = {old: Var(new) for old, new in own.items()}

        def substituted(expr: Expr) -> Expr:
            return substitute(expr, now)

        result = Program(
            program.name,
            tuple(replace(size, name=own[size.name]) for size in program.sizes),
            tuple(map(substituted, program.assumptions)),
            tuple(
                replace(one, shape=tuple(map(substituted, one.shape))) for one in program.buffers
            ),
            substitute_coordinates(program.body, now),
        )
        sizes = {own[name]: extent for name, extent in self.sizes.items()}
        return Call(result, self.operands, sizes)


def call_of(
    applied: ProgramApplication, shapes: Sequence[Shape], sizes: Mapping[str, Expr]
) -> Call:
    """Return an applied program as a call.

    shapes  of its operands, over the sizes of the graph; sizes those that are given, likewise

    Raises DescribeError where an operand is of another type or shape, or a size is not found.
    """
    program, buffers = applied.program, given_to(applied.program)
    for one, tensor, shape in zip(buffers, applied.operands, shapes, strict=True):
        if one.dtype != tensor.dtype or len(one.shape) != len(shape):
            raise _misfit(program, one, tensor, shape)
    for name in sizes:
        if name not in {one.name for one in program.sizes}:
            names_of_sizes = ", ".join(one.name for one in program.sizes) or "none"
            raise _refusal(
                program, f"cannot take the size {name}", f"its sizes are {names_of_sizes}"
            )
    known = dict(sizes)
    axes = [
        (extent, actual)
        for one, shape in zip(buffers, shapes, strict=True)
        for extent, actual in zip(one.shape, shape, strict=True)
    ]
    for name, number in solving_order([extent for extent, _ in axes], known):
        extent, actual = axes[number]
        factor = factor_of(extent, name)
        rest = extents.at(ix.sub(extent, ix.mul(factor, Var(name))), known)
        value = extents.quotient(extents.normal(Binary("-", actual, rest)), ix.const(factor))
        if value is None:
            raise _refusal(
                program,
                f"needs the size {name}",
                f"no {name} makes {format_expr(extent)} the extent {format_expr(actual)}",
            )
        known[name] = value
    missing = [size.name for size in program.sizes if size.name not in known]
    if missing:
        raise _refusal(
            program,
            f"needs the size {missing[0]}",
            "no shape of an operand determines it",
            f"program(…, {missing[0]}=n)",
        )
    for one, tensor, shape in zip(buffers, applied.operands, shapes, strict=True):
        if tuple(extents.at(extent, known) for extent in one.shape) != shape:
            raise _misfit(program, one, tensor, shape)
    inputs = tuple(
        replace(one, kind=Kind.INPUT) if one.kind is Kind.CONSTANT else one
        for one in program.buffers
    )
    names = tuple(tensor.name for tensor in applied.operands)
    return Call(replace(program, buffers=inputs), names, known)


def _misfit(program: Program, one: Buffer, tensor: Tensor, shape: Shape) -> DescribeError:
    actual, declared = (", ".join(map(format_expr, sizes)) for sizes in (shape, one.shape))
    return _refusal(
        program,
        f"cannot take {tensor.name}: {tensor.dtype}[{actual}]",
        f"it declares {one.name}: {one.dtype}[{declared}]",
    )


def _refusal(program: Program, what: str, because: str, *help: str) -> DescribeError:
    return DescribeError("graph", f"{program.name} {what}", because=because, help=help)
