"""RNN, LSTM and GRU: a step for each element of a sequence of known length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from offcut.plugins.onnx.context import Context
from offcut.plugins.onnx.elementwise import Operator
from offcut.plugins.onnx.operands import Call, Operand, Refused, Results

LONGEST = 256

FUNCTIONS = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu"}


@dataclass(frozen=True)
class Cell:
    """One direction of a layer.

    x        (steps, batch, e), in the order in which it is read
    h, c     what is known before the first step
    w, r     weights, gates one after the other: (gates * hidden, …); b: both biases of these, or None
    peeps    of an LSTM, (3 * hidden,)
    """

    x: Operand
    h: Operand
    c: Operand | None
    w: Operand
    r: Operand
    b: tuple[Operand, Operand] | None
    peeps: Operand | None
    hidden: int
    functions: Sequence[Callable[[Operand], Operand]]


def _function(g: Context, name: str, clip: float | None) -> Callable[[Operand], Operand]:
    own = FUNCTIONS.get(name.lower())
    if own is None:
        raise Refused(f"the activation {name}", "Sigmoid, Tanh or Relu")

    def apply(x: Operand) -> Operand:
        inside = x if clip is None else g.op("clip", x, low=-clip, high=clip)
        made: Operand = g.op(own, inside)
        return made

    return apply


def _gate(g: Context, x: Operand, place: int, hidden: int) -> Operand:
    return g.slice(x, 1, place * hidden, (place + 1) * hidden)


def _product(g: Context, x: Operand, w: Operand, bias: Operand | None) -> Operand:
    made: Operand = g.op(
        "dense", x, w, **({} if bias is None else {"bias": bias}), transpose_w=True
    )
    return made


def _parts(g: Context, bias: tuple[Operand, Operand] | None, place: int) -> Operand | None:
    return None if bias is None else bias[place]


def _simple(g: Context, cell: Cell, x: Operand, h: Operand, c: Any) -> tuple[Operand, Any]:
    inner = _product(g, x, cell.w, _parts(g, cell.b, 0))
    return cell.functions[0](
        g.binary("add", inner, _product(g, h, cell.r, _parts(g, cell.b, 1)))
    ), c


def _lstm(g: Context, cell: Cell, x: Operand, h: Operand, c: Any) -> tuple[Operand, Any]:
    """Gates in the order input, output, forget, cell."""
    sums = g.binary(
        "add",
        _product(g, x, cell.w, _parts(g, cell.b, 0)),
        _product(g, h, cell.r, _parts(g, cell.b, 1)),
    )
    i, o, f, z = (_gate(g, sums, place, cell.hidden) for place in range(4))
    peeps = [
        None
        if cell.peeps is None
        else g.slice(cell.peeps, 0, n * cell.hidden, (n + 1) * cell.hidden)
        for n in range(3)
    ]

    def peeped(gate: Operand, seen: Operand, peep: Operand | None) -> Operand:
        return gate if peep is None else g.binary("add", gate, g.binary("multiply", seen, peep))

    outer, inner, last = cell.functions
    i, f = outer(peeped(i, c, peeps[0])), outer(peeped(f, c, peeps[2]))
    c = g.binary("add", g.binary("multiply", f, c), g.binary("multiply", i, inner(z)))
    return g.binary("multiply", outer(peeped(o, c, peeps[1])), last(c)), c


def _gru(
    linear: bool, g: Context, cell: Cell, x: Operand, h: Operand, c: Any
) -> tuple[Operand, Any]:
    """Gates in the order update, reset, hidden; `linear`: reset is applied after the product."""
    size = cell.hidden
    given = _product(g, x, cell.w, _parts(g, cell.b, 0))
    outer, inner = cell.functions[:2]
    halves = g.slice(cell.r, 0, 0, 2 * size), g.slice(cell.r, 0, 2 * size, 3 * size)
    bias = _parts(g, cell.b, 1)
    biases = (
        (None, None)
        if bias is None
        else (g.slice(bias, 0, 0, 2 * size), g.slice(bias, 0, 2 * size, 3 * size))
    )
    seen = _product(g, h, halves[0], biases[0])
    gates = outer(g.binary("add", g.slice(given, 1, 0, 2 * size), seen))
    update, reset = _gate(g, gates, 0, size), _gate(g, gates, 1, size)
    if linear:
        kept: Operand = g.binary("multiply", reset, _product(g, h, halves[1], biases[1]))
    else:
        kept = _product(g, g.binary("multiply", reset, h), halves[1], biases[1])
    new = inner(g.binary("add", _gate(g, given, 2, size), kept))
    apart = g.binary("subtract", h, new)
    return g.binary("add", new, g.binary("multiply", update, apart)), c


def _layer(gates: int, functions: Sequence[str], step: Any, memory: bool = False) -> Operator:
    """A layer of one direction or two."""

    def rule(g: Context, call: Call) -> Results:
        x, w, r, b = call[0], call[1], call[2], call.input(3)
        if call.get("layout", 0):
            x = g.transpose(x, [1, 0, 2])
        if call.input(4) is not None:
            raise Refused("sequences of several lengths", "no sequence_lens")
        call.overlook("hidden_size", "output_sequence")
        if call.get("input_forget", 0):
            raise Refused("input_forget=1", "input_forget=0")
        if call.get("activation_alpha") or call.get("activation_beta"):
            raise Refused("activations with parameters", "Sigmoid, Tanh or Relu")
        length = g.whole(g.shape(x)[0], "the length of the sequence")
        if length > LONGEST:
            raise Refused(f"{length} steps, each of them a few nodes", f"{LONGEST} at most")
        batch, hidden = g.shape(x)[1], g.whole(g.shape(r)[2], "the hidden size")
        kinds = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        directions = kinds[call.get("direction", "forward")]
        names = call.get("activations") or list(functions) * len(directions)
        per = len(names) // len(directions)
        runs = []
        for n, back in enumerate(directions):
            own = [_function(g, name, call.get("clip")) for name in names[n * per : (n + 1) * per]]
            start = partial(_start, g, call, n, batch, hidden)
            size = gates * hidden
            bias = None if b is None else _row(g, b, n)
            cell = Cell(
                x,
                start(5),
                start(6) if memory else None,
                _row(g, w, n),
                _row(g, r, n),
                None if bias is None else (g.slice(bias, 0, 0, size), g.slice(bias, 0, size, 2 * size)),
                None if not memory or call.input(7) is None else _row(g, call[7], n),
                hidden,
                own,
            )  # fmt: skip
            chosen = (
                partial(step, bool(call.get("linear_before_reset", 0))) if step is _gru else step
            )
            runs.append(_run(g, cell, length, back, chosen))
        return _results(g, call, runs, memory)

    return rule


def _row(g: Context, x: Operand, place: int) -> Operand:
    return g.reshape(g.slice(x, 0, place, place + 1), g.shape(x)[1:])


def _start(g: Context, call: Call, n: int, batch: Any, hidden: int, place: int) -> Operand:
    """The state before the first step, zeros by default."""
    given = call.input(place)
    if given is None:
        return g.full((batch, hidden), 0.0, g.dtype(call[0]))
    if call.get("layout", 0):
        given = g.transpose(given, [1, 0, 2])
    return _row(g, given, n)


def _run(
    g: Context, cell: Cell, length: int, back: bool, step: Any
) -> tuple[list[Operand], Operand, Any]:
    """The state after each step, in the order of the sequence, and the last ones."""
    h, c = cell.h, cell.c
    states: list[Operand] = []
    for place in reversed(range(length)) if back else range(length):
        h, c = step(g, cell, _row(g, cell.x, place), h, c)
        states.append(h)
    return states[::-1] if back else states, h, c


def _results(g: Context, call: Call, runs: list[Any], memory: bool) -> Results:
    """(steps, directions, batch, hidden), (directions, batch, hidden), and the memory likewise."""
    swapped = bool(call.get("layout", 0))

    def joined(parts: Sequence[Operand], axis: int) -> Operand:
        found: Operand = g.op("concat", tuple(parts), axis=axis) if len(parts) > 1 else parts[0]
        return found

    def lifted(x: Operand, *axes: int) -> Operand:
        from offcut.plugins.onnx.shapes import unsqueezed

        return unsqueezed(g, x, axes)

    each = [joined([lifted(h, 0, 1) for h in states], 0) for states, _, _ in runs]
    sequence = joined(each, 1)
    last = joined([lifted(h, 0) for _, h, _ in runs], 0)
    found = [g.transpose(sequence, [2, 0, 1, 3]) if swapped else sequence]
    found.append(g.transpose(last, [1, 0, 2]) if swapped else last)
    if memory:
        kept = joined([lifted(c, 0) for _, _, c in runs], 0)
        found.append(g.transpose(kept, [1, 0, 2]) if swapped else kept)
    return tuple(found)


RECURRENT: Mapping[str, Operator] = {
    "GRU": _layer(3, ("Sigmoid", "Tanh"), _gru),
    "LSTM": _layer(4, ("Sigmoid", "Tanh", "Tanh"), _lstm, memory=True),
    "RNN": _layer(1, ("Tanh",), _simple),
}
