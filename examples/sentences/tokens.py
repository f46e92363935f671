"""From a sentence to token numbers: the model's own tokenizer, or a stand-in where it is absent."""

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORTEST, LONGEST = 5, 512  # tokens; the model has 512 positions

CLS, SEP = 101, 102  # what BERT puts before and after a sentence
VOCABULARY = 30522

PIECE = re.compile(r"[^\W_]{1,7}|_|[^\w\s]")

Tokens = NDArray[np.integer[Any]]
"""The token numbers of one sentence, (n,)."""

Tokenizer = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as the encoder takes it.

    text        as it stands in the reference
    tokens      token numbers, the opening and the closing one included: (n,), 5 <= n <= 512
    truncated   whether tokens beyond the 512th were dropped
    """

    text: str
    tokens: Tokens
    truncated: bool

    def __len__(self) -> int:
        return len(self.tokens)


def tokenizer_of(file: Path | None) -> Tokenizer:
    """Return the tokenizer of a model: the one in its file, or the stand-in where it has none."""
    return stand_in if file is None else wordpiece(file)


def wordpiece(file: Path) -> Tokenizer:
    """Return the tokenizer that `file` (tokenizer.json) describes, without padding or limit."""
    import tokenizers

    model = tokenizers.Tokenizer.from_file(str(file))
    model.no_padding()
    model.no_truncation()
    return lambda texts: [list(found.ids) for found in model.encode_batch(list(texts))]


def stand_in(texts: Sequence[str]) -> list[list[int]]:
    """Return numbers for words cut to 7 letters and for signs: lengths like the real tokenizer's.

    The numbers are the pieces' checksums, so that equal words are equal tokens.
    """
    return [
        [CLS, *(zlib.crc32(piece.encode()) % VOCABULARY for piece in PIECE.findall(text)), SEP]
        for text in (text.lower() for text in texts)
    ]


def tokenize(texts: Sequence[str], tokenizer: Tokenizer) -> list[Sentence]:
    """Return the sentences of at least 5 tokens, in order, each truncated to 512."""
    return [
        Sentence(text, np.asarray(shorten(ids)), truncated=len(ids) > LONGEST)
        for text, ids in zip(texts, tokenizer(texts), strict=True)
        if len(ids) >= SHORTEST
    ]


def shorten(ids: list[int]) -> list[int]:
    """Return `ids`, its middle cut out to 512 where it is longer, so that it keeps its last one."""
    return ids if len(ids) <= LONGEST else [*ids[: LONGEST - 1], ids[-1]]
