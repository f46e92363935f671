"""Print plain loops, conditions, lets and stores as C or C++."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offcut.core.expr import Expr
from offcut.core.program import For, If, Let, Stmt, Store
from offcut.core.text.c_expressions import Dialect
from offcut.core.text.printer import format_head


@dataclass(frozen=True)
class CStatements:
    """A printer of statements.

    text   from an expression to its text
    store  from a store to its line
    """

    dialect: Dialect
    text: Callable[[Expr], str]
    store: Callable[[Store], str]

    def lines(self, stmt: Stmt) -> list[str]:
        """Return the lines of a statement.

        Raises the dialect's DescribeError for an unsupported statement.
        """
        match stmt:
            case For(_, _, _, body):
                return braces(self.head(stmt), self.block(body))
            case If(condition, then, other):
                lines = braces(f"if ({self.text(condition)})", self.block(then))
                return [*lines, *(braces("else", self.block(other)) if other else ())]
            case Let():
                return braces("", [self.let(stmt), *self.block(stmt.body)])
            case Store():
                return [self.store(stmt)]
        raise self.dialect.error(format_head(stmt), "this statement has no text so far")

    def block(self, body: tuple[Stmt, ...]) -> list[str]:
        """Return the lines of statements."""
        return [line for stmt in body for line in self.lines(stmt)]

    def head(self, loop: For, offset: str = "", step: str = "++{}") -> str:
        """Return the head of a loop.

        offset  added to its first iteration
        step    to the next iteration, of the name of the iterator
        """
        name, begin = self.dialect.name(loop.iter), self.text(loop.lo)
        if offset:
            begin = offset if begin == "0" else f"{begin} + {offset}"
        kind = self.dialect.types["index"]
        return f"for ({kind} {name} = {begin}; {name} < {self.text(loop.hi)}; {step.format(name)})"

    def let(self, let: Let) -> str:
        """Return the declaration of the value of a `let`."""
        kind = self.dialect.types["index"]
        return f"const {kind} {self.dialect.name(let.name)} = {self.text(let.value)};"


def braces(opening: str, lines: list[str]) -> list[str]:
    """Return lines in braces behind `opening`."""
    return [f"{opening} {{".lstrip(), *("  " + line for line in lines), "}"]


__all__ = ["CStatements", "braces"]
