"""The encoder in numpy and scipy, one sentence a call: the rival, and in float64 the reference.

x      = norm(words[token] + positions + kind)
layer:   a = norm(x + attention(q, k, v) @ Wo + bo)    q, k, v = x @ Wq + bq, …
         x = norm(a + gelu(a @ W1 + b1) @ W2 + b2)
result = mean of the rows of x, scaled to length 1
"""

import math

import numpy as np
from numpy.typing import DTypeLike
from scipy.special import erf

from examples.sentences.kernels import EPSILON
from examples.sentences.tokens import LONGEST, Tokens
from examples.sentences.weights import (
    FEED_FORWARD,
    HEADS,
    HIDDEN,
    Array,
    Linear,
    Norm,
    Weights,
    cast,
)


class PlainEncoder:
    """Sentence embeddings: one sentence a call, no padding, 1 to 512 tokens.

    weights   the constants; converted to `dtype`
    dtype     element type of every step, float32 or float64

    Not for several threads at once: calls share their buffers, which are written before anything
    is timed.
    """

    def __init__(self, weights: Weights, dtype: DTypeLike = np.float32) -> None:
        self._weights, self._dtype = weights, np.dtype(dtype)
        self._norm = cast(weights.norm, dtype)
        self._layers = tuple(cast(layer, dtype) for layer in weights.layers)
        self._narrow = np.ones((5, LONGEST, HIDDEN), dtype)
        self._wide = np.ones((2, LONGEST, FEED_FORWARD), dtype)

    def encode(self, tokens: Tokens) -> Array:
        """Return the embedding of the sentence `tokens`, (n,): (384,), of Euclidean length 1."""
        n = len(tokens)
        q, k, v, context, hidden = self._narrow[:, :n]
        wide, scratch = self._wide[:, :n]
        x = self._weights.words[tokens].astype(self._dtype)
        x += self._weights.positions[:n]
        x += self._weights.kind
        normalize(x, self._norm)
        for layer in self._layers:
            for linear, out in ((layer.query, q), (layer.key, k), (layer.value, v)):
                dense(x, linear, out)
            x += dense(attend(q, k, v, context), layer.attention, hidden)
            normalize(x, layer.attention_norm)
            gelu(dense(x, layer.feed_in, wide), scratch)
            x += dense(wide, layer.feed_out, hidden)
            normalize(x, layer.feed_norm)
        mean: Array = x.mean(axis=0)
        return mean / np.linalg.norm(mean)


def dense(x: Array, linear: Linear, out: Array) -> Array:
    """Write ``x @ weight + bias`` to `out`; return that."""
    np.matmul(x, linear.weight, out=out)
    return np.add(out, linear.bias, out=out)


def gelu(x: Array, scratch: Array) -> Array:
    """Make `x` ``x * (1 + erf(x / sqrt(2))) / 2`` in place; return it. `scratch` is of its shape."""
    np.multiply(x, math.sqrt(0.5), out=scratch)
    erf(scratch, out=scratch)
    np.add(scratch, 1.0, out=scratch)
    np.multiply(x, scratch, out=x)
    return np.multiply(x, 0.5, out=x)


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
