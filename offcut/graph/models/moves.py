"""Sizes of a graph of which a kernel may run a part at a time, and how far its arrays move on from part to part."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.core.expr import Expr, Var, variables
from offcut.graph.models.step import Operand
from offcut.graph.models.wanted import Form
from offcut.graph.placing.places import ZERO
from offcut.graph.sizes import extents


def moves_of(
    form: Form, inputs: Mapping[str, Operand], results: Mapping[str, Operand]
) -> dict[str, tuple[Expr, ...]]:
    """Of each such size, the elements by which each input and result moves on for one more of it.

    inputs, results  by the names that the form has for them

    A kernel of ``rows = b*h*w`` may run ``h*w`` rows at a time, where no row depends on another; one that has both ``b`` and
    ``b*h`` of anything, where each of them is such a size, and no array has both.
    """
    names = frozenset[str]().union(*map(variables, form.sizes.values()))
    found = {name: _moves(name, form, {**inputs, **results}) for name in sorted(names)}
    return {name: moves for name, moves in found.items() if ZERO not in moves[len(inputs) :]}


def _moves(size: str, form: Form, operands: Mapping[str, Operand]) -> tuple[Expr, ...]:
    """Of each operand; 0 of all where the kernel cannot run for a part."""
    still = (ZERO,) * len(operands)
    moves: dict[str, Expr] = dict.fromkeys(operands, ZERO)
    for own, extent in form.sizes.items():
        if size not in variables(extent):
            continue
        each = extents.quotient(extent, Var(size))
        if each is None or size in variables(each) or own not in form.parallel:
            return still
        for name, axis in form.parallel[own].items():
            if name not in operands:
                continue
            if moves[name] != ZERO:
                return still
            moves[name] = extents.product((each, operands[name].strides[axis]))
    return tuple(moves.values())
