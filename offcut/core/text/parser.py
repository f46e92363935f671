"""The loop syntax read back: ``parse(str(program)) == program``, node for node.

A statement is a line; what it contains is indented below it. `declarations` reads the lines
above the statements, `expressions` what is inside a line.

A program that somebody built by hand in, the same program: its text says that it is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from offcut.core import index as ix
from offcut.core.expr import Expr, Unary, Var
from offcut.core.program import (
    Action,
    Alloc,
    Buffer,
    Choose,
    For,
    If,
    Kind,
    Let,
    Option,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    TileAxis,
)
from offcut.core.text.declarations import Declarations
from offcut.core.text.expressions import Reader
from offcut.core.text.layouts import read_layout
from offcut.core.text.marks import VIRTUAL, read_loop_marks, read_sync, read_tile_marks
from offcut.core.text.printer import shown
from offcut.core.text.tokens import UNNAMEABLE, Line, Token, read_lines
from offcut.core.traversal import map_blocks, substitute_coordinates
from offcut.errors import ParseError, trim_traceback

_ACTIONS = {action.value for action in Action}
_READ_ONLY = (Kind.INPUT, Kind.CONSTANT)

# Deeper text is refused, long before Python's own stack would overflow.
_MAX_BLOCKS = 50


def _in_turn(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return a block with two of each window in it, as virtual threads had one each."""
    deep = (replace(s, depth=max(s.depth, 2)) if isinstance(s, Alloc) else s for s in body)
    return tuple(map_blocks(stmt, _in_turn) for stmt in deep)


