"""Operators of torch, one by one, as the nodes of a graph of ours."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch

from offcut import ops
from offcut.core import index as ix
from offcut.core.dtypes import HALVES, numpy_dtype
from offcut.core.expr import Binary, Expr, Var, variables
from offcut.core.text.printer import format_expr
from offcut.describe.request import Array
from offcut.errors import DescribeError
from offcut.graph import Builder, Ref
from offcut.graph.call_conditions import assert_shape, of_size
from offcut.graph.graph import Argument, Bound, Node, Value
from offcut.graph.passes import eliminate_dead_code
from offcut.graph.sizes.extent_values import Extent, plain, product
from offcut.graph.sizes.extents import normal, span
from offcut.graph.views import VIEWS
from offcut.plugins.torch.dtypes import NAMES, is_rounded, rounds_again
from offcut.plugins.torch.floats import float_of
from offcut.plugins.torch.rule_table import (
    ROUND_EACH,
    Rule,
    Unsupported,
    check_taken,
    rule_for,
    unsupported_reason,
)
from offcut.plugins.torch.size_facts import Facts
from offcut.plugins.torch.sizes import extent_of, is_extent_symbol, sympy_of

Operand: TypeAlias = Ref | Expr | int | float | bool


class Translation:
    """A graph of ours in the making, from nodes of an FX graph.

    arrays  of the placeholders whose values are known
    free    nodes that need nothing but such, which are translated wherever they are read
    fake    what torch says of the result of the node that is translated: element type and shape
    calculated  the element type in which it is calculated, where that is another
    origin  of the values that were made: of which node
    steps   of values that count from 0, by name: by how much
    rounded  constants of its rule, of 16 bits, that stand for numbers that these do not hold
    """

    def __init__(
        self,
        facts: Facts,
        arrays: Mapping[Any, Array],
        free: Set[Any],
        devices: frozenset[str] = frozenset(("cpu",)),
    ) -> None:
        self.builder, self.devices = Builder("torch"), devices
        self.facts, self.arrays, self.free = facts, arrays, free
        self.held: dict[Any, Any] = {}
        self.known: dict[Any, Ref] = {}
        self.read: dict[str, Any] = {}
        self.made: dict[str, Node] = {}
        self.steps: dict[str, Expr] = {}
        self.fake: Any = None
        self.calculated: str | None = None
        self.rounded: set[str] = set()
        self.origin: dict[str, Any] = {}

    def take(self, node: Any) -> None:
        """Translate a node whose operands are known or can be inputs.

        Raises Left with the reason where it is not ours; what else fails, where ``OFFCUT_VERIFY=1``.
        """
        if node in self.held:
            return
        if node.target is operator.getitem:
            self.held[node] = self.several(node.args[0])[node.args[1]]
            return
        rule = rule_for(node.target)
        if rule is None:
            raise Unsupported("there is no rule for it")
        before = len(self.builder.nodes)
        try:
            self.held[node] = self.apply(rule, node)
            values = (value for one in self.builder.nodes[before:] for value in one.results)
            self.origin.update((value.name, node) for value in values)
        except Unsupported:
            raise
        except Exception as failed:
            if isinstance(failed, TypeError) and any(map(_is_float_of_sizes, node.all_input_nodes)):
                raise Unsupported("a number that it is called with depends on sizes") from failed
            raise Unsupported(unsupported_reason(failed)) from failed

    def apply(self, rule: Rule, node: Any) -> Any:
        """What a rule makes of a node.

        Raises Left where it does not take it, or gives what torch does not say of the result.
        """
        fake = node.meta["val"]
        for one in _tensors(fake):
            self.declare(one)
        arguments = [self.argument(one) for one in node.args]
        options = {name: self.argument(one) for name, one in node.kwargs.items()}
        check_taken(rule, arguments, options)
        self.fake = fake
        self.rounded.clear()
        before = self.builder.mark
        result = rule(self, *arguments, **options)
        narrow = self.result in HALVES and rule not in ROUND_EACH
        if narrow and rounds_again(self.builder.nodes[before.nodes :], self.rounded):
            for name in self.builder.back_to(before):
                self.made.pop(name, None)
                self.steps.pop(name, None)
            result = self.rounded_once(rule, arguments, options)
        result = self.as_torch_says(result)
        for user in node.users:
            if user.target is operator.getitem and result[user.args[1]] is None:
                raise Unsupported(f"its result {user.args[1]} is asked for")
        return result

    def rounded_once(self, rule: Rule, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """What a rule makes in float32, whose results alone are rounded to 16 bits, or leave their range."""
        inside = copy(self)
        inside.calculated = "float32"
        wide_arguments = [self._widen(one) for one in arguments]
        wide_options = {name: self._widen(one) for name, one in options.items()}
        result = rule(inside, *wide_arguments, **wide_options)
        each = result if isinstance(result, tuple) else (result,)
        ends = tuple(
            self.as_result(one) if isinstance(one, Ref) and self.dtype(one) == "float32" else one
            for one in each
        )
        return ends if isinstance(result, tuple) else ends[0]

    def _widen(self, one: Any) -> Any:
        if isinstance(one, list):
            return [self._widen(part) for part in one]
        return (
            self.cast(one, "float32") if isinstance(one, Ref) and self.dtype(one) in HALVES else one
        )

    def several(self, node: Any) -> Any:
        """Return the results of a node that has several."""
        if node not in self.held:
            if node not in self.free:
                raise Unsupported("torch calculates what it is taken from")
            self.take(node)
        return self.held[node]

    def as_torch_says(self, result: Any) -> Any:
        """Return the results as torch says them: an extent that is a number there is one here, in the calls that are taken.

        Raises Left where a result is not of the element type and the rank that torch says, or of another number.
        """
        fakes = self.fake if isinstance(self.fake, tuple | list) else (self.fake,)
        if not isinstance(result, tuple):
            return self._with_torch_extents(result, fakes[0])
        each = zip(result, fakes, strict=False)
        agreed = tuple(
            None if one is None else self._with_torch_extents(one, fake) for one, fake in each
        )
        return (*agreed, *result[len(agreed) :])

    def _with_torch_extents(self, one: Ref, fake: Any) -> Ref:
        value = self.builder.values[one.name]
        if value.dtype != NAMES.get(fake.dtype) or len(value.shape) != fake.dim():
            raise Unsupported(f"it gives {value.dtype} of rank {len(value.shape)}")
        shape = list(value.shape)
        for axis, (own, extent) in enumerate(zip(value.shape, fake.shape, strict=True)):
            literal = ix.literal_value(self.extent(extent))
            if literal is not None and own != ix.const(literal):
                if ix.literal_value(own) is not None:
                    raise Unsupported(
                        f"it gives an extent of {format_expr(own)}, torch one of {extent}"
                    )
                shape[axis] = ix.const(literal)
        return one if shape == [*value.shape] else self.with_shape(one, shape)

    def declare(self, fake: Any) -> None:
        """Take the sizes in the shape of a tensor among those of the graph."""
        if fake.device.type not in self.devices or fake.layout is not torch.strided:
            raise Unsupported(f"it is on {fake.device.type}, in the layout {fake.layout}")
        if fake.dtype not in NAMES:
            raise Unsupported(f"its elements are {str(fake.dtype).removeprefix('torch.')}")
        for one in fake.shape:
            self.extent(one)

    def extent(self, size: Any) -> Expr:
        """Return an int or a SymInt as an extent."""
        return self.extent_in(sympy_of(size))

    def extent_in(self, expr: Any) -> Expr:
        """Return an expression in symbols as an extent, in sizes of the graph; one that has but one value is that."""
        result = self.facts.simplify(expr)
        for symbol in result.free_symbols:
            if not is_extent_symbol(symbol):
                raise Unsupported("its shape depends on data")
            if symbol.name not in self.builder.sizes:
                self.builder.size(symbol.name, *self.facts.range(symbol))
        return extent_of(result)

    def argument(self, item: Any) -> Any:
        """Return an argument of a node: values for tensors, expressions for sizes."""
        if isinstance(item, torch.fx.Node):
            value = item.meta.get("val")
            if isinstance(value, torch.Tensor):
                return self.value(item)
            if isinstance(value, tuple | list):
                return self.several(item)
            item = value
        if isinstance(item, torch.SymInt):
            return plain(self.extent(item))
        if isinstance(item, torch.SymFloat):
            return float_of(self, item.node.expr)
        if isinstance(item, torch.SymBool):
            raise Unsupported("a condition is known at run time alone")
        if isinstance(item, tuple | list):
            return [self.argument(one) for one in item]
        return item

    def value(self, node: Any) -> Ref:
        """Return the value of a tensor: made here, a constant, or an input."""
        if node in self.free:
            self.take(node)
        if node not in self.held:
            fake, name = node.meta["val"], self.builder.fresh(node.name)
            self.declare(fake)
            if node in self.arrays:
                self.held[node] = self.known[node] = self.builder.constant(name, self.arrays[node])
            else:
                shape = list(map(self.extent, fake.shape))
                self.held[node] = self.builder.input(name, NAMES[fake.dtype], shape)
                self.read[name] = node
        ref: Ref = self.held[node]
        return ref

    def node(self, op: str, *arguments: Argument | Sequence[Argument], **options: Any) -> Any:
        """Return the result of one of our operators."""
        if op not in ops.__all__ and op not in VIEWS:
            raise Unsupported(f"offcut has no {op}")
        parameters = {name: value for name, value in options.items() if value is not None}
        try:
            return self._note(op, arguments, parameters)
        except DescribeError as rejected:
            try:
                aligned = [self._with_result_extents(one) for one in arguments]
                if aligned == [*arguments]:
                    raise rejected
                result = self._note(op, aligned, parameters)
            except DescribeError:
                raise rejected from None  # which says why the operands themselves are not taken
            if not isinstance(result, Ref) or self.shape(result) != self.extents:
                raise
            return result

    def _note(self, op: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        result = self.builder.node(op, *arguments, **options)
        last = self.builder.nodes[-1]
        for value in last.results:
            self.made[value.name] = last
        return result

    def _with_result_extents(self, x: Any) -> Any:
        """Return an operand with the extents that the result has: of an operator by element these are the same in every call, or 1."""
        if not isinstance(x, Ref) or self.rank(x) > len(self.extents):
            return x
        own = self.shape(x)
        extents = self.extents[len(self.extents) - len(own) :]
        return self.with_shape(
            x, [a if a == ix.const(1) else b for a, b in zip(own, extents, strict=True)]
        )

    def with_shape(self, x: Ref, shape: Sequence[Expr]) -> Ref:
        """Return a value with extents that torch says are the same, as `offcut.graph.call_conditions.assert_shape`."""

        def make(op: str, *arguments: Any) -> Any:
            return self._note(op, arguments, {})

        whole: Ref = assert_shape(make, x, self.shape(x), shape)
        return whole

    def shape(self, x: Ref) -> tuple[Expr, ...]:
        """Return the extents of a value."""
        return self.builder.values[x.name].shape

    def dtype(self, x: Ref) -> str:
        """Return the element type of a value."""
        return self.builder.values[x.name].dtype

    def require_at_least(self, extent: Extent, least: int) -> None:
        """Raise the least value of the size in an extent, so that the extent is `least` or more: torch refuses what is less. Nothing
        is changed where an extent has several sizes.
        """
        form = ix.to_linear(ix.index(extent))
        if len(form.terms) == 1:
            ((atom, factor),) = form.terms
            low = -(-(least - form.const) // factor)
            if isinstance(atom, Var) and factor > 0:
                size = self.builder.sizes[atom.name]
                if size.min < low <= size.max:
                    self.builder.sizes[atom.name] = replace(size, min=low)
            elif isinstance(atom, Binary) and atom.op == "//" and factor > 0:
                by = ix.literal_value(atom.b)
                if by is not None and by > 0:
                    self.require_at_least(atom.a, low * by)

    def not_empty(self, x: Ref, axis: int) -> Ref:
        """`x`: a call in which an axis of it has no element is refused.

        Raises Left where no call has one.
        """
        extent = self.shape(x)[axis]
        self.require_at_least(extent, 1)
        low, high = span(extent, tuple(self.builder.sizes.values()))
        if high == 0:
            raise Unsupported("it is of nothing")
        if low > 0:
            return x
        start = normal(Binary("-", Binary("min", extent, ix.const(1)), ix.const(1)))
        stop = normal(Binary("+", start, extent))
        checked: Ref = self._note("slice", [x, axis, start, stop], {})  # from -1 on, of nothing
        return checked

    def is_above_0(self, x: Operand) -> bool:
        """Return whether an operand is a size that is above 0 in every call."""
        return isinstance(x, Expr) and span(x, tuple(self.builder.sizes.values()))[0] > 0

    def rank(self, x: Ref) -> int:
        """Return how many axes a value has."""
        return len(self.shape(x))

    def axis(self, x: Ref, axis: int) -> int:
        """Return an axis from 0 on."""
        return axis % self.rank(x) if self.rank(x) else 0

    @property
    def result(self) -> str:
        """Return the element type of the result, or of the first, as it is calculated."""
        return self.calculated or NAMES[self._first.dtype]

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Return the shape of the result, or of the first, as torch says it."""
        return tuple(map(self.extent, self._first.shape))

    @property
    def _first(self) -> Any:
        return self.fake[0] if isinstance(self.fake, tuple | list) else self.fake

    def as_result(self, x: Operand) -> Any:
        """Return an operand in the element type of the result."""
        return self.cast(x, self.result) if isinstance(x, Ref) else x

    def as_held(self, x: Ref) -> Ref:
        """Return a value as the elements of the result hold it, in the type that is calculated in."""
        return self.cast(self.cast(x, NAMES[self._first.dtype]), self.dtype(x))

    def cast(self, x: Ref, dtype: str) -> Ref:
        """Return a value in another element type."""
        if self.dtype(x) == dtype:
            return x
        result: Ref = self.node("cast", x, dtype)
        return result

    def rounded_number(self, x: Operand) -> Operand:
        """Return an operand; a number as the elements of the result hold it, where these have 16 bits."""
        kind = NAMES[self._first.dtype]
        if kind not in HALVES or isinstance(x, bool | Ref | Expr):
            return x
        with np.errstate(over="ignore"):
            return float(numpy_dtype(kind).type(float(x)))

    def scalar(self, value: Any, dtype: str) -> Ref:
        """Return a number or a size as an array without axes."""
        if isinstance(value, Expr):
            return of_size(self.node, value, dtype, tuple(self.builder.sizes.values()))
        array = np.asarray(value, dtype=np.float64 if isinstance(value, float) else None)
        constant: Ref = self.builder.constant(
            self.builder.fresh("number"), array.astype(numpy_dtype(dtype))
        )
        if is_rounded(value, dtype):
            self.rounded.add(constant.name)
        return constant

    def reshape(self, x: Ref, shape: Iterable[Argument]) -> Ref:
        """Return the elements of a value in another shape."""
        extents = tuple(plain(one) if isinstance(one, Expr) else one for one in shape)
        if extents == tuple(map(plain, self.shape(x))):
            return x
        before = self.made.get(x.name)
        if before is not None and before.op == "reshape":
            first = before.arguments[0]
            assert isinstance(first, Ref)
            return self.reshape(first, extents)
        result: Ref = self._note("reshape", [x, extents], {})
        return result

    def view_as_result(self, x: Ref) -> Ref:
        """Return the elements of a value in the shape of the result, of which there are as many, as torch says."""
        extents = self.extents
        try:
            return self.reshape(x, extents)
        except DescribeError:
            flat = self.reshape(x, (product(self.shape(x)),))
            return self.reshape(self.with_shape(flat, (ix.index(product(extents)),)), extents)

    def transpose(self, x: Ref, axes: Sequence[int]) -> Ref:
        """Return a value with its axes in another order."""
        order = tuple(self.axis(x, axis) for axis in axes)
        if order == tuple(range(len(order))):
            return x
        before = self.made.get(x.name)
        if before is not None and before.op == "transpose":
            first, earlier = before.arguments[0], before.option("axes")
            assert isinstance(first, Ref)
            assert isinstance(earlier, tuple)
            return self.transpose(first, [earlier[axis] for axis in order])  # type: ignore[misc]
        result: Ref = self.node("transpose", x, axes=order)
        return result

    def source_of_transpose(self, x: Ref) -> Ref | None:
        """Return the value of which `x` is that with the last two axes exchanged; None where it is no such."""
        before = self.made.get(x.name)
        if before is not None and before.op == "transpose":
            rank = self.rank(x)
            if before.option("axes") == (*range(rank - 2), rank - 1, rank - 2):
                first = before.arguments[0]
                assert isinstance(first, Ref)
                return first
        return None

    def slice(self, x: Ref, axis: int, start: Argument, stop: Argument, step: int = 1) -> Ref:
        """Return a part of an axis; the whole of it is the value itself."""
        whole = plain(self.shape(x)[axis])
        if step == 1 and start == 0 and stop == whole:
            return x
        result: Ref = self.node("slice", x, axis, start, stop, step)
        return result

    def graph(self, results: Iterable[Any]) -> tuple[Bound, dict[Any, str]]:
        """What some nodes need, and the name of each."""
        outputs = {node: self.held[node].name for node in results}
        names = tuple(dict.fromkeys(outputs.values()))
        return prune(self.builder.bound, names), outputs

    def roots(self, name: str) -> str:
        """Return the value whose memory a value may share: through views."""
        while name in self.made and self.made[name].op in VIEWS:
            name = self.made[name].operands[0]
        return name


