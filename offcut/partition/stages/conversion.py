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


def converted(computation: Computation, position: int, wanted: Collection[Cast]) -> Computation:
    """`computation` with conversions of operands of the sum of a group before the sum.

    wanted   of its `conversions`, those without which it is better
    """
    names = computation.names()
    buffers = {buffer.name: buffer for buffer in computation.buffers}
    groups = list(computation.groups)
    lead, *rest = groups[position]
    for node in wanted:
        assert isinstance(node.a, Load)
        source = buffers[node.a.buffer]
        if source.kind is Kind.CONSTANT and is_read_once(computation, source.name):
            buffers[source.name] = replace(source, dtype=node.dtype)
            lead = _reading(lead, node, source.name)
            continue
        held = next((g[0].buffer for g in groups if _is_copy(g, source, node.dtype)), None)
        if held is None:
            held = names.fresh(f"{source.name}_{node.dtype}")
            buffers[held] = Buffer(held, node.dtype, source.shape, Kind.LOCAL)
            given = source.kind in (Kind.INPUT, Kind.CONSTANT)
            at = _given_first(groups, buffers) if given else position
            groups.insert(at, (_copy(source, held, node.dtype, names),))
            position += 1
        lead = _reading(lead, node, held)
    groups[position] = (lead, *rest)
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


def _copy(source: Buffer, name: str, dtype: str, names: Names) -> Stage:
    """The stage that converts a whole buffer."""
    own = Names(names.taken)
    axes = tuple(
        StageAxis(own.fresh(f"x{k}"), extent, f"x{k}") for k, extent in enumerate(source.shape)
    )
    point = tuple(Var(axis.name) for axis in axes)
    return Stage(name, name, axes, (), Cast(Load(source.name, point, source.dtype), dtype))
