"""Which sentences share a batch, and which of a batch are of one length."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from examples.sentences.tokens import Tokens
from examples.sentences.weights import HIDDEN, Array

EncodeAll = Callable[[Sequence[Tokens]], Array]
"""Several sentences to their embeddings in the same order: (count, 384) float32, of length 1."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbours of one length: sentences `first` … `first + count`, `length` rows each, from `start`."""

    first: int
    count: int
    start: int
    length: int

    @property
    def sentences(self) -> slice:
        """The sentences of the batch."""
        return slice(self.first, self.first + self.count)

    @property
    def rows(self) -> slice:
        """The rows of the batch."""
        return slice(self.start, self.start + self.count * self.length)


def runs(lengths: Sequence[int]) -> list[Run]:
    """Return the runs of equal `lengths`, in rows; sentences lie one after the other.

    >>> [(run.sentences, run.rows) for run in runs([5, 5, 7])]
    [(slice(0, 2, None), slice(0, 10, None)), (slice(2, 3, None), slice(10, 17, None))]
    """
    found: list[Run] = []
    first = start = 0
    for length, group in groupby(lengths):
        count = sum(1 for _ in group)
        found.append(Run(first, count, start, length))
        first, start = first + count, start + count * length
    return found


def batches(lengths: Sequence[int], rows: int) -> Iterator[slice]:
    """Yield neighbours that have at most `rows` rows together; one that has more is alone.

    >>> list(batches([3, 4, 4, 9], rows=8))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    first = taken = 0
    for index, length in enumerate(lengths):
        if index > first and taken + length > rows:
            yield slice(first, index)
            first, taken = index, 0
        taken += length
    if first < len(lengths):
        yield slice(first, len(lengths))


def in_batches(encode: EncodeAll, rows: int) -> EncodeAll:
    """`encode`, given sentences in ascending order of length, at most `rows` rows a call."""

    def encode_all(sentences: Sequence[Tokens]) -> Array:
        order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
        found = np.empty((len(sentences), HIDDEN), np.float32)
        for batch in batches([len(sentences[index]) for index in order], rows):
            chosen = order[batch]
            found[chosen] = encode([sentences[index] for index in chosen])
        return found

    return encode_all
