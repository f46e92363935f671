"""Simple recurrence."""

from __future__ import annotations

from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.ops.given.operands import check_tensor
from offcut.ops.recurrent.gates import Gates
from offcut.ops.recurrent.layer import Layer, width_of


def rnn(
    x: Tensor,
    r: Tensor,
    h: Tensor | None = None,
    activation: str = "tanh",
    reverse: bool = False,
    *,
    lengths: Tensor | None = None,
    clip: float | None = None,
    name: str = "rnn",
) -> Program:
    """A program of the layer: for each step, ``h = tanh(x[t] + h @ r.T)``.

    x           (steps, batch, w) of float32 or float64: the input times its weights, biases added; w is an int
    r           (w, w), the weights of the state
    h           (batch, w), the state before the first step; None: zeros
    activation  "tanh", "relu" or "sigmoid"; clip what its argument is cut to, between minus that and that
    reverse     whether the last step comes first
    lengths     as in `lstm`

    Its results are `name`, (steps, batch, w), the state after each step, and ``{name}_h`` after the last.

    Raises DescribeError where ranks, extents, element types or options do not fit. Source: Elman, "Finding Structure in
    Time", Cognitive Science 1990.
    """
    act, width = Gates("rnn", (activation,), 1, clip), width_of("rnn", r)
    steps, batch = check_tensor("rnn", "x", x, 3).shape[:2]
    operands = {
        "x": (x, (steps, batch, width)),
        "r": (r, (width, width)),
        "h": (h, (batch, width)),
        "lengths": (lengths, (batch,)),
    }
    layer = Layer("rnn", name, reverse, operands, {"h": width})
    sums, state = layer.local("G", width), layer.results["h"]
    layer.product(sums, layer.given["x"], layer.given["r"], state)
    layer.element((f"{state}[$i, $j]", act(0, f"{sums}[$i, $j]")))
    return layer.program(state)
