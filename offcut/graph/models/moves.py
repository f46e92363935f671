"""Sizes of a graph of which kernels may run a part at a time, and the stride of each of their arrays along such a size.

A kernel of ``rows = b*h*w`` that are parallel may run for a part of ``b``: for ``h*w`` rows each, its arrays ``h*w`` rows further on for
each that has been. (Of ``h``, too, for ``b*w`` rows each. That these are not the rows of one line of all images is no matter to a
kernel that runs alone, and `able` looks at what lies between several.)
"""

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
    """Of each such size, the strides of inputs and results along it, in elements; 0 of one that all parts read.

    inputs, results  by the names that the binding has for them
    """
    names = frozenset[str]().union(*map(variables, binding.sizes.values()))
    found = {name: _strides(name, binding, {**inputs, **results}) for name in sorted(names)}
    return {
        name: strides
        for name, strides in found.items()
        if strides is not None and ZERO not in strides[len(inputs) :]
    }


def _strides(
    size: str, binding: Binding, operands: Mapping[str, Operand]
) -> tuple[Expr, ...] | None:
    """Of each operand; None where an extent that is no multiple of the size, or no parallel one, names it, or an array has two that do."""
    strides: dict[str, Expr] = dict.fromkeys(operands, ZERO)
    for own, extent in binding.sizes.items():
        if size not in variables(extent):
            continue
        each = extents.quotient(extent, Var(size))
        if each is None or size in variables(each) or own not in binding.parallel:
            return None
        for name, axis in binding.parallel[own].items():
            if name not in operands:
                continue
            if strides[name] != ZERO:
                return None
            strides[name] = extents.product((each, operands[name].strides[axis]))
    return tuple(strides.values())


def able(steps: Sequence[Step], size: str, lengths: Mapping[str, Expr]) -> list[bool]:
    """Which steps may run for a part of a size, one after the other, before the next part begins.

    lengths  elements of the memory of each value

    What one of them gives lies in blocks, one for each of the size, side by side; and what another of them reads of that are
    the blocks of the same places: not the first image for all, nor the images in reverse.
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
    """Whether each place has a block of an array's memory to itself: a call checks that no array reaches outside of its memory, so
    that of the last place lies within the last block, and those of the others, which lie alike, within theirs.
    """
    if any(size in variables(each) for each in (one.offset, *one.strides)):
        return False
    return extents.product((Var(size), move)) == extents.normal(length)
