"""Where the nodes of a graph read their operands: found in what they describe, never by their names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Var, loads, reads_memory, substitute, variables
from offcut.describe.tensor import Tensor, tensors_of
from offcut.describe.value import size_var
from offcut.graph.fusion.tensor_rewrites import without_single_terms
from offcut.graph.graph import Graph, Node
from offcut.graph.operators import Kind, kind_of
from offcut.graph.sizes import extents
from offcut.graph.tensor_semantics import Alike, Description, alike, description_of
from offcut.graph.views import VIEWS


@dataclass(frozen=True, slots=True)
class Strided:
    """``result[i, j, …] = x[offset + steps · (i, j, …)]``: the same elements, another shape.

    offset  for each axis of x, over the sizes of the graph
    steps   for each axis of x, one number for each axis of the result
    """

    offset: tuple[Expr, ...]
    steps: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> tuple[int, ...] | None:
        """Which axis of x each axis of the result is, where it is a permutation of all of x."""
        unit_axes = [
            row.index(1) for row in self.steps if sorted(row) == [0] * (len(row) - 1) + [1]
        ]
        whole = all(one == ix.const(0) for one in self.offset)
        if (
            not whole
            or len(unit_axes) < len(self.steps)
            or sorted(unit_axes) != [*range(len(unit_axes))]
        ):
            return None
        return tuple(unit_axes.index(axis) for axis in range(len(unit_axes)))


@dataclass(frozen=True)
class NodeAccess:
    """What a node is like.

    kind      its class
    strided   where its elements are those of its one operand; None: it computes
    own       its operands that are read at the place of the result's element alone
    pointwise whether it computes in no other order: what depends on `own` operands is read at its own place alone
    reads     how often each operand is read, in the text of the description
    inside    the operands that a sum of products, or another reduction, reads
    there     its operands of the result's shape that the last stage reads at the place of the element that it computes
    axes      for each axis of an operand, the axes of the result that say where it is read; None where stages of other
              ranks read it too, but for products, whose stages are looked through
    sums      the axes of an operand that are indexed by an axis of a reduction alone
    plain     the axes of an operand that are indexed by an axis of the result alone
    leaps     the axes of the result along which neighbours are read apart in an operand, as in a window that steps by 2
    gathered  its operands that are read at places that elements name
    """

    kind: Kind
    strided: Strided | None
    own: frozenset[str]
    pointwise: bool
    reads: dict[str, int]
    inside: frozenset[str]
    there: frozenset[str]
    axes: Mapping[str, tuple[frozenset[int], ...] | None]
    sums: Mapping[str, frozenset[int]]
    plain: Mapping[str, frozenset[int]]
    leaps: Mapping[str, frozenset[int]]
    gathered: frozenset[str]


class NodeAccesses:
    """Of the nodes of a graph, each found once."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.values = graph, graph.values
        self._known: dict[Node, NodeAccess] = {}

    def of(self, node: Node) -> NodeAccess:
        """What a node is like, its operands by the graph's names; not for views."""
        access = self._known.get(node)
        if access is None:
            access = self._known[node] = self._of(node)
        return access

    def _of(self, node: Node) -> NodeAccess:
        same = alike(node, self.values, self.graph.sizes)
        known = _matching_operands(same)
        names = {value.name: name for value, name in zip(same.operands, node.operands, strict=True)}
        return NodeAccess(
            known.kind,
            known.strided,
            frozenset(names[name] for name in known.own),
            known.pointwise,
            {names[name]: count for name, count in known.reads.items()},
            frozenset(names[name] for name in known.inside),
            frozenset(names[name] for name in known.there),
            {names[name]: axes for name, axes in known.axes.items()},
            {names[name]: axes for name, axes in known.sums.items()},
            {names[name]: axes for name, axes in known.plain.items()},
            {names[name]: axes for name, axes in known.leaps.items()},
            frozenset(names[name] for name in known.gathered),
        )

    def is_view(self, node: Node) -> bool:
        """Whether it may be no more than another way to look at its operand's memory."""
        return node.op in VIEWS or self.of(node).strided is not None


