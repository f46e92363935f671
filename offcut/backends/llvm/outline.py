"""Pieces of code that differ only in names and literals -> one function that all of them call.

A program has a piece for each tile that was cut, and most of them say the same of other sizes. Written once, they
are optimised once, which is most of what compiling takes. What a piece reads of the code around it becomes a parameter,
and so does a literal in which the pieces differ; one that all have in common stays, so that a division by it stays a shift.

Loops without calls of microkernels are pieces that become functions in any case, apart from the others: passes over loops
pay there, and nowhere else. Tiles inside of them are pieces as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from offcut.backends.llvm.ir import FunctionWriter
from offcut.errors import InternalError

MIN_REPEATS = 32  # instructions that are not worth a call
LOOPS = "@offcut_loops"  # and a number: functions of loops without calls of microkernels

_PLACE = "  piece "  # and its number: what stands in the text, which is no LLVM IR, until all pieces are known
_HOLE = "\0"  # a literal, in the form of a piece
_TYPE = r"(ptr|double|float|half|bfloat|i\d+|<\d+ x \w+>)"
_TYPED = re.compile(rf"{_TYPE} (%[\w.]+)")
_SECOND = re.compile(rf"{_TYPE} [^\s,()]+, (%[\w.]+)")
_LABEL = re.compile(r"([\w.]+):")
_NAME = r"%[\w.]+"
_TOKENS = re.compile(
    rf"{_NAME}|(?<=\bi64 )-?\d+\b|(?<=ptr )@[\w.]+|(?<=call void )@(?!llvm|offcut_tile)[\w.]+"
)
_OF_INTEGERS = re.compile(rf"{_TOKENS.pattern}|(?<=, )-?\d+$")
_INTEGERS = re.compile(r"  %\S+ = (add|sub|mul|sdiv|udiv|srem|urem)( nsw| nuw)* i64 ")
# What may take a value for a literal. A comparison may not: a loop that runs a literal number of times is unrolled.
_OPEN = re.compile(
    r"  (%\S+ = (add|sub|mul|sdiv|udiv|srem|urem|getelementptr|insertelement|load|select)|store|call void|%\S+ = call i64) "
)
_CONSTANTS = re.compile(r"<i64 |splat \(|getelementptr \(|@llvm\.(?!smin|smax|memcpy)")


@dataclass(frozen=True)
class _Written:
    """A piece as it was written.

    loops    whether it is one of loops without calls
    inside   whether it stands in such a piece
    """

    code: FunctionWriter
    loops: bool
    inside: bool

    @property
    def length(self) -> tuple[int, int]:
        """Its lines, in which pieces that are alike agree."""
        return len(self.code.slots), len(self.code.lines)


@dataclass(frozen=True)
class _Form:
    """A piece of code, its names replaced by numbers.

    form      its lines, with a hole for each literal that may be a parameter
    given     the names of the code around it, by number
    kinds     their types
    literals  what stands in the holes
    """

    form: tuple[str, ...]
    given: dict[int, str]
    kinds: tuple[str, ...]
    literals: tuple[str, ...]


class Outliner:
    """The pieces of one function, apart from it until it is known which of them are alike.

    functions   the definitions that `place` makes, by name
    loops       likewise, of loops without calls and of what is inside of these
    declared    declarations of the functions in `loops` that the others call
    alone       bytes of memory by the name of its address, where nothing else leads to any of it
    """

    def __init__(self, alone: Mapping[str, int] | None = None) -> None:
        self.functions: dict[str, str] = {}
        self.loops: dict[str, str] = {}
        self.declared: list[str] = []
        self.alone = {} if alone is None else alone
        self._pieces: list[_Written] = []
        self._open: list[bool] = []  # for each piece around, whether it is one of loops

    @property
    def in_loops(self) -> bool:
        """Whether what is written belongs to a piece of loops, and to no tile in it."""
        return len(self._open) == 1 and self._open[0]

    @contextmanager
    def piece(self, f: FunctionWriter, loops: bool = False) -> Iterator[None]:
        """Around what may become a function: it ends where it began, and nothing else reads what it computes.

        loops   whether it has loops, and calls no microkernel
        """
        inside = self.in_loops
        if self._open and (loops or not inside):
            raise InternalError("a piece of code inside another")
        written, outer = FunctionWriter(), (f.lines, f.slots)
        f.lines, f.slots = written.lines, written.slots
        self._open.append(loops)
        try:
            with f.knowing({}):
                yield
        finally:
            f.lines, f.slots = outer
            self._open.pop()
        short = not written.slots if loops else len(written.lines) < MIN_REPEATS
        if short and not any(line.startswith(_PLACE) for line in written.lines):
            f.lines += written.lines
            f.slots += written.slots
        else:
            f.lines.append(f"{_PLACE}{len(self._pieces)}")
            self._pieces.append(_Written(written, loops, inside))

    def place(self, f: FunctionWriter) -> None:
        """Put each piece into `f`: a call where another is like it or it has loops, else what it says."""
        calls: dict[int, str] = {}
        for loops in (False, True):  # pieces of loops say what the pieces in them became
            for piece in self._pieces:
                if piece.loops and loops:
                    self._put(piece.code, calls)
            self._outline(loops, calls)
        self._put(f, calls)

    def _outline(self, loops: bool, calls: dict[int, str]) -> None:
        """Note the calls of pieces that become functions, by their numbers."""
        alike: dict[object, dict[int, _Form]] = {}
        lengths = Counter(piece.length for piece in self._pieces)
        for number, piece in enumerate(self._pieces):
            if piece.loops == loops and (loops or lengths[piece.length] > 1):
                read = _outlined_form(piece.code)
                key = read.form, tuple(read.given), read.kinds, piece.inside
                alike.setdefault(key, {})[number] = read
        for members in alike.values():
            if loops or len(members) > 1:
                in_loops = loops or self._pieces[min(members)].inside
                calls_ = self._define_outlined(list(members.values()), in_loops, loops)
                calls |= zip(members, calls_, strict=True)

    def _put(self, f: FunctionWriter, calls: Mapping[int, str]) -> None:
        """Replace the places of pieces in `f` by their calls, or by what they say."""
        lines: list[str] = []
        for line in f.lines:
            if not line.startswith(_PLACE):
                lines.append(line)
                continue
            number = int(line.removeprefix(_PLACE))
            if number in calls:
                lines.append(calls[number])
            else:
                lines += self._pieces[number].code.lines
                f.slots += self._pieces[number].code.slots
        f.lines[:] = lines

    def _define_outlined(self, pieces: list[_Form], in_loops: bool, loops: bool) -> list[str]:
        """Define one function for pieces of one form; the call of it for each of them.

        in_loops   whether it is one of loops, or only they call it
        loops      whether it is one of loops
        """
        form, numbers = pieces[0].form, pieces[0].given
        holes = list(zip(*(piece.literals for piece in pieces), strict=True))
        differing = dict.fromkeys(literals for literals in holes if len(set(literals)) > 1)
        names = [f"%v{number}" for number in numbers] + [f"%l{k}" for k in range(len(differing))]
        kinds = [*pieces[0].kinds, *("ptr" if one[0][0] == "@" else "i64" for one in differing)]
        own = dict(zip(differing, names[len(numbers) :], strict=True))
        filled = iter(own.get(literals, literals[0]) for literals in holes)
        text = "\n".join(re.sub(_HOLE, lambda _: next(filled), line) for line in form)
        symbol = f"{LOOPS if loops else '@offcut_tile'}{len(self.functions) + len(self.loops)}"
        linkage = "" if loops else "internal "
        parameters = _typed_arguments(
            [*self._parameter_types(pieces), *kinds[len(numbers) :]], names
        )
        head = f"define {linkage}void {symbol}({parameters}) noinline nounwind"
        where = self.loops if in_loops else self.functions
        where[symbol] = f"{head} {{\nentry:\n{text}\n  ret void\n}}"
        if loops:
            self.declared.append(f"declare void {symbol}({', '.join(kinds)}) nounwind")
        return [
            f"  call void {symbol}({_typed_arguments(kinds, [*piece.given.values(), *(one[at] for one in differing)])})"
            for at, piece in enumerate(pieces)
        ]

    def _parameter_types(self, pieces: Sequence[_Form]) -> Iterator[str]:
        """The types of what pieces of one form read, as parameters: memory that is a piece's alone may live in a register."""
        each = zip(*(piece.given.values() for piece in pieces), strict=True)
        for kind, names in zip(pieces[0].kinds, each, strict=True):
            sizes = [self.alone.get(name, 0) for name in names]
            yield f"{kind} noalias writable dereferenceable({min(sizes)})" if all(sizes) else kind


