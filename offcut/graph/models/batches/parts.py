"""Micro-batches as data: which kernels of a model run for a part of the batch at a time. A line says it of several kernels that follow
one another, by the values that the first and the last of them give::

    relu_1 to mean: 2 of b at a time
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from offcut.errors import DescribeError, PartitionError, blamed_on_another
from offcut.schedule.lines import Line

SHOWN = "relu_1 to mean: 2 of b at a time"


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


def check_parts(op: str, parts: object) -> None:
    """Refuse what is no `Parts`.

    op  the call as the user made it
    """
    if not (isinstance(parts, bool | str) or callable(parts)):
        raise DescribeError(
            op,
            f"cannot take parts={parts!r}",
            because="it is True, False, a text of parts, or a function from sizes to one",
            help=(f'parts="{SHOWN}"', f'parts=lambda sizes: "{SHOWN}" if sizes[\'b\'] > 8 else ""'),
        )


def said_by(rule: Callable[[Mapping[str, int]], str], sizes: Mapping[str, int]) -> str:
    """The text that a rule gives for sizes.

    Raises PartitionError where it gives none.
    """
    at = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    help = f"a function of {{{', '.join(map(repr, sizes))}}}", f'"{SHOWN}", or ""'

    def refused(did: str) -> PartitionError:
        what = "cannot ask the rule"
        return PartitionError("parts", what, at=at, because=f"it {did}", help=help)

    with blamed_on_another(refused):
        text = rule(dict(sizes))
    if not isinstance(text, str):
        raise refused(f"gave {text!r}, and parts are text")
    return text


def parse_parts(text: str) -> tuple[Part, ...]:
    """The parts that print as the lines of `text`; what follows a # is left out.

    Raises ParseError, with the line, where one is of another form.
    """
    lines = enumerate((raw.partition("#")[0].strip() for raw in text.split("\n")), 1)
    return tuple(_read_part(Line(number, 0, line, "parts")) for number, line in lines if line)


def _read_part(line: Line) -> Part:
    pattern = r"(\S+) to (\S+): (\d+) of (\S+) at a time"
    first, last, count, size = line.match(pattern, SHOWN).groups()
    if not line.size(count):
        line.refuse("a part is of one at least", SHOWN)
    return Part(first, last, int(count), size)