def prune(bound: Bound, outputs: tuple[str, ...]) -> Bound:
    """Return a graph without what its outputs do not need; inputs and sizes that nothing names are left out, too."""
    live = eliminate_dead_code(Bound(replace(bound.graph, outputs=outputs), bound.arrays))
    graph = live.graph
    read = {*outputs, *(name for node in graph.nodes for name in node.operands)}
    inputs = tuple(value for value in graph.inputs if value.name in read)
    results = (value for node in graph.nodes for value in node.results)
    names = _sizes_in((*inputs, *results), graph.nodes)
    sizes = tuple(size for size in graph.sizes if size.name in names)
    return Bound(replace(graph, sizes=sizes, inputs=inputs), live.arrays)


def _sizes_in(values: Iterable[Value], nodes: Iterable[Node]) -> set[str]:
    """Return the sizes in shapes and arguments."""
    names: set[str] = set()

    def look(argument: Any) -> None:
        if isinstance(argument, tuple):
            for part in argument:
                look(part)
        elif isinstance(argument, Expr):
            names.update(variables(argument))

    for value in values:
        look(value.shape)
    for node in nodes:
        look(node.arguments)
        look(tuple(option for _, option in node.options))
    return names


def _is_float_of_sizes(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.SymFloat)


def _tensors(fake: Any) -> list[Any]:
    if isinstance(fake, torch.Tensor):
        return [fake]
    if isinstance(fake, tuple | list):
        return [one for one in fake if isinstance(one, torch.Tensor)]
    raise Unsupported("it gives no tensor")
