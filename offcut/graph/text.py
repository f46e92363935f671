"""Graphs as text, and back: ``parse_graph(str(graph)) == graph``.

    graph mlp
    size batch in 1:513
    input x: float32[batch, 16]
    constant w: float32[9, 16]
    y: float32[batch, 9] = dense(x, w, activation="relu", transpose_w=true)
    output y

An argument is a value, a number, ``true``, ``false``, ``none``, a text in double quotes, an index expression over sizes, or
several in brackets. The types of results are inferred, and compared with those that are written.
"""

from __future__ import annotations

import json

from offcut.core.dtypes import DTYPES
from offcut.core.expr import Const, Expr
from offcut.core.program import Kind
from offcut.core.text.declarations import Declarations
from offcut.core.text.expressions import Reader
from offcut.core.text.printer import format_expr, format_size
from offcut.core.text.tokens import Line, read_lines
from offcut.errors import DescribeError, ParseError
from offcut.graph.graph import Argument, Graph, Node, Ref, Value
from offcut.graph.sizes.extents import normal
from offcut.graph.tensor_semantics import infer_types

_MAX_BRACKETS = 20
_WORDS: dict[str, Argument] = {"true": True, "false": False, "none": None}


def format_graph(graph: Graph) -> str:
    """The lines of a graph."""
    lines = [f"graph {graph.name}", *map(format_size, graph.sizes)]
    lines += [f"assume {format_expr(condition)}" for condition in graph.assumptions]
    lines += [f"input {format_value(value)}" for value in graph.inputs]
    lines += [f"constant {format_value(value)}" for value in graph.constants]
    lines += map(format_node, graph.nodes)
    return "\n".join([*lines, f"output {', '.join(graph.outputs)}"])


def format_value(value: Value) -> str:
    """``name: dtype[shape]``."""
    return f"{value.name}: {value.dtype}[{', '.join(map(format_expr, value.shape))}]"


def format_node(node: Node) -> str:
    """``results = op(arguments)``."""
    words = [*map(format_argument, node.arguments)]
    words += [f"{name}={format_argument(value)}" for name, value in node.options]
    return f"{', '.join(map(format_value, node.results))} = {node.op}({', '.join(words)})"


def format_argument(argument: Argument) -> str:
    """An argument as the parser reads it."""
    match argument:
        case Ref(name):
            return name
        case None | bool():
            return next(word for word, value in _WORDS.items() if value is argument)
        case str():
            return json.dumps(argument, ensure_ascii=False)
        case float():
            return repr(argument)
        case int():
            return str(argument)
        case tuple():
            return f"[{', '.join(map(format_argument, argument))}]"
        case _:
            return format_expr(argument)


def parse_graph(text: str) -> Graph:
    """The graph that a text says, with one output at least.

    Raises ParseError, with the line, for what is none, or where a type is not what the operator gives.
    """
    if not isinstance(text, str):
        raise ParseError("parse", f"cannot read {text!r}", because="a graph is read from a text")
    graph = _Lines(read_lines(text)).graph()
    if not graph.outputs:
        raise ParseError(
            "parse",
            f"cannot take the graph {graph.name}",
            because="it gives nothing back",
            help=("output y",),
        )
    return graph


