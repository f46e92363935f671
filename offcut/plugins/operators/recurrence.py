"""Recurrent layers in one direction: the input times its weights for all steps, then the steps."""

from __future__ import annotations

from typing import Any

from offcut.graph.sizes.numbers import arithmetic, plain
from offcut.plugins.operators.translator import Translator


def recurrence(
    t: Translator,
    kind: str,
    x: Any,
    w: Any,
    r: Any,
    biases: tuple[Any, Any] | None,
    is_batch_first: bool,
    **options: Any,
) -> tuple[Any, ...]:
    """Return the states after each step, (steps, batch, columns), and each state after the last step.

    kind            rnn, lstm or gru
    x               (steps, batch, e), or (batch, steps, e) if batches come first
    w, r            the weights of the input and of the state, gates one after the other: (gates * columns, …)
    biases          of both, (gates * columns,); None: there are none
    is_batch_first  of the input alone
    options         of the operator of that kind; those that are None are left out
    """
    dense_options: dict[str, Any] = {}
    if biases is not None and kind == "gru" and options.get("after") is None:
        # the state's bias of the last gate is added before that is reset
        rows = plain(t.shape(biases[0])[0])
        gates = arithmetic("*", arithmetic("//", rows, 3), 2)
        both = t.node("add", *(t.slice(one, 0, 0, gates) for one in biases))
        last, options["bias"] = (t.slice(one, 0, gates, rows) for one in biases)
        dense_options["bias"] = t.node("concat", (both, last), axis=0)
    elif biases is not None:
        dense_options["bias"] = t.node("add", *biases)
    steps = t.node("dense", x, w, transpose_w=True, **dense_options)
    steps = t.transpose(steps, (1, 0, 2)) if is_batch_first else steps
    parameters = {name: one for name, one in options.items() if one is not None}
    results: tuple[Any, ...] = t.node(kind, steps, r, **parameters)
    return results
