"""Where a rule fits in a graph, and the graph after it: names and extents of the rule are bound to those of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Var, variables
from offcut.graph.builder import plain, rebuilt
from offcut.graph.graph import Argument, Bound, Graph, Node, Ref, Value, rename_values
from offcut.graph.operators import get_operator
from offcut.graph.sizes import extents
from offcut.graph.substitution.rules import Rule
from offcut.graph.views import VIEWS


@dataclass(frozen=True)
class Match:
    """A place where a rule fits.

    values  of the graph, by the names of the graph before
    sizes   extents of the graph, by the sizes of the rule
    nodes   numbers of the nodes that are replaced
    """

    values: Mapping[str, str]
    sizes: Mapping[str, Expr]
    nodes: frozenset[int]


def matches(rule: Rule, graph: Graph) -> tuple[Match, ...]:
    """Where a rule fits, no node in two places; the first places first."""
    disjoint, covered = list[Match](), set[int]()
    searching = _Searching(rule, graph)
    for one in searching.every():
        if (
            not one.nodes & covered
            and apply_rule(Bound(graph), rule, (one,), typed=True) is not None
        ):
            disjoint.append(one)
            covered |= one.nodes
    return tuple(disjoint)


@dataclass
class _Binding:
    values: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, Expr] = field(default_factory=dict)
    nodes: list[int] = field(default_factory=list)

    def copy(self) -> _Binding:
        return _Binding(dict(self.values), dict(self.sizes), list(self.nodes))


class _Searching:
    """All bindings of a rule, node by node."""

    def __init__(self, rule: Rule, graph: Graph) -> None:
        self.rule, self.graph = rule, graph
        self.known, self.wanted = graph.values, rule.before.values
        self.users = graph.users
        self.number = {id(node): n for n, node in enumerate(graph.nodes)}

    def every(self) -> Iterator[Match]:
        """Every place where the rule fits."""
        for binding in self.bound(_Binding(), 0):
            if self.is_closed(binding):
                yield Match(binding.values, binding.sizes, frozenset(binding.nodes))

    def bound(self, binding: _Binding, at: int) -> Iterator[_Binding]:
        """The ways to go on with node number `at` of the rule."""
        if at == len(self.rule.before.nodes):
            yield binding
            return
        pattern = self.rule.before.nodes[at]
        for number, node in self.candidates(pattern, binding):
            if number in binding.nodes or node.op != pattern.op:
                continue
            # Of two nodes of a rule that may be exchanged, the first is the one that comes first.
            if (
                at
                and self.rule.before.nodes[at - 1].op == pattern.op
                and number < binding.nodes[-1]
            ):
                continue
            extended = self.binding_of_node(pattern, node, binding.copy())
            if extended is not None:
                extended.nodes.append(number)
                yield from self.bound(extended, at + 1)

    def candidates(self, pattern: Node, binding: _Binding) -> Iterator[tuple[int, Node]]:
        """The nodes that may stand for one of the rule."""
        for name in pattern.operands:
            if name in binding.values:
                for node in self.users[binding.values[name]]:
                    yield self.number[id(node)], node
                return
        yield from enumerate(self.graph.nodes)

    def binding_of_node(self, pattern: Node, node: Node, binding: _Binding) -> _Binding | None:
        """A binding that takes a node for one of the rule; None where it is another."""
        if len(pattern.arguments) != len(node.arguments) or len(pattern.results) != len(
            node.results
        ):
            return None
        pattern_options, options = _significant_options(pattern), _significant_options(node)
        if pattern_options.keys() != options.keys():
            return None
        for result, other in zip(pattern.results, node.results, strict=True):
            if not self.value(result.name, other.name, binding):
                return None
        mine = (*pattern.arguments, *pattern_options.values())
        arguments = (*node.arguments, *options.values())
        pending = [*zip(mine, arguments, strict=True)]
        while pending:
            a, b = pending.pop()
            if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
                pending += zip(a, b, strict=True)
            elif isinstance(a, Ref) and isinstance(b, Ref):
                if not self.value(a.name, b.name, binding):
                    return None
            elif isinstance(a, Expr) and not isinstance(a, Const):
                if not isinstance(b, Expr | int) or not self.extent(a, extents.normal(b), binding):
                    return None
            elif type(a) is not type(b) or a != b:
                return None
        return binding

    def value(self, name: str, other: str, binding: _Binding) -> bool:
        """Whether a value of the rule may be this one of the graph."""
        if binding.values.setdefault(name, other) != other:
            return False
        mine, actual = self.wanted[name], self.known[other]
        if mine.dtype != actual.dtype or len(mine.shape) != len(actual.shape):
            return False
        pairs = zip(mine.shape, actual.shape, strict=True)
        return all(self.extent(a, b, binding) for a, b in pairs)

    def extent(self, mine: Expr, actual: Expr, binding: _Binding) -> bool:
        """Whether an extent of the rule may be this one."""
        new = variables(mine) - binding.sizes.keys()
        if len(new) != 1:
            return not new and extents.at(mine, binding.sizes) == actual
        (name,) = new
        # The size is what is left of the extent: ``b`` of ``a + b``.
        without = extents.at(mine, {**binding.sizes, name: ix.const(0)})
        if extents.at(mine, binding.sizes) != extents.normal(Binary("+", without, Var(name))):
            return False
        rest = extents.normal(Binary("-", actual, without))
        size = next(size for size in self.rule.before.sizes if size.name == name)
        low, high = extents.span(rest, self.graph.sizes)
        by = extents.divisor(rest, self.graph.sizes)
        if low < size.min or high > size.max or by % size.multiple_of:
            return False
        binding.sizes[name] = rest
        return True

    def is_closed(self, binding: _Binding) -> bool:
        """Whether nobody else reads what the rule does not give."""
        if len(binding.sizes) < len(self.rule.before.sizes):
            return False
        matched = set(binding.nodes)
        for node in self.rule.before.nodes:
            for result in node.results:
                name = binding.values[result.name]
                readers = {self.number[id(user)] for user in self.users[name]}
                if result.name not in self.rule.before.outputs and (
                    name in self.graph.outputs or not readers <= matched
                ):
                    return False
        return True


def _significant_options(node: Node) -> dict[str, Argument]:
    """The options of a node that say something: not those that are as they are where nothing is said, and one number where
    all axes of a window have it, for an operator that takes either.
    """
    parameters = signature(
        VIEWS[node.op].shape if node.op in VIEWS else get_operator(node.op)
    ).parameters
    defaults: dict[str, Argument] = {}
    for name, one in node.options:
        own = parameters[name].default
        if isinstance(own, int) and isinstance(one, tuple) and len(set(one)) == 1:
            one = one[0]
        if type(one) is not type(own) or one != own:
            defaults[name] = one
    return defaults


def apply_rule(
    bound: Bound, rule: Rule, group: Sequence[Match], typed: bool = False
) -> Bound | None:
    """The graph with a rule applied at several places; None where what it gives is of other types, or a place would read itself.

    typed  whether it is asked for that alone: constants may be missing
    """
    graph = bound.graph
    replaced = frozenset[int]().union(*(one.nodes for one in group))
    builder = rebuilt(graph, bound.arrays)
    for node in graph.nodes:
        builder.values.update((value.name, value) for value in node.results)
    added = list[Node]()
    for one in group:
        names = {value.name: one.values[value.name] for value in rule.after.inputs}
        for node in rule.after.nodes:
            for value in node.results:
                out = value.name in rule.after.outputs
                names[value.name] = one.values[value.name] if out else builder.fresh(value.name)
                shape = tuple(extents.at(extent, one.sizes) for extent in value.shape)
                now = Value(names[value.name], value.dtype, shape)
                if out and (now.dtype, now.shape) != _type(graph.values[now.name]):
                    return None
                builder.values[now.name] = now
            added.append(_instance(node, names, one.sizes, builder.values))
    others = [node for number, node in enumerate(graph.nodes) if number not in replaced]
    order = _topological_order(
        [*others, *added], {*(v.name for v in graph.inputs), *(v.name for v in graph.constants)}
    )
    if order is None:
        return None
    builder.nodes = order
    builder.output(*map(Ref, graph.outputs))
    return Bound(builder.graph, dict(bound.arrays)) if not typed else Bound(builder.graph)


def _type(value: Value) -> tuple[str, tuple[Expr, ...]]:
    return value.dtype, value.shape


def _instance(
    node: Node, names: Mapping[str, str], sizes: Mapping[str, Expr], values: Mapping[str, Value]
) -> Node:
    def bound(argument: Argument) -> Argument:
        if isinstance(argument, tuple):
            return tuple(map(bound, argument))
        if isinstance(argument, Expr):
            return plain(extents.at(argument, sizes))
        return rename_values(argument, names)

    results = tuple(values[names[value.name]] for value in node.results)
    options = tuple((name, bound(one)) for name, one in node.options)
    return Node(results, node.op, tuple(map(bound, node.arguments)), options)


def _topological_order(nodes: Sequence[Node], ready: set[str]) -> list[Node] | None:
    """Nodes, each after what it reads, otherwise in their order; None where some read themselves."""
    ordered, waiting = list[Node](), list(nodes)
    known = set(ready)
    while waiting:
        blocked = list[Node]()
        for node in waiting:
            if all(name in known for name in node.operands):
                ordered.append(node)
                known.update(value.name for value in node.results)
            else:
                blocked.append(node)
        if len(blocked) == len(waiting):
            return None
        waiting = blocked
    return ordered