class _Lines(Declarations):
    """The lines of a graph, from top to bottom."""

    def __init__(self, lines: list[Line]) -> None:
        super().__init__(lines)
        self.nodes: list[Node] = []
        self.outputs: list[str] = []
        self.values: dict[str, Value] = {}

    def graph(self) -> Graph:
        words = {"graph": self.header, "size": self.size, "assume": self.assumption}
        words |= {"input": self.declaration, "constant": self.declaration, "output": self.output}
        while self.line is not None:
            reader = self.reader(self.line, frozenset(self.sizes), readable=False)
            follows = reader.following().text
            if reader.token.text in words and follows not in (":", "=", ","):
                words[reader.token.text](reader)
                reader.finish()
                self._declare()
            else:
                self.node(reader)
                reader.finish()
            self.position += 1
        values = self.values
        kinds = {name: buffer.kind for name, buffer in self.buffers.items()}
        return Graph(
            self.name or "graph",
            tuple(self.sizes.values()),
            tuple(self.assumptions),
            tuple(values[name] for name, kind in kinds.items() if kind is Kind.INPUT),
            tuple(values[name] for name, kind in kinds.items() if kind is Kind.CONSTANT),
            tuple(self.nodes),
            tuple(self.outputs),
        )

    def _declare(self) -> None:
        """Take what a line declared among the values."""
        for name, buffer in self.buffers.items():
            if name not in self.values:
                self.values[name] = Value(name, buffer.dtype, tuple(map(normal, buffer.shape)))

    def output(self, reader: Reader) -> None:
        """``output y, z``."""
        reader.advance()
        while True:
            self.outputs.append(self.value(reader).name)
            if not reader.accept(","):
                break

    def value(self, reader: Reader) -> Ref:
        """The name of a value that is there."""
        column, name = reader.token.start, reader.name("a value")
        if name not in self.values:
            raise reader.refuse(
                f"cannot read the value {name}", "no line before gives it", column=column
            )
        return Ref(name)

    def node(self, reader: Reader) -> None:
        """``y: float32[n] = relu(x)``."""
        results = [self.result(reader)]
        while reader.accept(","):
            results.append(self.result(reader))
        reader.expect("=")
        column, op = reader.token.start, reader.name("an operator")
        bracket = reader.expect("(")
        arguments: list[Argument] = []
        options: dict[str, Argument] = {}
        while not reader.at(")"):
            if reader.token.kind == "name" and reader.following().text == "=":
                name = reader.name("an option")
                reader.expect("=")
                options[name] = self.argument(reader)
            else:
                arguments.append(self.argument(reader))
            if not reader.accept(","):
                break
        reader.close(bracket, ")")
        sorted_options = tuple(sorted(options.items()))
        sizes = tuple(self.sizes.values())
        try:
            types = infer_types(op, tuple(arguments), sorted_options, self.values, sizes)
        except DescribeError as refused:
            why = " ".join(str(refused).split())
            raise reader.refuse(f"cannot apply {op} so", why, column=column) from None
        typed_results = tuple(
            Value(value.name, dtype, shape)
            for value, (dtype, shape) in zip(results, types, strict=False)
        )
        if typed_results != tuple(results) or len(types) != len(results):
            text = ", ".join(format_value(Value("", *one))[2:] for one in types)
            raise reader.refuse(
                f"cannot take the result of {op} so", f"it is {text}", column=column
            )
        self.values.update((value.name, value) for value in typed_results)
        self.nodes.append(Node(typed_results, op, tuple(arguments), sorted_options))

    def result(self, reader: Reader) -> Value:
        """``y: float32[n]``."""
        column, name = reader.token.start, reader.name("a name for a result")
        if name in self.values or name in self.sizes:
            raise reader.refuse(
                f"cannot name a result {name}", "the name is taken already", column=column
            )
        reader.expect(":")
        dtype = reader.advance().text
        if dtype not in DTYPES:
            raise reader.refuse(
                f"cannot hold {dtype!r}", f"element types are {', '.join(DTYPES)}", column=column
            )
        extents = reader.comma_list(reader.expect("["), "]")
        shape = tuple(
            normal(reader.expression_of_type(one, "index", "an extent")) for one in extents
        )
        return Value(name, dtype, shape)

    def argument(self, reader: Reader, depth: int = 0) -> Argument:
        """A value, a number, a word, a text, an expression, or several in brackets."""
        token = reader.token
        if depth > _MAX_BRACKETS:
            raise reader.refuse(
                "cannot read an argument so deep", f"more than {_MAX_BRACKETS} brackets are nested"
            )
        if reader.accept("["):
            parts: list[Argument] = []
            while not reader.at("]"):
                parts.append(self.argument(reader, depth + 1))
                if not reader.accept(","):
                    break
            reader.close(token, "]")
            return tuple(parts)
        if token.kind == "string":
            text: str = json.loads(reader.advance().text)
            return text
        if token.text in _WORDS:
            return _WORDS[reader.advance().text]
        if token.kind == "name" and token.text in self.values:
            return self.value(reader)
        literal = self.number(reader)
        if literal is not None:
            return literal
        expr: Expr = normal(reader.index())
        return int(expr.value) if isinstance(expr, Const) else expr

    def number(self, reader: Reader) -> int | float | None:
        """A number that is no part of an expression; None where there is none."""
        place = reader.position
        negative = reader.accept("-")
        token = reader.token
        literal: int | float | None = None
        if token.text in ("inf", "nan"):
            literal = float(reader.advance().text) * (-1 if negative else 1)
        elif token.kind == "number":
            literal = reader.number(reader.advance(), negative, token.start)
        if literal is None or reader.token.text not in (",", ")", "]"):
            reader.position = place
            return None
        return literal
