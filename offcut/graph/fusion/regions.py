"""Regions: which nodes of a graph become one kernel.

A region holds nodes in a row, of which at most one is a sum of products, and gives one value, or the results of its one
node of several. It grows in two ways, both decided by what reads what, never by names:

- *after* (TVM: complex-out-fusable): nodes that work point by point on what the region gives, as long as all readers of
  what lies between come along. They run where the sums of a tile are near. A value with several readers,
  ``x * sigmoid(x)``, is followed to the first value that all paths lead to.
- *before*: nodes that work point by point and that nobody else reads are written into what reads them. A sum of products
  reads plain elements, so nothing goes before what it multiplies; nothing is computed much oftener than once, so what a
  reduction reads several times is cheap.

A sum of products and a reduction are never computed twice. A view computes nothing and belongs to no region; a loop program is one
by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from offcut.graph.fusion.access_analysis import NodeAccesses
from offcut.graph.graph import Graph, Node
from offcut.graph.operators import Kind
from offcut.graph.views import VIEWS

LONGEST = 24
"""Nodes of a region: one text of code."""
OFTEN = 3
"""Times that an element of a node that is written into its reader may be computed."""


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes that become one kernel, each after what it reads.

    operands  the values from elsewhere that they read
    results   the values that others read
    before    the values that are written into what reads them
    """

    nodes: tuple[Node, ...]
    operands: tuple[str, ...]
    results: tuple[str, ...]
    before: frozenset[str] = frozenset()


def region_of(nodes: Sequence[Node], before: Collection[str] = ()) -> Region:
    """The region of some nodes, that gives what the last one gives."""
    own = {value.name for node in nodes for value in node.results}
    read = dict.fromkeys(name for node in nodes for name in node.operands if name not in own)
    results = tuple(value.name for value in nodes[-1].results)
    return Region(tuple(nodes), tuple(read), results, frozenset(own & set(before)))


def regions_of(graph: Graph, readings: NodeAccesses | None = None) -> tuple[Region | Node, ...]:
    """The graph as regions and views, each after what it reads."""
    return tuple(_Growing(graph, readings or NodeAccesses(graph)).regions())


def stored_anew(graph: Graph, readings: NodeAccesses) -> Iterator[int]:
    """The numbers of transpositions that only their inverses read: they say in which order elements are to be stored."""
    users = graph.users
    for number, node in enumerate(graph.nodes):
        if node.op in VIEWS or len(node.results) != 1:
            continue
        order = _order(node, readings)
        readers = users[node.results[0].name]
        if order is None or not readers or node.results[0].name in graph.outputs:
            continue
        inverse = tuple(order.index(axis) for axis in range(len(order)))
        if all(r.op not in VIEWS and _order(r, readings) == inverse for r in readers):
            yield number


def _order(node: Node, readings: NodeAccesses) -> tuple[int, ...] | None:
    strided_view = readings.of(node).strided
    order = None if strided_view is None else strided_view.order
    return None if order is None or order == tuple(range(len(order))) else order


