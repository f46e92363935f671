"""Gated recurrent units."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.ops.given.operands import check_tensor
from offcut.ops.recurrent.gates import Gates, order
from offcut.ops.recurrent.layer import Layer, width_of


def gru(
    x: Tensor,
    r: Tensor,
    h: Tensor | None = None,
    bias: Tensor | None = None,
    gates: str = "rzn",
    reverse: bool = False,
    *,
    lengths: Tensor | None = None,
    after: Tensor | None = None,
    activations: Sequence[str] = ("sigmoid", "tanh"),
    clip: float | None = None,
    name: str = "gru",
) -> Program:
    """A program of the layer: for each step, with the parts r, z, n of w columns of ``x[t]`` and of ``Q = h @ r.T``,
    ``h = (1 - z) * n + z * h``, where ``n = tanh(x_n + sigmoid(x_r + Q_r) * (Q_n + bias))`` and
    ``z = sigmoid(x_z + Q_z)``.

    x            (steps, batch, 3w) of float32 or float64, as in `lstm`, with all biases but this one
    r            (3w, w), the weights of the state
    h            (batch, w), the state before the first step; None: zeros
    bias         (w,), what is added to Q_n: torch's layer, ONNX's with ``linear_before_reset=1``
    gates        the order of the parts: torch "rzn", ONNX "zrn"
    reverse      whether the last step comes first
    lengths      as in `lstm`
    after        (w, w), weights of what is reset before it is multiplied, ``n = tanh(x_n + (sigmoid(x_r + Q_r) * h) @ after.T)``:
                 ONNX's layer with ``linear_before_reset=0``; r is (2w, w) then, `gates` ends in n, and there is no bias
    activations  of r and z; of n, as in `lstm`; clip likewise

    Its results are `name`, (steps, batch, w), the state after each step, and ``{name}_h`` after the last.

    Raises DescribeError where ranks, extents, element types or options do not fit.
    """
    places, act = order("gru", gates, "rzn"), Gates("gru", activations, 2, clip)
    width, parts = width_of("gru", r), 3 if after is None else 2
    steps, batch = check_tensor("gru", "x", x, 3).shape[:2]
    operands = {
        "x": (x, (steps, batch, 3 * width)),
        "r": (r, (parts * width, width)),
        "h": (h, (batch, width)),
        "bias": (bias, (width,)),
        "after": (after, (width, width)),
        "lengths": (lengths, (batch,)),
    }
    layer = Layer("gru", name, reverse, operands, {"h": width})
    if after is not None and (bias is not None or places["n"] != 2):
        raise DescribeError(
            "gru",
            f"cannot take after= with {'bias=' if bias is not None else f'gates={gates!r}'}",
            because="what is reset before the product has no bias, and its part of x is the last",
        )
    seen, state = layer.local("Q", parts * width), f"{layer.results['h']}[$i, $j]"
    terms = {
        gate: f"{layer.given['x']}[{layer.step}, $i, $j + {place * width}]"
        for gate, place in places.items()
    }
    product = {gate: f"{seen}[$i, $j + {place * width}]" for gate, place in places.items()}
    reset, update = (act(0, f"{terms[gate]} + {product[gate]}") for gate in "rz")
    layer.product(seen, None, layer.given["r"], layer.results["h"])
    if after is None:
        whole = product["n"] if bias is None else f"({product['n']} + {layer.given['bias']}[$j])"
        new = f"{reset} * {whole}"
    else:
        reset_state, later = layer.local("K", width), layer.local("N", width)
        layer.element((f"{reset_state}[$i, $j]", f"{reset} * {state}"))
        layer.product(later, None, layer.given["after"], reset_state)
        new = f"{later}[$i, $j]"
    new = act(1, f"{terms['n']} + {new}")
    layer.element((state, f"(1.0 - {update}) * {new} + {update} * {state}"))
    return layer.program(layer.results["h"])
