"""MiniLM, a six-layer BERT encoder, wholly in offcut: numpy holds the arrays, kernels do the rest.

    x      = norm(words[token] + positions + kind)
    layer:   a = norm(x + attention(q, k, v) @ Wo + bo)    q, k, v = x @ Wq + bq, …
             x = norm(a + gelu(a @ W1 + b1) @ W2 + b2)
    result = mean of the rows of x, scaled to length 1

Sentences of any lengths share a batch. Their rows lie one after the other, so a dense layer reads
its weights once for all of them, and no row is padding. Within a batch sentences of one length are
neighbours, and attention takes each such run at once. An embedding has the same bits whatever
batch its sentence is in.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time, process_time_ns

import numpy as np

import offcut as oc
import offcut.pipeline  # now, so that no compile is charged for imports
from examples.sentences import kernels
from examples.sentences.batches import in_batches, runs
from examples.sentences.kernels import DEPTH
from examples.sentences.tokens import LONGEST, Tokens
from examples.sentences.weights import (
    FEED_FORWARD,
    HEADS,
    HIDDEN,
    Array,
    Layer,
    Linear,
    Norm,
    Weights,
)
from offcut.core.dtypes import numpy_dtype
from offcut.errors import OffcutError
from offcut.studies.contraction import Computation

ROWS = 256
"""Rows of a batch that are worth waiting for: twice as many are hardly faster."""


@dataclass(frozen=True, slots=True)
class Compile:
    """One call of `oc.compile`: for which kernel, and its seconds of processor time."""

    kernel: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel.

    ns      of processor time
    flop    of its products
    moved   bytes of operands, constants and the result
    """

    kernel: str
    ns: int
    flop: int
    moved: int


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer: its kernels, which share their code with those of the other layers."""

    project: oc.Kernel
    attention: oc.Kernel
    widen: oc.Kernel
    narrow: oc.Kernel


class Encoder:
    """Sentence embeddings of any sentences of 1 to 512 tokens.

    weights   the constants; matrices and tables are converted to `kind`
    kind      of elements, of weights and of what is between kernels: float32 or bfloat16; sums,
              norms and the exponentials' arguments are float32
    threads   that a kernel may use, at most

    compiles  every call of `oc.compile`: one for each kernel, whatever the sizes and the layers

    Not for several threads at once: calls share their buffers.
    """

    def __init__(self, weights: Weights, kind: str = "float32", threads: int = 1) -> None:
        self.kind, self._threads = kind, threads
        self._dtype = numpy_dtype(kind)
        self.compiles: list[Compile] = []
        self._calls: list[Call] | None = None
        tables = {
            "words": self._cast(weights.words),
            "positions": self._cast(weights.positions),
            "segment": self._cast(weights.kind),
        }
        constants = tables | _affine(weights.norm)
        program = kernels.embed(kind, len(weights.words))
        self._embed = self._noted(
            "embed", lambda: oc.compile(program, constants=constants, threads=threads)
        )
        self._layers = tuple(self._bound(weights.layers))
        self._attend = self._compiled("attend", kernels.attend(kind), {})
        self._pool = self._compiled("pool", kernels.pool(kind), {})
        self._rows, self._other, self._context = np.ones((3, kernels.MOST, HIDDEN), self._dtype)
        self._qkv = np.ones((kernels.MOST, 3 * HIDDEN), self._dtype)
        self._wide = np.ones((kernels.MOST, FEED_FORWARD), self._dtype)

    def encode(self, tokens: Tokens) -> Array:
        """Return the embedding of the sentence `tokens`, (n,): (384,) float32, of length 1."""
        embedding: Array = self._batch([tokens])[0]
        return embedding

    def encode_all(self, sentences: Sequence[Tokens], rows: int = ROWS) -> Array:
        """Return the embeddings of `sentences`, in their order: (count, 384) float32.

        rows   of a batch, at most, but for a single sentence that is longer
        """
        return in_batches(self._batch, min(rows, kernels.MOST))(sentences)

    @contextmanager
    def noting(self) -> Iterator[list[Call]]:
        """Every kernel call while the block runs, in order; a clock adds under 1 µs to each."""
        noted: list[Call] = []
        self._calls = noted
        try:
            yield noted
        finally:
            self._calls = None

    def _batch(self, sentences: Sequence[Tokens]) -> Array:
        """Return the embeddings of sentences in ascending order of length, (count, 384)."""
        lengths = [len(tokens) for tokens in sentences]
        _check(lengths)
        m, same = sum(lengths), runs(lengths)
        rows, other, context = self._rows[:m], self._other[:m], self._context[:m]
        qkv, wide = self._qkv[:m], self._wide[:m]
        tokens = np.concatenate(sentences).astype(np.int32)
        places = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
        self._run("embed", self._embed, (tokens, places), rows)
        for layer in self._layers:
            self._run("project", layer.project, (rows,), qkv, 3 * HIDDEN * HIDDEN)
            for run in same:
                given = qkv[run.rows].reshape(run.count, run.length, 3, HEADS, DEPTH)
                out = context[run.rows].reshape(run.count, run.length, HEADS, DEPTH)
                self._run("attend", self._attend, (given,), out)
            self._run("settle 384", layer.attention, (context, rows), other, HIDDEN * HIDDEN)
            self._run("widen", layer.widen, (other,), wide, HIDDEN * FEED_FORWARD)
            self._run("settle 1536", layer.narrow, (wide, other), rows, FEED_FORWARD * HIDDEN)
        result = np.empty((len(sentences), HIDDEN), np.float32)
        for run in same:
            given = rows[run.rows].reshape(run.count, run.length, HIDDEN)
            self._run("pool", self._pool, (given,), result[run.sentences])
        return result

    def _run(
        self,
        name: str,
        kernel: oc.Kernel,
        given: tuple[Array | Tokens, ...],
        out: Array,
        weight: int = 0,
    ) -> None:
        """Call a kernel whose constant matrix has `weight` elements."""
        if self._calls is None:
            kernel(*given, out=out)
            return
        start = process_time_ns()
        kernel(*given, out=out)
        taken = process_time_ns() - start
        flop = 2 * len(out) * weight
        if name == "attend":
            count, length = out.shape[:2]
            flop = 4 * count * length * length * HIDDEN
        moved = sum(array.nbytes for array in given) + out.nbytes + weight * self._dtype.itemsize
        self._calls.append(Call(name, taken, flop, moved))

    def _compiled(
        self, name: str, described: Computation, constants: Mapping[str, Array]
    ) -> oc.Kernel:
        return self._noted(name, lambda: described.compile(constants, self._threads))

    def _noted(self, name: str, make: Callable[[], oc.Kernel]) -> oc.Kernel:
        start = process_time()
        kernel = make()
        self.compiles.append(Compile(name, process_time() - start))
        return kernel

    def _bound(self, layers: Sequence[Layer]) -> Iterator[_Layer]:
        """The layers: kernels are compiled for the first, which lends its code to the others."""
        kind = self.kind
        described = {
            "project": kernels.dense(HIDDEN, 3 * HIDDEN, kind, gelu=False),
            "settle 384": kernels.settle(HIDDEN, kind),
            "widen": kernels.dense(HIDDEN, FEED_FORWARD, kind, gelu=True),
            "settle 1536": kernels.settle(FEED_FORWARD, kind),
        }
        code: dict[str, oc.Kernel] = {}
        for layer in layers:
            for name, constants in self._constants(layer).items():
                if name in code:
                    code[name] = code[name].with_constants(constants)
                else:
                    code[name] = self._compiled(name, described[name], constants)
            yield _Layer(*code.values())

    def _constants(self, layer: Layer) -> dict[str, dict[str, Array]]:
        """The constants of a layer's kernels, in the order of `_Layer`."""
        return {
            "project": self._linear(layer.together),
            "settle 384": self._linear(layer.attention) | _affine(layer.attention_norm),
            "widen": self._linear(layer.feed_in),
            "settle 1536": self._linear(layer.feed_out) | _affine(layer.feed_norm),
        }

    def _linear(self, linear: Linear) -> dict[str, Array]:
        return {"W": self._cast(linear.weight), "bias": np.asarray(linear.bias, np.float32)}

    def _cast(self, array: Array) -> Array:
        return np.asarray(array, self._dtype)


def _affine(norm: Norm) -> dict[str, Array]:
    return {"gain": np.asarray(norm.gain, np.float32), "shift": np.asarray(norm.bias, np.float32)}


def _check(lengths: Sequence[int]) -> None:
    if not lengths or min(lengths) < 1 or max(lengths) > LONGEST or sum(lengths) > kernels.MOST:
        raise OffcutError(
            "encode",
            f"cannot encode sentences of {', '.join(map(str, lengths)) or 'no'} tokens",
            because=f"a sentence has 1 to {LONGEST} tokens, a batch at most {kernels.MOST}",
        )
