"""Operands of sums in the type that is multiplied in: converted once, and not in every term.

``sum of float32(A[i, k]) * float32(B[k, j])`` converts an element of A for every column. Where a
microkernel multiplies float32, A is converted in a stage of its own, before its reader; an operand
that the caller gives, before all else; and a constant that nothing else reads, when it is packed.
Which operands a microkernel wants converted, its back end says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from offcut.core.expr import Cast, Expr, Load, Var, all_loads, dtype_of, rewrite, walk
from offcut.core.program import Buffer, Kind
from offcut.describe.computation import Computation, Names, Stage, StageAxis


def conversion_home(
    computation: Computation, node: Cast, names: Names
) -> tuple[str, tuple[str, ...]]:
    """The array that has the elements of a conversion, and its axes: the constant itself, where it is converted when it is
    bound; a copy that there is; or one that is new, by names that `names` has.
    """
    assert isinstance(node.a, Load)
    source = computation.buffer(node.a.buffer)
    axes = tuple(f"x{k}" for k in range(len(source.shape)))
    if source.kind is Kind.CONSTANT and is_read_once(computation, source.name):
        return source.name, axes
    for group in computation.groups:
        if _is_copy(group, source, node.dtype):
            return group[0].buffer, tuple(axis.name for axis in group[0].axes)
    name = names.fresh(f"{source.name}_{node.dtype}")
    own = Names(names.taken)
    return name, tuple(map(own.fresh, axes))


def converted(
    computation: Computation, position: int, node: Cast, name: str, axes: Sequence[str]
) -> Computation:
    """`computation` with a conversion of an operand of the sum of a group before the sum, in the array `name` of these axes:
    what `conversion_home` gives, or other free names.
    """
    assert isinstance(node.a, Load)
    buffers = {buffer.name: buffer for buffer in computation.buffers}
    groups = list(computation.groups)
    lead, *rest = groups[position]
    source = buffers[node.a.buffer]
    if name == source.name:
        buffers[name] = replace(source, dtype=node.dtype)
    elif name not in buffers:
        buffers[name] = Buffer(name, node.dtype, source.shape, Kind.LOCAL)
        given = source.kind in (Kind.INPUT, Kind.CONSTANT)
        at = _given_first(groups, buffers) if given else position
        groups.insert(at, (_copy(source, name, node.dtype, axes),))
        position += 1
    groups[position] = (_reading(lead, node, name), *rest)
    return replace(computation, buffers=tuple(buffers.values()), groups=tuple(groups))


def _given_first(groups: Sequence[Sequence[Stage]], buffers: Mapping[str, Buffer]) -> int:
    """The position behind the conversions of what the caller gives, which run before all else."""
    given = [b for b in buffers.values() if b.kind in (Kind.INPUT, Kind.CONSTANT)]
    for position, group in enumerate(groups):
        if not any(_is_copy(group, one, dtype_of(group[0].body)) for one in given):
            return position
    return len(groups)


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
    for node in done:
        assert isinstance(node.a, Load)
        lead = _reading(lead, node, node.a.buffer)
    return lead


def is_read_once(computation: Computation, buffer: str) -> bool:
    """Whether one load of all stages reads a buffer."""
    stages = (stage for group in computation.groups for stage in group)
    read = (load for stage in stages for load in all_loads(stage.value))
    return sum(load.buffer == buffer for load in read) == 1


def _reading(lead: Stage, node: Cast, buffer: str) -> Stage:
    """`lead` with a converted load read from `buffer` as it is."""
    assert isinstance(node.a, Load)
    plain = Load(buffer, node.a.index, node.dtype)

    def rule(other: Expr) -> Expr | None:
        return plain if other == node else None

    return replace(lead, body=rewrite(lead.body, rule))


def _copy(source: Buffer, name: str, dtype: str, names: Sequence[str]) -> Stage:
    """The stage that converts a whole buffer."""
    axes = tuple(
        StageAxis(own, extent, f"x{k}")
        for k, (own, extent) in enumerate(zip(names, source.shape, strict=True))
    )
    point = tuple(Var(axis.name) for axis in axes)
    return Stage(name, name, axes, (), Cast(Load(source.name, point, source.dtype), dtype))
