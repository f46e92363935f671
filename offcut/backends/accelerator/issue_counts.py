"""Counts of what a leaf, or a nest, issues and moves in a call: numbers, or expressions over sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from offcut.core import index as ix
from offcut.core.expr import Expr

ZERO, ONE = ix.const(0), ix.const(1)


@dataclass(frozen=True, slots=True)
class Issued:
    """Of a leaf, over all of its instances in a call.

    runs          instances
    instructions  that are issued
    steps         of products, or of the vector unit with an immediate; of a copy, those that fill what main memory has not
    pairs         of the vector unit with a second word
    resets        of words that are set to 0
    words, bytes  that the bus moves; bytes in whole beats
    zeros         words that a load fills
    """

    runs: Expr = ZERO
    instructions: Expr = ZERO
    steps: Expr = ZERO
    pairs: Expr = ZERO
    resets: Expr = ZERO
    words: Expr = ZERO
    bytes: Expr = ZERO
    zeros: Expr = ZERO

    def mapped(self, of: Callable[[Expr], Expr]) -> Issued:
        """Each count put through a function."""
        return Issued(*(of(getattr(self, one.name)) for one in fields(Issued)))
