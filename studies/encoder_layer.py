"""An encoder's layer as one program, for `proof_time.toml`."""

from __future__ import annotations

from typing import Any

import offcut as oc

HEADS, DEPTH = 12, 32
HIDDEN, WIDE = HEADS * DEPTH, 1536


def encoder_layer(n: Any) -> tuple[oc.Tensor, list[oc.Tensor]]:
    """Return a post-norm layer of an encoder on the rows of one sentence, (n, 384), and its inputs."""
    x = oc.placeholder((n, HIDDEN), name="x")
    inputs = [x]

    def parameter(name: str, *shape: int) -> oc.Tensor:
        inputs.append(oc.placeholder(shape, name=name))
        return inputs[-1]

    def dense(rows: oc.Tensor, name: str, k: int, m: int, **options: Any) -> oc.Tensor:
        weight, bias = parameter(f"W{name}", k, m), parameter(f"b{name}", m)
        return oc.ops.dense(rows, weight, bias, name=name, **options)

    def norm(rows: oc.Tensor, name: str) -> oc.Tensor:
        gain, shift = parameter(f"gain{name}", HIDDEN), parameter(f"shift{name}", HIDDEN)
        return oc.ops.layernorm(rows, gain, shift, name=name)

    def heads(name: str) -> oc.Tensor:
        split = oc.ops.split_axis(dense(x, name, HIDDEN, HIDDEN), 1, DEPTH, name=f"split{name}")
        return oc.ops.transpose(split, (1, 0, 2), name=f"heads{name}")

    mixed = oc.ops.attention(heads("q"), heads("k"), heads("v"), name="mixed")
    merged = oc.ops.merge_axes(oc.ops.transpose(mixed, (1, 0, 2), name="turned"), 1, name="merged")
    first = norm(dense(merged, "o", HIDDEN, HIDDEN, residual=x), "first")
    wide = dense(first, "wide", HIDDEN, WIDE, activation="gelu")
    return norm(dense(wide, "narrow", WIDE, HIDDEN, residual=first), "second"), inputs
