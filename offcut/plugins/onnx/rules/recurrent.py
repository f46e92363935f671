"""RNN, LSTM and GRU: the recurrent layers of `offcut.ops`, of sequences of any length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import Call, Operand, Results, UnsupportedNode
from offcut.plugins.onnx.rules.elementwise import Operator
from offcut.plugins.onnx.rules.shapes import emit_unsqueeze
from offcut.plugins.operators.lines import recurrence

FUNCTIONS = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu"}


GATES = {"lstm": "iofg", "gru": "zrn"}
"""The order of gates in weights: input, output, forget, cell; update, reset, hidden."""


Weights: TypeAlias = Callable[[Context, Call, int], tuple[Operand, Operand, dict[str, Any]]]
"""Return the weights of the input and of the state in a direction, (gates * hidden, columns), and further options of the operator."""


def _float_weights(g: Context, call: Call, n: int) -> tuple[Operand, Operand, dict[str, Any]]:
    return row(g, call[1], n), row(g, call[2], n), {}


def layer(
    kind: str,
    gates: int,
    functions: Sequence[str],
    weights: Weights = _float_weights,
    prepare: Callable[[Context, Operand], Operand] = lambda _, x: x,
) -> Operator:
    """Return the rule of a layer of one direction or two.

    kind     rnn, lstm or gru
    prepare  what the input becomes before it is multiplied
    """

    def rule(g: Context, call: Call) -> Results:
        x, b, lengths = prepare(g, call[0]), call.input(3), call.input(4)
        call.overlook("hidden_size", "output_sequence")
        if call.get("input_forget", 0):
            raise UnsupportedNode("input_forget=1", "input_forget=0")
        if call.get("activation_alpha") or call.get("activation_beta"):
            raise UnsupportedNode("activations with parameters", "Sigmoid, Tanh or Relu")
        is_batch_first = bool(call.get("layout", 0))
        kinds = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        directions = kinds[call.get("direction", "forward")]
        names = call.get("activations") or list(functions) * len(directions)
        per = len(names) // len(directions)
        runs = []
        for n, back in enumerate(directions):
            bias = None if b is None else row(g, b, n)
            activations = tuple(map(_function, names[n * per : (n + 1) * per]))
            w, r, options = weights(g, call, n)
            options |= {"gates": GATES.get(kind), "h": _start(g, call, n, 5)}
            hidden = g.whole(g.shape(r)[1], "the hidden size")
            size = gates * hidden
            if kind == "rnn":
                (options["activation"],) = activations
            else:
                options["activations"] = activations
            if kind == "lstm":
                options["c"] = _start(g, call, n, 6)
                options["peepholes"] = None if call.input(7) is None else row(g, call[7], n)
            if kind == "gru" and not call.get("linear_before_reset", 0):
                options["after"] = g.slice(r, 0, 2 * hidden, size)
                r = g.slice(r, 0, 0, 2 * hidden)
            halves = (0, size), (size, 2 * size)
            both = None if bias is None else [g.slice(bias, 0, *ends) for ends in halves]
            runs.append(
                recurrence(
                    g,
                    kind,
                    x,
                    w,
                    r,
                    None if both is None else (both[0], both[1]),
                    is_batch_first,
                    clip=call.get("clip"),
                    lengths=lengths,
                    reverse=back or None,
                    **options,
                )
            )
        return _results(g, runs, is_batch_first)

    return rule


def _function(name: str) -> str:
    own = FUNCTIONS.get(name.lower())
    if own is None:
        raise UnsupportedNode(f"the activation {name}", "Sigmoid, Tanh or Relu")
    return own


def row(g: Context, x: Operand, place: int) -> Operand:
    """Return one element along the first axis, which goes away."""
    return g.reshape(g.slice(x, 0, place, place + 1), g.shape(x)[1:])


def _start(g: Context, call: Call, n: int, place: int) -> Operand | None:
    """The state before the first step; None where it is zeros."""
    state = call.input(place)
    if state is None or g.is_zero(state):
        return None
    if call.get("layout", 0):
        state = g.transpose(state, [1, 0, 2])
    return row(g, state, n)


def _results(g: Context, runs: Sequence[tuple[Operand, ...]], is_batch_first: bool) -> Results:
    """(steps, directions, batch, hidden), and (directions, batch, hidden) of each state; `is_batch_first`: batches first."""

    def join(parts: Sequence[Operand], axis: int) -> Operand:
        apart = tuple(emit_unsqueeze(g, one, [axis]) for one in parts)
        return g.op("concat", apart, axis=axis) if len(apart) > 1 else apart[0]

    every, *states = zip(*runs, strict=True)
    sequence, last = join(every, 1), [join(one, 0) for one in states]
    if not is_batch_first:
        return (sequence, *last)
    return (g.transpose(sequence, [2, 0, 1, 3]), *(g.transpose(one, [1, 0, 2]) for one in last))


RECURRENT: Mapping[str, Operator] = {
    "GRU": layer("gru", 3, ("Sigmoid", "Tanh")),
    "LSTM": layer("lstm", 4, ("Sigmoid", "Tanh", "Tanh")),
    "RNN": layer("rnn", 1, ("Tanh",)),
}
