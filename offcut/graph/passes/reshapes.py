"""Reshapes sink below operators that work on rows: layers in a row run on one row axis, and a reshape of a reshape is one.

    r: float32[b*n, e] = reshape(x, …)         r: float32[b*n, e] = reshape(x, …)
    d: float32[b*n, f] = dense(r, w)           d: float32[b*n, f] = dense(r, w)
    y: float32[b, n, f] = reshape(d, …)        g: float32[b*n, f] = gelu(d)
    z: float32[b, n, f] = gelu(y)              z: float32[b, n, f] = reshape(g, …)

An operator works on rows where every stage that it describes reads what has the leading axes at its own place along
them, and does the same with what is left of each row: compared as text, so that an option that counts axes from the
first cannot mean another axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, Var, rewrite, substitute, variables
from offcut.core.text.printer import format_expr
from offcut.describe.tensor import tensors_of
from offcut.errors import DescribeError
from offcut.graph.builder import Builder, rebuilt
from offcut.graph.fusion.access_analysis import NodeAccesses
from offcut.graph.graph import Bound, Node, Ref, Value
from offcut.graph.operators import Kind
from offcut.graph.passes.simplification import with_operands
from offcut.graph.tensor_semantics import Alike, alike, description_of
from offcut.graph.views import VIEWS

Shape = tuple[Expr, ...]


def sink_reshapes(bound: Bound) -> Bound:
    """The graph in which operators on rows come before the reshapes of what they read."""
    if not any(node.op == "reshape" for node in bound.graph.nodes):
        return bound
    sunk = _Sinking(bound).bound()
    return bound if sunk.graph.nodes == bound.graph.nodes else sunk


class _Sinking:
    """A graph that is built anew, with what is known to be a reshape of another value.

    source    of a value that is a reshape: the value of other shape
    products  values that a sum of products makes, or what follows it point by point
    """

    def __init__(self, bound: Bound) -> None:
        self.given, self.readings = bound.graph, NodeAccesses(bound.graph)
        self.made: Builder = rebuilt(bound.graph, bound.arrays)
        self.source: dict[str, str] = {}
        self.products: set[str] = set()
        self.alias: dict[str, str] = {}

    def bound(self) -> Bound:
        """The graph, built."""
        for node in self.given.nodes:
            now = with_operands(node, self.alias)
            if now.op == "reshape":
                self.reshape(now)
            elif now.op in VIEWS or len(now.results) != 1 or not self.sunk(now):
                self.keep(now)
            self.note(node)
        self.made.output(*map(Ref, self.given.outputs))
        return self.made.bound

    def keep(self, node: Node) -> None:
        """A node as it is."""
        self.made.nodes.append(node)
        self.made.values.update((value.name, value) for value in node.results)

    def reshape(self, node: Node) -> None:
        """A reshape, of what its operand is a reshape of."""
        name, (value,) = node.operands[0], node.results
        origin = self.source.get(name, name)
        if self.made.values[origin].shape == value.shape and value.name not in self.given.outputs:
            self.alias[value.name] = origin
            self.made.values.pop(value.name, None)
            return
        self.made.node("reshape", Ref(origin), value.shape, results=(value.name,))
        self.source[value.name] = origin

    def note(self, node: Node) -> None:
        """Remember whether a node's result is a product's, or follows one."""
        if node.op in VIEWS:
            follows = any(name in self.products for name in node.operands)
        else:
            access = self.readings.of(node)
            follows = access.kind is Kind.COMPLEX or any(n in self.products for n in access.own)
        if follows:
            self.products.update(value.name for value in node.results)

    def sunk(self, node: Node) -> bool:
        """Whether a node now runs before the reshape of an operand, which then follows it."""
        for name in node.operands:
            origin = self.source.get(name)
            if origin is None:
                continue
            old, new = self.made.values[name].shape, self.made.values[origin].shape
            for same in range(_common_end(old, new), -1, -1):
                before, after = old[: len(old) - same], new[: len(new) - same]
                if before and after and self.rows(node, before, after):
                    return True
        return False

    def rows(self, node: Node, before: Shape, after: Shape) -> bool:
        """Rewrite a node that works on rows `before` to rows `after`, where it can be."""
        (result,) = node.results
        values = self.made.values
        text = _row_text(node, self.made, len(before))
        if text is None or result.shape[: len(before)] != before:
            return False
        old_count = len(self.made.nodes)
        names = {name: self.operand_in_rows(name, text, before, after) for name in node.operands}
        twin = None if None in names.values() else self.again(node, names, result.name)
        now = None if twin is None else _row_text(self.made.nodes[-1], self.made, len(after))
        shape = (*after, *result.shape[len(before) :])
        if twin is None or now is None or now.text != text.text or twin.shape != shape:
            for extra in self.made.nodes[old_count:]:
                values.pop(extra.results[0].name)
            del self.made.nodes[old_count:]
            return False
        self.made.node("reshape", Ref(twin.name), result.shape, results=(result.name,))
        self.source[result.name] = twin.name
        return True

    def operand_in_rows(self, name: str, text: _Rows, before: Shape, after: Shape) -> str | None:
        """An operand with rows `after`; None where a product's result would have to be reshaped."""
        shape, origin = self.made.values[name].shape, self.source.get(name)
        if name not in text.leading:
            ones = _ones(shape, len(before))
            return name if not ones else self.as_shape(name, shape[ones:])
        extents = (*after, *shape[len(before) :])
        if origin is not None and self.made.values[origin].shape == extents:
            return origin
        if name in self.products and origin is None:
            return None
        return self.as_shape(name, extents)

    def as_shape(self, name: str, shape: Shape) -> str:
        """A reshape of a value."""
        reshaped: Ref = self.made.node("reshape", Ref(name), shape)
        return reshaped.name

    def again(self, node: Node, names: Mapping[str, str | None], name: str) -> Value | None:
        """A node of other operands; None where its operator does not take them."""
        now = with_operands(node, {old: new for old, new in names.items() if new is not None})
        try:
            repeated = self.made.node(
                now.op,
                *now.arguments,
                results=(f"{name}_rows",),
                **dict(now.options),
            )
        except (DescribeError, TypeError):
            return None
        return self.made.values[repeated.name] if isinstance(repeated, Ref) else None


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a node does with each row.

    text     of all stages, without the leading axes
    leading  the operands that have the leading axes
    """

    text: str
    leading: frozenset[str]


def _common_end(one: Shape, other: Shape) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count


def _ones(shape: Shape, most: int) -> int:
    """How many of the first axes have one element each, at most so many."""
    count = 0
    while count < min(most, len(shape)) and shape[count] == ix.const(1):
        count += 1
    return count


def _row_text(node: Node, builder: Builder, rows: int) -> _Rows | None:
    """What a node does with each row of `rows` leading axes; None where rows are not apart."""
    same = alike(node, builder.values, tuple(builder.sizes.values()))
    row_form = _rows_of(same, rows)
    if row_form is None:
        return None
    names = dict(zip((value.name for value in same.operands), node.operands, strict=True))
    return _Rows(row_form.text, frozenset(names[name] for name in row_form.leading))


@lru_cache(maxsize=1024)
def _rows_of(same: Alike, rows: int) -> _Rows | None:
    ones = {value.name: _ones(value.shape, rows) for value in same.operands}
    description, results = description_of(same)
    shape = results[-1].shape[:rows]
    if len(shape) < rows or description.calls:
        return None
    lines = list[str]()
    leading: dict[str, bool] = {}
    for stage in tensors_of(results):
        definition = stage.definition
        if definition is None:
            continue
        if stage.shape[:rows] != shape:
            return None
        lead = tuple(Var(axis.name) for axis in definition.axes[:rows])
        new_names = {axis.name: Var(f"a{n}") for n, axis in enumerate(definition.axes[rows:])}
        new_names |= {axis.name: Var(f"r{n}") for n, axis in enumerate(definition.reduce_axes)}
        failed = False

        def strip(expr: Expr, lead: tuple[Expr, ...] = lead) -> Expr | None:
            nonlocal failed
            if not isinstance(expr, Load):
                return None
            has = expr.index[:rows] == lead
            if leading.setdefault(expr.buffer, has) != has:
                failed = True
            index = expr.index[rows if has else ones.get(expr.buffer, 0) :]
            return Load(expr.buffer, index, expr.dtype)

        body = rewrite(definition.body, strip)
        if failed or variables(body) & {one.name for one in lead}:
            return None
        extents = [str(extent) for extent in stage.shape[rows:]]
        extents += [str(axis.extent) for axis in definition.reduce_axes]
        lines.append(
            f"{stage.name}[{', '.join(extents)}] = {format_expr(substitute(body, new_names))}"
        )
    return _Rows("\n".join(lines), frozenset(n for n, has in leading.items() if has and n in ones))
