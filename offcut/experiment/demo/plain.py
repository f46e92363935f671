"""The encoder in numpy and scipy, one sentence a call: the rival, and in float64 the reference.

x      = norm(words[token] + positions + kind)
layer:   a = norm(x + attention(q, k, v) @ Wo + bo)    q, k, v = x @ Wq + bq, …
         x = norm(a + gelu(a @ W1 + b1) @ W2 + b2)
result = mean of the rows of x, scaled to length 1
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from offcut.experiment.demo.dense import Dense, NumpyEngine
from offcut.experiment.demo.kernels import EPSILON
from offcut.experiment.demo.tokens import LONGEST, Tokens
from offcut.experiment.demo.weights import (
    FEED_FORWARD,
    HEADS,
    HIDDEN,
    Array,
    Layer,
    Linear,
    Norm,
    Weights,
)


@dataclass(frozen=True, slots=True)
class _Buffers:
    """Memory for the results of dense layers, 512 rows each, written before anything is timed."""

    query: Array
    key: Array
    value: Array
    context: Array
    hidden: Array
    wide: Array


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer, ready to run."""

    query: Dense
    key: Dense
    value: Dense
    attention: Dense
    attention_norm: Norm
    feed_in: Dense
    feed_out: Dense
    feed_norm: Norm

    def __call__(self, x: Array, memory: _Buffers) -> Array:
        n = len(x)
        context = attend(
            self.query(x, memory.query[:n]),
            self.key(x, memory.key[:n]),
            self.value(x, memory.value[:n]),
            memory.context[:n],
        )
        x += self.attention(context, memory.hidden[:n])
        normalize(x, self.attention_norm)
        x += self.feed_out(self.feed_in(x, memory.wide[:n]), memory.hidden[:n])
        return normalize(x, self.feed_norm)


class PlainEncoder:
    """Sentence embeddings: one sentence a call, no padding, 1 to 512 tokens.

    weights   the constants; converted to `dtype`
    dtype     element type of every step, float32 or float64

    Not for several threads at once: calls share their buffers.
    """

    def __init__(self, weights: Weights, dtype: DTypeLike = np.float32) -> None:
        self._weights, engine = weights, NumpyEngine()
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._norm = self._cast_norm(weights.norm)
        self._layers = tuple(self._layer(layer, engine) for layer in weights.layers)
        query, key, value, context, hidden = np.ones((5, LONGEST, HIDDEN), self._dtype)
        wide = np.ones((LONGEST, FEED_FORWARD), self._dtype)
        self._memory = _Buffers(query, key, value, context, hidden, wide)

    def encode(self, tokens: Tokens) -> Array:
        """Return the embedding of the sentence `tokens`, (n,): (384,), of Euclidean length 1."""
        weights = self._weights
        x = weights.words[tokens].astype(self._dtype)
        x += weights.positions[: len(tokens)]
        x += weights.kind
        normalize(x, self._norm)
        for layer in self._layers:
            x = layer(x, self._memory)
        mean: Array = x.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def _layer(self, layer: Layer, engine: NumpyEngine) -> _Layer:
        def dense(linear: Linear, gelu: bool = False) -> Dense:
            cast = Linear(
                np.asarray(linear.weight, self._dtype), np.asarray(linear.bias, self._dtype)
            )
            return engine.dense(cast, gelu)

        return _Layer(
            query=dense(layer.query),
            key=dense(layer.key),
            value=dense(layer.value),
            attention=dense(layer.attention),
            attention_norm=self._cast_norm(layer.attention_norm),
            feed_in=dense(layer.feed_in, gelu=True),
            feed_out=dense(layer.feed_out),
            feed_norm=self._cast_norm(layer.feed_norm),
        )

    def _cast_norm(self, norm: Norm) -> Norm:
        return Norm(np.asarray(norm.gain, self._dtype), np.asarray(norm.bias, self._dtype))


def attend(query: Array, key: Array, value: Array, out: Array) -> Array:
    """Write ``softmax(q kᵀ / sqrt(d)) v`` of each of 12 heads, d = 32, side by side to `out`.

    All four are (n, 384). The softmax is divided out after the product with `value`, on n × d
    elements instead of n × n.
    """
    q, k, v = _heads(query), _heads(key), _heads(value)
    scores = np.matmul(q, k.transpose(0, 2, 1))
    scores *= 1 / np.sqrt(q.shape[-1]).astype(scores.dtype)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    context = np.matmul(scores, v)
    context /= scores.sum(axis=-1, keepdims=True)
    _heads(out)[...] = context
    return out


def _heads(x: Array) -> Array:
    """Return a view of `x`, (n, 384), as (12, n, 32)."""
    return x.reshape(len(x), HEADS, -1).transpose(1, 0, 2)


def normalize(x: Array, norm: Norm) -> Array:
    """Give each row of `x` mean 0 and variance 1, then gain and bias, in place; return it."""
    x -= x.mean(axis=-1, keepdims=True)
    variance = np.einsum("ij,ij->i", x, x) / x.shape[-1]
    x /= np.sqrt(variance + EPSILON)[:, None]
    x *= norm.gain
    x += norm.bias
    return x
