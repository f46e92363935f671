"""Operands of sums in the type that is multiplied in: converted once, and not in every term.

``sum of float32(A[i, k]) * float32(B[k, j])`` converts an element of A for every column. Where a
microkernel multiplies float32, A is converted in a stage of its own, before its reader; an operand
that the caller gives, before all else; and a constant that nothing else reads, when it is packed.
Which operands a microkernel wants converted, its back end says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from offcut.core.computation import Computation, Names, Stage, StageAxis
from offcut.core.expr import Cast, Expr, Load, Var, rewrite, walk
from offcut.core.program import Buffer, Kind


def converted(computation: Computation, wanted: Callable[[Stage], Collection[Cast]]) -> Computation:
    """`computation` with conversions of the operands of some sums before the sums.

    wanted   of the `conversions` of a sum, those without which it is better
    """
    names = computation.names()
    buffers = {buffer.name: buffer for buffer in computation.buffers}
    first: list[tuple[Stage, ...]] = []
    groups: list[tuple[Stage, ...]] = []
    done: dict[tuple[str, str], str] = {}
    for group in computation.groups:
        lead = group[0]
        for node in wanted(lead):
            load = node.a
            assert isinstance(load, Load)
            source = buffers[load.buffer]
            if source.kind is Kind.CONSTANT and is_read_once(computation, source.name):
                buffers[source.name] = replace(source, dtype=node.dtype)
                lead = _reading(lead, node, source.name)
                continue
            key = (source.name, node.dtype)
            if key not in done:
                done[key] = names.fresh(f"{source.name}_{node.dtype}")
                buffers[done[key]] = Buffer(done[key], node.dtype, source.shape, Kind.LOCAL)
                given = source.kind in (Kind.INPUT, Kind.CONSTANT)
                (first if given else groups).append((_copy(source, done[key], node.dtype, names),))
            lead = _reading(lead, node, done[key])
        groups.append((lead, *group[1:]))
    return replace(computation, buffers=tuple(buffers.values()), groups=(*first, *groups))


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
    nodes = (node for stage in stages for node in walk(stage.value))
    return sum(isinstance(node, Load) and node.buffer == buffer for node in nodes) == 1


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
