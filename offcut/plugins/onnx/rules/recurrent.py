"""RNN, LSTM and GRU: the recurrent layers of `offcut.ops`, of sequences of any length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from offcut.plugins.onnx.making.context import Context
from offcut.plugins.onnx.making.operands import Call, Operand, Refused, Results
from offcut.plugins.onnx.rules.elementwise import Operator
from offcut.plugins.onnx.rules.shapes import unsqueezed

FUNCTIONS = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu"}


@dataclass(frozen=True)
class Cell:
    """One direction of a layer.

    x        (steps, batch, e); `turned`: (batch, steps, e)
    w, r     weights, gates one after the other: (gates * hidden, …); b: both biases of these, or None
    states   what is known before the first step, None for zeros
    options  of the operator: its functions, where it is cut, lengths, whether it goes backwards
    """

    x: Operand
    turned: bool
    w: Operand
    r: Operand
    b: tuple[Operand, Operand] | None
    states: Mapping[str, Operand | None]
    hidden: int
    options: Mapping[str, Any]

    def multiplied(self, g: Context, bias: Operand | None) -> Operand:
        """The input times its weights, for all steps: (steps, batch, gates * hidden)."""
        given = {} if bias is None else {"bias": bias}
        made = g.op("dense", self.x, self.w, transpose_w=True, **given)
        return g.transpose(made, [1, 0, 2]) if self.turned else made

    def run(self, g: Context, op: str, x: Operand, r: Operand, **more: Any) -> tuple[Operand, ...]:
        """The states after each step, and those after the last."""
        given = {**self.states, **self.options, **more}
        return g.several(op, x, r, **{k: one for k, one in given.items() if one is not None})


def _joined(g: Context, bias: tuple[Operand, Operand] | None) -> Operand | None:
    return None if bias is None else g.binary("add", *bias)


def _simple(g: Context, cell: Cell, call: Call) -> tuple[Operand, ...]:
    options = dict(cell.options)
    (activation,) = options.pop("activations")
    own = Cell(**{**cell.__dict__, "options": options})
    return own.run(g, "rnn", own.multiplied(g, _joined(g, own.b)), own.r, activation=activation)


def lstm_step(g: Context, cell: Cell, call: Call) -> tuple[Operand, ...]:
    """Gates in the order input, output, forget, cell."""
    return cell.run(g, "lstm", cell.multiplied(g, _joined(g, cell.b)), cell.r, gates="iofg")


def _gru(g: Context, cell: Cell, call: Call) -> tuple[Operand, ...]:
    """Gates in the order update, reset, hidden."""
    gates, rows = 2 * cell.hidden, 3 * cell.hidden
    if not call.get("linear_before_reset", 0):
        first, after = g.slice(cell.r, 0, 0, gates), g.slice(cell.r, 0, gates, rows)
        found = cell.multiplied(g, _joined(g, cell.b))
        return cell.run(g, "gru", found, first, gates="zrn", after=after)
    if cell.b is None:
        return cell.run(g, "gru", cell.multiplied(g, None), cell.r, gates="zrn")
    parts = [(g.slice(b, 0, 0, gates), g.slice(b, 0, gates, rows)) for b in cell.b]
    bias = g.op("concat", (g.binary("add", parts[0][0], parts[1][0]), parts[0][1]), axis=0)
    found = cell.multiplied(g, bias)
    return cell.run(g, "gru", found, cell.r, gates="zrn", bias=parts[1][1])


Weights: TypeAlias = Callable[[Context, Call, int], tuple[Operand, Operand, Mapping[str, Any]]]
"""Return the weights of the input and of the state in a direction, (gates * hidden, columns), and further options of the operator."""


def _float_weights(g: Context, call: Call, n: int) -> tuple[Operand, Operand, Mapping[str, Any]]:
    return row(g, call[1], n), row(g, call[2], n), {}


def layer(
    gates: int,
    functions: Sequence[str],
    step: Callable[[Context, Cell, Call], tuple[Operand, ...]],
    memory: bool = False,
    weights: Weights = _float_weights,
    prepare: Callable[[Context, Operand], Operand] = lambda _, x: x,
) -> Operator:
    """Return the rule of a layer of one direction or two.

    memory   whether it keeps a second state
    prepare  what the input becomes before it is multiplied
    """

    def rule(g: Context, call: Call) -> Results:
        x, b, lengths = prepare(g, call[0]), call.input(3), call.input(4)
        call.overlook("hidden_size", "output_sequence")
        if call.get("input_forget", 0):
            raise Refused("input_forget=1", "input_forget=0")
        if call.get("activation_alpha") or call.get("activation_beta"):
            raise Refused("activations with parameters", "Sigmoid, Tanh or Relu")
        turned = bool(call.get("layout", 0))
        kinds = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        directions = kinds[call.get("direction", "forward")]
        names = call.get("activations") or list(functions) * len(directions)
        per = len(names) // len(directions)
        runs = []
        for n, back in enumerate(directions):
            bias = None if b is None else row(g, b, n)
            states = {"h": _start(g, call, n, 5)}
            if memory:
                states["c"] = _start(g, call, n, 6)
            options = {
                "activations": tuple(map(_function, names[n * per : (n + 1) * per])),
                "clip": call.get("clip"),
                "lengths": lengths,
                "reverse": back or None,
                "peepholes": None if not memory or call.input(7) is None else row(g, call[7], n),
            }
            w, r, more = weights(g, call, n)
            options |= more
            hidden = g.whole(g.shape(r)[1], "the hidden size")
            size = gates * hidden
            cell = Cell(
                x,
                turned,
                w,
                r,
                None if bias is None else (g.slice(bias, 0, 0, size), g.slice(bias, 0, size, 2 * size)),
                states,
                hidden,
                options,
            )  # fmt: skip
            runs.append(step(g, cell, call))
        return _results(g, runs, turned)

    return rule


def _function(name: str) -> str:
    own = FUNCTIONS.get(name.lower())
    if own is None:
        raise Refused(f"the activation {name}", "Sigmoid, Tanh or Relu")
    return own


def row(g: Context, x: Operand, place: int) -> Operand:
    """Return one element along the first axis, which goes away."""
    return g.reshape(g.slice(x, 0, place, place + 1), g.shape(x)[1:])


def _start(g: Context, call: Call, n: int, place: int) -> Operand | None:
    """The state before the first step; None where it is zeros."""
    given = call.input(place)
    if given is None or g.is_zero(given):
        return None
    if call.get("layout", 0):
        given = g.transpose(given, [1, 0, 2])
    return row(g, given, n)


def _results(g: Context, runs: Sequence[tuple[Operand, ...]], turned: bool) -> Results:
    """(steps, directions, batch, hidden), and (directions, batch, hidden) of each state; `turned`: batches first."""

    def joined(parts: Sequence[Operand], axis: int) -> Operand:
        apart = tuple(unsqueezed(g, one, [axis]) for one in parts)
        return g.op("concat", apart, axis=axis) if len(apart) > 1 else apart[0]

    every, *states = zip(*runs, strict=True)
    sequence, last = joined(every, 1), [joined(one, 0) for one in states]
    if not turned:
        return (sequence, *last)
    return (g.transpose(sequence, [2, 0, 1, 3]), *(g.transpose(one, [1, 0, 2]) for one in last))


RECURRENT: Mapping[str, Operator] = {
    "GRU": layer(3, ("Sigmoid", "Tanh"), _gru),
    "LSTM": layer(4, ("Sigmoid", "Tanh", "Tanh"), lstm_step, memory=True),
    "RNN": layer(1, ("Tanh",), _simple),
}
