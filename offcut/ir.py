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
from typing import Any, overload

from offcut.core import expr as _expr
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
    children,
    dtype_of,
)
from offcut.core.plain import plain
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
    blocks,
    expressions,
)
from offcut.core.walking import Rule, around, bound

ExprRule = Callable[[Expr], Expr | None]


@overload
def walk(tree: Tree) -> Iterator[Stmt]: ...
@overload
def walk(tree: Expr) -> Iterator[Expr]: ...
def walk(tree: Tree | Expr) -> Iterator[Stmt] | Iterator[Expr]:
    """Every statement of a program or of statements, every node of an expression; parents first."""
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
    """
    if isinstance(tree, Expr):
        return _expr.rewrite(tree, rule)
    if isinstance(tree, Program):
        return _walking.rewrite(tree, rule)
    return _walking.rewritten(tree, rule)


def rewrite_expressions(program: Program, rule: ExprRule) -> Program:
    """`program` with `rule` applied to every node of its statements' expressions, from the leaves up."""
    body = _program.all_mapped(program.body, lambda expr: _expr.rewrite(expr, rule))
    return program if body is program.body else replace(program, body=body)


def free(tree: Tree | Expr) -> frozenset[str]:
    """The names that `tree` mentions and nothing in it binds."""
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
