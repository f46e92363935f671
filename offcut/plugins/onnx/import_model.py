"""A model proto -> a graph with constants, and the names of its inputs and outputs.

Nodes are taken in an order in which each follows what it reads: a converter adds some at the end, which onnxruntime takes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from offcut.core import index as ix
from offcut.core.expr import variables
from offcut.describe.request import Array
from offcut.errors import CallError, DescribeError, OffcutError
from offcut.graph import Bound, Model, Ref, extents
from offcut.graph.passes import eliminate_dead_code
from offcut.graph.sizes.extent_values import arithmetic, plain
from offcut.plugins.onnx.checking import (
    UnknownSizeError,
    UnsupportedNodesError,
    check_consistent,
    check_proto,
    in_order,
)
from offcut.plugins.onnx.evaluation.graph_walk import (
    STANDARD,
    RejectedNode,
    Scope,
    Walk,
    of_array,
    of_tensor,
)
from offcut.plugins.onnx.file_facts import FileFacts
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Element,
    KnownArray,
    Operand,
    UnsupportedNode,
    dtype_of,
)
from offcut.plugins.onnx.importer.size_facts import OP, FactsRequired, SizeFacts
from offcut.plugins.onnx.weights import restore, strip_weights

UNKNOWN = re.compile(r"[^\w\s]+|-\d+|[Nn]one|unk|unknown|[Dd]ynamic")
"""Texts that are no names, ``?``, ``-1``, ``None``: each axis that has one is a size of its own."""


@dataclass(frozen=True)
class Imported:
    """A graph that was a file.

    inputs, outputs  names in the graph by those in the file
    """

    bound: Bound
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    file: FileFacts

    def arrays_by_name(self, feed: object) -> dict[str, Any]:
        """Arrays by their names in the graph.

        feed  by name; or an array, where there is one input

        Raises CallError for one that is missing, or that is not asked for, and where several have no names.
        """
        if (
            len(self.inputs) == 1
            and feed is not None
            and not isinstance(feed, Mapping | tuple | list)
        ):
            return dict.fromkeys(self.inputs.values(), feed)
        if not isinstance(feed, Mapping):
            pairs = ", ".join(f'"{name}": {name}' for name in self.inputs)
            what = f"{len(feed)} arguments" if isinstance(feed, tuple) else type(feed).__name__
            raise CallError(
                "run",
                "cannot run without its inputs"
                if feed is None
                else f"cannot take {what} for the inputs",
                because="they are given by name",
                help=(f"model({{{pairs}}})",),
            )
        for name in (*feed, *self.inputs):
            if name not in self.inputs or name not in feed:
                raise CallError(
                    "run",
                    f"cannot take an input {name}"
                    if name in feed
                    else f"cannot run without {name}",
                    because=f"the inputs are {', '.join(self.inputs) or 'none'}",
                )
        return {self.inputs[name]: array for name, array in feed.items()}

    def run(self, model: Model, feed: object, sizes: Mapping[str, int]) -> dict[str, Array]:
        """Return the outputs by their names in the file.

        feed  as `given` takes it; a dictionary with an array for each input goes the short way

        Raises CallError where an array does not fit.
        """
        if not sizes and type(feed) is dict and feed.keys() == self.inputs.keys():
            outputs = model.outputs([feed[name] for name in self.inputs], sizes)
            return dict(zip(self.outputs, outputs, strict=True))
        return self.results_by_name(model(self.arrays_by_name(feed), **sizes))

    def results_by_name(self, results: Mapping[str, Array]) -> dict[str, Array]:
        """Results by their names in the file."""
        return {name: results[own] for name, own in self.outputs.items()}


def import_proto(
    proto: Any,
    sizes: Mapping[str, int | tuple[int, int]],
    constants: Mapping[str, Any],
    weights: Mapping[int, Array] = MappingProxyType({}),
) -> Imported:
    """Return the graph of a model.

    weights  initializers whose bytes are not in `proto`, by their places

    Raises DescribeError as `from_onnx` does.
    """
    proto = in_order(proto)
    check_proto(strip_weights(proto, weights) if weights else proto)
    facts = SizeFacts(sizes)
    while True:
        run = _Import(proto, facts, constants, weights)
        try:
            return run.run()
        except FactsRequired as request:
            facts = facts.knowing(request.facts, run.context.origins)
        except OffcutError:
            raise
        except Exception:
            restore(proto, weights)
            check_consistent(proto)
            raise


class _Import:
    """One run of an import.

    facts    of sizes, those that earlier runs wanted among them
    weights  initializers whose bytes are not in `proto`, by their places
    """

    def __init__(
        self,
        proto: Any,
        facts: SizeFacts,
        constants: Mapping[str, Any],
        weights: Mapping[int, Array],
    ) -> None:
        self.weights = weights
        self.proto, self.graph = proto, proto.graph
        self.facts, self.constants = facts, constants
        self.context = Context(_identifier(proto.graph.name) or "graph")
        self.symbols: dict[str, Element] = {}
        self.complaints: list[RejectedNode] = []
        self.inputs: dict[str, str] = {}

    def run(self) -> Imported:
        """Return the graph."""
        values = {
            tensor.name: self.initializer(tensor, self.weights.get(place))
            for place, tensor in enumerate(self.graph.initializer)
        }
        names = {one.name for one in self.graph.input}
        for name in self.constants:
            if name not in names:
                inputs = ", ".join(sorted(names)) or "none"
                raise DescribeError(
                    OP,
                    f"cannot take a constant {name}",
                    because=f"the inputs are {inputs}",
                    help=("constants={name: array} of one of them",) if names else (),
                )
        for one in self.graph.input:
            if one.name in self.constants:
                values[one.name] = self.constant(one, self.constants[one.name])
        for one in self.graph.input:
            if one.name not in values:
                values[one.name] = self.input(one)
        self._all_named()
        functions = {(one.domain, one.name): one for one in self.proto.functions}
        versions = {
            "" if one.domain in STANDARD else one.domain: one.version
            for one in self.proto.opset_import
        }
        newest = onnx.defs.onnx_opset_version()
        if versions.get("", 0) > newest:
            raise DescribeError(
                OP,
                f"cannot take operators of version {versions['']}",
                because=f"the installed onnx knows those up to {newest}",
                help=("pip install --upgrade onnx", "a file of an older version"),
            )
        versions |= {domain: versions[""] for domain in STANDARD if "" in versions}
        walk = Walk(self.context, functions)
        walk.nodes(self.graph.node, Scope(values, versions))
        self.complaints += walk.complaints
        outputs = {
            one.name: self.output(one.name, values.get(one.name)) for one in self.graph.output
        }
        if self.complaints:
            raise _refusal(self.proto, self.complaints)
        builder = self.context.builder
        builder.output(*(Ref(name) for name in outputs.values()))
        return Imported(
            eliminate_dead_code(builder.bound), self.inputs, outputs, FileFacts.of(self.proto)
        )

    def output(self, name: str, operand: Operand | None) -> str:
        """Return an output as a value of the graph."""
        if operand is None:
            return name
        try:
            return self.context.ref(operand).name
        except UnsupportedNode as refused:
            self.complaints.append(RejectedNode(name, "output", refused.because, refused.help))
            return name

    def initializer(self, tensor: Any, array: Array | None) -> Operand | None:
        """Return a tensor of the file, which is `array` where that is given; None where it is none."""
        try:
            return of_tensor(tensor) if array is None else of_array(array)
        except UnsupportedNode as refused:
            self.complaints.append(
                RejectedNode(tensor.name, "initializer", refused.because, refused.help)
            )
            return None

    def constant(self, value: Any, data: Any) -> KnownArray:
        """Return an input that is known, as it is declared; a size of the file that is one of its extents is fixed by it.

        Raises DescribeError for an array of another element type or shape.
        """
        if not value.type.HasField("tensor_type"):
            raise _no_constant(value, "it is not a tensor, but a sequence, a map or an optional")
        tensor = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        try:
            array = np.asarray(data)
            if not hasattr(data, "dtype") and np.can_cast(array.dtype, dtype, "same_kind"):
                array = np.asarray(data, dtype)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise _no_constant(value, f"numpy makes no array of it: {error}") from None
        if array.dtype != dtype:
            help = (f'numpy.asarray({value.name}, "{dtype}")',)
            raise _no_constant(value, f"it is {array.dtype}, declared as {dtype}", help)
        if not tensor.HasField("shape"):
            return KnownArray(array, str(array.dtype))
        declared = [_name(dim) or str(dim.dim_value or "?") for dim in tensor.shape.dim]
        extents = ", ".join(declared) + "," * (len(declared) == 1)
        shapes = f"its shape is {array.shape}, declared as ({extents})"
        if len(declared) != array.ndim:
            raise _no_constant(value, shapes)
        for dim, extent in zip(tensor.shape.dim, array.shape, strict=True):
            if dim.HasField("dim_value") and dim.dim_value != extent:
                raise _no_constant(value, shapes)
            if _name(dim).isidentifier():
                self.fix(value, _name(dim), extent, shapes)
        return KnownArray(array, str(array.dtype))

    def fix(self, value: Any, size: str, extent: int, shapes: str) -> None:
        """A size that a constant has as an extent is that number.

        Raises DescribeError where it was given otherwise, or another constant has it otherwise.
        """
        low, high = self.facts.read_bounds(size) if size in self.facts.said else (extent, extent)
        if not low <= extent <= high:
            within = f"{low}" if low == high else f"in {low}…{high}"
            raise _no_constant(value, f"{shapes}, and {size} is {within}")
        self.facts = replace(self.facts, said={**self.facts.said, size: extent})
        self.symbols[size] = extent

    def input(self, value: Any) -> Ref | None:
        """Return an input that calls give; None where it is none that we take."""
        if not value.type.HasField("tensor_type"):
            because = "it is not a tensor, but a sequence, a map or an optional"
            self.complaints.append(RejectedNode(value.name, "input", because, "tensors"))
            return None
        tensor = value.type.tensor_type
        try:
            dtype = dtype_of(tensor.elem_type)
        except UnsupportedNode as refused:
            self.complaints.append(RejectedNode(value.name, "input", refused.because, refused.help))
            return None
        if not tensor.HasField("shape"):
            because = "its rank is not known"
            self.complaints.append(RejectedNode(value.name, "input", because, "a declared shape"))
            return None
        shape = [self.extent(value.name, n, dim) for n, dim in enumerate(tensor.shape.dim)]
        own = self.context.builder.fresh(value.name)
        ref = self.context.builder.input(own, dtype, shape)
        self.inputs[value.name] = ref.name
        return self.context.with_numbers(ref)

    def extent(self, name: str, axis: int, dim: Any) -> Element:
        """Return an extent of an input: a number, a size, or an expression over sizes as exporters write it; below 0: a size, too."""
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return int(dim.dim_value)
        text = _name(dim) or f"{name}_{axis}"
        try:
            extent = self.expression(ast.parse(text, mode="eval").body)
        except (SyntaxError, _NoExtent):
            extent = self.size(text)
        for size in self.symbols:
            self.context.axes.setdefault(size, f"axis {axis} of the input {name}")
        return extent

    def expression(self, node: ast.expr) -> Element:
        """``past + 1`` over sizes.

        Raises _NoExtent for what is no such expression.
        """
        words = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}
        match node:
            case ast.Constant(int(value)) if not isinstance(value, bool):
                return value
            case ast.Name(name):
                return self.size(name)
            case ast.BinOp(left, op, right) if type(op) in words:
                return arithmetic(words[type(op)], self.expression(left), self.expression(right))
            case _:
                raise _NoExtent

    def size(self, text: str) -> Element:
        """Return a size by the name that it has in the file."""
        if text in self.facts.equal:
            of = self.facts.equal[text]
            return plain(extents.at(of, {one: ix.index(self.size(one)) for one in variables(of)}))
        if text not in self.symbols:
            number = self.facts.number(text)
            self.symbols[text] = self.open_size(text) if number is None else number
        return self.symbols[text]

    def open_size(self, text: str) -> Element:
        """Return a size that calls give."""
        factor = self.facts.factor(text)
        wish = _identifier(text) if factor == 1 else f"{_identifier(text)}_{factor}"
        name = self.context.builder.fresh(wish)
        if text not in self.facts.said:
            self.context.free.add(name)
        size = self.context.builder.size(name, *self.facts.bounds(text, name))
        self.context.origins[name] = text, factor
        return arithmetic("*", factor, size)

    def _all_named(self) -> None:
        for name in self.facts.said:
            if name not in self.symbols:
                sizes = ", ".join(self.symbols) or "none"
                refused = UnknownSizeError(
                    OP,
                    f"cannot bound the size {name}",
                    because=f"the sizes are {sizes}",
                    help=tuple(f'sizes={{"{one}": (1, 512)}}' for one in self.symbols),
                )
                refused.size = name
                raise refused


def _no_constant(value: Any, because: str, help: tuple[str, ...] = ()) -> DescribeError:
    return DescribeError(OP, f"cannot take a constant {value.name}", because=because, help=help)


def _name(dim: Any) -> str:
    """What an extent is called in a file; nothing where exporters write one text for all that they do not know."""
    text = str(dim.dim_param)
    return "" if UNKNOWN.fullmatch(text) else text


class _NoExtent(Exception):
    """A text that is no expression over sizes."""


def _identifier(text: str) -> str:
    ascii_text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)
    return ascii_text if not ascii_text[:1].isdigit() else f"v{ascii_text}"


def _refusal(proto: Any, complaints: list[RejectedNode]) -> UnsupportedNodesError:
    """Return one error for all nodes that cannot be taken."""
    lines = list(_lines(complaints))
    count = len(complaints)
    what = "one node" if count == 1 else f"{count} nodes"
    return UnsupportedNodesError(
        OP,
        f"cannot take {what} of {proto.graph.name or 'the graph'}",
        because="\n           ".join(lines),
        help=tuple(dict.fromkeys(one.help for one in complaints if one.help)),
    )


def _lines(complaints: list[RejectedNode]) -> Iterator[str]:
    for one in complaints:
        yield f"{one.op} {one.node}: {one.because}"
