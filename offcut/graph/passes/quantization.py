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
from offcut.graph.builder import rebuilt
from offcut.graph.graph import Argument, Bound, Node, Ref, refs
from offcut.graph.passes.byte_products import (
    BYTES,
    PRODUCTS,
    ByteProducts,
    Parameter,
    Quantized,
)
from offcut.graph.passes.simplification import with_operands

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

    pending  values that are not in the graph yet, by name, and what they stand for
    alias    values that are others
    """

    def __init__(self, bound: Bound) -> None:
        self.source = bound
        super().__init__(rebuilt(bound.graph, bound.arrays))
        self.pending: dict[str, Quantized | _Sums | _Joined] = {}
        self.alias: dict[str, str] = {}

    def bound(self) -> Bound:
        """Return the rewritten graph."""
        rules: Mapping[str, Callable[[Node], bool]] = {
            "cast": self.cast,
            "dequantize": self.dequantize,
            "quantize": self.quantize,
            "relu": self.relu,
            "subtract": self.subtract,
            "interpolate": self.resize,
            **dict.fromkeys(MOVES, self.move),
            **dict.fromkeys(PRODUCTS, self.product),
        }
        for node in self.source.graph.nodes:
            now = with_operands(node, self.alias)
            rule = rules.get(node.op) if len(node.results) == 1 else None
            if rule is None or not rule(now):
                self.keep(now)
        for name in self.source.graph.outputs:
            self.name(name)
        self.builder.output(*map(Ref, self.source.graph.outputs))
        return self.builder.bound

    # -- values

    def keep(self, node: Node) -> None:
        """Add a node as it is."""
        for name in node.operands:
            self.compute(name)
        self.builder.nodes.append(node)
        self.builder.values.update((value.name, value) for value in node.results)
        self.builder.later.difference_update(value.name for value in node.results)

    def name(self, name: str) -> None:
        """Add a value under its own name."""
        self.compute(name)
        if name in self.alias:
            value = self.builder.values[self.alias.pop(name)]
            self.builder.node("reshape", Ref(value.name), value.shape, results=(name,))

    def compute(self, name: str) -> None:
        """Add a pending value to the graph."""
        pending = self.pending.pop(name, None)
        if isinstance(pending, Quantized):
            for node in pending.nodes:
                if node.results[0].name not in self.builder.values:
                    self.keep(node)
        elif isinstance(pending, _Joined):
            self.keep(pending.node)
        elif isinstance(pending, _Sums):
            total = self.scale_sums(pending, pending.scale, pending.bias)
            last = self.builder.nodes.pop()
            value = replace(self.builder.values.pop(total.name), name=name)
            self.keep(replace(last, results=(value,)))

    def scale_sums(self, sums: _Sums, scale: Parameter, bias: Parameter | None) -> Ref:
        """Return ``sums * scale + bias``, and what follows."""
        rank, real = len(self.builder.shape(sums.sums)), self.op("cast", sums.sums, "float32")
        total = self.op("multiply", real, self.along(scale, rank, sums.axis))
        if bias is not None:
            total = self.op("add", total, self.along(bias, rank, sums.axis))
        return self.op(sums.last, total) if sums.last else total

    def is_plain(self, operand: Quantized) -> bool:
        """Return whether an operand is of bytes with one scale and one zero point."""
        whole = operand.scale is not None and self.value(operand.integers).dtype in BYTES
        return whole and self.is_one(operand.scale) and self.is_one(operand.zero)

    def times(self, one: Parameter, other: Parameter) -> Parameter:
        """Return the product of two scales, at least one of them a scalar."""
        if isinstance(one, Ref) or isinstance(other, Ref):
            first, second = (other, one) if isinstance(other, Ref) else (one, other)
            return self.op("multiply", first, second)
        return float(np.float32(one) * np.float32(other))

    def over(self, one: Parameter, other: float) -> Parameter:
        """Return a scale over another."""
        if isinstance(one, Ref):
            return self.op("divide", one, other)
        return float(np.float32(one) / np.float32(other))

    # -- what stands for numbers

    def dequantize(self, node: Node) -> bool:
        """Record a dequantization to float32; return whether it was taken."""
        arguments = _arguments_of(node)
        x, scale, zero = arguments["x"], arguments["scale"], arguments.get("zero", 0)
        if node.results[0].dtype != "float32" or not isinstance(x, Ref):
            return False
        for name in node.operands:
            self.compute(name)
        rank = len(self.builder.shape(x))
        axis = int(arguments.get("axis", -1)) % max(rank, 1)
        axis = 0 if self.is_one(scale) and self.is_one(zero) else axis
        scale = float(scale) if not isinstance(scale, Ref) else scale
        self.pending[node.results[0].name] = Quantized(x, zero, scale, axis, (node,))
        return True

    def cast(self, node: Node) -> bool:
        """Record bytes that become int32; return whether they were taken."""
        x = node.arguments[0]
        if not isinstance(x, Ref) or x.name in self.pending or self.value(x).dtype not in BYTES:
            return False
        if node.results[0].dtype != "int32":
            return False
        self.pending[node.results[0].name] = Quantized(x, 0, None, 0, (node,))
        return True

    def subtract(self, node: Node) -> bool:
        """Record bytes less their zero points; return whether they were taken."""
        x, point = node.arguments
        zero: Any = point
        operand = self.pending.get(x.name) if isinstance(x, Ref) else None
        if not isinstance(operand, Quantized) or operand.scale is not None or operand.zero != 0:
            return False
        axis = 0
        if isinstance(zero, Ref):
            self.compute(zero.name)
            shape, own = self.builder.shape(zero), node.results[0].shape
            several = [n for n, extent in enumerate(shape) if extent != Const(1, "index")]
            if len(several) > 1 or own != self.builder.shape(operand.integers):
                return False
            axis = len(own) - len(shape) + several[0] if several else 0
            if len(shape) != len(several):
                zero = self.op("reshape", zero, tuple(shape[n] for n in several))
        elif not isinstance(zero, int):
            return False
        self.pending[node.results[0].name] = Quantized(
            operand.integers, zero, None, axis, (*operand.nodes, node)
        )
        return True

    def resize(self, node: Node) -> bool:
        """Move bytes to where the nearest of a resized image are; return whether that was possible."""
        return node.option("mode", "nearest") == "nearest" and self.move(node)

    def move(self, node: Node) -> bool:
        """Move bytes instead of what they stand for; return whether that was possible."""
        names = list(refs(node.arguments[0]))
        operands = [self.pending.get(name) for name in names]
        first = operands[0] if operands else None
        if not isinstance(first, Quantized) or first.scale is None:
            return False
        if not all(isinstance(one, Quantized) and one.is_like(first) for one in operands):
            parts = tuple(
                one for one in operands if isinstance(one, Quantized) and self.is_plain(one)
            )
            if node.op == "concat" and len(parts) == len(operands):
                self.pending[node.results[0].name] = _Joined(parts, node)
            return node.results[0].name in self.pending
        if self.value(first.integers).dtype not in BYTES:
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
        integers_of = {
            name: one.integers.name
            for name, one in zip(names, operands, strict=True)
            if isinstance(one, Quantized)
        }
        arguments = with_operands(replace(node, options=()), integers_of).arguments
        moved_integers = self.op(node.op, *arguments, **options)
        axis_option = () if plain else (("axis", axis),)
        parameters = Ref(moved_integers.name), first.scale, first.zero
        again = Node(node.results, "dequantize", parameters, axis_option)
        result = replace(first, integers=Ref(moved_integers.name), axis=axis, nodes=(again,))
        self.pending[node.results[0].name] = result
        return True

    def relu(self, node: Node) -> bool:
        """Record sums that are clamped at 0; return whether they were taken."""
        (name,) = node.operands
        sums = self.pending.get(name)
        if not isinstance(sums, _Sums) or len(self.source.graph.users[name]) > 1:
            return False
        self.pending[node.results[0].name] = replace(sums, last="relu")
        return True

    def quantize(self, node: Node) -> bool:
        """Quantize sums with one factor, and return bytes that were dequantized alike as they are; return whether that was possible."""
        arguments = _arguments_of(node)
        x, scale, zero = arguments["x"], arguments["scale"], arguments.get("zero", 0)
        operand = self.pending.get(x.name) if isinstance(x, Ref) else None
        for parameter in (one for one in (scale, zero) if isinstance(one, Ref)):
            self.compute(parameter.name)
        (result,) = node.results
        if isinstance(operand, Quantized):
            same = self.value(operand.integers).dtype == result.dtype and self.is_plain(operand)
            if same and (operand.scale, operand.zero) == (scale, zero):
                self.alias[result.name] = self.alias.get(
                    operand.integers.name, operand.integers.name
                )
                return True
        if isinstance(operand, _Joined) and self.is_one(scale) and self.is_one(zero):
            parts = tuple(self.requantize(one, scale, zero, result.dtype) for one in operand.parts)
            self.op(
                "concat",
                parts,
                *operand.node.arguments[1:],
                **dict(operand.node.options),
                results=(result.name,),
            )
            return True
        if not isinstance(operand, _Sums) or isinstance(scale, Ref):
            return False
        graph = self.source.graph
        if len(graph.users[x.name]) > 1 or x.name in graph.outputs:
            return False
        bias = None if operand.bias is None else self.over(operand.bias, scale)
        total = self.scale_sums(operand, self.over(operand.scale, scale), bias)
        self.op("quantize", total, 1.0, zero, dtype=result.dtype, results=(result.name,))
        return True

    def requantize(self, operand: Quantized, scale: Parameter, zero: Parameter, dtype: str) -> Ref:
        """Return the bytes of an operand under another scale, zero point and type."""
        same = self.value(operand.integers).dtype == dtype
        if same and (operand.scale, operand.zero) == (scale, zero):
            return operand.integers
        real = self.op("dequantize", operand.integers, operand.scale, operand.zero)
        return self.op("quantize", real, scale, zero, dtype=dtype)

    # -- products

    def product(self, node: Node) -> bool:
        """Multiply bytes instead of the numbers that they stand for; return whether that was possible."""
        options: dict[str, Any] = dict(node.options)
        if not set(options) <= TAKEN or len(node.arguments) != 2:
            return False
        operands = [self.pending.get(one.name) for one in node.arguments if isinstance(one, Ref)]
        if len(operands) != 2:
            return False
        a, b = operands
        if not isinstance(a, Quantized) or not isinstance(b, Quantized):
            return False
        if any(self.value(one.integers).dtype not in BYTES for one in (a, b)):
            return False
        if (a.scale is None) != (b.scale is None) or not self.is_one(a.scale):
            return False
        axes, (result,) = PRODUCTS[node.op], node.results
        rank = len(result.shape)
        lanes = 1 if axes else rank - 1
        own = 0 if axes or options.get("transpose_w") else len(self.builder.shape(b.integers)) - 1
        if b.axis != own and not (self.is_one(b.scale) and self.is_one(b.zero)):
            return False
        scale = None if a.scale is None or b.scale is None else self.times(a.scale, b.scale)
        bias, more = self.bias_of(options.pop("bias", None), scale)
        make = self.convolution if axes else self.matrices
        sums = make(node.op, a, b, bias, options)
        if sums is None:
            return False
        if scale is not None:
            self.pending[result.name] = _Sums(Ref(sums.name), scale, lanes, more)
            return True
        last = self.builder.nodes.pop()
        self.builder.values.pop(sums.name)
        self.keep(replace(last, results=(result,)))
        return True

    def bias_of(self, bias: Argument, scale: Parameter | None) -> tuple[Ref | None, Ref | None]:
        """Return a bias in units of the sums and None, where it is in these units; else None and the bias as it is."""
        if not isinstance(bias, Ref):
            return None, None
        operand = self.pending.get(bias.name)
        if isinstance(operand, Quantized) and scale is not None and operand.scale is not None:
            one, other = self.array(operand.scale), self.array(scale)
            near = one is not None and other is not None and np.allclose(one, other, ROUNDED, 0)
            if near and operand.zero == 0 and self.value(operand.integers).dtype == "int32":
                return operand.integers, None
        self.compute(bias.name)
        return (bias, None) if scale is None else (None, bias)

    def array(self, parameter: Parameter) -> Any:
        """Return the elements of a parameter; None where they are not known."""
        if not isinstance(parameter, Ref):
            return np.float32(parameter)
        if parameter.name in self.builder.arrays:
            return self.builder.arrays[parameter.name]
        makers = (
            one for one in reversed(self.builder.nodes) if one.results[0].name == parameter.name
        )
        node = next(makers, None)
        if node is None or node.op != "multiply":
            return None
        parts = [self.array(one) for one in node.arguments if isinstance(one, Ref | float)]
        return None if any(one is None for one in parts) else np.multiply(*parts)


def _arguments_of(node: Node) -> dict[str, Any]:
    """Return the arguments of a quantization, or of a dequantization, by name."""
    names = ("x", "scale", "zero", "dtype", "axis")
    return dict(zip(names, node.arguments, strict=False)) | dict(node.options)
