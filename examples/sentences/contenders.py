"""Who encodes the same sentences: offcut, numpy, and the libraries that are installed."""

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from examples.sentences.batches import EncodeAll, in_batches
from examples.sentences.encoder import ROWS, Encoder
from examples.sentences.libraries import (
    onnxruntime_encoder,
    openvino_encoder,
    torch_encoder,
)
from examples.sentences.plain import PlainEncoder
from examples.sentences.tokens import Tokens
from examples.sentences.weights import Array, Weights
from offcut.experiment.timing import Clock, Ratio, Timing, in_rounds, paired_ratio

KINDS = ("float32", "bfloat16")
LEAST_COSINE = {"float32": 0.9999, "bfloat16": 0.999}
"""With the embedding in float64: of less, an encoder is wrong."""

ALONE, TOGETHER = "alone", f"{ROWS} rows"
BATCHES = {ALONE: 1, TOGETHER: ROWS}
"""Rows of a call by what the tables say; a sentence of more rows is alone."""

HOPELESS = 8.0
"""Times the least time of a first encoding: who takes longer is not measured again."""

PACKAGES = {
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime", "onnx"),
    "openvino": ("openvino", "onnx"),
}
"""What each library takes."""


@dataclass(frozen=True, slots=True)
class Contender:
    """An encoder: the type that it computes with, whose it is, and how sentences are batched."""

    kind: str
    name: str
    batch: str
    encode_all: EncodeAll = field(repr=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}, {self.batch}"


def missing() -> tuple[str, ...]:
    """The libraries that do not take part, each with the packages that it lacks."""
    return tuple(
        f"{name} ({', '.join(lacks)} not installed)"
        for name, needs in PACKAGES.items()
        if (lacks := [need for need in needs if importlib.util.find_spec(need) is None])
    )


def contenders(
    weights: Weights,
    ours: Sequence[Encoder],
    libraries: Sequence[str] = tuple(PACKAGES),
    threads: int = 1,
) -> Iterator[Contender]:
    """Everybody in turn, offcut first; libraries compute with the element types of offcut's encoders.

    ours       offcut's encoders
    libraries  which take part, as far as they are installed
    threads    of each library
    """
    for encoder in ours:
        yield Contender(encoder.kind, "offcut", ALONE, partial(encoder.encode_all, rows=1))
        yield Contender(encoder.kind, "offcut", TOGETHER, encoder.encode_all)
    plain = PlainEncoder(weights)
    yield Contender(
        "float32",
        "numpy",
        ALONE,
        lambda sentences: np.array([plain.encode(one) for one in sentences]),
    )
    kinds = [encoder.kind for encoder in ours]
    lacking = {line.partition(" ")[0] for line in missing()}
    for name in libraries:
        if name not in lacking:
            yield from by_library(name, weights, kinds, threads)


def by_library(
    name: str, weights: Weights, kinds: Sequence[str], threads: int
) -> Iterator[Contender]:
    """The ways to encode by one of `PACKAGES`, which is installed: operators, batches, `kinds`."""
    yield from FOUND[name](importlib.import_module(name), weights, kinds, threads)


def _torch(torch: Any, weights: Weights, kinds: Sequence[str], threads: int) -> Iterator[Contender]:
    torch.set_num_threads(threads)
    for kind in kinds:
        made = {
            "torch": partial(torch_encoder, torch, weights, kind, packed=False, fused=False),
            "torch sdpa": partial(torch_encoder, torch, weights, kind, packed=False),
        }
        if torch.backends.mkldnn.is_available():
            made["torch sdpa packed"] = partial(torch_encoder, torch, weights, kind, packed=True)
        for name, make in made.items():
            encode = make()
            for batch, rows in BATCHES.items():
                yield Contender(kind, name, batch, in_batches(encode, rows))


def _onnxruntime(
    onnxruntime: Any, weights: Weights, kinds: Sequence[str], threads: int
) -> Iterator[Contender]:
    if "float32" not in kinds:
        return
    for operator in ("Attention", "MultiHeadAttention"):
        for batch, rows in BATCHES.items():
            encode = onnxruntime_encoder(onnxruntime, weights, operator, rows > 1, threads)
            name = f"onnxruntime {operator}"
            yield Contender("float32", name, batch, in_batches(encode, rows))


def _openvino(
    openvino: Any, weights: Weights, kinds: Sequence[str], threads: int
) -> Iterator[Contender]:
    for kind in kinds:
        for batch, rows in BATCHES.items():
            encode = openvino_encoder(openvino, weights, kind, rows > 1, threads)
            yield Contender(kind, "openvino", batch, in_batches(encode, rows))


FOUND = {"torch": _torch, "onnxruntime": _onnxruntime, "openvino": _openvino}


@dataclass(frozen=True, slots=True)
class Standing:
    """What a contender did: its least cosine with float64, and seconds for all `count` sentences.

    timing   None where it was wrong, and therefore not measured
    """

    contender: Contender
    cosine: float
    timing: Timing | None
    count: int

    @property
    def seconds(self) -> float:
        """Median seconds for all sentences; infinite where the embeddings are wrong."""
        return math.inf if self.timing is None else self.timing.seconds


def standings(
    found: Sequence[Contender],
    sentences: Sequence[Tokens],
    expected: Array,
    rounds: int,
    clock: Clock = process_time,
    advance: Callable[[float], None] = lambda done: None,
) -> tuple[Standing, ...]:
    """Everybody encodes `sentences` in turns, `rounds` times, after being compared.

    Of whoever takes several times as long as the fastest, the first time has to do.

    expected   the embeddings in float64, (count, 384)
    advance    told how many rounds are done
    """
    cosines: dict[Contender, float] = {}
    first: dict[Contender, float] = {}
    for one in found:
        start = clock()
        embeddings = one.encode_all(sentences)
        first[one] = clock() - start
        cosines[one] = float((embeddings * expected).sum(axis=1).min())
    right = [one for one in found if cosines[one] >= LEAST_COSINE[one.kind]]
    least = {
        kind: min((first[one] for one in right if one.kind == kind), default=0.0) for kind in KINDS
    }

    def seconds(one: Contender) -> float:
        start = clock()
        one.encode_all(sentences)
        return clock() - start

    quick = {
        str(one): partial(seconds, one) for one in right if first[one] <= HOPELESS * least[one.kind]
    }
    samples = in_rounds(quick, rounds, advance)
    taken = {one: Timing(tuple(samples.get(str(one), [first[one]])), 1) for one in right}
    return tuple(Standing(one, cosines[one], taken.get(one), len(sentences)) for one in found)


def exactly(
    weights: Weights,
    sentences: Sequence[Tokens],
    advance: Callable[[float], None] = lambda done: None,
) -> Array:
    """The embeddings in float64, (count, 384); `advance` is told how many are done."""
    exact, found = PlainEncoder(weights, np.float64), []
    for done, given in enumerate(sentences, start=1):
        found.append(exact.encode(given))
        advance(done)
    return np.array(found)


def best_ratio(found: Sequence[Standing], kind: str) -> tuple[Standing, Ratio] | None:
    """The fastest other contender of a kind, and its time over that of offcut's fastest."""
    ranked = sorted(
        (one for one in found if one.timing is not None and one.contender.kind == kind),
        key=lambda one: one.seconds,
    )
    ours = next((one for one in ranked if one.contender.name == "offcut"), None)
    other = next((one for one in ranked if one.contender.name not in ("offcut", "numpy")), None)
    if ours is None or other is None or ours.timing is None or other.timing is None:
        return None
    return other, paired_ratio(other.timing, ours.timing)
