"""Recurrent layers: torch's stacks of them, in one direction or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.graph import Ref
from offcut.plugins.operators.recurrence import recurrence
from offcut.plugins.torch.rule_table import register_rule, takes_of_others
from offcut.plugins.torch.translation import Translation
from offcut.plugins.torch.unsupported import Unsupported


def recurrent_stack(
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
    *,
    kind: str,
    **options: Any,
) -> tuple[Any, ...]:
    """The results of a stack: the states of the last layer, and the last states of all layers.

    kind  lstm, gru or rnn
    hx    for each state, (layers · directions, batch, columns)
    """
    if dropout and train:
        raise Unsupported("dropout is random")
    directions = 2 if bidirectional else 1
    per = len(params) // (num_layers * directions)
    last: list[list[Ref]] = [[] for _ in hx]
    for layer in range(num_layers):
        outputs = []
        for back in range(directions):
            number = layer * directions + back
            w, r, *rest = params[number * per : (number + 1) * per]
            x = t.with_shape(x, (*t.shape(x)[:-1], t.shape(w)[1]))  # as torch says
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
            outputs.append(every)
            for parts, end in zip(last, ends, strict=True):
                parts.append(t.reshape(end, (1, *t.shape(end))))
        x = t.node("concat", tuple(outputs), axis=2) if bidirectional else outputs[0]
    ends = [
        t.node("concat", tuple(parts), axis=0) if len(parts) > 1 else parts[0] for parts in last
    ]
    return (t.transpose(x, (1, 0, 2)) if batch_first else x, *ends)


def state_of(t: Translation, x: Ref, number: int) -> Ref | None:
    """One of the states; None where they are zeros, as torch writes one that is not given."""
    if t.builder.is_zero(x):
        return None
    return t.reshape(t.slice(x, 0, number, number + 1), t.shape(x)[1:])


def recurrent(
    t: Translation, x: Ref, hx: Any, params: Sequence[Ref], *how: Any, kind: str, **options: Any
) -> Any:
    states = hx if isinstance(hx, list) else [hx]
    return recurrent_stack(t, x, states, params, *how, kind=kind, **options)


for _name, _options in (
    *(("lstm", {"kind": "lstm"}), ("gru", {"kind": "gru"}), ("rnn_tanh", {"kind": "rnn"})),
    ("rnn_relu", {"kind": "rnn", "activation": "relu"}),
):
    takes_of_others(f"offcut::{_name}", rounds_each=True, **_options)(recurrent)
    register_rule(f"{_name}.input", rounds_each=True, **_options)(recurrent)
