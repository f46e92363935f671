"""Long short-term memory."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.ops.given.operands import check_dtype, check_tensor
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
    scale: Tensor | None = None,
    sums: Tensor | None = None,
    zero: Tensor | None = None,
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
    scale        (4w,) of float32, where r is of int8 and stands for ``(r - zero) * scale``: h is quantized to uint8 at each step, by its least and
                 its greatest element, those of all rows, and 0; the product of both is exact in int32
    sums, zero   (4w,) of int32: what each row of r less its zero points adds up to; the zero points, None for 0

    Its results are `name`, (steps, batch, w), the state h after each step, ``{name}_h`` and ``{name}_c`` after
    the last.

    Raises DescribeError where ranks, extents, element types or options do not fit.
    """
    places, act = order("lstm", gates, "ifgo"), Gates("lstm", activations, 3, clip)
    width = width_of("lstm", r, projection)
    steps, batch = check_tensor("lstm", "x", x, 3).shape[:2]
    columns, bytes_given = int(r.shape[1]), {"scale": scale, "sums": sums, "zero": zero}
    if (r.dtype == "int8") != (scale is not None) or (scale is None) != (sums is None):
        raise DescribeError(
            "lstm",
            f"cannot take r of {r.dtype} with {', '.join(n for n, one in bytes_given.items() if one is not None) or 'no scale'}",
            because="weights of int8 have a scale and sums, and others have none",
            help=("lstm(x, r, scale=scale, sums=sums) of float32 x and int8 r",),
        )
    if scale is not None:
        check_dtype("lstm", "x", x, ("float32",))
    operands = {
        "x": (x, (steps, batch, 4 * width)),
        "r": (r, (4 * width, columns)),
        "h": (h, (batch, columns)),
        "c": (c, (batch, width)),
        "lengths": (lengths, (batch,)),
        "peepholes": (peepholes, (3 * width,)),
        "projection": (projection, (columns, width)),
        **{label: (one, (4 * width,)) for label, one in bytes_given.items()},
    }
    layer = Layer("lstm", name, reverse, operands, {"h": columns, "c": width})
    gates_of, state = layer.local("G", 4 * width), layer.results["h"]
    cell = f"{layer.results['c']}[$i, $j]"
    found = {gate: f"{gates_of}[$i, $j + {places[gate] * width}]" for gate in places}

    def gate(letter: str, seen: int) -> str:
        if peepholes is None:
            return act(0, found[letter])
        weight = f"{layer.given['peepholes']}[$j + {seen * width}]"
        return act(0, f"{found[letter]} + {weight} * {cell}")

    if scale is None:
        layer.product(gates_of, layer.given["x"], layer.given["r"], state)
    else:
        layer.byte_product(gates_of, layer.given["r"], state)
    kept = f"{gate('f', 2)} * {cell} + {gate('i', 0)} * {act(1, found['g'])}"
    shown = f"{gate('o', 1)} * {act(2, cell)}"
    if projection is None:
        layer.element((cell, kept), (f"{state}[$i, $j]", shown))
    else:
        wide = layer.local("H", width)
        layer.element((cell, kept), (f"{wide}[$i, $j]", shown))
        layer.projected(state, wide)
    return layer.program(state)
