"""Products of numbers that bytes stand for become products of the bytes; what moves numbers moves the bytes.

Before, with bytes q and w::

    x = dequantize(q, s, z)         a = matmul(q, w)
    v = dequantize(w, t)            y = multiply(cast(subtract(a, …), "float32"), s*t)
    y = matmul(x, v)

In int32, whose sums wrap around in any order::

    sum over k of (q[i, k] - z[i]) * (w[k, j] - u[j])
        = sum over k of q[i, k] * w[k, j]  -  z[i] * sum over k of w[k, j]  -  u[j] * sum over k of q[i, k]  +  K * z[i] * u[j]

A uint8 operand that should be signed is taken less 128, which is its highest bit flipped, and its zero point with it. Padding stands for
0, and is the zero point itself; so a window holds as many elements everywhere, and what is taken from each sum is the zero point times the
sum of a filter.

A sum that is quantized at once is scaled once, by the scale of the product over that of the result. A dequantization sinks below operators that
move elements, or pick some by their order, where one scale and one zero point are of all: those operators read and write bytes. To quantize what
was dequantized alike gives the bytes themselves.

The sums are exact, where floats round each; so results differ from those of floats by less than these from the real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from offcut.core.expr import Const
from offcut.graph.build import Builder, rebuilt
from offcut.graph.composed import of_size
from offcut.graph.graph import Argument, Bound, Node, Ref, Value, refs
from offcut.graph.passes.shared import with_operands

BYTES = ("int8", "uint8")
PRODUCTS = {"conv1d": 1, "conv2d": 2, "conv3d": 3, "dense": 0, "matmul": 0}
"""Sums of products, with the axes of their windows."""
TAKEN = {"bias", "dilation", "groups", "padding", "stride", "transpose_w"}
"""Options of products that are seen through."""
MOVES = frozenset(
    {
        "broadcast_to",
        "concat",
        "flip",
        "max_pool2d",
        "pad",
        "repeat",
        "reshape",
        "slice",
        "split_axis",
        "take",
        "transpose",
    }
)
"""Each element of the result is one of the first operand, or of several, chosen by its place or as the greatest; or 0, by padding."""
ROUNDED = 1e-6
"""How far the scale of a bias may be, relatively, from that of the products it is added to: both are rounded to float32."""

Parameter = int | float | Ref
"""A scale or a zero point: a number, or a value of shape () or (channels,)."""


@dataclass(frozen=True)
class _Quantized:
    """What stands for ``(stored - zero) * scale``.

    scale  None: 1, of integers that stay integers
    axis   that parameters of several places run along
    made   the nodes that compute it, where nothing better is known
    """

    stored: Ref
    zero: Parameter
    scale: Parameter | None
    axis: int
    made: tuple[Node, ...]

    def like(self, other: _Quantized) -> bool:
        """Whether both stand for numbers in the same way."""
        mine, theirs = ((one.zero, one.scale, one.axis) for one in (self, other))
        return mine == theirs


@dataclass(frozen=True)
class _Sums:
    """What stands for ``sums * scale + bias``, of float32.

    axis  of the result, that scale and bias run along
    last  "relu" where that follows; else nothing
    """

    sums: Ref
    scale: Parameter
    axis: int
    bias: Ref | None
    last: str = ""


@dataclass(frozen=True)
class _Joined:
    """What stands for several of the first kind side by side, each with its own scale, by the node that joins them."""

    parts: tuple[_Quantized, ...]
    node: Node


def integer_products(bound: Bound) -> Bound:
    """Return the graph in which bytes that stand for numbers are multiplied and moved as bytes."""
    graph = bound.graph
    if not any(value.dtype in BYTES for value in graph.values.values()):
        return bound
    if not any(node.op in PRODUCTS or node.op == "quantize" for node in graph.nodes):
        return bound
    return _Rewriting(bound).bound()


class _Rewriting:
    """A graph that is built anew.

    known   values that are not in the graph yet, by name, and what they stand for
    alias   values that are others
    """

    def __init__(self, bound: Bound) -> None:
        self.given = bound
        self.made: Builder = rebuilt(bound.graph, bound.arrays)
        self.known: dict[str, _Quantized | _Sums | _Joined] = {}
        self.alias: dict[str, str] = {}

    def bound(self) -> Bound:
        """The graph, built."""
        rules: Mapping[str, Callable[[Node], bool]] = {
            "cast": self.cast,
            "dequantize": self.dequantize,
            "quantize": self.quantize,
            "relu": self.relu,
            "subtract": self.subtract,
            **dict.fromkeys(MOVES, self.move),
            **dict.fromkeys(PRODUCTS, self.product),
        }
        for node in self.given.graph.nodes:
            now = with_operands(node, self.alias)
            rule = rules.get(node.op) if len(node.results) == 1 else None
            if rule is None or not rule(now):
                self.keep(now)
        for name in self.given.graph.outputs:
            self.name(name)
        self.made.output(*map(Ref, self.given.graph.outputs))
        return self.made.bound

    # -- values

    def keep(self, node: Node) -> None:
        """A node as it is."""
        for name in node.operands:
            self.compute(name)
        self.made.nodes.append(node)
        self.made.values.update((value.name, value) for value in node.results)
        self.made.later.difference_update(value.name for value in node.results)

    def name(self, name: str) -> None:
        """Have a value under its own name."""
        self.compute(name)
        if name in self.alias:
            value = self.made.values[self.alias.pop(name)]
            self.made.node("reshape", Ref(value.name), value.shape, results=(name,))

    def compute(self, name: str) -> None:
        """Have a value in the graph."""
        found = self.known.pop(name, None)
        if isinstance(found, _Quantized):
            for node in found.made:
                if node.results[0].name not in self.made.values:
                    self.keep(node)
        elif isinstance(found, _Joined):
            self.keep(found.node)
        elif isinstance(found, _Sums):
            total: Any = self.scaled(found, found.scale, found.bias)
            made = self.made.nodes.pop()
            value = replace(self.made.values.pop(total.name), name=name)
            self.keep(replace(made, results=(value,)))

    def scaled(self, found: _Sums, scale: Parameter, bias: Parameter | None) -> Ref:
        """``sums * scale + bias``, and what follows."""
        rank = len(self.made.shape(found.sums))
        total = self.op(
            "multiply", self.op("cast", found.sums, "float32"), self.along(scale, rank, found.axis)
        )
        if bias is not None:
            total = self.op("add", total, self.along(bias, rank, found.axis))
        return self.op(found.last, total) if found.last else total

    def op(self, op: str, *arguments: Any, **options: Any) -> Any:
        """The result of an operator."""
        return self.made.node(op, *arguments, **options)

    def value(self, ref: Ref) -> Value:
        """What is known of a value of the graph."""
        return self.made.values[ref.name]

    def along(self, parameter: Parameter, rank: int, axis: int) -> Parameter:
        """A parameter that is broadcast against an array of `rank` axes."""
        if not isinstance(parameter, Ref) or len(self.made.shape(parameter)) != 1:
            return parameter
        (count,) = self.made.shape(parameter)
        return self.op("reshape", parameter, tuple(count if n == axis else 1 for n in range(rank)))

    def of_all(self, parameter: Parameter | None) -> bool:
        """Whether a parameter is one for all places."""
        return not isinstance(parameter, Ref) or not self.made.shape(parameter)

    def is_plain(self, found: _Quantized) -> bool:
        """Whether bytes stand for numbers with one scale and one zero point."""
        whole = found.scale is not None and self.value(found.stored).dtype in BYTES
        return whole and self.of_all(found.scale) and self.of_all(found.zero)

    def times(self, one: Parameter, other: Parameter) -> Parameter:
        """The product of two parameters of one kind, at most one of which has an axis or both the same."""
        if isinstance(one, Ref):
            return self.op("multiply", one, other)
        if isinstance(other, Ref):
            return self.op("multiply", other, one)
        return float(np.float32(one) * np.float32(other)) if isinstance(one, float) else one * other

    def over(self, one: Parameter, other: float) -> Parameter:
        """A scale by another."""
        return (
            self.op("divide", one, other)
            if isinstance(one, Ref)
            else float(np.float32(one) / np.float32(other))
        )

    # -- what stands for numbers

    def dequantize(self, node: Node) -> bool:
        """Remember what is dequantized to float32."""
        given = dict(zip(("x", "scale", "zero", "dtype", "axis"), node.arguments)) | dict(
            node.options
        )
        x, scale, zero = given["x"], given["scale"], given.get("zero", 0)
        if node.results[0].dtype != "float32" or not isinstance(x, Ref):
            return False
        for name in node.operands:
            self.compute(name)
        rank = len(self.made.shape(x))
        axis = int(given.get("axis", -1)) % max(rank, 1)
        axis = 0 if self.of_all(scale) and self.of_all(zero) else axis
        scale = float(scale) if not isinstance(scale, Ref) else scale
        self.known[node.results[0].name] = _Quantized(x, zero, scale, axis, (node,))
        return True

    def cast(self, node: Node) -> bool:
        """Remember bytes that become int32."""
        x = node.arguments[0]
        if not isinstance(x, Ref) or x.name in self.known or self.value(x).dtype not in BYTES:
            return False
        if node.results[0].dtype != "int32":
            return False
        self.known[node.results[0].name] = _Quantized(x, 0, None, 0, (node,))
        return True

    def subtract(self, node: Node) -> bool:
        """Remember bytes less their zero points."""
        x, zero = node.arguments
        found = self.known.get(x.name) if isinstance(x, Ref) else None
        if not isinstance(found, _Quantized) or found.scale is not None or found.zero != 0:
            return False
        axis = 0
        if isinstance(zero, Ref):
            self.compute(zero.name)
            shape, own = self.made.shape(zero), node.results[0].shape
            several = [n for n, extent in enumerate(shape) if extent != Const(1, "index")]
            if len(several) > 1 or own != self.made.shape(found.stored):
                return False
            axis = len(own) - len(shape) + several[0] if several else 0
            if len(shape) != len(several):
                zero = self.op("reshape", zero, tuple(shape[n] for n in several))
        elif not isinstance(zero, int):
            return False
        self.known[node.results[0].name] = _Quantized(
            found.stored, zero, None, axis, (*found.made, node)
        )
        return True

    def move(self, node: Node) -> bool:
        """Move bytes instead of what they stand for."""
        names = list(refs(node.arguments[0]))
        found = [self.known.get(name) for name in names]
        first = found[0] if found else None
        if not isinstance(first, _Quantized) or first.scale is None:
            return False
        if not all(isinstance(one, _Quantized) and one.like(first) for one in found):
            parts = tuple(
                one for one in found if isinstance(one, _Quantized) and self.is_plain(one)
            )
            if node.op == "concat" and len(parts) == len(found):
                self.known[node.results[0].name] = _Joined(parts, node)
            return node.results[0].name in self.known
        if self.value(first.stored).dtype not in BYTES:
            return False
        axis, plain = first.axis, self.is_plain(first)
        if not plain:
            if node.op != "transpose" or not isinstance(first.zero, int):
                return False
            axes = node.option("axes", node.arguments[1] if len(node.arguments) > 1 else None)
            rank = len(node.results[0].shape)
            order = tuple(range(rank))[::-1] if axes is None else tuple(one % rank for one in axes)  # type: ignore[union-attr]
            axis = order.index(axis)
        if node.op == "max_pool2d" and not (isinstance(first.scale, float) and first.scale > 0):
            return False
        options = dict(node.options)
        if node.op == "pad":
            value = options.get("value", node.arguments[3] if len(node.arguments) > 3 else 0.0)
            if not isinstance(first.zero, int) or len(node.arguments) > 3:
                return False
            if options.get("mode", "constant") == "constant":
                if value != 0:
                    return False
                options["value"] = first.zero
        names_of = dict(
            zip(names, (one.stored.name for one in found if isinstance(one, _Quantized)))
        )
        arguments = with_operands(replace(node, options=()), names_of).arguments
        stored = self.op(node.op, *arguments, **options)
        placed = () if plain else (("axis", axis),)
        again = Node(
            node.results, "dequantize", (Ref(stored.name), first.scale, first.zero), placed
        )
        moved = replace(first, stored=Ref(stored.name), axis=axis, made=(again,))
        self.known[node.results[0].name] = moved
        return True

    def relu(self, node: Node) -> bool:
        """Remember sums that are cut off at 0."""
        x = node.arguments[0]
        found = self.known.get(x.name) if isinstance(x, Ref) else None
        if not isinstance(found, _Sums) or len(self.given.graph.users[x.name]) > 1:  # type: ignore[union-attr]
            return False
        self.known[node.results[0].name] = replace(found, last="relu")
        return True

    def quantize(self, node: Node) -> bool:
        """Quantize sums with one factor; give bytes back that were dequantized alike."""
        given = dict(zip(("x", "scale", "zero", "dtype", "axis"), node.arguments)) | dict(
            node.options
        )
        x, scale, zero = given["x"], given["scale"], given.get("zero", 0)
        found = self.known.get(x.name) if isinstance(x, Ref) else None
        for parameter in (one for one in (scale, zero) if isinstance(one, Ref)):
            self.compute(parameter.name)
        (result,) = node.results
        if isinstance(found, _Quantized):
            same = self.value(found.stored).dtype == result.dtype and self.is_plain(found)
            if same and (found.scale, found.zero) == (scale, zero):
                self.alias[result.name] = self.alias.get(found.stored.name, found.stored.name)
                return True
        if isinstance(found, _Joined) and self.of_all(scale) and self.of_all(zero):
            parts = tuple(self.again(one, scale, zero, result.dtype) for one in found.parts)
            self.op(
                "concat",
                parts,
                *found.node.arguments[1:],
                **dict(found.node.options),
                results=(result.name,),
            )
            return True
        if not isinstance(found, _Sums) or isinstance(scale, Ref):
            return False
        if len(self.given.graph.users[x.name]) > 1 or x.name in self.given.graph.outputs:
            return False
        bias = None if found.bias is None else self.over(found.bias, scale)
        total = self.scaled(found, self.over(found.scale, scale), bias)
        self.op("quantize", total, 1.0, zero, dtype=result.dtype, results=(result.name,))
        return True

    def again(self, found: _Quantized, scale: Parameter, zero: Parameter, dtype: str) -> Ref:
        """Bytes that stand for the same numbers in another way."""
        if self.value(found.stored).dtype == dtype and (found.scale, found.zero) == (scale, zero):
            return found.stored
        real = self.op("dequantize", found.stored, found.scale, found.zero)
        made: Ref = self.op("quantize", real, scale, zero, dtype=dtype)
        return made

    # -- products

    def product(self, node: Node) -> bool:
        """Multiply bytes where numbers were multiplied that they stand for."""
        options = dict(node.options)
        if not set(options) <= TAKEN or len(node.arguments) != 2:
            return False
        found = [self.known.get(one.name) for one in node.arguments if isinstance(one, Ref)]
        if len(found) != 2:
            return False
        a, b = found
        if not isinstance(a, _Quantized) or not isinstance(b, _Quantized):
            return False
        if any(self.value(one.stored).dtype not in BYTES for one in (a, b)):
            return False
        if (a.scale is None) != (b.scale is None) or not self.of_all(a.scale):
            return False
        axes, (result,) = PRODUCTS[node.op], node.results
        rank = len(result.shape)
        lanes = 1 if axes else rank - 1
        own = 0 if axes or options.get("transpose_w") else len(self.made.shape(b.stored)) - 1
        if b.axis != own and not (self.of_all(b.scale) and self.of_all(b.zero)):
            return False
        scale = None if a.scale is None or b.scale is None else self.times(a.scale, b.scale)
        bias, more = self.bias_of(options.pop("bias", None), scale)
        make = self.convolution if axes else self.matrices
        sums = make(node, a, b, bias, options)
        if sums is None:
            return False
        if scale is not None:
            self.known[result.name] = _Sums(Ref(sums.name), scale, lanes, more)
            return True
        made = self.made.nodes.pop()
        self.made.values.pop(sums.name)
        self.keep(replace(made, results=(result,)))
        return True

    def bias_of(self, bias: Argument, scale: Parameter | None) -> tuple[Ref | None, Ref | None]:
        """A bias in units of the sums, where it is such a one, or as a number."""
        if not isinstance(bias, Ref):
            return None, None
        found = self.known.get(bias.name)
        if isinstance(found, _Quantized) and scale is not None and found.scale is not None:
            one, other = self.array(found.scale), self.array(scale)
            near = one is not None and other is not None and np.allclose(one, other, ROUNDED, 0)
            if near and found.zero == 0 and self.value(found.stored).dtype == "int32":
                return found.stored, None
        self.compute(bias.name)
        return (bias, None) if scale is None else (None, bias)

    def array(self, parameter: Parameter) -> Any:
        """The elements of a parameter; None where they are not known."""
        if not isinstance(parameter, Ref):
            return np.float32(parameter)
        if parameter.name in self.made.arrays:
            return self.made.arrays[parameter.name]
        node = next(
            one for one in reversed(self.made.nodes) if one.results[0].name == parameter.name
        )
        if node.op not in ("multiply", "reshape"):
            return None
        parts = [self.array(one) for one in node.arguments if isinstance(one, Ref | float)]
        if any(one is None for one in parts):
            return None
        return np.multiply(*parts) if node.op == "multiply" else parts[0].reshape(-1)

    def signed(self, found: _Quantized) -> _Quantized:
        """Bytes less 128 where they are unsigned, and their zero point with them."""
        if self.value(found.stored).dtype == "int8":
            return found
        wide = self.op("subtract", self.op("cast", found.stored, "int32"), 128)
        zero = (
            self.op("subtract", found.zero, 128)
            if isinstance(found.zero, Ref)
            else int(found.zero) - 128
        )
        return replace(found, stored=self.op("cast", wide, "int8"), zero=zero)

    def is_none(self, zero: Parameter) -> bool:
        """Whether a zero point is known to be 0."""
        if isinstance(zero, Ref):
            array = self.made.arrays.get(zero.name)
            return array is not None and not array.any()
        return zero == 0

    def matrices(
        self, node: Node, a: _Quantized, b: _Quantized, bias: Ref | None, options: dict[str, Any]
    ) -> Ref | None:
        """The sums of a product of matrices; None where a zero point is neither for all nor for each row of a, or each column of b."""
        rank = len(self.made.shape(a.stored))
        if not self.of_all(a.zero) and a.axis != rank - 2:
            return None
        b = self.signed(b)
        row, column, rows = self.along(a.zero, rank, rank - 2), b.zero, not self.is_none(a.zero)
        lines, more = bool(options.get("transpose_w")), None
        op = "dense" if len(self.made.shape(b.stored)) == 2 else node.op
        if rows:
            sums = self.op("sum", b.stored, axis=(-1 if lines else -2,), keepdims=not lines)
            more = self.op("multiply", sums, row)
            if isinstance(row, int) and op == "dense":
                bias, more = (
                    self.less(bias, self.op("reshape", more, (self.made.shape(more)[-1],))),
                    None,
                )
        total = self.op(op, a.stored, b.stored, **options, **({"bias": bias} if bias else {}))
        if more is not None:
            total = self.op("subtract", total, more)
        if not self.is_none(column):
            sums = self.op("sum", a.stored, axis=(-1,), keepdims=True)
            if rows:
                depth = self.made.shape(a.stored)[-1]
                count = of_size(self.op, depth, "int32", tuple(self.made.sizes.values()))
                sums = self.op("subtract", sums, self.op("multiply", count, row))
            total = self.op("subtract", total, self.op("multiply", sums, column))
        return total

    def convolution(
        self, node: Node, a: _Quantized, b: _Quantized, bias: Ref | None, options: dict[str, Any]
    ) -> Ref | None:
        """The sums of a convolution; None where a zero point of the image is not known, or one of weights in groups of several results."""
        b, axes = self.signed(b), PRODUCTS[node.op]
        padding = _pairs(options.get("padding", 0), axes)
        groups, filters = options.get("groups", 1), self.made.shape(b.stored)
        apart = not self.is_none(b.zero)
        if not isinstance(a.zero, int) or padding is None or not isinstance(groups, int):
            return None
        if not all(isinstance(extent, Const) for extent in filters) or (
            apart and groups not in (1, int(filters[0].value))
        ):  # type: ignore[attr-defined]
            return None
        if a.zero:
            sums = self.op("sum", b.stored, axis=tuple(range(1, axes + 2)))
            bias = self.less(bias, self.op("multiply", sums, a.zero))
        x = a.stored
        if any(map(any, padding)):
            before, after = ((0, 0, *ends) for ends in zip(*padding, strict=True))
            x = self.op("pad", x, before, after, value=a.zero)
        plain = {**options, "padding": ((0, 0),) * axes}
        total = self.of_lines(node.op, x, b.stored, {**plain, **({"bias": bias} if bias else {})})
        if not apart:
            return total
        window = [int(extent.value) for extent in filters[1:]]  # type: ignore[attr-defined]
        ones = self.made.constant(self.made.fresh("ones"), np.ones((groups, *window), np.int8))
        sums = self.of_lines(node.op, x, ones, plain)
        sums = self.op("subtract", sums, prod(window) * a.zero) if a.zero else sums
        return self.op(
            "subtract", total, self.op("multiply", sums, self.along(b.zero, axes + 2, 1))
        )

    def of_lines(self, op: str, x: Ref, w: Ref, options: dict[str, Any]) -> Ref:
        """A convolution in which the elements of a window along the last axis are terms of one sum, with their channels all in a line.

        Channels lie side by side in memory, so windows are a view. A step takes several bytes: short sums would end before they pay for the
        partial sums that are read and written around them.
        """
        axes, channels = PRODUCTS[op], self.made.shape(x)[1]
        size, outer = self.made.shape(w)[-1], self.made.shape(w)[2:-1]
        step, apart = (_each(options.get(name, 1), axes) for name in ("stride", "dilation"))
        numbers = isinstance(channels, Const) and isinstance(size, Const)
        if not numbers or int(size.value) == 1 or apart[-1] != 1 or options.get("groups", 1) != 1:
            return self.op(op, x, w, **options)
        wide, width = int(channels.value) * int(size.value), int(size.value)
        order, inverse = (0, *range(2, axes + 2), 1), (0, axes + 1, *range(1, axes + 1))
        seen = self.op("transpose", self.op("transpose", x, axes=order), axes=inverse)
        windows = self.op("sliding_windows", seen, axes + 1, width, step=step[-1])
        turned = self.op("transpose", windows, axes=(0, *range(2, axes + 3), 1))
        rows = self.op("reshape", turned, (*self.made.shape(turned)[: axes + 1], wide))
        image = self.op("transpose", rows, axes=inverse)
        turned = self.op("transpose", w, axes=(0, axes + 1, 1, *range(2, axes + 1)))
        filters = self.op("reshape", turned, (self.made.shape(w)[0], wide, *outer, 1))
        return self.op(op, image, filters, **{**options, "stride": (*step[:-1], 1)})

    def less(self, bias: Ref | None, amount: Ref) -> Ref:
        """A bias, 0 where there is none, less an amount."""
        return self.op("negative", amount) if bias is None else self.op("subtract", bias, amount)


def _each(option: Argument, axes: int) -> tuple[Any, ...]:
    """An option of a window, for each of its axes."""
    return option if isinstance(option, tuple) else (option,) * axes


def _pairs(padding: Argument, axes: int) -> tuple[tuple[int, int], ...] | None:
    """Padding before and after each axis; None where it is said otherwise."""
    if isinstance(padding, int):
        return ((padding, padding),) * axes
    if not isinstance(padding, tuple) or len(padding) != axes:
        return None
    found = [(one, one) if isinstance(one, int) else one for one in padding]
    good = all(isinstance(one, tuple) and len(one) == 2 for one in found)
    return tuple(found) if good else None  # type: ignore[arg-type]
