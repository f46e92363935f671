"""Long short-term memory."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.ops.given.operands import check_tensor
from offcut.ops.recurrent.gates import Gates, order
from offcut.ops.recurrent.layer import Layer, width_of


def lstm(
    x: Tensor,
    r: Tensor,
    h: Tensor | None = None,
    c: Tensor | None = None,
    gates: str = "ifgo",
    reverse: bool = False,
    *,
    lengths: Tensor | None = None,
    peepholes: Tensor | None = None,
    projection: Tensor | None = None,
    activations: Sequence[str] = ("sigmoid", "tanh", "tanh"),
    clip: float | None = None,
    name: str = "lstm",
) -> Program:
    """A program of the layer: for each step, with ``G = x[t] + h @ r.T`` in four parts of w columns,
    ``c = sigmoid(f) * c + sigmoid(i) * tanh(g)`` and ``h = sigmoid(o) * tanh(c)``.

    x            (steps, batch, 4w) of float32 or float64: the input times its weights, biases added; w is an int
    r            (4w, w), the weights of the state
    h, c         (batch, w), the state before the first step; None: zeros
    gates        the order of the parts in `x` and `r`: torch "ifgo", ONNX "iofg"
    reverse      whether the last step comes first
    lengths      (batch,) of int32 or int64: how many steps each row has; past them results are 0 and states stay.
                 More than there are is all of them, less than 0 none
    peepholes    (3w,) in the order i, o, f: what c is multiplied by and added to these
    projection   (p, w): h is ``(sigmoid(o) * tanh(c)) @ projection.T``; r is (4w, p) then, and h (batch, p)
    activations  of i, f, o; of g; of c: "sigmoid", "tanh" or "relu"
    clip         what the arguments of i, f, o and g, and of c, are cut to, between minus that and that

    Its results are `name`, (steps, batch, w), the state h after each step, ``{name}_h`` and ``{name}_c`` after
    the last.

    Raises DescribeError where ranks, extents, element types or options do not fit.
    """
    places, act = order("lstm", gates, "ifgo"), Gates("lstm", activations, 3, clip)
    width = width_of("lstm", r, projection)
    steps, batch = check_tensor("lstm", "x", x, 3).shape[:2]
    columns = int(r.shape[1])
    operands = {
        "x": (x, (steps, batch, 4 * width)),
        "r": (r, (4 * width, columns)),
        "h": (h, (batch, columns)),
        "c": (c, (batch, width)),
        "lengths": (lengths, (batch,)),
        "peepholes": (peepholes, (3 * width,)),
        "projection": (projection, (columns, width)),
    }
    layer = Layer("lstm", name, reverse, operands, {"h": columns, "c": width})
    sums, state = layer.local("G", 4 * width), layer.results["h"]
    cell = f"{layer.results['c']}[$i, $j]"
    sums_of_gate = {gate: f"{sums}[$i, $j + {places[gate] * width}]" for gate in places}

    def gate(letter: str, seen: int) -> str:
        if peepholes is None:
            return act(0, sums_of_gate[letter])
        weight = f"{layer.given['peepholes']}[$j + {seen * width}]"
        return act(0, f"{sums_of_gate[letter]} + {weight} * {cell}")

    layer.product(sums, layer.given["x"], layer.given["r"], state)
    cell_value = f"{gate('f', 2)} * {cell} + {gate('i', 0)} * {act(1, sums_of_gate['g'])}"
    shown = f"{gate('o', 1)} * {act(2, cell)}"
    if projection is None:
        layer.element((cell, cell_value), (f"{state}[$i, $j]", shown))
    else:
        wide = layer.local("H", width)
        layer.element((cell, cell_value), (f"{wide}[$i, $j]", shown))
        layer.projected(state, wide)
    return layer.program(state)