class _Statements(Declarations):
    """The lines of a program, from top to bottom.

    levels   the indentation of the blocks around the next line
    """

    def __init__(self, lines: list[Line]) -> None:
        super().__init__(lines)
        self.levels = [lines[0].indent if lines else ""]

    def program(self) -> Program:
        declare = self.declarations()
        while self.line is not None and self.line.indent == self.levels[0]:
            reader = self.reader(self.line, frozenset(self.sizes), readable=False)
            if reader.token.text not in declare or _is_store(reader):
                break
            declare[reader.token.text](reader)
            reader.finish()
            self.position += 1
        body = self.statements(frozenset(self.sizes))
        return Program(
            self.name or "program",
            tuple(self.sizes.values()),
            tuple(self.assumptions),
            tuple(self.buffers.values()),
            body,
            tuple(self.tokens.values()),
        )

    def block(self, names: frozenset[str]) -> tuple[Stmt, ...]:
        """Return the statements indented below the line just read; none is legal."""
        line = self.line
        if line is None or not self.opens(line):
            return ()
        self.open(line)
        body = self.statements(names)
        self.levels.pop()
        return body

    def opens(self, line: Line) -> bool:
        return len(line.indent) > len(self.levels[-1]) and line.indent.startswith(self.levels[-1])

    def open(self, line: Line) -> None:
        self.levels.append(line.indent)
        if len(self.levels) > _MAX_BLOCKS:
            raise line.refuse(
                len(line.indent),
                "cannot read statements so deep",
                f"more than {_MAX_BLOCKS} blocks are nested",
            )

    def here(self) -> Line | None:
        """Return the next line where it is on the current level; None at the end of the block."""
        line = self.line
        if line is None or line.indent == self.levels[-1]:
            return line
        if line.indent in self.levels:
            return None
        raise self.misplaced_line_error(line)

    def misplaced_line_error(self, line: Line) -> ParseError:
        deeper = len(line.indent) > len(self.levels[-1])
        levels = ", ".join(str(len(level)) for level in self.levels)
        return line.refuse(
            len(line.indent),
            "cannot place this line",
            "no statement above it takes a block"
            if deeper and self.opens(line)
            else f"its indentation of {len(line.indent)} is not one of those around it ({levels})",
            "a block is indented alike, by spaces or by tabs",
        )

    def statements(self, names: frozenset[str]) -> tuple[Stmt, ...]:
        body: list[Stmt] = []
        while (line := self.here()) is not None:
            reader = self.reader(line, names)
            reader.empty = frozenset(s.iter for s in body if isinstance(s, For) and not s.body)
            self.position += 1
            body.append(self.statement(reader, names))
        return tuple(body)

    def statement(self, reader: Reader, names: frozenset[str]) -> Stmt:
        first = reader.token
        if _is_store(reader):
            return self.store(reader)
        match first.text:
            case "for":
                return self.loop(reader, names)
            case "if":
                return self.condition(reader, names)
            case "let":
                return self.let(reader, names)
            case "tile":
                return self.tile(reader, names)
            case "alloc":
                return self.alloc(reader, names)
            case "choose":
                return self.choose(reader, names)
            case word if word in _ACTIONS:
                return self.sync(reader)
            case "elif":
                raise reader.refuse(
                    "cannot read this line",
                    "no statement begins with `elif`",
                    "else, and an if that is indented below it",
                )
            case word if word in self.declarations():
                raise reader.refuse(
                    f"cannot place this {word}", "declarations come before the statements"
                )
            case _:
                raise reader.refuse(
                    "cannot read this line",
                    f"no statement begins with `{first.text}`",
                    "for, if … else, let, tile, alloc, choose, barrier, arrive, wait, fence, or "
                    "buffer[index] = value",
                )

    def new_name(self, reader: Reader, names: frozenset[str]) -> str:
        column, name = reader.token.start, reader.name("the name of a coordinate")
        if name in names:
            raise reader.refuse(
                f"cannot use the name {name} again",
                f"{name} is {'a size' if name in self.sizes else 'a coordinate around this line'}",
                column=column,
            )
        return name

    def loop(self, reader: Reader, names: frozenset[str]) -> For:
        reader.advance()
        name = self.new_name(reader, names)
        reader.expect("in")
        if reader.at("range") and reader.following().text == "(":
            raise reader.refuse(
                "cannot read this line", "found `range`", f"for {name} in 0:n is a loop up to n - 1"
            )
        lo = reader.index()
        reader.expect(":")
        hi = reader.index()
        step = 1
        if reader.accept(":"):
            if reader.token.kind == "end":
                raise reader.refuse(
                    "cannot read this line", "it ends in `:`", "a loop has no colon at its end"
                )
            step = self.step(reader)
        role, unit, factor = read_loop_marks(reader)
        body = self.block(names | {name})
        if unit == VIRTUAL:
            unit, body = None, _in_turn(body)
        if step != 1:
            count = ix.ceildiv(ix.sub(hi, lo), step)
            at = ix.add(lo, ix.mul(step, Var(name)))
            lo, hi, body = ix.const(0), count, substitute_coordinates(body, {name: at})
        return For(name, lo, hi, body, role, unit, factor)

    def step(self, reader: Reader) -> int:
        column, step = reader.token.start, reader.integer()
        if step < 1:
            raise reader.refuse(
                f"cannot step by {step}", "a loop ascends", "for i in 0:n:4", column=column
            )
        return step

    def sync(self, reader: Reader) -> Sync:
        column = reader.following().start
        sync = read_sync(reader)
        if sync.action in (Action.ARRIVE, Action.WAIT) and sync.name not in self.tokens:
            raise reader.refuse(
                f"cannot {sync.action.value} {'at' if sync.action is Action.ARRIVE else 'for'} {sync.name}",
                "no token of that name is declared",
                f"token {sync.name}: load -> compute count 1 room 2",
                column=column,
            )
        return sync

    def condition(self, reader: Reader, names: frozenset[str]) -> If:
        reader.advance()
        condition = reader.condition()
        reader.finish()
        then = self.block(names)
        line = self.here()
        if line is None or [token.text for token in line.tokens[:-1]] != ["else"]:
            return If(condition, then)
        self.position += 1
        return If(condition, then, self.block(names))

    def let(self, reader: Reader, names: frozenset[str]) -> Let:
        reader.advance()
        name = self.new_name(reader, names)
        reader.expect("in")
        lo = reader.integer()
        reader.expect(":")
        hi = reader.integer()
        reader.expect("=")
        value = reader.index()
        reader.finish()
        return Let(name, lo, hi, value, self.block(names | {name}))

    def tile(self, reader: Reader, names: frozenset[str]) -> Tile:
        reader.advance()
        axes: list[TileAxis] = []
        while reader.token.kind == "name" and (
            axes or reader.token.text != "where" or reader.following().text == "in"
        ):
            iter = self.new_name(reader, names | {axis.iter for axis in axes})
            reader.expect("in")
            start = reader.index()
            reader.expect("+:")
            axes.append(TileAxis(iter, start, reader.index()))
            if not reader.accept(","):
                break
        inner = names | {axis.iter for axis in axes}
        reader.names = inner
        where = reader.condition() if reader.accept("where") else None
        marks = read_tile_marks(reader, names)
        return replace(Tile(tuple(axes), self.block(inner), where), **marks)

    def alloc(self, reader: Reader, names: frozenset[str]) -> Alloc:
        reader.advance()
        token = reader.advance()
        buffer = reader.buffer(token)
        if buffer.kind is not Kind.LOCAL:
            raise reader.refuse(
                f"cannot take a window of `{buffer.name}`",
                f"it is declared {buffer.kind.value}",
                "local buffers live in a window: alloc AL[8*ko +: 8, 0 +: n]",
                column=token.start,
            )
        bracket = reader.expect("[")
        axes: list[tuple[Expr, Expr]] = []
        while not reader.at("]"):
            start = reader.index()
            reader.expect("+:")
            axes.append((start, reader.index()))
            if not reader.accept(","):
                break
        reader.close(bracket, "]")
        extents = [extent for _, extent in axes]
        place = self.window(reader, buffer, extents)
        reader.finish()
        if len(axes) != len(buffer.shape):
            raise reader.refuse(
                f"cannot take a window of {len(axes)} axes",
                f"{buffer.name} has {len(buffer.shape)}",
                column=token.start,
            )
        return replace(Alloc(buffer.name, tuple(axes), self.block(names)), **place)

    def window(self, reader: Reader, buffer: Buffer, extents: Sequence[Expr]) -> Mapping[str, Any]:
        """``in memory depth 4 inplace S layout rows``, each at most once: the fields of `Alloc` that they set."""
        fields: dict[str, Any] = {}
        while reader.token.kind != "end":
            if "memory" not in fields and reader.accept("in"):
                fields["memory"] = reader.name("the name of a memory")
            elif "depth" not in fields and reader.accept("depth"):
                column, depth = reader.token.start, reader.integer()
                if depth < 1:
                    raise reader.refuse(
                        f"cannot have {depth} windows",
                        "a depth is how many there are, at least 1",
                        column=column,
                    )
                fields["depth"] = depth
            elif "inplace" not in fields and reader.accept("inplace"):
                other = reader.buffer(token := reader.advance())
                if other.kind is not Kind.LOCAL or other is buffer:
                    raise reader.refuse(
                        f"cannot hold {buffer.name} in the place of {other.name}",
                        "its place is the window of another local buffer",
                        column=token.start,
                    )
                fields["inplace"] = other.name
            elif "layout" not in fields and reader.accept("layout"):
                fields["layout"] = read_layout(reader, extents, buffer.dtype)
            else:
                raise reader.expected_error("in, depth, inplace or layout, each once")
        return fields

    def store(self, reader: Reader) -> Store:
        token = reader.advance()
        buffer = reader.buffer(token)
        if buffer.kind in _READ_ONLY:
            raise reader.refuse(
                f"cannot write `{buffer.name}`",
                f"it is declared {buffer.kind.value}, which is read only",
                "output, inout, local and private buffers are written",
                column=token.start,
            )
        parts = reader.subscript(buffer)
        index = tuple(reader.expression_of_type(part, "index", "an index") for part in parts)
        reduce = self.assignment(reader, token)
        if reduce is not None and buffer.dtype == "bool":
            raise reader.refuse(
                f"cannot reduce into `{buffer.name}`",
                "its elements are conditions",
                "max= of uint8(…) into a buffer of uint8",
                column=token.start,
            )
        value = reader.expression_of_type(
            reader.expression(), buffer.dtype, f"an element of {buffer.name}"
        )
        reader.finish()
        if reduce == "less":
            return Store(buffer.name, index, Unary("neg", value), "sum")
        return Store(buffer.name, index, value, reduce)

    def assignment(self, reader: Reader, buffer: Token) -> str | None:
        """``=`` or a reduce mark: ``+=``, ``max=``, ``min=``; ``-=`` adds what is negated."""
        element = reader.line.text[buffer.start : reader.token.start].rstrip()
        if reader.accept("="):
            return None
        if reader.accept("+="):
            return "sum"
        if reader.accept("-="):
            return "less"
        if reader.token.text in ("max", "min") and reader.following().text == "=":
            op = reader.advance().text
            reader.advance()
            return op
        op = reader.token.text
        if op in ("*", "/", "//", "%") and reader.following().text == "=":
            raise reader.refuse(
                "cannot read this line", f"found `{op}=`", f"{element} = {element} {op} (…)"
            )
        raise reader.expected_error("=, +=, -=, max= or min=")

    def choose(self, reader: Reader, names: frozenset[str]) -> Choose:
        reader.advance()
        reader.finish()
        options: list[Option] = []
        line = self.line
        if line is not None and self.opens(line):
            self.open(line)
            while (line := self.here()) is not None:
                self.position += 1
                options.append(self.option(self.reader(line, names, readable=False), names))
            self.levels.pop()
        if not options:
            raise reader.expected_error("an option below it")
        return Choose(tuple(options))

    def option(self, reader: Reader, names: frozenset[str]) -> Option:
        if not reader.at("option"):
            raise reader.expected_error("`option`")
        reader.advance()
        label = reader.raw("a label", "costs")
        reader.expect("costs")
        cost = reader.expression_of_type(reader.expression(), "float64", "a cost")
        reader.finish()
        return Option(label, cost, self.block(names))


