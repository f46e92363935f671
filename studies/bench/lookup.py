"""A dense layer behind a table of words, for `lookup.toml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import offcut as oc

VOCABULARY = 30522


def dense_of_words(n: Any, k: int, m: int) -> tuple[oc.Tensor, list[oc.Tensor]]:
    """Return n rows of k that are looked up, by (k, m), and its inputs."""
    words = oc.placeholder((VOCABULARY, k), name="words")
    ids, weight = oc.placeholder((n,), "int32", name="ids"), oc.placeholder((k, m), name="W")
    rows = oc.ops.embedding(words, ids, name="rows")
    return oc.ops.dense(rows, weight, name="Y"), [words, ids, weight]


def dense_alone(inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Callable[[], Any]:
    """Return a call of the dense layer on rows that were looked up."""
    x = oc.placeholder((oc.dim("n", min=1, max=4096), inputs["W"].shape[0]), name="x")
    weight = oc.placeholder(inputs["W"].shape, name="W")
    layer = oc.ops.dense(x, weight, name="Y")
    kernel = oc.compile(layer, [x, weight], constants={"W": inputs["W"]}, threads=1)
    rows = inputs["words"][inputs["ids"]]
    out = np.zeros_like(kernel(rows))
    return lambda: kernel(rows, out=out)
