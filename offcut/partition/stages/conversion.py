"""Operands of sums in the type that is multiplied in: converted once, and not in every term.

``sum of float32(A[i, k]) * float32(B[k, j])`` converts an element of A for every column. Where a
microkernel multiplies float32, A is converted in a stage of its own, before its reader; an operand
that the caller gives, before all else; and a constant that nothing else reads, when it is packed.
Which operands a microkernel wants converted, its back end says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from offcut.core.expr import Cast, Expr, Load, Var, all_loads, dtype_of, rewrite, walk
from offcut.core.program import Buffer, Kind
from offcut.describe.computation import Computation, Names, Stage
from offcut.partition.stages.staged_value import StagedValue


def conversion_value(computation: Computation, node: Cast, names: Names) -> StagedValue:
    """Return the array that holds the elements of a conversion.

    It is the constant itself if that is converted when it is bound, else the copy that `computation` has, else a new one.

    node   a conversion of one element
    names  that are taken; that of a new array is added
    """
    load = node.a
    assert isinstance(load, Load)
    source = computation.buffer(load.buffer)
    name, axes = source.name, tuple(f"x{k}" for k in range(len(source.shape)))
    if source.kind is not Kind.CONSTANT or not is_read_once(computation, source.name):
        copies = (group[0] for group in computation.groups if _is_copy(group, source, node.dtype))
        copy = next(copies, None)
        if copy is not None:
            name, axes = copy.buffer, tuple(axis.name for axis in copy.axes)
        else:
            name = names.fresh(f"{source.name}_{node.dtype}")
            axes = tuple(map(Names(names.taken).fresh, axes))
    element = Load(source.name, tuple(map(Var, axes)), source.dtype)
    return StagedValue(name, axes, load.index, Cast(element, node.dtype))


def place_of_conversions(computation: Computation) -> int:
    """Return the position of the first group that does not convert an argument or a constant."""
    arguments = [b for b in computation.buffers if b.kind in (Kind.INPUT, Kind.CONSTANT)]
    for position, group in enumerate(computation.groups):
        if not any(_is_copy(group, one, dtype_of(group[0].body)) for one in arguments):
            return position
    return len(computation.groups)


def _is_copy(group: Sequence[Stage], source: Buffer, dtype: str) -> bool:
    """Whether a group converts the whole of a buffer, and nothing else."""
    if len(group) != 1:
        return False
    point = tuple(Var(axis.name) for axis in group[0].axes)
    return group[0].body == Cast(Load(source.name, point, source.dtype), dtype)


def conversions(lead: Stage) -> tuple[Cast, ...]:
    """The elements that a stage reads in another type than their own, each once."""
    nodes = (node for node in walk(lead.value) if isinstance(node, Cast))
    return tuple(dict.fromkeys(node for node in nodes if isinstance(node.a, Load)))


def reading(lead: Stage, done: Collection[Cast]) -> Stage:
    """`lead` as if the operands of some of its conversions had the type that they are converted to."""

    def rule(node: Expr) -> Expr | None:
        if node not in done:
            return None
        assert isinstance(node, Cast)
        assert isinstance(node.a, Load)
        return replace(node.a, dtype=node.dtype)

    return replace(lead, body=rewrite(lead.body, rule)) if done else lead


def is_read_once(computation: Computation, buffer: str) -> bool:
    """Whether one load of all stages reads a buffer."""
    stages = (stage for group in computation.groups for stage in group)
    read = (load for stage in stages for load in all_loads(stage.value))
    return sum(load.buffer == buffer for load in read) == 1
