"""The declarations of the loop syntax: lines go in; a name, sizes, assumptions and buffers come out."""

from __future__ import annotations

from collections.abc import Callable

from offcut.core.dtypes import DTYPES, ITEM_BYTES
from offcut.core.expr import Expr
from offcut.core.program import Buffer, Kind, Size, Token
from offcut.core.text.expressions import Reader
from offcut.core.text.layouts import is_layout, read_layout
from offcut.core.text.tokens import Line

_KINDS = {kind.value: kind for kind in Kind}


class Declarations:
    """The lines of a program, from top to bottom, and what those above the statements declare."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines, self.position = lines, 0
        self.name = ""
        self.sizes: dict[str, Size] = {}
        self.assumptions: list[Expr] = []
        self.buffers: dict[str, Buffer] = {}
        self.tokens: dict[str, Token] = {}

    def declarations(self) -> dict[str, Callable[[Reader], None]]:
        """What reads a declaration, by its first word."""
        return {
            "program": self.header,
            "size": self.size,
            "assume": self.assumption,
            "token": self.token,
            **dict.fromkeys(_KINDS, self.declaration),
        }

    @property
    def line(self) -> Line | None:
        """The line to read next."""
        return self.lines[self.position] if self.position < len(self.lines) else None

    def reader(self, line: Line, names: frozenset[str], readable: bool = True) -> Reader:
        """What reads `line` where `names` are in scope, and the buffers where they are `readable`."""
        return Reader(line, self.buffers if readable else {}, names)

    def header(self, reader: Reader) -> None:
        """``program`` and its name, which may have dots."""
        if self.position:
            raise reader.refuse("cannot name the program here", "its header is the first line")
        reader.advance()
        self.name = reader.raw("a name")
        if not all(part.isidentifier() for part in self.name.split(".")):
            raise reader.refuse(f"cannot name a program {self.name!r}", "a name is an identifier")

    def size(self, reader: Reader) -> None:
        """``size n in 0:4097 multiple_of 8``."""
        reader.advance()
        column, name = reader.token.start, reader.name("the name of a size")
        if name in self.sizes:
            raise reader.refuse(
                f"cannot declare size {name} twice", "a size is known by its name", column=column
            )
        if not reader.at("in"):
            raise reader.refuse(
                f"cannot declare size {name}",
                "it states no range: proofs are for all values of it",
                f"size {name} in 0:4097",
                column=column,
            )
        reader.expect("in")
        column, low = reader.token.start, reader.integer()
        reader.expect(":")
        high = reader.integer() - 1
        multiple = reader.integer() if reader.accept("multiple_of") else 1
        if not (0 <= low <= high and multiple >= 1 and -(-low // multiple) * multiple <= high):
            raise reader.refuse(
                f"cannot declare size {name}",
                f"no size has {low} <= {name} < {high + 1} and is a multiple of {multiple}",
                "size n in 0:4097 multiple_of 8",
                column=column,
            )
        self.sizes[name] = Size(name, low, high, multiple)

    def assumption(self, reader: Reader) -> None:
        """``assume`` and a condition on sizes."""
        reader.advance()
        self.assumptions.append(reader.condition())

    def token(self, reader: Reader) -> None:
        """``token full: load -> compute count 1 room 2``; a count and a room of 1 may be left out."""
        reader.advance()
        column, name = reader.token.start, reader.name("the name of a token")
        if name in self.tokens:
            raise reader.refuse(
                f"cannot declare token {name} twice", "a token is known by its name", column=column
            )
        reader.expect(":")
        source = reader.name("the name of a unit")
        reader.expect("-")
        reader.expect(">")
        target = reader.name("the name of a unit")
        numbers = {"count": 1, "room": 1}
        for word in numbers:
            if reader.accept(word):
                column, numbers[word] = reader.token.start, reader.integer()
                if numbers[word] < 1:
                    raise reader.refuse(
                        f"cannot declare token {name}",
                        f"its {word} {numbers[word]} is less than 1",
                        column=column,
                    )
        self.tokens[name] = Token(name, source, target, **numbers)

    def declaration(self, reader: Reader) -> None:
        """``output C: float32[m, n]``, by any kind of buffer, with its layout and its memory."""
        kind = _KINDS[reader.advance().text]
        column, name = reader.token.start, reader.name("the name of a buffer")
        if name in self.buffers:
            raise reader.refuse(
                f"cannot declare buffer {name} twice",
                f"it is {self.buffers[name].kind.value} {name} already",
                column=column,
            )
        reader.expect(":")
        dtype = reader.token.text
        if dtype not in DTYPES:
            raise reader.refuse(
                f"cannot declare buffer {name} of `{dtype}`",
                "there is no element type of that name",
                f"element types: {', '.join(DTYPES)}",
            )
        reader.advance()
        extents = reader.comma_list(reader.expect("["), "]")
        shape = tuple(reader.expression_of_type(extent, "index", "an extent") for extent in extents)
        layout, scope, finite, bits = None, None, False, None
        while reader.accept("@") or (layout is None and reader.at("layout")):
            if layout is None and (reader.accept("layout") or is_layout(reader)):
                layout = read_layout(reader, shape, dtype)
            elif kind is Kind.CONSTANT and not finite and reader.at("finite"):
                reader.advance()
                finite = True
            elif kind is Kind.CONSTANT and bits is None and reader.accept("bits"):
                bracket, column, bits = reader.expect("("), reader.token.start, reader.integer()
                if not 1 <= bits <= 8 * ITEM_BYTES[dtype]:
                    raise reader.refuse(
                        f"cannot declare elements of {name} of {bits} bits",
                        f"{dtype} has {8 * ITEM_BYTES[dtype]}",
                        column=column,
                    )
                reader.close(bracket, ")")
            elif scope is None:
                reader.expect("scope")
                bracket = reader.expect("(")
                scope = reader.raw("the name of a memory", ")")
                reader.close(bracket, ")")
            else:
                raise reader.expected_error("the end of the line")
        self.buffers[name] = Buffer(name, dtype, shape, kind, layout, scope, finite, bits)
