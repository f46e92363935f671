"""Sizes of a graph of which kernels may run a part at a time, and how far their arrays move on from part to part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.core.expr import Expr, Var, variables
from offcut.graph.models.step import Operand, Step
from offcut.graph.models.wanted import Binding
from offcut.graph.placing.places import ZERO
from offcut.graph.sizes import extents


def moves_of(
    binding: Binding, inputs: Mapping[str, Operand], results: Mapping[str, Operand]
) -> dict[str, tuple[Expr, ...]]:
    """Of each such size, the elements by which each input and result moves on for one more of it.

    inputs, results  by the names that the binding has for them

    A kernel of ``rows = b*h*w`` may run ``h*w`` rows at a time, where no row depends on another; one that has both ``b`` and
    ``b*h`` of anything, where each of them is such a size, and no array has both.
    """
    names = frozenset[str]().union(*map(variables, binding.sizes.values()))
    found = {name: _moves(name, binding, {**inputs, **results}) for name in sorted(names)}
    return {name: moves for name, moves in found.items() if ZERO not in moves[len(inputs) :]}


def _moves(size: str, binding: Binding, operands: Mapping[str, Operand]) -> tuple[Expr, ...]:
    """Of each operand; 0 of all where the kernel cannot run for a part."""
    still = (ZERO,) * len(operands)
    moves: dict[str, Expr] = dict.fromkeys(operands, ZERO)
    for own, extent in binding.sizes.items():
        if size not in variables(extent):
            continue
        each = extents.quotient(extent, Var(size))
        if each is None or size in variables(each) or own not in binding.parallel:
            return still
        for name, axis in binding.parallel[own].items():
            if name not in operands:
                continue
            if moves[name] != ZERO:
                return still
            moves[name] = extents.product((each, operands[name].strides[axis]))
    return tuple(moves.values())


def able(steps: Sequence[Step], size: str, lengths: Mapping[str, Expr]) -> list[bool]:
    """Which steps may run for a part of a size, one after the other before the next part begins.

    lengths  elements of the memory of each value

    What one of them gives is blocks side by side, one for each of the size, and another of them reads of it the block of its own
    place: neither the first image, nor the one before.
    """
    found, given = list[bool](), set[str]()
    for step in steps:
        moves = step.moves.get(size, ())
        arrays = zip(step.arrays[: len(moves)], moves, strict=True)
        results = {one.root for one in step.outputs}
        fits = bool(moves) and all(
            _in_blocks(one, move, size, lengths[one.root])
            for one, move in arrays
            if one.root in given | results
        )
        found.append(fits)
        given |= results if fits else set()
    return found


def _in_blocks(one: Operand, move: Expr, size: str, length: Expr) -> bool:
    """Whether an array lies in blocks of which each place has its own: all of it lies within its memory, so none reaches into the
    next.
    """
    if any(size in variables(each) for each in (one.offset, *one.strides)):
        return False
    return extents.product((Var(size), move)) == extents.normal(length)
