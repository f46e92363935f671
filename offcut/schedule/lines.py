"""The text of a schedule in; its lines, each with those that are indented below it, out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from offcut.core.expr import Expr
from offcut.core.layout import Layout
from offcut.core.text.expressions import parse_expr
from offcut.core.text.layouts import layout_of
from offcut.core.text.tokens import BYTE_ORDER_MARK
from offcut.errors import OffcutError, ParseError
from offcut.partition import Strategy, parse_strategy

_MOST = 2**31 - 1
_MOST_LEVELS = 100


def lines_in_blocks(text: str) -> LineBlock:
    """Return the first line of `text`, and all others below it.

    Raises ParseError, with the line, where its indentation is none of those around it.
    """
    if not isinstance(text, str):
        because = f"it is of type {type(text).__name__}, and a schedule is text"
        raise ParseError("parse", "cannot read a schedule", because=because)
    lines = [
        Line(number, len(code) - len(code.lstrip()), code.strip())
        for number, raw in enumerate(text.removeprefix(BYTE_ORDER_MARK).split("\n"), 1)
        if (code := raw.partition("#")[0].rstrip())
    ]
    if not lines:
        raise ParseError("parse", "cannot read a schedule", because="the text is empty")
    root = LineBlock(lines[0], [])
    stack = [root]
    if lines[0].indent:
        lines[0].refuse("its first line is not indented", "schedule C")
    for line in lines[1:]:
        while len(stack) > 1 and stack[-1].line.indent >= line.indent:
            stack.pop()
        inside = stack[-1].inside
        if inside and inside[-1].line.indent != line.indent:
            line.refuse("it is indented as no line before it", "two spaces a level")
        if len(stack) > _MOST_LEVELS:
            line.refuse(f"more than {_MOST_LEVELS} levels are nested")
        inside.append(LineBlock(line, []))
        stack.append(inside[-1])
    return root


@dataclass(frozen=True)
class Line:
    """One line without its comment, of a text that is called `of`; `number` counts from 1, `indent` in spaces."""

    number: int
    indent: int
    text: str
    of: str = "a schedule"

    @property
    def word(self) -> str:
        """Return the first word: which decision it is."""
        return self.text.split()[0]

    def match(self, pattern: str, *examples: str) -> re.Match[str]:
        """Return the parts of the line; refused where it is not as `examples`."""
        found = re.fullmatch(pattern, self.text)
        return found if found else self.refuse("it is not of this form", *examples)

    def size(self, text: str) -> int:
        """Return a number of the line, an iteration count or a place; refused past the greatest size."""
        if len(text) > len(str(_MOST)) or int(text) > _MOST:
            self.refuse(f"its numbers are at most {_MOST}")
        return int(text)

    def sizes(self, text: str) -> tuple[int, ...]:
        """Return the numbers between spaces."""
        return tuple(map(self.size, text.split()))

    def refuse(self, because: str, *help: str) -> NoReturn:
        """Raise ParseError at the line.

        help  what would be read
        """
        at = f"line {self.number}: {self.text}"
        raise ParseError("parse", f"cannot read {self.of}", at=at, because=because, help=help)


@dataclass(frozen=True)
class LineBlock:
    """A line, and the lines that are indented below it."""

    line: Line
    inside: list[LineBlock]

    def alone(self) -> Line:
        """Return the line; refused where something is indented below it."""
        if self.inside:
            self.inside[0].line.refuse(f"{self.line.word} holds no other decision")
        return self.line


def read_classes(line: Line, text: str) -> Iterator[tuple[tuple[int, int], int, tuple[int, ...]]]:
    """Yield ((least, greatest height), tile, its sizes) of ``1..6: 64 32 16, 7..14: 32 16``."""
    for part in text.split(", "):
        one = re.fullmatch(r"(\d+)\.\.(\d+): (\d+(?: \d+)*)", part)
        if one is None:
            line.refuse(f"{part!r} is not a range of heights", "1..6: 64 32 16")
        heights = line.sizes(one[3])
        yield (line.size(one[1]), line.size(one[2])), heights[0], heights


STRATEGY = r"(\w+(?:\(\d+(?:, \d+)*\))?)"


def read_strategy(line: Line, name: str, *tiles: int) -> Strategy:
    """Return the strategy of that name, for tiles of these sizes; refused at the line where there is none."""
    for number in re.findall(r"\d+", name.partition("(")[2]):
        line.size(number)
    try:
        return parse_strategy(name, at="", tiles=tiles)
    except OffcutError as refused:
        line.refuse(refused.because, *refused.help)


def read_expr(line: Line, text: str, dtype: str, *examples: str) -> Expr:
    """Return the expression of `text`; refused at the line where it is none."""
    try:
        return parse_expr(text, dtype)
    except ParseError as refused:
        because = f"{refused.refused}: {refused.because}"
        line.refuse(because, *refused.help, *examples)


def read_layout(line: Line, text: str) -> Layout:
    """Return the layout of `text`; refused at the line where it is none."""
    try:
        return layout_of(text)
    except ParseError as refused:
        line.refuse(f"{refused.refused}: {refused.because}", *refused.help)
