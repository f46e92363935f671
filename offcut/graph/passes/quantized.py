"""Products of numbers that bytes stand for become products of the bytes; what moves numbers moves the bytes.

Before, with bytes q and w::

    x = dequantize(q, s, z)         a = matmul(q, w)
    v = dequantize(w, t)            y = multiply(cast(subtract(a, …), "float32"), s*t)
    y = matmul(x, v)

A sum that is quantized at once is scaled once, by the scale of the product over that of the result. A dequantization sinks below operators that
move elements, or pick some by their order, where one scale and one zero point are of all: those operators read and write bytes. To quantize what
was dequantized alike gives the bytes themselves.

The sums are exact, where floats round each; so results differ from those of floats by less than these from the real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offcut.core.expr import Const
from offcut.graph.build import rebuilt
from offcut.graph.graph import Argument, Bound, Node, Ref, refs
from offcut.graph.passes.byte_products import (
    BYTES,
    PRODUCTS,
    ByteProducts,
    Parameter,
    Quantized,
)
from offcut.graph.passes.shared import with_operands

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

    parts: tuple[Quantized, ...]
    node: Node


def integer_products(bound: Bound) -> Bound:
    """Return the graph in which bytes that stand for numbers are multiplied and moved as bytes."""
    graph = bound.graph
    if not any(value.dtype in BYTES for value in graph.values.values()):
        return bound
    if not any(node.op in PRODUCTS or node.op == "quantize" for node in graph.nodes):
        return bound
    return _Rewriting(bound).bound()


class _Rewriting(ByteProducts):
    """A graph that is built anew.

    known   values that are not in the graph yet, by name, and what they stand for
    alias   values that are others
    """

    def __init__(self, bound: Bound) -> None:
        self.given = bound
        super().__init__(rebuilt(bound.graph, bound.arrays))
        self.known: dict[str, Quantized | _Sums | _Joined] = {}
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
        if isinstance(found, Quantized):
            for node in found.made:
                if node.results[0].name not in self.made.values:
                    self.keep(node)
        elif isinstance(found, _Joined):
            self.keep(found.node)
        elif isinstance(found, _Sums):
            total = self.scaled(found, found.scale, found.bias)
            made = self.made.nodes.pop()
            value = replace(self.made.values.pop(total.name), name=name)
            self.keep(replace(made, results=(value,)))

    def scaled(self, found: _Sums, scale: Parameter, bias: Parameter | None) -> Ref:
        """``sums * scale + bias``, and what follows."""
        rank, real = len(self.made.shape(found.sums)), self.op("cast", found.sums, "float32")
        total = self.op("multiply", real, self.along(scale, rank, found.axis))
        if bias is not None:
            total = self.op("add", total, self.along(bias, rank, found.axis))
        return self.op(found.last, total) if found.last else total

    def is_plain(self, found: Quantized) -> bool:
        """Whether bytes stand for numbers with one scale and one zero point."""
        whole = found.scale is not None and self.value(found.stored).dtype in BYTES
        return whole and self.is_one(found.scale) and self.is_one(found.zero)

    def times(self, one: Parameter, other: Parameter) -> Parameter:
        """The product of two scales, of which the first is for all."""
        if isinstance(one, Ref) or isinstance(other, Ref):
            first, second = (other, one) if isinstance(other, Ref) else (one, other)
            return self.op("multiply", first, second)
        return float(np.float32(one) * np.float32(other))

    def over(self, one: Parameter, other: float) -> Parameter:
        """A scale by another."""
        if isinstance(one, Ref):
            return self.op("divide", one, other)
        return float(np.float32(one) / np.float32(other))

    # -- what stands for numbers

    def dequantize(self, node: Node) -> bool:
        """Remember what is dequantized to float32."""
        given = _given(node)
        x, scale, zero = given["x"], given["scale"], given.get("zero", 0)
        if node.results[0].dtype != "float32" or not isinstance(x, Ref):
            return False
        for name in node.operands:
            self.compute(name)
        rank = len(self.made.shape(x))
        axis = int(given.get("axis", -1)) % max(rank, 1)
        axis = 0 if self.is_one(scale) and self.is_one(zero) else axis
        scale = float(scale) if not isinstance(scale, Ref) else scale
        self.known[node.results[0].name] = Quantized(x, zero, scale, axis, (node,))
        return True

    def cast(self, node: Node) -> bool:
        """Remember bytes that become int32."""
        x = node.arguments[0]
        if not isinstance(x, Ref) or x.name in self.known or self.value(x).dtype not in BYTES:
            return False
        if node.results[0].dtype != "int32":
            return False
        self.known[node.results[0].name] = Quantized(x, 0, None, 0, (node,))
        return True

    def subtract(self, node: Node) -> bool:
        """Remember bytes less their zero points."""
        x, point = node.arguments
        zero: Any = point
        found = self.known.get(x.name) if isinstance(x, Ref) else None
        if not isinstance(found, Quantized) or found.scale is not None or found.zero != 0:
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
        self.known[node.results[0].name] = Quantized(
            found.stored, zero, None, axis, (*found.made, node)
        )
        return True

    def move(self, node: Node) -> bool:
        """Move bytes instead of what they stand for."""
        names = list(refs(node.arguments[0]))
        found = [self.known.get(name) for name in names]
        first = found[0] if found else None
        if not isinstance(first, Quantized) or first.scale is None:
            return False
        if not all(isinstance(one, Quantized) and one.is_like(first) for one in found):
            parts = tuple(one for one in found if isinstance(one, Quantized) and self.is_plain(one))
            if node.op == "concat" and len(parts) == len(found):
                self.known[node.results[0].name] = _Joined(parts, node)
            return node.results[0].name in self.known
        if self.value(first.stored).dtype not in BYTES:
            return False
        axis, plain = first.axis, self.is_plain(first)
        if not plain:
            if node.op != "transpose" or not isinstance(first.zero, int):
                return False
            axes: Any = node.option("axes", node.arguments[1] if len(node.arguments) > 1 else None)
            rank = len(node.results[0].shape)
            order = range(rank)[::-1] if axes is None else [one % rank for one in axes]
            axis = order.index(axis)
        if node.op == "max_pool2d" and not (isinstance(first.scale, float) and first.scale > 0):
            return False
        options: dict[str, Any] = dict(node.options)
        if node.op == "pad":
            value = options.get("value", node.arguments[3] if len(node.arguments) > 3 else 0.0)
            if not isinstance(first.zero, int) or len(node.arguments) > 3:
                return False
            if options.get("mode", "constant") == "constant":
                if value != 0:
                    return False
                options["value"] = first.zero
        stored_of = {
            name: one.stored.name
            for name, one in zip(names, found, strict=True)
            if isinstance(one, Quantized)
        }
        arguments = with_operands(replace(node, options=()), stored_of).arguments
        stored = self.op(node.op, *arguments, **options)
        placed = () if plain else (("axis", axis),)
        parameters = Ref(stored.name), first.scale, first.zero
        again = Node(node.results, "dequantize", parameters, placed)
        moved = replace(first, stored=Ref(stored.name), axis=axis, made=(again,))
        self.known[node.results[0].name] = moved
        return True

    def relu(self, node: Node) -> bool:
        """Remember sums that are cut off at 0."""
        (name,) = node.operands
        found = self.known.get(name)
        if not isinstance(found, _Sums) or len(self.given.graph.users[name]) > 1:
            return False
        self.known[node.results[0].name] = replace(found, last="relu")
        return True

    def quantize(self, node: Node) -> bool:
        """Quantize sums with one factor; give bytes back that were dequantized alike."""
        given = _given(node)
        x, scale, zero = given["x"], given["scale"], given.get("zero", 0)
        found = self.known.get(x.name) if isinstance(x, Ref) else None
        for parameter in (one for one in (scale, zero) if isinstance(one, Ref)):
            self.compute(parameter.name)
        (result,) = node.results
        if isinstance(found, Quantized):
            same = self.value(found.stored).dtype == result.dtype and self.is_plain(found)
            if same and (found.scale, found.zero) == (scale, zero):
                self.alias[result.name] = self.alias.get(found.stored.name, found.stored.name)
                return True
        if isinstance(found, _Joined) and self.is_one(scale) and self.is_one(zero):
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
        graph = self.given.graph
        if len(graph.users[x.name]) > 1 or x.name in graph.outputs:
            return False
        bias = None if found.bias is None else self.over(found.bias, scale)
        total = self.scaled(found, self.over(found.scale, scale), bias)
        self.op("quantize", total, 1.0, zero, dtype=result.dtype, results=(result.name,))
        return True

    def again(self, found: Quantized, scale: Parameter, zero: Parameter, dtype: str) -> Ref:
        """Bytes that stand for the same numbers in another way."""
        if self.value(found.stored).dtype == dtype and (found.scale, found.zero) == (scale, zero):
            return found.stored
        real = self.op("dequantize", found.stored, found.scale, found.zero)
        return self.op("quantize", real, scale, zero, dtype=dtype)

    # -- products

    def product(self, node: Node) -> bool:
        """Multiply bytes where numbers were multiplied that they stand for."""
        options: dict[str, Any] = dict(node.options)
        if not set(options) <= TAKEN or len(node.arguments) != 2:
            return False
        found = [self.known.get(one.name) for one in node.arguments if isinstance(one, Ref)]
        if len(found) != 2:
            return False
        a, b = found
        if not isinstance(a, Quantized) or not isinstance(b, Quantized):
            return False
        if any(self.value(one.stored).dtype not in BYTES for one in (a, b)):
            return False
        if (a.scale is None) != (b.scale is None) or not self.is_one(a.scale):
            return False
        axes, (result,) = PRODUCTS[node.op], node.results
        rank = len(result.shape)
        lanes = 1 if axes else rank - 1
        own = 0 if axes or options.get("transpose_w") else len(self.made.shape(b.stored)) - 1
        if b.axis != own and not (self.is_one(b.scale) and self.is_one(b.zero)):
            return False
        scale = None if a.scale is None or b.scale is None else self.times(a.scale, b.scale)
        bias, more = self.bias_of(options.pop("bias", None), scale)
        make = self.convolution if axes else self.matrices
        sums = make(node.op, a, b, bias, options)
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
        if isinstance(found, Quantized) and scale is not None and found.scale is not None:
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
        makers = (one for one in reversed(self.made.nodes) if one.results[0].name == parameter.name)
        node = next(makers, None)
        if node is None or node.op != "multiply":
            return None
        parts = [self.array(one) for one in node.arguments if isinstance(one, Ref | float)]
        return None if any(one is None for one in parts) else np.multiply(*parts)


def _given(node: Node) -> dict[str, Any]:
    """The arguments of a quantization, or of a dequantization, by name."""
    names = ("x", "scale", "zero", "dtype", "axis")
    return dict(zip(names, node.arguments, strict=False)) | dict(node.options)
