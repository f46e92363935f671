"""Micro-batches as data: which kernels of a model run for a part of the batch at a time. A line says it of several kernels that follow
one another, by the values that the first and the last of them give::

    relu_1 to mean: 2 of b at a time
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from offcut.errors import ParseError
from offcut.schedule.lines import Line


@dataclass(frozen=True, slots=True)
class Part:
    """Kernels from that of `first` to that of `last`, one after the other, for `count` of a size, then for the next."""

    first: str
    last: str
    count: int
    size: str

    def __str__(self) -> str:
        return f"{self.first} to {self.last}: {self.count} of {self.size} at a time"


Parts: TypeAlias = bool | str | Callable[[Mapping[str, int]], str]
"""Which kernels run so: those that the machine's memories say, none, those of a text, or those of what a rule gives for sizes."""


def parse_parts(text: str) -> tuple[Part, ...]:
    """The parts that print as the lines of `text`; what follows a # is left out.

    Raises ParseError, with the line, where one is of another form.
    """
    if not isinstance(text, str):
        because = f"it is of type {type(text).__name__}, and parts are text"
        raise ParseError("parse", "cannot read parts", because=because)
    lines = enumerate((raw.partition("#")[0].strip() for raw in text.split("\n")), 1)
    return tuple(_read(Line(number, 0, line, "parts")) for number, line in lines if line)


def _read(line: Line) -> Part:
    shown = "relu_1 to mean: 2 of b at a time"
    first, last, count, size = line.match(
        r"(\S+) to (\S+): (\d+) of (\S+) at a time", shown
    ).groups()
    if not line.size(count):
        line.refuse("a part is of one at least", shown)
    return Part(first, last, int(count), size)