@lru_cache(maxsize=1024)
def _matching_operands(same: Alike) -> NodeAccess:
    """What such nodes are like, by the names of their operands."""
    description, results = description_of(same)
    tensors = {value.name: description.tensors[value.name] for value in same.operands}
    if description.calls:
        return _opaque(tensors)
    simple = without_single_terms(results)
    stages = [tensor for tensor in tensors_of(simple) if tensor.definition is not None]
    read: dict[str, int] = dict.fromkeys(tensors, 0)
    apart, inside, beside, there = set[str](), set[str](), set[str](), set[str]()
    gathered = set[str]()
    reach: dict[str, frozenset[str]] = {name: frozenset((name,)) for name in tensors}
    for stage in stages:
        assert stage.definition is not None
        parts = (reach[one.name] for one in stage.definition.reads)
        reach[stage.name] = frozenset[str]().union(*parts)
        for load, reduces in _loads(stage):
            whole = not reduces and _at_own_place(stage, load)
            if load.buffer in tensors:
                read[load.buffer] += 1
                if not whole or stage.shape != results[-1].shape:
                    apart.add(load.buffer)
                alike = whole and tensors[load.buffer].shape == results[-1].shape
                if alike and stage is simple[-1]:
                    there.add(load.buffer)
                if not alike:
                    apart.add(load.buffer)
                if reduces:
                    inside.add(load.buffer)
                if any(map(reads_memory, load.index)):
                    gathered.add(load.buffer)
            elif not whole:
                beside |= reach[load.buffer]
    kind = kind_of(simple)
    own = frozenset(name for name in tensors if name not in apart and read[name])
    pointwise = not beside & own and kind is Kind.INJECTIVE and len(results) == 1
    strided = None
    if results[-1].definition is None and len(tensors) == 1:
        rank = len(results[-1].shape)
        steps = tuple(tuple(int(a == b) for b in range(rank)) for a in range(rank))
        strided = Strided((ix.const(0),) * rank, steps)
    elif len(stages) == 1:
        strided = _strided_access(stages[0], tensors, description)
    through = _through(stages, results[-1]) if kind is Kind.COMPLEX and len(results) == 1 else {}
    axes = {name: _axes(name, stages, results[-1], through) for name in tensors}
    alone = {name: _alone(name, stages) for name in tensors}
    return NodeAccess(
        kind,
        strided,
        own,
        pointwise,
        read,
        frozenset(inside),
        frozenset(there),
        axes,
        {name: sums for name, (sums, _) in alone.items()},
        {name: plain for name, (_, plain) in alone.items()},
        {name: _leaps(name, stages, reach, through) for name in tensors},
        frozenset(gathered),
    )


def _opaque(operands: Iterable[str]) -> NodeAccess:
    """Of a loop program: it reads its operands in orders of its own."""
    names = tuple(operands)
    nowhere = dict.fromkeys(names, frozenset[int]())
    return NodeAccess(
        Kind.OPAQUE,
        None,
        frozenset(),
        False,
        dict.fromkeys(names, 1),
        frozenset(),
        frozenset(),
        dict.fromkeys(names),
        nowhere,
        nowhere,
        nowhere,
        frozenset(),
    )


def _loads(stage: Tensor) -> Iterator[tuple[Load, bool]]:
    """What a stage reads, and whether it reduces over it."""
    assert stage.definition is not None
    for load, _ in loads(stage.definition.body):
        yield load, bool(stage.definition.reduce_axes)


def _axes(
    name: str,
    stages: Sequence[Tensor],
    result: Tensor,
    through: Mapping[str, Mapping[str, frozenset[int]]],
) -> tuple[frozenset[int], ...] | None:
    """The axes of the result in each index of an operand.

    through  of the axes of stages, which axes of the result they are made of, where that is known
    """
    axes_of_part: list[set[int]] | None = None
    for stage in stages:
        assert stage.definition is not None
        own_place = {axis.name: {n} for n, axis in enumerate(stage.definition.axes)}
        for load, _ in _loads(stage):
            if load.buffer != name:
                continue
            place: Mapping[str, Collection[int]] = own_place
            if len(stage.shape) != len(result.shape):
                if stage.name not in through:
                    return None
                place = through[stage.name]
            axes_of_part = axes_of_part or [set() for _ in load.index]
            for own, part in zip(axes_of_part, load.index, strict=True):
                own |= {n for one in variables(part) for n in place.get(one, ())}
    return None if axes_of_part is None else tuple(map(frozenset, axes_of_part))


