"""Recurrent layers in numpy, row by row and step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
from compiled import Array


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


FUNCTIONS: dict[str, Any] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}


def cell(layer: str, given: dict[str, Array], how: dict[str, Any]) -> list[Array]:
    """A layer with all its options, row by row, in float64."""
    wide = {name: one.astype("f8") for name, one in given.items()}
    x, r, steps_of = wide["x"], wide["r"], given.get("lengths")
    length, batch = x.shape[:2]
    limit = how.get("clip", np.inf)
    names = how.get("activations", (how.get("activation", "tanh"),) if layer == "rnn" else None)
    names = names or (("sigmoid", "tanh", "tanh") if layer == "lstm" else ("sigmoid", "tanh"))
    act = [lambda v, f=FUNCTIONS[name]: f(np.clip(v, -limit, limit)) for name in names]
    y = np.zeros((length, batch, r.shape[1]))
    bias = wide.get("bias", np.zeros(1))
    h, c = wide.get("h", np.zeros((batch, r.shape[1]))).copy(), np.zeros((batch, 0))
    if layer == "lstm":
        width = r.shape[0] // 4
        c = wide.get("c", np.zeros((batch, width))).copy()
    for row in range(batch):
        count = length if steps_of is None else int(steps_of[row])
        for t in range(count)[:: -1 if how.get("reverse") else 1]:
            if layer == "rnn":
                h[row] = act[0](x[t, row] + r @ h[row])
            elif layer == "gru":
                a, z, new = np.split(x[t, row], 3)
                q = np.split(r @ h[row], 3 if "after" not in wide else 2)
                a, z = act[0](a + q[0]), act[0](z + q[1])
                inner = wide["after"] @ (a * h[row]) if "after" in wide else a * (q[2] + bias)
                h[row] = (1 - z) * act[1](new + inner) + z * h[row]
            else:
                i, f, g, o = np.split(x[t, row] + r @ h[row], 4)
                p = np.split(wide.get("peepholes", np.zeros(3 * width)), 3)
                before = c[row].copy()
                c[row] = act[0](f + p[2] * before) * before + act[0](i + p[0] * before) * act[1](g)
                out = act[0](o + p[1] * c[row]) * act[2](c[row])
                h[row] = wide["projection"] @ out if "projection" in wide else out
            y[t, row] = h[row]
    return [y, h, c] if layer == "lstm" else [y, h]
