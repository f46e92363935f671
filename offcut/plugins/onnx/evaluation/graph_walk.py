"""The nodes of an ONNX graph, in order, into ours.

A node is evaluated where its inputs are known; else it is what the table says; else the body that ONNX gives it as a function,
which is walked likewise. What cannot be taken is collected, so that all of it is said at once.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import onnx
from onnx import helper, numpy_helper

from offcut.core.expr import Expr
from offcut.plugins.onnx.evaluation.constant_evaluation import evaluate_node
from offcut.plugins.onnx.evaluation.control_flow import run_loop, run_scan, run_sequence_map
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    KnownArray,
    Operand,
    UnsupportedNode,
    code_of,
    format_values,
    name_of,
)
from offcut.plugins.onnx.importer.size_facts import FactsRequired
from offcut.plugins.onnx.importer.unification import facts_said, sizes_help, solve
from offcut.plugins.onnx.rules.elementwise import Operator
from offcut.plugins.onnx.tables.table import CONTRIBUTED, TABLE

LOOPS = {"Loop": run_loop, "Scan": run_scan, "SequenceMap": run_sequence_map}
STANDARD = ("", "ai.onnx")
RUNTIME = "com.microsoft"


@dataclass(frozen=True)
class RejectedNode:
    """A node that was refused.

    node  its name and operator, as a reader finds it in the file
    """

    node: str
    op: str
    because: str
    help: str


@dataclass(frozen=True)
class Scope:
    """Where nodes are: what names mean there.

    values      by name; None: a node that was refused gives it
    attributes  of the call of the function whose body this is
    versions    of the operator sets, by domain
    """

    values: MutableMapping[str, Operand | None]
    versions: Mapping[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    within: str = ""


Side: TypeAlias = "tuple[Any, ...] | FactsRequired | list[RejectedNode]"
"""What becomes of a branch: its results, what it wants of sizes, or what of it cannot be taken."""


class Walk:
    """An import under way.

    context    what is built
    functions  of the model, by domain and name
    """

    def __init__(self, context: Context, functions: Mapping[tuple[str, str], Any]) -> None:
        self.context, self.functions = context, functions
        self.complaints: list[RejectedNode] = []

    def nodes(self, nodes: Sequence[Any], scope: Scope) -> None:
        """Take nodes in order; results of those that are refused are None."""
        for node in nodes:
            inputs = [scope.values.get(name) if name else None for name in node.input]
            is_incomplete = any(
                name and one is None for name, one in zip(node.input, inputs, strict=True)
            )
            outputs: Sequence[Operand | None] = [None] * len(node.output)
            if not is_incomplete:
                try:
                    outputs = self.node(node, inputs, scope)
                except UnsupportedNode as refused:
                    solve(self.context, refused.equations)
                    help = refused.help or sizes_help(self.context, refused.equations)
                    place = f"{scope.within}{node.name or node.output[0]}"
                    self.complaints.append(RejectedNode(place, node.op_type, refused.because, help))
            for name, one in zip(node.output, (*outputs, *[None] * len(node.output)), strict=False):
                if name:
                    scope.values[name] = one

    def node(self, node: Any, inputs: Sequence[Operand | None], scope: Scope) -> Sequence[Any]:
        """What a node gives.

        Raises Refused.
        """
        for name in (node.op_type, *(one.name for one in node.attribute)):
            if isinstance(name, bytes):
                raise UnsupportedNode(f"the name {name!r} is not text in UTF-8")
        bound = _with_own_attributes(node, scope.attributes)
        attributes = {one.name: attribute(one) for one in bound.attribute}
        own = self.functions.get((node.domain, node.op_type))
        if own is not None:
            return self.function(own, bound, inputs, scope)
        version = scope.versions.get("", 1)
        call = Call(node.op_type, tuple(inputs), attributes, len(node.output), version, bound)
        if node.domain == RUNTIME and node.op_type in CONTRIBUTED:
            return self.results_of_rule(CONTRIBUTED[node.op_type], call)
        if node.domain not in STANDARD:
            if node.domain == RUNTIME:
                raise UnsupportedNode(
                    "the operator of onnxruntime is not supported", "a model-local function"
                )
            raise UnsupportedNode(
                f"operators of {node.domain} are not ours", "a model-local function"
            )
        if node.op_type == "If":
            return self.branch(attributes, inputs, scope)
        if node.op_type in LOOPS:
            return self.loop(call, scope)
        mark = self.mark()
        results_at_import = evaluate_node(self.context, call)
        if results_at_import is not None:
            return results_at_import
        rule = TABLE.get(node.op_type)
        refused = UnsupportedNode("the operator is not supported")
        if rule is not None:
            try:
                return self.results_of_rule(rule, call)
            except UnsupportedNode as why:
                solve(self.context, why.equations)
                refused = why
                self.undo(mark)
        body = self.body(call)
        if body is None:
            raise refused
        before = len(self.complaints)
        results = self.function(body, _with_defaults(bound, call), inputs, scope)
        if (
            any(one is None and name for one, name in zip(results, node.output, strict=False))
            or len(self.complaints) > before
        ):
            inner = self.complaints[before:]
            del self.complaints[before:]
            self.undo(mark)
            if rule is not None or not inner:
                raise refused
            first = inner[0]
            raise UnsupportedNode(f"its body needs {first.op}: {first.because}", first.help)
        return results

    def results_of_rule(self, rule: Operator, call: Call) -> Sequence[Operand | None]:
        """What a rule gives.

        Raises Refused where it overlooks what is given.
        """
        results = rule(self.context, call)
        if call.overlooked:
            raise UnsupportedNode(f"{call.overlooked} of it is not supported")
        return results if isinstance(results, tuple) else (results,)

    def mark(self) -> tuple[int, frozenset[str]]:
        """How far the graph is."""
        return len(self.context.builder.nodes), frozenset(self.context.builder.values)

    def undo(self, mark: tuple[int, frozenset[str]]) -> None:
        """Forget what was made since."""
        count, names = mark
        builder = self.context.builder
        del builder.nodes[count:]
        for name in [name for name in builder.values if name not in names]:
            del builder.values[name]
            builder.constants.pop(name, None)
            builder.arrays.pop(name, None)
        refs = self.context.held
        for key in [key for key, (_, ref) in refs.items() if ref.name not in names]:
            del refs[key]

    def function(
        self, body: Any, node: Any, inputs: Sequence[Operand | None], scope: Scope
    ) -> Sequence[Operand | None]:
        """The results of a function: its body is walked.

        Raises Refused where it has fewer inputs or outputs, and where none of its nodes gives one of its outputs that is asked for.
        """
        for what, there, names in (
            ("inputs", body.input, inputs),
            ("outputs", body.output, node.output),
        ):
            if len(names) > len(there):
                raise UnsupportedNode(
                    f"{what} of the function {body.name}: {len(there)}, not {len(names)}"
                )
        defaults = {one.name: one for one in body.attribute_proto}
        attributes = {**defaults, **{one.name: one for one in node.attribute}}
        values: dict[str, Operand | None] = dict(zip(body.input, inputs, strict=False))
        values |= {name: None for name in body.input if name not in values}
        versions = {one.domain: one.version for one in body.opset_import} or scope.versions
        label = f"{scope.within}{node.name or node.op_type}/"
        inner = Scope(values, versions, attributes, label)
        self.nodes(_with_present(body.node, values), inner)
        for name, names in zip(body.output, node.output, strict=False):
            if names and name not in values:
                raise UnsupportedNode(f"no node of the function {body.name} gives {name}")
        return [values.get(name) for name in body.output]

    def body(self, call: Call) -> Any:
        """The function that ONNX defines an operator as; None where there is none."""
        if not onnx.defs.has(call.op):
            return None
        schema = onnx.defs.get_schema(call.op, call.version)
        version = _body_version(schema.function_opset_versions, call.version)
        if version is not None:
            return _function(schema.get_function_with_opset_version(version))
        every = schema.context_dependent_function_opset_versions
        version = _body_version(every, call.version)
        if version is not None:
            types = [self.type_of(one).SerializeToString() for one in call.inputs]
            node = call.proto.SerializeToString()
            return _function(
                schema.get_context_dependent_function_with_opset_version(version, node, types)
            )
        return None

    def type_of(self, operand: Operand | None) -> Any:
        """The type of an operand, as ONNX writes it; symbolic extents are left open."""
        if operand is None:
            return onnx.TypeProto()
        dtype = self.context.dtype(operand)
        shape = [None if isinstance(one, Expr) else one for one in self.context.shape(operand)]
        return helper.make_tensor_type_proto(code_of(dtype), shape)

    def branch(
        self, attributes: Mapping[str, Any], inputs: Sequence[Operand | None], scope: Scope
    ) -> Sequence[Operand | None]:
        """The results of If: of the branch that is taken, or both chosen from where only a call tells."""
        (condition,) = inputs
        assert condition is not None
        if isinstance(condition, KnownArray) and condition.array.size != 1:
            raise UnsupportedNode(f"its condition has {condition.array.size} elements", "one")
        if isinstance(condition, KnownArray) and not condition.symbolic:
            body = attributes["then_branch" if condition.array.item() else "else_branch"]
            return self.inner(body, scope)
        both = [
            self.side(attributes[name], scope, condition) for name in ("then_branch", "else_branch")
        ]
        requests = [one for one in both if isinstance(one, FactsRequired)]
        if len(requests) == 2 and requests[0].facts != requests[1].facts:
            facts = " and ".join(facts_said(self.context, one.facts) for one in requests)
            raise UnsupportedNode(
                f"its branches want {facts}, and its condition is not known at import",
                self.known_by(condition),
            )
        if requests:
            raise requests[0]
        if any(isinstance(one, list) for one in both):
            return self.one_side(both, condition)
        results: list[Operand | None] = []
        for one, other in zip(*both, strict=True):
            shapes = self.context.shape(one), self.context.shape(other)
            if shapes[0] != shapes[1]:
                raise UnsupportedNode(
                    f"its branches give shapes ({format_values(*shapes[0])}) and "
                    f"({format_values(*shapes[1])}), and its condition is not known at import",
                    self.known_by(condition),
                )
            results.append(self.context.op("where", condition, one, other))
        return results

    def side(self, graph: Any, scope: Scope, condition: Operand) -> Side:
        """Return the results of a branch; what it wants of sizes; or what of it cannot be taken, of which nothing is left."""
        before, mark = len(self.complaints), self.mark()
        try:
            results = self.inner(graph, scope)
        except FactsRequired as request:
            return request
        complaints = self.complaints[before:]
        if not complaints:
            return tuple(results)
        del self.complaints[before:]
        self.undo(mark)
        help = self.known_by(condition)
        return [replace(one, help=one.help or help) for one in complaints]

    def one_side(self, both: Sequence[Side], condition: Operand) -> Sequence[Operand | None]:
        """Return the results of the branch that can be taken: a call that goes into the other is refused; where there is none, what cannot be taken
        of both is a complaint.
        """
        g = self.context
        for then, one in zip((True, False), both, strict=True):
            if isinstance(one, tuple):
                holds = condition if then else g.op("logical_not", condition)
                alone = g.reshape(holds, [])
                return [g.require(each, g.broadcast(alone, g.shape(each))) for each in one]
        for one in both:
            self.complaints += one if isinstance(one, list) else []
        return []

    def known_by(self, condition: Operand) -> str:
        """Return what makes a condition known at import, in words."""
        builder = self.context.builder
        makers = {value.name: node for node in builder.nodes for value in node.results}
        pending, read = [self.context.ref(condition).name], dict[str, None]()
        while pending:
            name = pending.pop()
            node = makers.get(name)
            if node is not None:
                pending += node.operands
            elif name not in builder.constants:
                read[name] = None
        arguments = ", ".join(f'"{name}": array' for name in read)
        return (
            f"from_onnx(…, constants={{{arguments}}}) where a call never changes it" if read else ""
        )

    def loop(self, call: Call, scope: Scope) -> Sequence[Any]:
        """The results of Scan, Loop or SequenceMap: its steps, one after the other.

        Raises Refused where there are too many, or how many is not known.
        """
        before, mark = len(self.complaints), self.mark()

        def walk(graph: Any, inputs: Mapping[str, Operand | None]) -> Sequence[Operand | None]:
            return self.inner(graph, scope, inputs)

        try:
            results = LOOPS[call.op](self.context, call, walk)
        except UnsupportedNode as refused:
            inner = self.complaints[before:]
            del self.complaints[before:]
            self.undo(mark)
            if inner:
                first = inner[0]
                text = f"its body needs {first.op}: {first.because}"
                raise UnsupportedNode(text, first.help) from None
            raise refused from None
        return results if isinstance(results, tuple) else (results,)

    def inner(
        self, graph: Any, scope: Scope, inputs: Mapping[str, Operand | None] | None = None
    ) -> Sequence[Operand | None]:
        """The outputs of a graph inside a node, which sees the values around it."""
        values = {**scope.values, **(inputs or {})}
        for tensor in graph.initializer:
            values[tensor.name] = of_tensor(tensor)
        inner = Scope(values, scope.versions, scope.attributes, scope.within)
        self.nodes(graph.node, inner)
        return [values.get(one.name) for one in graph.output]


def _body_version(versions: Sequence[int], version: int) -> int | None:
    """Return the version of the operator set in which a body is taken: the newest up to that of the file, else the oldest; None for none."""
    return max((one for one in versions if one <= version), default=min(versions, default=None))


def _function(text: bytes) -> Any:
    """A function; None where ONNX writes none for these types."""
    function = onnx.FunctionProto.FromString(text)
    return function if function.node else None


def _with_defaults(node: Any, call: Call) -> Any:
    """A node with the attributes that it leaves at their defaults."""
    copy = type(node)()
    copy.CopyFrom(node)
    for name, one in onnx.defs.get_schema(call.op, call.version).attributes.items():
        if name not in call.attributes and one.default_value.name:
            copy.attribute.append(one.default_value)
    return copy


def _with_present(nodes: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
    """Nodes that name no input which is left out."""
    absent = {name for name, one in values.items() if one is None}
    if not absent:
        return list(nodes)
    copies = []
    for node in nodes:
        copy = type(node)()
        copy.CopyFrom(node)
        for place, name in enumerate(copy.input):
            if name in absent:
                copy.input[place] = ""
        copies.append(copy)
    return copies


def _with_own_attributes(node: Any, attributes: Mapping[str, Any]) -> Any:
    """A node whose attributes are its own, none a reference to those of a function."""
    if not any(one.ref_attr_name for one in node.attribute):
        return node
    copy = type(node)()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for one in node.attribute:
        value = attributes.get(one.ref_attr_name) if one.ref_attr_name else one
        if value is not None:
            own = copy.attribute.add()
            own.CopyFrom(value)
            own.name = one.name
    return copy


def attribute(proto: Any) -> Any:
    """The value of an attribute; texts as Python's, tensors as arrays."""
    value = helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, onnx.TensorProto):
        return _array(value)
    if isinstance(value, onnx.GraphProto):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in value]
    return value


def of_tensor(tensor: Any) -> KnownArray:
    """A tensor of a file as a known array.

    Raises Refused where its bytes are not what its type and its shape say.
    """
    return of_array(_array(tensor))


def of_array(array: Any) -> KnownArray:
    """A known array."""
    return KnownArray(array, str(array.dtype))


def _array(tensor: Any) -> Any:
    try:
        return numpy_helper.to_array(tensor)
    except KeyError:  # the number of its type
        raise UnsupportedNode(f"there is no element type {tensor.data_type}") from None
    except (TypeError, ValueError) as error:  # numpy's
        shape = f"{name_of(tensor.data_type)}[{', '.join(map(str, tensor.dims))}]"
        raise UnsupportedNode(f"it is not of {shape}: {error}") from None