def _typed_arguments(kinds: Iterable[str], values: Iterable[str]) -> str:
    return ", ".join(f"{kind} {value}" for kind, value in zip(kinds, values, strict=True))


def _outlined_form(written: FunctionWriter) -> _Form:
    """The form of what was written apart."""
    lines = [*written.slots, *written.lines]
    own = set(_defined_names(lines))
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
    outer_names = {number: name for name, number in numbers.items() if name not in own}
    kinds = _kinds(lines, set(outer_names.values()))
    types = tuple(kinds[name] for name in outer_names.values())
    return _Form(tuple(form), outer_names, types, tuple(literals))


def _defined_names(lines: Iterable[str]) -> Iterator[str]:
    """The names of the values and of the blocks that `lines` define."""
    for line in lines:
        label = _LABEL.match(line)
        if label is not None:
            yield f"%{label[1]}"
        elif line.startswith("  %"):
            yield line[2:].partition(" = ")[0]


def _kinds(lines: Iterable[str], wanted: set[str]) -> dict[str, str]:
    """The types of the wanted values, each as the first line says that uses it."""
    kinds: dict[str, str] = {}
    for line in lines:
        if kinds.keys() >= wanted:
            break
        for kind, name in (*_TYPED.findall(line), *_SECOND.findall(line)):
            kinds.setdefault(name, kind)
    if not kinds.keys() >= wanted:
        raise InternalError(f"no type of {', '.join(wanted - kinds.keys())}")
    return kinds
