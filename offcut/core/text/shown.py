"""How a refusal shows the value that it refuses."""

from __future__ import annotations

from contextlib import suppress

from offcut.core.expr import Expr
from offcut.core.program import Stmt
from offcut.core.text.printer import format_expr, format_head

_MOST = 60  # characters


def shown(value: object) -> str:
    """A value in one line of at most 60 characters and a mark that more follow: a node as its source says it, a statement by its first line."""
    text = _text(value)
    line = next(iter(text.splitlines()), "")[:_MOST]
    return line if line == text else f"{line}…"


def _text(value: object) -> str:
    with suppress(Exception):  # a node made by hand may hold what is none
        if isinstance(value, Expr):
            return format_expr(value)
        if isinstance(value, Stmt):
            return format_head(value)
    return repr(value)
