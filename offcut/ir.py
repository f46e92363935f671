"""The loop program as data: its nodes, one walker, one rewriter, and the way back to plain loops.

Nodes are frozen dataclasses: values that are compared by their fields, hashed, and changed by
`dataclasses.replace`. A program prints as source syntax and `offcut.parse` reads it back. The names here are
stable: a release that renames one says so.

    program      Program, Size, Buffer, Kind, Panels
    statements   For, If, Let, Tile, TileAxis, Alloc, Store, Choose, Option; Role, Form, Execution
    expressions  Const, Var, Load, Binary, Unary, Cast, Select, Compare, Logic, Lookup, Reduce
    to read      walk, around, blocks, expressions, children, dtype_of, bound, free
    to change    rewrite, rewrite_expressions, plain
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

from offcut.core import expr as _expr
from offcut.core import plain as _plain
from offcut.core import program as _program
from offcut.core import walking as _walking
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Lookup,
    Reduce,
    Select,
    Unary,
    Var,
)
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    Execution,
    For,
    Form,
    If,
    Kind,
    Let,
    Option,
    Panels,
    Program,
    Role,
    Size,
    Stmt,
    Store,
    Tile,
    TileAxis,
    Tree,
)
from offcut.core.walking import Rule
from offcut.errors import DescribeError

ExprRule = Callable[[Expr], Expr | None]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_KINDS: dict[str, Any] = {"program": Program, "statement": Stmt, "expression": Expr}
_CALLED = {
    "program": "a program",
    "statement": "a statement",
    "statements": "a tuple of statements",
    "expression": "an expression",
}
_FOUND = {
    "program": "oc.parse(text) makes a program",
    "statements": "program.body is its statements",
    "expression": "ir.expressions(statement) are its expressions",
}
_SHOWN = 60  # characters of what is refused


def _kind(tree: object) -> str:
    """What a tree is: program, statement, expression, statements; "" where it is none of them."""
    if isinstance(tree, tuple) and all(isinstance(one, Stmt) for one in tree):
        return "statements"
    return next((name for name, kind in _KINDS.items() if isinstance(tree, kind)), "")


def _check(op: str, tree: object, *kinds: str) -> None:
    """Refuse what is none of these kinds."""
    if _kind(tree) in kinds:
        return
    shown = repr(tree)
    raise DescribeError(
        op,
        f"cannot take {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}",
        because=f"it is of type {type(tree).__name__}, not {', '.join(_CALLED[kind] for kind in kinds)}",
        help=tuple(_FOUND[kind] for kind in kinds if kind in _FOUND),
    )


def _taking(function: Callable[_P, _R], *kinds: str) -> Callable[_P, _R]:
    """A function that takes a tree of these kinds, and refuses any other."""

    @wraps(function)
    def checked(*given: _P.args, **named: _P.kwargs) -> _R:
        trees = [*given, *named.values()]
        if trees:
            _check(function.__name__, trees[0], *kinds)
        return function(*given, **named)

    return checked


_TREES = ("program", "statement", "statements")
around = _taking(_walking.around, *_TREES)
blocks = _taking(_program.blocks, "statement")
bound = _taking(_walking.bound, "statement")
children = _taking(_expr.children, "expression")
dtype_of = _taking(_expr.dtype_of, "expression")
expressions = _taking(_program.expressions, "statement")
plain = _taking(_plain.plain, "program")


def _asked(op: str, rule: Callable[[Any], Any], *kinds: str) -> Callable[[Any], Any]:
    """A rule whose answers take the place of what it was asked about."""
    if not callable(rule):
        raise DescribeError(
            op,
            f"cannot take rule={rule!r}",
            because="a rule is a function of a node that gives what takes its place, or None",
        )

    def answer(node: Any) -> Any:
        found = rule(node)
        if found is not None:
            _check(f"{op}, by its rule", found, *kinds)
        return found

    return answer


@overload
def walk(tree: Tree) -> Iterator[Stmt]: ...
@overload
def walk(tree: Expr) -> Iterator[Expr]: ...
def walk(tree: Tree | Expr) -> Iterator[Stmt] | Iterator[Expr]:
    """Every statement of a program or of statements, every node of an expression; parents first.

    Raises DescribeError for what is none of these.
    """
    _check("walk", tree, *_TREES, "expression")
    return _expr.walk(tree) if isinstance(tree, Expr) else _program.walk(tree)


@overload
def rewrite(tree: Program, rule: Rule) -> Program: ...
@overload
def rewrite(tree: tuple[Stmt, ...], rule: Rule) -> tuple[Stmt, ...]: ...
@overload
def rewrite(tree: Expr, rule: ExprRule) -> Expr: ...
def rewrite(
    tree: Program | tuple[Stmt, ...] | Expr, rule: Callable[[Any], Any]
) -> Program | tuple[Stmt, ...] | Expr:
    """`tree` with `rule` applied from the inside out; the same object where nothing changes.

    tree   a program or its statements, whose statements the rule sees; or an expression, and its nodes
    rule   gives what takes a place: a node, or for a statement a tuple of several or none; None: it stays

    Raises DescribeError for what is none of these, and for a rule that gives something else.
    """
    _check("rewrite", tree, "program", "statements", "expression")
    if isinstance(tree, Expr):
        return _expr.rewrite(tree, _asked("rewrite", rule, "expression"))
    rule = _asked("rewrite", rule, "statement", "statements")
    if isinstance(tree, Program):
        return _walking.rewrite(tree, rule)
    return _walking.rewritten(tree, rule)


def rewrite_expressions(program: Program, rule: ExprRule) -> Program:
    """`program` with `rule` applied to every node of its statements' expressions, from the leaves up.

    Raises DescribeError for what is no program, and for a rule that gives no expression.
    """
    _check("rewrite_expressions", program, "program")
    rule = _asked("rewrite_expressions", rule, "expression")
    body = _program.all_mapped(program.body, lambda expr: _expr.rewrite(expr, rule))
    return program if body is program.body else replace(program, body=body)


def free(tree: Tree | Expr) -> frozenset[str]:
    """The names that `tree` mentions and nothing in it binds.

    Raises DescribeError for what is no tree.
    """
    _check("free", tree, *_TREES, "expression")
    return frozenset(_expr.variables(tree)) if isinstance(tree, Expr) else _walking.free(tree)


__all__ = [
    "Alloc",
    "Binary",
    "Buffer",
    "Cast",
    "Choose",
    "Compare",
    "Const",
    "Execution",
    "Expr",
    "ExprRule",
    "For",
    "Form",
    "If",
    "Kind",
    "Let",
    "Load",
    "Logic",
    "Lookup",
    "Option",
    "Panels",
    "Program",
    "Reduce",
    "Role",
    "Rule",
    "Select",
    "Size",
    "Stmt",
    "Store",
    "Tile",
    "TileAxis",
    "Tree",
    "Unary",
    "Var",
    "around",
    "blocks",
    "bound",
    "children",
    "dtype_of",
    "expressions",
    "free",
    "plain",
    "rewrite",
    "rewrite_expressions",
    "walk",
]
