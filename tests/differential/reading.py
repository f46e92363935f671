"""The text of a program as a tree of lines, and back; nothing of offcut takes part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_HEAD = ("program", "size", "assume", "input", "inout", "output", "constant", "local")
_BUFFER = re.compile(r"(input|inout|output|constant|local) (\w+): (\w+)\[(.*)\]")
_SIZE = re.compile(r"size (\w+) in (-?\d+):(\d+)(?: multiple_of (\d+))?")
_STORES = ("+=", "-=", "max=", "min=", "=")


@dataclass(frozen=True)
class Size:
    """A size, `low` <= it < `high`."""

    name: str
    low: int
    high: int
    multiple: int = 1

    def __str__(self) -> str:
        facts = f" multiple_of {self.multiple}" if self.multiple != 1 else ""
        return f"size {self.name} in {self.low}:{self.high}{facts}"

    def allows(self, value: int) -> bool:
        return self.low <= value < self.high and value % self.multiple == 0


@dataclass(frozen=True)
class Buffer:
    """A declared buffer; `shape` is one expression per axis."""

    kind: str
    name: str
    dtype: str
    shape: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.dtype}[{', '.join(self.shape)}]"


@dataclass(frozen=True)
class Line:
    """A statement without its indentation, and what is indented below it."""

    text: str
    body: tuple[Line, ...] = ()

    def walk(self) -> Iterator[Line]:
        yield self
        for line in self.body:
            yield from line.walk()


@dataclass(frozen=True)
class Source:
    """A program: what it declares, and its statements."""

    sizes: tuple[Size, ...]
    assumptions: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Line, ...]

    def __str__(self) -> str:
        head = [*map(str, self.sizes), *(f"assume {fact}" for fact in self.assumptions)]
        lines = ["program drawn", *head, *map(str, self.buffers), *indented(self.body)]
        return "\n".join(lines) + "\n"

    def walk(self) -> Iterator[Line]:
        for line in self.body:
            yield from line.walk()

    def with_body(self, body: Iterable[Line]) -> Source:
        return replace(self, body=tuple(body))


def indented(body: Iterable[Line], depth: int = 0) -> Iterator[str]:
    for line in body:
        yield "  " * depth + line.text
        yield from indented(line.body, depth + 1)


def read(text: str) -> Source:
    """The tree of a program's text."""
    sizes: list[Size] = []
    assumptions: list[str] = []
    buffers: list[Buffer] = []
    rest: list[tuple[int, str]] = []
    for raw in text.splitlines():
        line = raw.partition("#")[0].rstrip()
        word = line.split(" ", 1)[0]
        if not line.strip():
            continue
        if word not in _HEAD:
            rest.append((len(line) - len(line.lstrip()), line.strip()))
        elif found := _SIZE.fullmatch(line):
            sizes.append(Size(found[1], int(found[2]), int(found[3]), int(found[4] or 1)))
        elif found := _BUFFER.fullmatch(line):
            shape = tuple(part.strip() for part in split(found[4], ","))
            buffers.append(Buffer(found[1], found[2], found[3], shape if found[4] else ()))
        elif word == "assume":
            assumptions.append(line[len("assume ") :])
        elif word != "program":
            raise ValueError(f"cannot read {line!r}")
    body, left = _block(rest, 0)
    if left:
        raise ValueError(f"cannot read {left[0][1]!r} so far to the left")
    return Source(tuple(sizes), tuple(assumptions), tuple(buffers), body)


def _block(
    lines: list[tuple[int, str]], least: int
) -> tuple[tuple[Line, ...], list[tuple[int, str]]]:
    """The lines that are indented by `least` or more, and those after them."""
    found: list[Line] = []
    while lines and lines[0][0] >= least:
        indent, text = lines[0]
        body, lines = _block(lines[1:], indent + 1)
        found.append(Line(text, body))
    return tuple(found), lines


def split(text: str, at: str) -> list[str]:
    """`text` cut at each `at` that is in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        if letter == at and not depth:
            parts.append("")
            continue
        depth += (letter in "([") - (letter in ")]")
        parts[-1] += letter
    return parts


@dataclass(frozen=True)
class Store:
    """``buffer[index] op value``."""

    buffer: str
    index: tuple[str, ...]
    op: str
    value: str

    def __str__(self) -> str:
        return f"{self.buffer}[{', '.join(self.index)}] {self.op} {self.value}"


def store_of(line: str) -> Store:
    """The store that a line says."""
    name, _, after = line.partition("[")
    inside = split(after, "]")[0]
    rest = after[len(inside) + 1 :].strip()
    index = tuple(part.strip() for part in split(inside, ",")) if inside.strip() else ()
    for op in _STORES:
        if rest.startswith(op):
            return Store(name.strip(), index, op, rest[len(op) :].strip())
    raise ValueError(f"cannot read {line!r}")


@dataclass(frozen=True)
class Loop:
    """``for name in low:high:step``."""

    name: str
    low: str
    high: str
    step: str = "1"

    def __str__(self) -> str:
        return f"for {self.name} in {self.low}:{self.high}" + (
            f":{self.step}" if self.step != "1" else ""
        )


def loop_of(line: str) -> Loop:
    """The loop that a line says."""
    name, _, bounds = line.partition("@")[0].removeprefix("for ").partition(" in ")
    return Loop(name.strip(), *(part.strip() for part in split(bounds, ":")))
