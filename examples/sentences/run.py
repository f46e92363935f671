"""The demo from end to end: text, encoder, checks, everybody in turns, picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from examples.sentences import text, tokens, weights
from examples.sentences.contenders import (
    KINDS,
    PACKAGES,
    Standing,
    contenders,
    exactly,
    missing,
    standings,
)
from examples.sentences.encoder import Compile, Encoder
from examples.sentences.picture import picture
from examples.sentences.shares import Share, shares
from examples.sentences.tokens import Sentence
from examples.sentences.weights import Array, Model
from offcut.experiment.limits import Limits
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
    kinds             element types of offcut's encoders: float32 first, bfloat16
    compared          sentences that everybody encodes, and that are checked against float64
    rounds            how often everybody encodes them
    libraries         whether libraries take part that are installed, beside numpy
    picture_seconds   time spent on measuring for the picture
    picture_lengths   lengths measured for it
    """

    everything: bool = False
    count: int = 600
    every_length: bool = True
    seed: int = 0
    out: Path = Path("out")
    query: str = QUERY
    kinds: tuple[str, ...] = KINDS
    compared: int = 60
    rounds: int = 5
    libraries: bool = True
    picture_seconds: float = 15.0
    picture_lengths: int = 64


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A sentence near the query: the cosine of the two embeddings, and its text."""

    cosine: float
    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that the report prints.

    available, distinct, truncated   sentences of the text; how many differ, how many were too long
    sentences      those encoded, in the text's order
    compared       numbers of those that everybody encoded
    compiles       calls of `oc.compile` before the first sentence, by element type
    compiles_later how many more there were until the last
    encoded        seconds on the wall for all sentences, by element type
    standings      everybody on the compared sentences
    missing        libraries that do not take part
    shares         where offcut's time went on the compared sentences, by element type
    """

    options: Options
    machine: Machine
    model: Model
    available: int
    distinct: int
    truncated: int
    sentences: tuple[Sentence, ...]
    compared: tuple[int, ...]
    compiles: dict[str, tuple[Compile, ...]]
    compiles_later: int
    encoded: dict[str, float]
    standings: tuple[Standing, ...]
    missing: tuple[str, ...]
    shares: dict[str, tuple[Share, ...]]
    neighbours: tuple[Neighbour, ...]
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
    tokenizer = tokens.tokenizer_of(model.tokenizer)
    with console.status("splitting the text"):
        available = read(tokenizer)
    chosen = choose(available, options)

    with console.status("compiling the encoder, once for all lengths"):
        encoders = [Encoder(model.weights, kind) for kind in options.kinds]
    compiles = {encoder.kind: tuple(encoder.compiles) for encoder in encoders}

    embeddings, encoded = encode(encoders, [sentence.tokens for sentence in chosen], console)
    compared = tuple(evenly(chosen, options.compared))
    some = [chosen[index].tokens for index in compared]
    with _progress(console, "checking in float64", len(some)) as advance:
        expected = exactly(model.weights, some, advance)
    with console.status("preparing the libraries that are installed"):
        libraries = tuple(PACKAGES) if options.libraries else ()
        everybody = tuple(contenders(model.weights, encoders, libraries))
    with _progress(console, "encoding in turns", options.rounds) as advance:
        ranks = standings(everybody, some, expected, options.rounds, advance=advance)
    with console.status("measuring where time goes"):
        limits = Limits()
        spent = {encoder.kind: tuple(shares(encoder, some, limits)) for encoder in encoders}
    query = tokens.tokenize([options.query], tokenizer)[0].tokens
    neighbours = nearest(encoders[0].encode(query), embeddings, chosen)
    later = sum(len(encoder.compiles) for encoder in encoders) - sum(map(len, compiles.values()))

    with _progress(console, "measuring", options.picture_seconds, unit=" s") as advance:
        picture(
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
        compared=compared,
        compiles=compiles,
        compiles_later=later,
        encoded=encoded,
        standings=ranks,
        missing=missing() if options.libraries else (),
        shares=spent,
        neighbours=neighbours,
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


def encode(
    encoders: Sequence[Encoder], sentences: Sequence[tokens.Tokens], console: Console
) -> tuple[Array, dict[str, float]]:
    """Return the embeddings by the first encoder, and the seconds on the wall of each, by kind."""
    found: list[Array] = []
    seconds: dict[str, float] = {}
    for encoder in encoders:
        encoder.encode(sentences[0])
        with console.status(f"encoding in {encoder.kind}"):
            start = perf_counter()
            found.append(encoder.encode_all(sentences))
            seconds[encoder.kind] = perf_counter() - start
    return found[0], seconds


def evenly(sentences: Sequence[Sentence], count: int) -> list[int]:
    """Return the numbers of at most `count` sentences, every so many, so frequent lengths stay so."""
    picks = np.linspace(0, len(sentences) - 1, min(count, len(sentences))).round().astype(int)
    return sorted({int(pick) for pick in picks})


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
