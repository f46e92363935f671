"""RNN, LSTM and GRU: the recurrent layers of `offcut.ops`, of sequences of any length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offcut.plugins.onnx.making.context import Context
from offcut.plugins.onnx.making.operands import Call, Operand, Refused, Results
from offcut.plugins.onnx.rules.elementwise import Operator, scalar
from offcut.plugins.onnx.rules.reductions import reduced
from offcut.plugins.onnx.rules.shapes import unsqueezed
from offcut.plugins.onnx.tables.quantization import dequantized, quantize_dynamically

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


def _lstm(g: Context, cell: Cell, call: Call) -> tuple[Operand, ...]:
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


def _layer(
    gates: int,
    functions: Sequence[str],
    step: Callable[[Context, Cell, Call], tuple[Operand, ...]],
    memory: bool = False,
    of_bytes: bool = False,
) -> Operator:
    """A layer of one direction or two.

    memory    whether it keeps a second state
    of_bytes  whether weights are of 8 bits, (directions, columns, gates * hidden), with scales and zero points: the input is quantized as
              a whole and the state at each step, by their least and their greatest element, as onnxruntime does. Source: onnxruntime,
              docs/ContribOperators.md
    """

    def rule(g: Context, call: Call) -> Results:
        x, w, r, b, lengths = call[0], call[1], call[2], call.input(3), call.input(4)
        x = _quantized_input(g, x) if of_bytes else x
        call.overlook("hidden_size", "output_sequence")
        if call.get("input_forget", 0):
            raise Refused("input_forget=1", "input_forget=0")
        if call.get("activation_alpha") or call.get("activation_beta"):
            raise Refused("activations with parameters", "Sigmoid, Tanh or Relu")
        turned = bool(call.get("layout", 0))
        hidden = g.whole(g.shape(r)[1 if of_bytes else 2], "the hidden size")
        kinds = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        directions = kinds[call.get("direction", "forward")]
        names = call.get("activations") or list(functions) * len(directions)
        per, size = len(names) // len(directions), gates * hidden
        runs = []
        for n, back in enumerate(directions):
            bias = None if b is None else _row(g, b, n)
            states = {"h": _start(g, call, n, 5)}
            if memory:
                states["c"] = _start(g, call, n, 6)
            options = {
                "activations": tuple(map(_function, names[n * per : (n + 1) * per])),
                "clip": call.get("clip"),
                "lengths": lengths,
                "reverse": back or None,
                "peepholes": None if not memory or call.input(7) is None else _row(g, call[7], n),
            }
            if of_bytes:
                own_w = dequantized(g, *_byte_weights(g, call, n, 1, 8), 0)
                own_r, more = _byte_state(g, call, n)
                options |= more
            else:
                own_w, own_r = _row(g, w, n), _row(g, r, n)
            cell = Cell(
                x,
                turned,
                own_w,
                own_r,
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


def _row(g: Context, x: Operand, place: int) -> Operand:
    return g.reshape(g.slice(x, 0, place, place + 1), g.shape(x)[1:])


def _start(g: Context, call: Call, n: int, place: int) -> Operand | None:
    """The state before the first step; None where it is zeros."""
    given = call.input(place)
    if given is None or g.is_zero(given):
        return None
    if call.get("layout", 0):
        given = g.transpose(given, [1, 0, 2])
    return _row(g, given, n)


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


def _quantized_input(g: Context, x: Operand) -> Operand:
    """Return the floats that the input stands for once it is quantized as a whole, by its least and its greatest element."""
    data, scale, zero = quantize_dynamically(g, x)
    return dequantized(g, data, scale, zero, 0)


def _byte_weights(
    g: Context, call: Call, n: int, place: int, beside: int
) -> tuple[Operand, Operand, Operand | None]:
    """Return the weights of a direction, gates one after the other, (gates * hidden, columns), their scale and their zero point.

    beside  the place of the scale among the inputs, before that of the zero point; each is one number, or one for each row
    """
    zero = call.input(beside + 1)
    weights = g.transpose(_row(g, call[place], n), [1, 0])
    return weights, _row(g, call[beside], n), None if zero is None else _row(g, zero, n)


def _byte_state(g: Context, call: Call, n: int) -> tuple[Operand, dict[str, Operand | None]]:
    """Return the weights of the state in int8, and the options that say what they stand for."""
    r, scale, zero = _byte_weights(g, call, n, 2, 10)
    rows = g.shape(r)[:1]
    point = None
    if zero is not None and not g.is_zero(zero):
        point = g.broadcast(g.cast(zero, "int32"), rows)
    if g.dtype(r) == "uint8":
        r = g.cast(scalar(g, "subtract", g.cast(r, "int32"), 128), "int8")
        point = g.full(rows, -128, "int32") if point is None else scalar(g, "subtract", point, 128)
    sums = reduced(g, "sum", g.cast(r, "int32"), [1], False)
    if point is not None:
        columns = g.whole(g.shape(r)[1], "the hidden size")
        sums = g.binary("subtract", sums, scalar(g, "multiply", point, columns))
    return r, {"scale": g.broadcast(scale, rows), "sums": sums, "zero": point}


RECURRENT: Mapping[str, Operator] = {
    "GRU": _layer(3, ("Sigmoid", "Tanh"), _gru),
    "LSTM": _layer(4, ("Sigmoid", "Tanh", "Tanh"), _lstm, memory=True),
    "RNN": _layer(1, ("Tanh",), _simple),
}

dynamic_lstm: Operator = _layer(4, ("Sigmoid", "Tanh", "Tanh"), _lstm, memory=True, of_bytes=True)
"""``DynamicQuantizeLSTM`` of onnxruntime."""
