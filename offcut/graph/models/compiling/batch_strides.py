"""Sizes of a graph of which kernels may run a part at a time, and the strides of their arrays along such a size.

A kernel of ``rows = b*h*w`` that are parallel may run for a part of ``b``: for ``h*w`` rows each, its arrays ``h*w`` rows further on for
each that has been. (Of ``h``, too, for ``b*w`` rows each. That these are not the rows of one line of all images is no matter to a
kernel that runs alone, and `couplings` looks at what lies between several.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.core.expr import Expr, Var, substitute, variables
from offcut.core.text.printer import format_expr
from offcut.graph.fusion.batch_axes import Coupling
from offcut.graph.layout.placement import ZERO
from offcut.graph.models.compiling.kernel_request import Binding
from offcut.graph.models.kernel_step import Operand, Step
from offcut.graph.sizes import extents


def batch_strides(
    binding: Binding,
    inputs: Mapping[str, Operand],
    results: Mapping[str, Operand],
    names: Mapping[str, str],
) -> dict[str, tuple[Expr, ...] | str]:
    """Of each size of the graph that a kernel has, the strides of its inputs and results along it, in elements: 0 of one that all
    parts read; why it does not run for a part of it, where it may not.

    inputs, results  by the names that the binding has for them
    names            what the graph calls values, by these
    """
    sizes = frozenset[str]().union(*map(variables, binding.sizes.values()))
    operands = {**inputs, **results}
    strides_by_size = {size: _strides(size, binding, operands, names) for size in sorted(sizes)}
    for size, strides in strides_by_size.items():
        if not isinstance(strides, str):
            every = zip(results.values(), strides[len(inputs) :], strict=True)
            same = [one.value for one, stride in every if stride == ZERO]
            if same:
                strides_by_size[size] = f"{same[0]} is one for all of {size}"
    return strides_by_size


def _strides(
    size: str, binding: Binding, operands: Mapping[str, Operand], names: Mapping[str, str]
) -> tuple[Expr, ...] | str:
    """Of each operand along a size; why there are none where an extent that is no multiple of it, or no parallel one, names it, or an
    array has two that do.
    """
    strides: dict[str, Expr] = dict.fromkeys(operands, ZERO)
    for own, extent in binding.sizes.items():
        if size not in variables(extent):
            continue
        along = format_expr(extent)
        axes = binding.parallel.get(own)
        if axes is None:
            return "a loop program runs for all of a size"
        if isinstance(axes, Coupling):
            return _in_words(axes, along, binding, names)
        each = extents.quotient(extent, Var(size))
        if each is None or size in variables(each):
            return f"an axis of {along} has no part for each of {size}"
        for name, axis in axes.items():
            if name not in operands:
                continue
            if strides[name] != ZERO:
                return f"two axes of {operands[name].value} grow with {size}"
            strides[name] = extents.product((each, operands[name].strides[axis]))
    return tuple(strides.values())


def _in_words(coupling: Coupling, along: str, binding: Binding, names: Mapping[str, str]) -> str:
    """What couples the elements along an extent."""
    one = names.get(coupling.tensor, "a stage of it")
    if coupling.at is None:
        return f"along {along}, {one} {coupling.how}"
    at = format_expr(substitute(coupling.at, dict(binding.sizes)))
    read = names.get(coupling.read, "another")
    return f"along {along}, {one} reads {read} at {at}, which is not its own place"


def couplings(steps: Sequence[Step], size: str, lengths: Mapping[str, Expr]) -> list[str]:
    """Of each step, why it may not run for a part of a size, in turn with those before it that may, before the next part begins; "" where
    it may.

    lengths  elements of the memory of each value

    What one of them gives lies in blocks, one for each of the size, side by side; and what another of them reads of that are
    the blocks of the same places: not the first image for all, nor the images in reverse.
    """
    reasons, split_roots = list[str](), set[str]()
    for step in steps:
        if step.entry is None:
            reasons.append(f"{step.target} makes no machine code of it")
            continue
        strides = step.batch_strides.get(size, f"it knows nothing of {size}")
        if isinstance(strides, str):
            reasons.append(strides)
            continue
        results = {one.root for one in step.outputs}
        across = [
            one.value
            for one, stride in zip(step.arrays, strides, strict=True)
            if one.root in split_roots | results
            and not _in_blocks(one, stride, size, lengths[one.root])
        ]
        reasons.append(f"{across[0]} does not lie in a block for each of {size}" if across else "")
        split_roots |= set() if across else results
    return reasons


def _in_blocks(one: Operand, stride: Expr, size: str, length: Expr) -> bool:
    """Whether each place has a block of an array's memory to itself: a call checks that no array reaches outside of its memory, so
    that of the last place lies within the last block, and those of the others, which lie alike, within theirs.
    """
    if any(size in variables(each) for each in (one.offset, *one.strides)):
        return False
    return extents.product((Var(size), stride)) == extents.normal(length)
