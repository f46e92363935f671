"""Pieces of code that differ only in names and literals -> one function that all of them call.

A program has a piece for each tile that was cut, and most of them say the same of other sizes. Written once, they
are optimised once, which is most of what compiling takes. What a piece reads of the code around it becomes a parameter,
and so does a literal in which the pieces differ; one that all have in common stays, so that a division by it stays a shift.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from offcut.backends.llvm.ir import Function
from offcut.errors import InternalError

FEW = 32  # instructions that are not worth a call

_PLACE = "  piece "  # and its number: what stands in the text, which is no LLVM IR, until all pieces are known
_HOLE = "\0"  # a literal, in the form of a piece
_TYPE = r"(ptr|double|float|half|bfloat|i\d+|<\d+ x \w+>)"
_TYPED = re.compile(rf"{_TYPE} (%[\w.]+)")
_SECOND = re.compile(rf"{_TYPE} [^\s,()]+, (%[\w.]+)")
_LABEL = re.compile(r"([\w.]+):")
_NAME = r"%[\w.]+"
_TOKENS = re.compile(rf"{_NAME}|(?<=\bi64 )-?\d+\b|(?<=ptr )@[\w.]+|(?<=call void )@(?!llvm)[\w.]+")
_OF_INTEGERS = re.compile(rf"{_TOKENS.pattern}|(?<=, )-?\d+$")
_INTEGERS = re.compile(r"  %\S+ = (add|sub|mul|sdiv|udiv|srem|urem)( nsw| nuw)* i64 ")
# What may take a value for a literal. A comparison may not: a loop that runs a literal number of times is unrolled.
_OPEN = re.compile(
    r"  (%\S+ = (add|sub|mul|sdiv|udiv|srem|urem|getelementptr|insertelement|load|select)|store|call void|%\S+ = call i64) "
)
_CONSTANTS = re.compile(r"<i64 |splat \(|getelementptr \(|@llvm\.(?!smin|smax|memcpy)")


@dataclass(frozen=True)
class _Piece:
    """A piece of code, its names replaced by numbers.

    form      its lines, with a hole for each literal that may be a parameter
    given     the names of the code around it, by number
    kinds     their types
    literals  what stands in the holes
    """

    written: Function
    form: tuple[str, ...]
    given: dict[int, str]
    kinds: tuple[str, ...]
    literals: tuple[str, ...]


class Outline:
    """The pieces of one function, apart from it until it is known which of them are alike.

    functions   the definitions that `place` makes, by name
    """

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self._pieces: list[_Piece] = []
        self._open = False

    @contextmanager
    def piece(self, f: Function) -> Iterator[None]:
        """Around what may become a function: it ends where it began, and nothing else reads what it computes."""
        if self._open:
            raise InternalError("a piece of code inside another")
        written, kept = Function(), (f.lines, f.slots)
        f.lines, f.slots, self._open = written.lines, written.slots, True
        try:
            with f.apart({}):
                yield
        finally:
            f.lines, f.slots = kept
            self._open = False
        if len(written.lines) < FEW:
            f.lines += written.lines
            f.slots += written.slots
        else:
            f.lines.append(f"{_PLACE}{len(self._pieces)}")
            self._pieces.append(_read(written))

    def place(self, f: Function) -> None:
        """Put each piece into `f`: a call where another is like it, else what it says."""
        alike: dict[object, list[int]] = {}
        for number, piece in enumerate(self._pieces):
            alike.setdefault((piece.form, tuple(piece.given), piece.kinds), []).append(number)
        calls: dict[int, str] = {}
        for members in alike.values():
            if len(members) > 1:
                found = self._outlined([self._pieces[number] for number in members])
                calls |= zip(members, found, strict=True)
        lines: list[str] = []
        for line in f.lines:
            if not line.startswith(_PLACE):
                lines.append(line)
                continue
            number = int(line.removeprefix(_PLACE))
            if number in calls:
                lines.append(calls[number])
            else:
                lines += self._pieces[number].written.lines
                f.slots += self._pieces[number].written.slots
        f.lines[:] = lines

    def _outlined(self, pieces: list[_Piece]) -> list[str]:
        """Define one function for pieces of one form; the call of it for each of them."""
        form, numbers = pieces[0].form, pieces[0].given
        holes = list(zip(*(piece.literals for piece in pieces), strict=True))
        differing = dict.fromkeys(literals for literals in holes if len(set(literals)) > 1)
        names = [f"%v{number}" for number in numbers] + [f"%l{k}" for k in range(len(differing))]
        kinds = [*pieces[0].kinds, *("ptr" if one[0][0] == "@" else "i64" for one in differing)]
        own = dict(zip(differing, names[len(numbers) :], strict=True))
        filled = iter(own.get(literals, literals[0]) for literals in holes)
        text = "\n".join(re.sub(_HOLE, lambda _: next(filled), line) for line in form)
        symbol = f"@offcut_tile{len(self.functions)}"
        head = f"define internal void {symbol}({_typed(kinds, names)}) noinline nounwind"
        self.functions[symbol] = f"{head} {{\nentry:\n{text}\n  ret void\n}}"
        return [
            f"  call void {symbol}({_typed(kinds, [*piece.given.values(), *(one[at] for one in differing)])})"
            for at, piece in enumerate(pieces)
        ]


def _typed(kinds: Iterable[str], values: Iterable[str]) -> str:
    return ", ".join(f"{kind} {value}" for kind, value in zip(kinds, values, strict=True))


def _read(written: Function) -> _Piece:
    """What was written apart, as a piece."""
    lines = [*written.slots, *written.lines]
    own = set(_defined(lines))
    numbers: dict[str, int] = {}
    literals: list[str] = []

    def marked(match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith("%"):
            return f"%v{numbers.setdefault(token, len(numbers))}"
        literals.append(token)
        return _HOLE

    form = []
    for line in lines:
        label = _LABEL.match(line)
        if label is not None:
            form.append(f"v{numbers.setdefault(f'%{label[1]}', len(numbers))}:")
        elif not _OPEN.match(line) or _CONSTANTS.search(line):
            form.append(re.sub(_NAME, marked, line))
        else:
            tokens = _OF_INTEGERS if _INTEGERS.match(line) else _TOKENS
            form.append(tokens.sub(marked, line))
    given = {number: name for name, number in numbers.items() if name not in own}
    kinds = _kinds(lines)
    if not kinds.keys() >= set(given.values()):
        raise InternalError(f"no type of {', '.join(set(given.values()) - kinds.keys())}")
    types = tuple(kinds[name] for name in given.values())
    return _Piece(written, tuple(form), given, types, tuple(literals))


def _defined(lines: Iterable[str]) -> Iterator[str]:
    """The names of the values and of the blocks that `lines` define."""
    for line in lines:
        label = _LABEL.match(line)
        if label is not None:
            yield f"%{label[1]}"
        elif line.startswith("  %"):
            yield line[2:].partition(" = ")[0]


def _kinds(lines: Iterable[str]) -> dict[str, str]:
    """The types of the values that `lines` use."""
    kinds: dict[str, str] = {}
    for line in lines:
        for kind, name in (*_TYPED.findall(line), *_SECOND.findall(line)):
            kinds.setdefault(name, kind)
    return kinds
