"""numpy on the tasks of the benches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from offcut.describe.request import Array
from offcut.studies.peers.matmul import Way, as_matmul
from offcut.studies.peers.operators import EPSILON, Attention, LayerNorm, Problem, Softmax


@dataclass(frozen=True, slots=True)
class Numpy:
    """numpy with its BLAS: matmul into a given array, or einsum where that does not fit.

    einsum  whether it computes every contraction
    """

    einsum: bool = False
    name: ClassVar[str] = "numpy"

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """Return `numpy.matmul` for a matrix product of floats, `numpy.einsum` for other contractions.

        Attention, softmax and layer norm as numpy's users write them, in place where that is faster.
        """
        match task:
            case Problem(kind="float32" | "float64"):
                product = () if self.einsum else self._matmul(task)
                return _with_epilogue(product or self._einsum(task), task)
            case Attention(kind="float32") | Softmax() | LayerNorm():
                out = task.result()
                run = partial(_numpy_call(task), out)
                return (Way("numpy.ufuncs", run, lambda _: out),)
        return ()

    def _matmul(self, problem: Problem) -> tuple[Way, ...]:
        product = as_matmul(problem)
        if product is None:
            return ()
        run = partial(np.matmul, product.a, product.b, out=product.c)
        return (Way("numpy.matmul", run, lambda _: product.out),)

    def _einsum(self, problem: Problem) -> tuple[Way, ...]:
        out = problem.result()
        operands = [problem.arrays[name] for name in problem.contraction.names]
        run = partial(np.einsum, str(problem.contraction), *operands, out=out, optimize=True)
        return (Way("numpy.einsum", run, lambda _: out),)


def _with_epilogue(ways: tuple[Way, ...], problem: Problem) -> tuple[Way, ...]:
    """Return ways whose result goes through the epilogue, in place; none with a step that numpy has no function for, as `gelu`."""
    if not problem.epilogue:
        return ways
    steps = [_in_place(step, problem) for step in problem.epilogue]
    if any(step is None for step in steps):
        return ()

    def finish(way: Way) -> Way:
        def run() -> Array:
            result: Array = way.read(way.run())
            for step in steps:
                assert step is not None
                step(result)
            return result

        return Way(way.name, run, lambda result: result)

    return tuple(map(finish, ways))


def _in_place(step: str, problem: Problem) -> Callable[[Array], object] | None:
    """Return what does a step of an epilogue to an array, in place; None where numpy has no function for it."""
    match step:
        case "bias" | "residual":
            other = problem.arrays[step]
            return lambda x: np.add(x, other, out=x)
        case "relu":
            return lambda x: np.maximum(x, 0, out=x)
        case "tanh":
            return lambda x: np.tanh(x, out=x)
        case "sigmoid":
            return lambda x: np.reciprocal(_one_and_exp(x), out=x)
        case "silu":
            return lambda x: np.divide(x, _one_and_exp(x), out=x)
    return None


def _one_and_exp(x: Array) -> Array:
    """Return ``1 + exp(-x)`` by element, in a new array."""
    result: Array = np.negative(x)
    np.exp(result, out=result)
    return np.add(result, 1, out=result)


def _numpy_call(task: Attention | Softmax | LayerNorm) -> Callable[[Array], object]:
    """Return a function that computes `task` into an array."""
    match task:
        case Attention(q, k, v):
            scale, keys = 1 / np.sqrt(np.float32(q.shape[-1])), k.swapaxes(-1, -2)
            return lambda out: np.matmul(_softmax(np.matmul(q, keys) * scale), v, out=out)
        case Softmax(x):
            return lambda out: _softmax(x, out)
        case LayerNorm(x, gain, bias):

            def normalize(out: Array) -> Array:
                np.subtract(x, x.mean(-1, keepdims=True), out=out)
                variance = np.einsum("ij,ij->i", out, out) / x.shape[-1]
                np.multiply(out, (1 / np.sqrt(variance + np.float32(EPSILON)))[:, None], out=out)
                np.multiply(out, gain, out=out)
                return np.add(out, bias, out=out)

            return normalize


def _softmax(x: Array, out_array: Array | None = None) -> Array:
    out: Array = np.subtract(x, x.max(-1, keepdims=True), out=out_array)
    np.exp(out, out=out)
    np.divide(out, out.sum(-1, keepdims=True), out=out)
    return out
