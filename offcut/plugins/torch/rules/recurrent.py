"""Recurrent layers: torch's stacks of them, in one direction or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from offcut.core import index as ix
from offcut.graph import Ref
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.table import takes, takes_of_others
from offcut.plugins.torch.translation import Translation

States: TypeAlias = tuple[Ref | None, ...]
"""What is known before the first step; None: zeros."""


class Layer:
    """One direction of one layer.

    weights  of the input, of the state, their biases where there are any, and of the projection where there is one
    """

    def __init__(self, t: Translation, weights: Sequence[Ref], biased: bool, back: bool) -> None:
        self.t, self.back = t, back
        self.w, self.r, *rest = weights
        self.biases = tuple(rest[:2]) if biased else None
        last = rest[2 if biased else 0 :]
        self.projection = last[0] if last else None

    def multiplied(self, x: Ref, bias: Ref | None, turned: bool) -> Ref:
        """The input times its weights, for all steps: (steps, batch, columns); `turned`: of (batch, steps, e)."""
        x = self.t.restated(x, (*self.t.shape(x)[:-1], self.t.shape(self.w)[1]))  # as torch says
        made: Ref = self.t.node("dense", x, self.w, bias=bias, transpose_w=True)
        return self.t.transpose(made, (1, 0, 2)) if turned else made

    def summed(self) -> Ref | None:
        """Both biases as one."""
        if self.biases is None:
            return None
        made: Ref = self.t.node("add", *self.biases)
        return made

    def lstm(self, x: Ref, states: States, turned: bool) -> Any:
        """What a layer of long short-term memory gives: every state, and the last ones."""
        found = self.multiplied(x, self.summed(), turned)
        h, c = states
        return self.t.node(
            "lstm", found, self.r, h=h, c=c, reverse=self.reverse, projection=self.projection
        )

    def gru(self, x: Ref, states: States, turned: bool) -> Any:
        """The same of gated units, whose last part of the state's product has a bias of its own."""
        bias, own = None, None
        if self.biases is not None:
            rows = ix.literal_value(self.t.shape(self.biases[0])[0])
            assert rows is not None
            first = rows // 3 * 2
            gates, new = (
                [self.t.slice(one, 0, start, stop) for one in self.biases]
                for start, stop in ((0, first), (first, rows))
            )
            bias = self.t.node("concat", (self.t.node("add", *gates), new[0]), axis=0)
            own = new[1]
        found = self.multiplied(x, bias, turned)
        return self.t.node("gru", found, self.r, h=states[0], bias=own, reverse=self.reverse)

    def rnn(self, x: Ref, states: States, turned: bool, activation: str | None = None) -> Any:
        """The same of a simple recurrence."""
        found = self.multiplied(x, self.summed(), turned)
        return self.t.node(
            "rnn", found, self.r, h=states[0], activation=activation, reverse=self.reverse
        )

    @property
    def reverse(self) -> bool | None:
        """As an option, which is left out where it is not asked for."""
        return self.back or None


def stacked(
    kind: str,
    t: Translation,
    x: Ref,
    hx: Sequence[Ref],
    params: Sequence[Ref],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    **options: Any,
) -> tuple[Any, ...]:
    """The results of a stack: the states of the last layer, and the last states of all layers.

    kind  a method of `Layer`
    hx    for each state, (layers · directions, batch, columns)
    """
    if dropout and train:
        raise Left("dropout is random")
    directions = 2 if bidirectional else 1
    per = len(params) // (num_layers * directions)
    last: list[list[Ref]] = [[] for _ in hx]
    for layer in range(num_layers):
        found = []
        for back in range(directions):
            number = layer * directions + back
            own = Layer(t, params[number * per : (number + 1) * per], has_biases, bool(back))
            states = tuple(state_of(t, one, number) for one in hx)
            every, *ends = getattr(own, kind)(x, states, batch_first and not layer, **options)
            found.append(every)
            for kept, end in zip(last, ends, strict=True):
                kept.append(t.reshape(end, (1, *t.shape(end))))
        x = t.node("concat", tuple(found), axis=2) if bidirectional else found[0]
    ends = [t.node("concat", tuple(kept), axis=0) if len(kept) > 1 else kept[0] for kept in last]
    return (t.transpose(x, (1, 0, 2)) if batch_first else x, *ends)


def state_of(t: Translation, x: Ref, number: int) -> Ref | None:
    """One of the states; None where they are zeros, as torch writes one that is not given."""
    if t.builder.is_zero(x):
        return None
    return t.reshape(t.slice(x, 0, number, number + 1), t.shape(x)[1:])


@takes_of_others("offcut::lstm")
@takes("lstm.input", rounds_each=True)
def lstm(t: Translation, x: Ref, hx: Sequence[Ref], params: Sequence[Ref], *how: Any) -> Any:
    return stacked("lstm", t, x, hx, params, *how)


@takes_of_others("offcut::gru")
@takes("gru.input", rounds_each=True)
def gru(t: Translation, x: Ref, hx: Ref, params: Sequence[Ref], *how: Any) -> Any:
    return stacked("gru", t, x, [hx], params, *how)


@takes_of_others("offcut::rnn_tanh")
@takes("rnn_tanh.input", rounds_each=True)
def rnn_tanh(t: Translation, x: Ref, hx: Ref, params: Sequence[Ref], *how: Any) -> Any:
    return stacked("rnn", t, x, [hx], params, *how)


@takes_of_others("offcut::rnn_relu")
@takes("rnn_relu.input", rounds_each=True)
def rnn_relu(t: Translation, x: Ref, hx: Ref, params: Sequence[Ref], *how: Any) -> Any:
    return stacked("rnn", t, x, [hx], params, *how, activation="relu")
