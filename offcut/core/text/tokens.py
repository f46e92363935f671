"""The lines of a text and what they are made of: text goes in, tokens and literals come out, left to right."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass

from offcut.errors import ParseError

# Words that mean something wherever an expression or a statement may begin.
UNNAMEABLE = frozenset({"and", "or", "not", "true", "false", "inf", "nan", "if", "assume"})

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)"
    r'|(?P<string>"[^"]*")'
    r"|(?P<op>//|<=|>=|==|!=|\+:|\+=|-=|[-+*/%<>()\[\],:=@])"
    r"|(?P<other>[^\s#])"
)
_FOREIGN = {
    "&": "a condition is `a and b`",
    "|": "a condition is `a or b`",
    "!": "a condition is `not a`",
    "^": "bits are bitxor(a, b)",
    ";": "a statement is a line",
    "{": "what a statement contains is indented below it",
    "?": "a value is where(c, a, b)",
}
"""What is written here for a character of other languages."""

BYTE_ORDER_MARK = "\ufeff"
"""What some editors write before the first character of a file."""

LITERALS = {"inf": math.inf, "nan": math.nan}
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Token:
    """``line[start:end]``; `kind` is number, name, string, op, other or end."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its comment; `number` counts from 1."""

    number: int
    indent: str
    text: str
    tokens: tuple[Token, ...]

    def refuse(self, column: int, refused: str, because: str, *help: str) -> ParseError:
        """Return the error about what stands at `column`, counted from 0."""
        where = f"line {self.number}, column {column + 1}: {self.text.strip()}"
        return ParseError("parse", refused, at=where, because=because, help=help)


def read_lines(text: str) -> list[Line]:
    """Return the lines that hold code, without comments, and without a byte-order mark before the first."""
    lines = []
    for number, raw in enumerate(text.removeprefix(BYTE_ORDER_MARK).split("\n"), 1):
        code = raw.partition("#")[0].rstrip()
        if code.strip():
            matches = [m for m in _TOKEN.finditer(code) if m.lastgroup]
            tokens = [Token(m.lastgroup or "", m.group(), m.start(), m.end()) for m in matches]
            end = Token("end", "the end of the line", len(code), len(code))
            indent = code[: len(code) - len(code.lstrip())]
            lines.append(Line(number, indent, code, (*tokens, end)))
    return lines


def _visible(text: str) -> str:
    """Return `text`, or the number and name of a character that a terminal does not show."""
    if text.isprintable():
        return text
    return " ".join(f"U+{ord(one):04X} {unicodedata.name(one, '')}".strip() for one in text)


class Tokens:
    """The tokens of one line, from left to right."""

    def __init__(self, line: Line) -> None:
        self.line, self.position = line, 0

    @property
    def token(self) -> Token:
        """Return the one to read next."""
        return self.line.tokens[self.position]

    def following(self) -> Token:
        """Return the token after the current one."""
        return self.line.tokens[min(self.position + 1, len(self.line.tokens) - 1)]

    def refuse(
        self, refused: str, because: str, *help: str, column: int | None = None
    ) -> ParseError:
        """Return the error about what stands at `column`, or at the current token."""
        return self.line.refuse(
            self.token.start if column is None else column, refused, because, *help
        )

    def expected_error(self, what: str) -> ParseError:
        """Return the error that something other than `what` stands here."""
        actual = self.token.text if self.token.kind == "end" else f"`{_visible(self.token.text)}`"
        ours = [_FOREIGN[self.token.text]] if self.token.text in _FOREIGN else []
        return self.refuse(
            "cannot read this line", f"found {actual}", f"{what} is expected here", *ours
        )

    def advance(self) -> Token:
        """Take the current token."""
        token = self.token
        self.position = min(self.position + 1, len(self.line.tokens) - 1)
        return token

    def at(self, text: str) -> bool:
        """Return whether the current token is this word or operator."""
        return self.token.text == text and self.token.kind in ("op", "name")

    def accept(self, text: str) -> bool:
        """Take this word or operator where it comes next; say whether it did."""
        if is_accepted := self.at(text):
            self.advance()
        return is_accepted

    def expect(self, text: str) -> Token:
        """Take this word or operator, refuse any other."""
        if not self.at(text):
            raise self.expected_error(f"`{text}`")
        return self.advance()

    def close(self, bracket: Token, text: str) -> None:
        """Take `text`, which closes `bracket`."""
        if self.token.kind == "end":
            raise self.refuse(
                "cannot read this line",
                f"`{bracket.text}` is never closed",
                f"a `{text}` on the same line",
                column=bracket.start,
            )
        self.expect(text)

    def name(self, what: str) -> str:
        """Take a name, refuse words of the syntax and what is not ASCII."""
        if self.token.kind != "name":
            raise self.expected_error(what)
        if self.token.text in UNNAMEABLE:
            raise self.refuse(
                f"cannot use `{self.token.text}` as a name",
                "it is a word of the syntax",
                f"`{self.token.text}_` is free",
            )
        if not self.token.text.isascii():
            raise self.refuse(
                f"cannot use `{self.token.text}` as a name",
                "a name is an ASCII identifier: headers for C have it, too",
            )
        return self.advance().text

    def raw(self, what: str, stop: str | None = None) -> str:
        """Return the text from here to the token `stop`, or to the end of the line."""
        first = self.token
        if first.kind == "end" or first.text == stop:
            raise self.expected_error(what)
        self.advance()
        while self.token.kind != "end" and self.token.text != stop:
            self.advance()
        return self.line.text[first.start : self.token.start].rstrip()

    def integer(self) -> int:
        """Take an integer literal of 64 bits."""
        column, negative = self.token.start, self.accept("-")
        if self.token.kind != "number":
            raise self.expected_error("an integer literal")
        value = self.number(self.advance(), negative, column)
        if not isinstance(value, int) or value not in _INT64:
            raise self.refuse(
                "cannot read this line", f"{value} is not a 64-bit integer", column=column
            )
        return value

    def number(self, token: Token, negative: bool, column: int) -> int | float:
        """Return the value of a number, an int where it is digits alone."""
        sign = -1 if negative else 1
        try:
            value = sign * int(token.text) if token.text.isdigit() else sign * float(token.text)
        except ValueError:  # Python refuses to read very long integers
            value = math.inf
        if isinstance(value, float) and math.isinf(value):
            raise self.refuse("cannot read this number", "no element type holds it", column=column)
        return value

    def named_float(self, negative: bool) -> float:
        """Take ``inf`` or ``nan``; always the same object for nan, so that nodes compare equal."""
        value = LITERALS[self.advance().text]
        return -value if negative and value == value else value

    def finish(self) -> None:
        """Refuse whatever is left of the line."""
        if self.token.kind != "end":
            if self.token.text in (")", "]"):
                raise self.refuse("cannot read this line", f"`{self.token.text}` closes nothing")
            raise self.expected_error("the end of the line")