class _Growing:
    """Nodes by the region that they are in.

    homes  by the number of a node: the numbers of the nodes of its region, sorted
    """

    def __init__(self, graph: Graph, readings: NodeAccesses) -> None:
        self.graph, self.readings, self.nodes = graph, readings, graph.nodes
        self.views = [readings.is_view(node) for node in graph.nodes]
        for number in stored_anew(graph, readings):
            self.views[number] = False
        self.homes: list[tuple[int, ...]] = [(n,) for n in range(len(graph.nodes))]
        self.maker = {v.name: n for n, node in enumerate(graph.nodes) for v in node.results}
        self.readers: dict[str, list[int]] = {name: [] for name in graph.values}
        for number, node in enumerate(graph.nodes):
            for name in node.operands:
                self.readers[name].append(number)
        self.given = set(graph.outputs)
        self.before: set[str] = set()

    def regions(self) -> Iterator[Region | Node]:
        """Regions where their last node is, and views where they are."""
        for number in range(len(self.nodes)):
            if not self.views[number] and self.homes[number] == (number,):
                self.follow(number)
        for number in range(len(self.nodes)):
            if not self.views[number]:
                self.precede(number)
        for number, home in enumerate(self.homes):
            if self.views[number]:
                yield self.nodes[number]
            elif number == home[-1]:
                yield region_of([self.nodes[member] for member in home], self.before)

    def follow(self, first: int) -> None:
        """Let nodes that work point by point on what a node gives join it."""
        node = self.nodes[first]
        if len(node.results) != 1 or self.readings.of(node).kind is Kind.OPAQUE:
            return
        region, open_ = [first], {self.nodes[first].results[0].name}
        while len(region) < LONGEST:
            closure = self.closure(region, open_)
            if closure is None:
                break
            region += closure
            open_ = {self.nodes[region[-1]].results[0].name}
        if len(region) > 1:
            self.join(region)

    def closure(self, region: Sequence[int], open_: set[str]) -> list[int] | None:
        """The fewest further nodes after which only the last one's result is read elsewhere."""
        added, inside = list[int](), set(open_)
        if open_ & self.given:
            return None
        while len(region) + len(added) < LONGEST:
            waiting = {
                reader for name in inside for reader in self.readers[name] if reader not in added
            }
            if not waiting:
                return None
            last = min(waiting)
            if not self.joins(last, inside):
                return None
            (result,) = self.nodes[last].results
            added.append(last)
            open_nodes = {
                name
                for name in inside
                if name in self.given or any(r not in added for r in self.readers[name])
            }
            inside.add(result.name)
            if not open_nodes:
                return added
            if open_nodes & self.given:
                return None
        return None

    def joins(self, number: int, inside: set[str]) -> bool:
        """Whether a node works point by point on what it reads of a region, and is of no other yet."""
        if self.views[number] or self.homes[number] != (number,):
            return False
        access = self.readings.of(self.nodes[number])
        return access.pointwise and (inside & set(self.nodes[number].operands)) <= access.own

    def precede(self, number: int) -> None:
        """Let the nodes that make what a region reads be written into it, where they work point by point."""
        home = self.homes[number]
        if number != home[-1]:
            return
        pending = [name for member in home for name in self.nodes[member].operands]
        while pending and len(home) < LONGEST:
            name = pending.pop()
            other = self.homes[self.maker[name]] if name in self.maker else ()
            if not other or other == home or not self.may_be_written_into(name, other, home):
                continue
            self.before.update(v.name for n in other for v in self.nodes[n].results)
            home = self.join([*other, *home])
            pending += [one for member in other for one in self.nodes[member].operands]

    def may_be_written_into(self, name: str, other: Sequence[int], home: Sequence[int]) -> bool:
        """Whether the region `other` may be written into those nodes of `home` that read its result."""
        if any(self.views[n] or not self.readings.of(self.nodes[n]).pointwise for n in other):
            return False
        if name in self.given or self.maker[name] != other[-1]:
            return False
        if not set(self.readers[name]) <= set(home) or len(other) + len(home) > LONGEST:
            return False
        readers = [self.readings.of(self.nodes[n]) for n in self.readers[name]]
        if any(one.kind is Kind.COMPLEX and name in one.inside for one in readers):
            return False
        if any(one.kind is Kind.OPAQUE for one in readers):
            return False
        if self.is_asked(name) and not self.is_bounded(name, other):
            return False
        return sum(one.reads[name] for one in readers) <= OFTEN

    def is_asked(self, name: str) -> bool:
        """Whether elements say where a value is read, or another that it is written into: an index that is outside has to be outside of
        what is read in its stead, or nobody sees it.
        """
        waiting, visited = [name], {name}
        while waiting:
            value = waiting.pop()
            for node in (self.nodes[n] for n in self.readers[value]):
                if value in self.readings.of(node).gathered:
                    return True
                further = {one.name for one in node.results if one.name in self.before} - visited
                visited |= further
                waiting += further
        return False

    def is_bounded(self, name: str, region: Sequence[int]) -> bool:
        """Whether a region that gives a value reads an array of elsewhere, of its shape, at the place of each element."""
        values, computed = (
            self.graph.values,
            {v.name for n in region for v in self.nodes[n].results},
        )
        return any(
            values[one].shape == values[name].shape
            for number in region
            for one in self.readings.of(self.nodes[number]).there - computed
        )

    def join(self, numbers: Sequence[int]) -> tuple[int, ...]:
        home = tuple(sorted(numbers))
        for number in home:
            self.homes[number] = home
        return home
