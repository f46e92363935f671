"""What the generators draw from: choices of a seed, and lines that are indented."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Choices, the same ones for the same seed."""

    def __init__(self, seed: int | str) -> None:
        self.random = Random(seed)

    def pick(self, *choices: T) -> T:
        return self.random.choice(choices)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def number(self, low: int, high: int) -> int:
        """low … high, both of them."""
        return self.random.randint(low, high)

    def some(self, choices: Sequence[T], share: float = 0.5) -> list[T]:
        return [choice for choice in choices if self.chance(share)]

    def mixed(self, choices: Iterable[T]) -> list[T]:
        mixed = list(choices)
        self.random.shuffle(mixed)
        return mixed


@dataclass
class Drawn:
    """A program as it is being written.

    data       what its floats may hold
    described  Python that describes the same, or nothing
    tile, tail  how its loops are to be cut; where it says nothing, that is drawn too
    large      whether what it is about takes sizes past a vector and a tile
    steps, sizes, threads  what is tried, where, and on how many threads; the same
    emulated   whether it needs the tensor unit, emulated where there is none
    """

    head: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    data: str = "whole"
    described: str = ""
    tile: dict[str, int | tuple[int, ...]] = field(default_factory=dict)
    tail: dict[str, str] = field(default_factory=dict)
    large: bool = False
    steps: tuple[str, ...] = ()
    sizes: tuple[dict[str, int], ...] = ()
    threads: int = 0
    emulated: bool = False

    @property
    def ordered(self) -> list[str]:
        """The declarations, sizes and what is assumed of them first."""
        return sorted(
            self.head,
            key=lambda line: (
                ("size", "assu").index(line[:4]) if line[:4] in ("size", "assu") else 2
            ),
        )

    @property
    def text(self) -> str:
        return "\n".join(["program drawn", *self.ordered, *self.body]) + "\n"


def nest(heads: Sequence[str], body: Sequence[str]) -> list[str]:
    """`body` under each of `heads`, from the outermost."""
    lines = list(body)
    for head in reversed(heads):
        lines = [head, *(f"  {line}" for line in lines)]
    return lines


def listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)