def _through(stages: Sequence[Tensor], result: Tensor) -> dict[str, dict[str, frozenset[int]]]:
    """The axes of the result that the axes of each stage come from, by the names of the latter."""
    assert result.definition is not None
    own = {axis.name: frozenset((n,)) for n, axis in enumerate(result.definition.axes)}
    sources_of = {result.name: own}
    for reader in reversed(stages):
        for load, _ in _loads(reader) if reader.name in sources_of else ():
            source_stage = next((one for one in stages if one.name == load.buffer), None)
            if source_stage is None or source_stage.definition is None:
                continue
            known = sources_of.setdefault(source_stage.name, {})
            for axis, part in zip(source_stage.definition.axes, load.index, strict=True):
                sources = (sources_of[reader.name].get(one, frozenset()) for one in variables(part))
                known[axis.name] = known.get(axis.name, frozenset()).union(*sources)
    return sources_of


def _alone(name: str, stages: Sequence[Tensor]) -> tuple[frozenset[int], frozenset[int]]:
    """The axes of an operand that are indexed by an axis of a reduction alone, and by one of the result alone."""
    sums, plain, other = set[int](), set[int](), set[int]()
    for stage in stages:
        assert stage.definition is not None
        terms = {Var(axis.name) for axis in stage.definition.reduce_axes}
        own = {Var(axis.name) for axis in stage.definition.axes}
        for load, _ in _loads(stage):
            for axis, part in enumerate(load.index if load.buffer == name else ()):
                (sums if part in terms else plain if part in own else other).add(axis)
    return frozenset(sums - plain - other), frozenset(plain - sums - other)


def _leaps(
    name: str,
    stages: Sequence[Tensor],
    reach: Mapping[str, frozenset[str]],
    through: Mapping[str, Mapping[str, frozenset[int]]],
) -> frozenset[int]:
    """The axes of the result that are multiplied where a stage reads an operand, or what is made of it.

    through  as `_axes` takes it
    """
    return frozenset(
        axis
        for stage in stages
        for load, _ in _loads(stage)
        if name in reach[load.buffer]
        for part in load.index
        for atom, factor in ix.to_linear(part).terms
        if isinstance(atom, Var) and factor not in (-1, 1)
        for axis in through.get(stage.name, {}).get(atom.name, ())
    )


def _at_own_place(stage: Tensor, load: Load) -> bool:
    assert stage.definition is not None
    return load.index == tuple(Var(axis.name) for axis in stage.definition.axes)


def _strided_access(
    stage: Tensor, tensors: dict[str, Tensor], description: Description
) -> Strided | None:
    definition = stage.definition
    assert definition is not None
    body = definition.body
    if not isinstance(body, Load) or body.buffer not in tensors or len(tensors) != 1:
        return None
    axes = [axis.name for axis in definition.axes]
    own = {size_var(name): extent for name, extent in description.dims.extents.items()}
    offset, steps = list[Expr](), list[tuple[int, ...]]()
    for part in body.index:
        form = ix.to_linear(part)
        row, rest = [0] * len(axes), cast("Expr", ix.const(form.const))
        for atom, factor in form.terms:
            if isinstance(atom, Var) and atom.name in axes:
                row[axes.index(atom.name)] += factor
            else:
                rest = ix.add(rest, ix.mul(factor, atom))
        if any(True for _ in loads(part)) or variables(rest) & set(axes):
            return None
        offset.append(extents.normal(substitute(rest, own)))
        steps.append(tuple(row))
    return Strided(tuple(offset), tuple(steps))