def _is_store(reader: Reader) -> bool:
    """Return whether the line begins with a buffer, whatever its name; ``if [1.0][i] < 2.0`` does not."""
    first = reader.token
    return first.kind == "name" and first.text not in UNNAMEABLE and reader.following().text == "["


@trim_traceback
def parse(text: str) -> Program:
    r"""Return the program that `text` says, in the syntax that ``str(program)`` writes.

    ``parse(str(program)) == program``. Blank lines and ``# comments`` may stand anywhere, any
    consistent indentation will do, ``0 <= i < n`` is two comparisons joined by `and`, and a
    program without a header is called "program".

    >>> print(parse("size n in 0:9\noutput C: int32[n]\nfor i in 0:n\n    C[i] = int32(i)"))
    program program
    size n in 0:9
    output C: int32[n]
    for i in 0:n
      C[i] = int32(i)

    Raises ParseError, with line and column, for any other text; the name of a file is none.
    """
    if not isinstance(text, str):
        raise ParseError(
            "parse",
            f"cannot read {shown(text)}",
            because="a program is read from text",
            help=("parse(path.read_text())",),
        )
    lines = read_lines(text)
    if not lines:
        raise ParseError(
            "parse",
            "cannot read a program",
            at="line 1",
            because="the text says nothing",
            help=("str(partition) is such a text",),
        )
    if text.strip().endswith(".offcut") and "\n" not in text:
        raise ParseError(
            "parse",
            "cannot read a program",
            at="line 1",
            because=f"{text.strip()!r} is the name of a file, not its text",
            help=(f"parse(pathlib.Path({text.strip()!r}).read_text())",),
        )
    return _Statements(lines).program()


def read_back(program: Program, op: str) -> Program:
    """`program`, whose text was read back: names are bound, ranks and element types fit.

    Raises ParseError, with the line of its text, for what is no program.
    """
    try:
        same = parse(str(program)) == program
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ParseError(
            op,
            "cannot take this program",
            because="a part of it is not one of the statements and expressions of offcut.ir",
            help=("a body is a tuple of statements, an operand an expression",),
        ) from error
    if not same:
        raise ParseError(
            op,
            f"cannot take the program {program.name}",
            because="its text reads back as another program",
            help=("oc.parse(str(program)) is that one",),
        )
    return program
