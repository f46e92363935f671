"""Recurrent layers: torch's stacks of them, in one direction or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.graph import Ref
from offcut.plugins.operators.recurrence import recurrence
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.table import takes, takes_of_others
from offcut.plugins.torch.translation import Translation


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

    kind  lstm, gru or rnn
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
            w, r, *rest = params[number * per : (number + 1) * per]
            x = t.restated(x, (*t.shape(x)[:-1], t.shape(w)[1]))  # as torch says
            every, *ends = recurrence(
                t,
                kind,
                x,
                w,
                r,
                (rest[0], rest[1]) if has_biases else None,
                batch_first and not layer,
                reverse=bool(back) or None,
                projection=rest[-1] if len(rest) % 2 else None,
                **{name: state_of(t, one, number) for name, one in zip("hc", hx, strict=False)},
                **options,
            )
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
