"""Recurrent layers over a sequence of any length, as loop programs.

What a step reads of the step before is no tensor of expressions: these give a `Program`, which `offcut.compile` takes, and which
is an operator of graphs as others are. The product of the input with its weights is not in it: it is one product for all steps,
`dense` of (steps, batch, e). The products of the state are nests of their own inside the loop over the steps, which microkernels
run; weights bound as constants lie as these read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offcut.core.program import Kind, Program
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.ops.checks import (
    check_dtype,
    check_shape,
    check_tensor,
    flag,
    is_one_of,
    number,
    several,
)
from offcut.ops.loop_programs.program_writer import Written

STATES = ("float32", "float64")
COUNTS = ("int32", "int64")


class Layer:
    """A layer as far as it is written: its operands, and what a step does.

    operands  by label, with the shape of each; None for one that is not given
    states    what is kept from step to step: the columns of each
    step      the index of the step in a sequence; ``$t``, ``$i``, ``$j`` and ``$k`` stand for iterators

    Raises DescribeError where an operand is not of its shape, or two of one name are not one.
    """

    def __init__(
        self,
        op: str,
        name: str,
        reverse: Any,
        operands: Mapping[str, tuple[Tensor | None, Sequence[Any]]],
        states: Mapping[str, int],
    ) -> None:
        backwards, self.states = flag(op, "reverse", reverse), dict(states)
        tensors = {label: one for label, (one, _) in operands.items() if one is not None}
        self.x = tensors["x"]
        for label, one in tensors.items():
            _check(op, label, one, operands[label][1], self.x)
        self.text = Written(op, name, tensors)
        self.given, rows = self.text.given, self.x.shape[:2]
        self.output = self.text.result(name, self.x.dtype, (*rows, states["h"]))
        self.results = {
            one: self.text.result(f"{name}_{one}", self.x.dtype, (rows[1], width))
            for one, width in states.items()
        }
        self.steps, self.batch = map(self.text.extent_text, rows)
        self.step = f"{self.steps} - 1 - $t" if backwards else "$t"
        self.lines: list[str] = []

    def local(self, wish: str, width: int, kind: Kind = Kind.LOCAL, dtype: str = "") -> str:
        """An array of the step alone: so many columns for each row of the batch, of the type of the input by default."""
        return self.text.local(wish, dtype or self.x.dtype, (self.x.shape[1], width), kind)

    def product(self, into: str, sequence: str | None, weights: str, state: str) -> None:
        """``into = sequence at the step + state @ weights.T``; without `sequence`, the product alone."""
        inner, width = next(
            map(self.text.extent_text, reversed(tensor.shape))
            for tensor, name in self.text.called.items()
            if name == weights
        )
        sums = into
        if sequence is not None:
            sums = self.local(f"{into}_sum", int(width), Kind.PRIVATE)
        self.lines += [
            f"  for $i in 0:{self.batch}",
            f"    for $j in 0:{width}",
            f"      {sums}[$i, $j] = 0.0",
            f"      for $k in 0:{inner}",
            f"        {sums}[$i, $j] += {state}[$i, $k] * {weights}[$j, $k]",
        ]
        if sequence is not None:
            self.lines.append(
                f"      {into}[$i, $j] = {sequence}[{self.step}, $i, $j] + {sums}[$i, $j]"
            )

    def byte_product(self, into: str, weights: str, state: str) -> None:
        """``into = sequence at the step + state @ weights.T``, of weights of int8 and a state that is quantized to uint8 by its least and its greatest element.

        In int32, ``sum (q - z) * (r - u) = sum q * r - u * sum q - z * sum (r - u)``; of the last sum the operand `sums` has one for each row of weights.
        """
        inner, width = self.states["h"], 4 * self.states["c"]
        low, high, unit, point = (
            self.text.local(f"{into}_{wish}", dtype, (1,))
            for wish, dtype in (
                *(("low", "float32"), ("high", "float32"), ("unit", "float32")),
                ("zero", "int32"),
            )
        )
        data = self.local(f"{into}_bytes", inner, dtype="uint8")
        total = self.local(f"{into}_sum", width, Kind.PRIVATE, "int32")
        zero, rows = self.given.get("zero"), ""
        span, start = f"{high}[0] - {low}[0]", f"-{low}[0] / {unit}[0]"
        near = f"int32(round({state}[$i, $k] / {unit}[0])) + {point}[0]"
        self.lines += [
            f"  {low}[0] = 0.0",
            f"  {high}[0] = 0.0",
            f"  for $i in 0:{self.batch}",
            f"    for $k in 0:{inner}",
            f"      {low}[0] min= {state}[$i, $k]",
            f"      {high}[0] max= {state}[$i, $k]",
            f"  {unit}[0] = where({span} > 0.0, ({span}) / 255.0, 1.0)",
            f"  {point}[0] = int32(round(min(max({start}, 0.0), 255.0)))",
            f"  for $i in 0:{self.batch}",
            f"    for $k in 0:{inner}",
            f"      {data}[$i, $k] = uint8(min(max({near}, 0), 255))",
        ]
        if zero is not None:
            row = self.text.local(f"{into}_rows", "int32", (self.x.shape[1],))
            self.lines += [
                f"  for $i in 0:{self.batch}",
                f"    {row}[$i] = 0",
                f"    for $k in 0:{inner}",
                f"      {row}[$i] += int32({data}[$i, $k])",
            ]
            rows = f" - {zero}[$j] * {row}[$i]"
        whole = f"{total}[$i, $j] - {point}[0] * {self.given['sums']}[$j]{rows}"
        self.lines += [
            f"  for $i in 0:{self.batch}",
            f"    for $j in 0:{width}",
            f"      {total}[$i, $j] = 0",
            f"      for $k in 0:{inner}",
            f"        {total}[$i, $j] += int32({data}[$i, $k]) * int32({weights}[$j, $k])",
            f"      {into}[$i, $j] = {self.given['x']}[{self.step}, $i, $j] + float32({whole}) * ({unit}[0] * {self.given['scale']}[$j])",
        ]

    def element(self, *stores: tuple[str, str]) -> None:
        """``element = value`` one after the other for each element of a state; a state stays past the length of its row."""
        self._nest([*self.states.values()][-1], stores)

    def projection_line(self, state: str, wide: str) -> None:
        """``state = wide @ projection.T``."""
        width = self.states["h"]
        narrow = self.local(f"{wide}_projected", width)
        self.product(narrow, None, self.given["projection"], wide)
        self._nest(width, [(f"{state}[$i, $j]", f"{narrow}[$i, $j]")])

    def _nest(self, width: int, stores: Sequence[tuple[str, str]]) -> None:
        self.lines += [f"  for $i in 0:{self.batch}", f"    for $j in 0:{width}"]
        states = {f"{name}[$i, $j]" for name in self.results.values()}
        for into, value in stores:
            within = self._within(value, into) if into in states else value
            self.lines.append(f"      {into} = {within}")

    def _within(self, value: str, other: str) -> str:
        """A value; another past the length of a row."""
        if "lengths" not in self.given:
            return value
        return f"where({self.step} < index({self.given['lengths']}[$i]), {value}, {other})"

    def program(self, state: str) -> Program:
        """The whole program, which keeps each element of `state` where it was stored last."""
        value = self._within(f"{state}[$i, $j]", "0.0")
        self.lines.append(f"      {self.output}[{self.step}, $i, $j] = {value}")
        start = [
            line
            for one, w in self.states.items()
            for line in (
                f"for $i in 0:{self.batch}",
                f"  for $j in 0:{w}",
                f"    {self.results[one]}[$i, $j] = "
                + (f"{self.given[one]}[$i, $j]" if one in self.given else "0.0"),
            )
        ]
        self.text.lines += [*start, f"for $t in 0:{self.steps}", *self.lines]
        return self.text.program()


def width_of(op: str, r: Tensor, projection: Tensor | None = None) -> int:
    """The columns of a state.

    r           the weights that it is multiplied by
    projection  where there is one, its columns are

    Raises DescribeError where they are no number.
    """
    matrix = r if projection is None else projection
    check_tensor(op, "r", r, 2)
    if projection is not None:
        check_tensor(op, "projection", projection, 2)
    for one in (r, matrix):
        width = one.shape[1]
        if not (width.is_Integer and width >= 1):
            raise DescribeError(
                op,
                f"cannot take a state of {width}",
                at=repr(one),
                because="its extent is an int, at least 1",
            )
    return int(matrix.shape[1])


def _check(op: str, label: str, tensor: Tensor, shape: Sequence[Any], x: Tensor) -> None:
    kinds = {"lengths": COUNTS, "sums": ("int32",), "zero": ("int32",), "x": STATES}
    weights = ("int8",) if label == "r" and tensor.dtype == "int8" else (x.dtype,)
    check_tensor(op, label, tensor, len(shape), dtypes=kinds.get(label, weights))
    check_shape(op, label, tensor, shape)


FUNCTIONS = {
    "sigmoid": "1.0 / (1.0 + exp(-({})))",
    "tanh": "tanh({})",
    "relu": "max({}, 0.0)",
}


class Gates:
    """Functions of gates, in the order in which a layer takes them.

    clip   what their arguments are cut to, between minus that and that; None: not at all
    """

    def __init__(self, op: str, names: Any, count: int, clip: Any = None) -> None:
        given_functions = several(names) or ()
        if len(given_functions) != count or not all(
            is_one_of(name, [*FUNCTIONS]) for name in given_functions
        ):
            raise DescribeError(
                op,
                f"cannot take activations={names!r}",
                because=f"it has {count}, each of {', '.join(FUNCTIONS)}",
            )
        self.texts = tuple(FUNCTIONS[name] for name in given_functions)
        self.clip = None if clip is None else number(clip)
        if clip is not None and not (self.clip is not None and self.clip > 0):
            raise DescribeError(
                op, f"cannot take clip={clip!r}", because="it is a number greater than 0"
            )

    def __call__(self, place: int, value: str) -> str:
        """The function number `place` of a value."""
        inside = f"min(max({value}, -{self.clip}), {self.clip})" if self.clip else value
        return self.texts[place].format(inside)


def order(op: str, gates: Any, known: str) -> dict[str, int]:
    """The place of each gate.

    Raises DescribeError where `gates` are not the letters of `known`.
    """
    if not isinstance(gates, str) or sorted(gates) != sorted(known):
        raise DescribeError(
            op,
            f"cannot take gates={gates!r}",
            because=f"gates are the letters of {known!r} in the order of the weights",
        )
    return {gate: gates.index(gate) for gate in known}


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
    products_of_state, state = layer.local("Q", parts * width), f"{layer.results['h']}[$i, $j]"
    inputs = {
        gate: f"{layer.given['x']}[{layer.step}, $i, $j + {place * width}]"
        for gate, place in places.items()
    }
    product = {
        gate: f"{products_of_state}[$i, $j + {place * width}]" for gate, place in places.items()
    }
    reset, update = (act(0, f"{inputs[gate]} + {product[gate]}") for gate in "rz")
    layer.product(products_of_state, None, layer.given["r"], layer.results["h"])
    if after is None:
        whole = product["n"] if bias is None else f"({product['n']} + {layer.given['bias']}[$j])"
        new = f"{reset} * {whole}"
    else:
        reset_state, later = layer.local("K", width), layer.local("N", width)
        layer.element((f"{reset_state}[$i, $j]", f"{reset} * {state}"))
        layer.product(later, None, layer.given["after"], reset_state)
        new = f"{later}[$i, $j]"
    new = act(1, f"{inputs['n']} + {new}")
    layer.element((state, f"(1.0 - {update}) * {new} + {update} * {state}"))
    return layer.program(layer.results["h"])


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
    gate_sums = {gate: f"{gates_of}[$i, $j + {places[gate] * width}]" for gate in places}

    def gate(letter: str, peephole: int) -> str:
        if peepholes is None:
            return act(0, gate_sums[letter])
        weight = f"{layer.given['peepholes']}[$j + {peephole * width}]"
        return act(0, f"{gate_sums[letter]} + {weight} * {cell}")

    if scale is None:
        layer.product(gates_of, layer.given["x"], layer.given["r"], state)
    else:
        layer.byte_product(gates_of, layer.given["r"], state)
    cell_after = f"{gate('f', 2)} * {cell} + {gate('i', 0)} * {act(1, gate_sums['g'])}"
    state_after = f"{gate('o', 1)} * {act(2, cell)}"
    if projection is None:
        layer.element((cell, cell_after), (f"{state}[$i, $j]", state_after))
    else:
        wide = layer.local("H", width)
        layer.element((cell, cell_after), (f"{wide}[$i, $j]", state_after))
        layer.projection_line(state, wide)
    return layer.program(state)
