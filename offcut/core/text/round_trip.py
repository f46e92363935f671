"""A program that somebody built by hand in, the same program: its text says that it is one."""

from __future__ import annotations

from offcut.core.program import Program
from offcut.core.text.parser import parse
from offcut.errors import ParseError


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
