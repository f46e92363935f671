"""The demo from end to end: text, encoder, two engines in turns, checks, picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from offcut.experiment.demo import text, tokens, weights
from offcut.experiment.demo.dense import Call, Compile, NumpyEngine, OffcutEngine, Shape, Timed
from offcut.experiment.demo.encoder import Encoder
from offcut.experiment.demo.picture import Curve, picture, spread
from offcut.experiment.demo.tokens import Sentence
from offcut.experiment.demo.weights import Array, Model
from offcut.experiment.machine import Machine, describe
from offcut.experiment.outputs import check_writable

QUERY = "What is the order in which operators are evaluated?"
NEAREST = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    everything        the whole text instead of a sample
    count             sentences in the sample
    every_length      whether the sample holds every length, and more than `count` if need be
    seed              of the sample, and of the weights where the trained ones are missing
    out               folder of the picture
    query             sentence whose nearest neighbours are shown
    checked           sentences compared with float64
    picture_seconds   time spent on measuring for the picture
    picture_lengths   lengths measured for it
    """

    everything: bool = False
    count: int = 600
    every_length: bool = True
    seed: int = 0
    out: Path = Path("out")
    query: str = QUERY
    checked: int = 60
    picture_seconds: float = 15.0
    picture_lengths: int = 64


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A sentence near the query: the cosine of the two embeddings, and its text."""

    cosine: float
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """One layer shape's calls by both engines, in seconds of processor time.

    ratio   median over the calls of numpy's time over offcut's
    gflop   1e9 flop of the products, once
    """

    shape: Shape
    calls: int
    offcut: float
    numpy: float
    ratio: float
    gflop: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Largest differences between elements of embeddings, which have Euclidean length 1.

    offcut, numpy   the encoder with that engine against the same encoder in float64
    between         the two engines against each other, over all sentences
    sentences       compared with float64
    """

    offcut: float
    numpy: float
    between: float
    sentences: int


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that the report prints.

    available, distinct, truncated   sentences of the text; how many differ, how many were too long
    sentences             those encoded, in the text's order
    compiles              calls of `oc.compile` before the first sentence
    compiles_later        how many more there were until the last
    comparisons           one per layer shape
    numpy_gelu            seconds of numpy's time that went into gelu
    encode_offcut, encode_numpy   seconds on the wall for whole sentences, attention and norms too
    """

    options: Options
    machine: Machine
    model: Model
    available: int
    distinct: int
    truncated: int
    sentences: tuple[Sentence, ...]
    compiles: tuple[Compile, ...]
    compiles_later: int
    comparisons: tuple[Comparison, ...]
    numpy_gelu: float
    encode_offcut: float
    encode_numpy: float
    difference: Difference
    neighbours: tuple[Neighbour, ...]
    curves: tuple[Curve, ...]
    picture: Path
    seconds: float


def run(options: Options, console: Console) -> Result:
    """Run the demo, with progress bars on `console`; the picture is written, the rest returned.

    Raises OffcutError when the text or the weights cannot be used, or the picture not be written.
    """
    start = perf_counter()
    file = options.out / "demo.png"
    check_writable(file, "demo")
    machine = describe()
    with console.status("reading the weights"):
        model = weights.load(options.seed)
    tokenizer = tokens.stand_in if model.tokenizer is None else tokens.wordpiece(model.tokenizer)
    with console.status("splitting the text"):
        available = read(tokenizer)
    chosen = choose(available, options)

    ours, theirs = OffcutEngine(), NumpyEngine()
    timed_ours, timed_theirs = Timed(ours), Timed(theirs)
    with console.status("compiling one kernel per layer shape"):
        encoder = Encoder(model.weights, timed_ours)
        rival = Encoder(model.weights, timed_theirs)
    compiles = tuple(ours.compiles)

    for warm in (encoder, rival):
        warm.encode(chosen[0].tokens)
    theirs.gelu_ns = 0
    for timed in (timed_ours, timed_theirs):
        timed.calls.clear()
    with _progress(console, "encoding", len(chosen)) as advance:
        embeddings, rivals, seconds = in_turns(encoder, rival, chosen, advance)
    comparisons = tuple(compare(timed_ours.calls, timed_theirs.calls))
    gelu = theirs.gelu_ns * 1e-9

    difference = check(model, chosen, embeddings, rivals, options.checked, console)
    neighbours = nearest(
        encoder.encode(tokens.tokenize([options.query], tokenizer)[0].tokens), embeddings, chosen
    )
    later = len(ours.compiles) - len(compiles)

    with _progress(console, "measuring", options.picture_seconds, unit=" s") as advance:
        curves = picture(
            model.weights.layers[0].feed_in,
            [len(sentence) for sentence in chosen],
            str(machine),
            file,
            options.picture_seconds,
            advance,
            count=options.picture_lengths,
        )
    return Result(
        options=options,
        machine=machine,
        model=model,
        available=len(available),
        distinct=len({sentence.text for sentence in available}),
        truncated=sum(sentence.truncated for sentence in available),
        sentences=tuple(chosen),
        compiles=compiles,
        compiles_later=later,
        comparisons=comparisons,
        numpy_gelu=gelu,
        encode_offcut=seconds[0],
        encode_numpy=seconds[1],
        difference=difference,
        neighbours=neighbours,
        curves=curves,
        picture=file,
        seconds=perf_counter() - start,
    )


def read(tokenizer: tokens.Tokenizer) -> list[Sentence]:
    """Return the sentences of the language reference that have 5 tokens or more."""
    found = [sentence for topic in text.reference() for sentence in text.sentences(topic)]
    return tokens.tokenize(found, tokenizer)


def choose(available: Sequence[Sentence], options: Options) -> list[Sentence]:
    """Return the sentences to encode: all, a sample that holds every length, or part of one."""
    if options.everything:
        return list(available)
    lengths = [len(sentence) for sentence in available]
    texts = [sentence.text for sentence in available]
    picks = text.sample(lengths, texts, options.count, options.seed)
    step = 1 if options.every_length else max(1, len(picks) // max(1, options.count))
    return [available[index] for index in picks[::step]]


def in_turns(
    first: Encoder,
    second: Encoder,
    sentences: Sequence[Sentence],
    advance: Callable[[float], None],
) -> tuple[Array, Array, tuple[float, float]]:
    """Encode every sentence by both encoders, one right after the other, taking turns to begin.

    Each encoder runs on its own results, so what is in the caches is what its own layers left
    there (and, for its first layers, the other's last ones).

    Returns both arrays of embeddings, (sentences, 384), and each encoder's seconds.
    """
    encoders = (first, second)
    rows: tuple[list[Array], list[Array]] = ([], [])
    seconds = [0.0, 0.0]
    for index, sentence in enumerate(sentences):
        for which in (0, 1) if index % 2 == 0 else (1, 0):
            start = perf_counter()
            rows[which].append(encoders[which].encode(sentence.tokens))
            seconds[which] += perf_counter() - start
        advance(index + 1)
    return np.array(rows[0]), np.array(rows[1]), (seconds[0], seconds[1])


def compare(ours: Sequence[Call], theirs: Sequence[Call]) -> list[Comparison]:
    """Return the comparison of each layer shape; both engines made the same calls in one order."""
    pairs: dict[Shape, list[tuple[Call, Call]]] = {}
    for mine, other in zip(ours, theirs, strict=True):
        pairs.setdefault(mine.shape, []).append((mine, other))
    return [
        Comparison(
            shape=shape,
            calls=len(found),
            offcut=sum(mine.ns for mine, _ in found) * 1e-9,
            numpy=sum(other.ns for _, other in found) * 1e-9,
            ratio=median(other.ns / mine.ns for mine, other in found),
            gflop=sum(shape.flop(mine.rows) for mine, _ in found) * 1e-9,
        )
        for shape, found in pairs.items()
    ]


def check(
    model: Model,
    sentences: Sequence[Sentence],
    embeddings: Array,
    rivals: Array,
    count: int,
    console: Console,
) -> Difference:
    """Return how far both engines' embeddings are from the same encoder in float64.

    count   sentences compared: of lengths spread evenly over those seen, the longest included
    """
    by_length = {len(sentence): index for index, sentence in enumerate(sentences)}
    picks = [by_length[length] for length in spread(list(by_length), count)]
    exact = Encoder(model.weights, NumpyEngine(), np.float64)
    apart = [0.0, 0.0]
    with _progress(console, "checking in float64", len(picks)) as advance:
        for done, index in enumerate(picks, start=1):
            truth = exact.encode(sentences[index].tokens)
            for which, found in enumerate((embeddings, rivals)):
                apart[which] = max(apart[which], float(np.abs(found[index] - truth).max()))
            advance(done)
    between = float(np.abs(embeddings - rivals).max())
    return Difference(apart[0], apart[1], between, len(picks))


def nearest(
    query: Array, embeddings: Array, sentences: Sequence[Sentence]
) -> tuple[Neighbour, ...]:
    """Return the sentences of different texts whose embeddings are nearest to `query`, by cosine.

    query        (384,), of length 1, as the rows of `embeddings`, (sentences, 384)
    """
    cosines = embeddings @ query
    found: dict[str, float] = {}
    for index in np.argsort(-cosines, kind="stable"):
        found.setdefault(sentences[index].text, float(cosines[index]))
        if len(found) == NEAREST:
            break
    return tuple(Neighbour(cosine, near) for near, cosine in found.items())


class _progress:
    """A bar on `console` while the block runs; the block's value takes what is done of `total`."""

    def __init__(self, console: Console, what: str, total: float, unit: str = "") -> None:
        count = TextColumn("{task.completed:.0f}/{task.total:.0f}" + unit)
        self._bar = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            count if unit else MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task(what, total=total)

    def __enter__(self) -> Callable[[float], None]:
        self._bar.start()
        return lambda done: self._bar.update(self._task, completed=done)

    def __exit__(self, *raised: object) -> None:
        self._bar.stop()
