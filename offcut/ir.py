"""The loop program as data: its nodes, one walker, one rewriter, and the way back to plain loops.

Nodes are frozen dataclasses: values that are compared by their fields, hashed, and changed by
`dataclasses.replace`. A program prints as source syntax and `offcut.parse` reads it back. The names here are
stable: a release that renames one says so.

    program      Program, Size, Buffer, Kind, Layout; panels, words, order make layouts
    statements   For, If, Let, Tile, TileAxis, Alloc, Store, Choose, Option, Sync; Role, Form, Cover, UNITS, Action
    declared     Token
    expressions  Const, Var, Load, Binary, Unary, Cast, Select, Compare, Logic, Lookup, Reduce
    to read      walk, around, blocks, expressions, children, dtype_of, bound, free
    to change    rewrite, rewrite_expressions, plain
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, overload

from offcut.core import expr as _expr
from offcut.core import plain_loops as _plain
from offcut.core import program as _program
from offcut.core import traversal as _walking
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
from offcut.core.layout import Layout
from offcut.core.panels import order, panels, words
from offcut.core.program import (
    UNITS,
    Action,
    Alloc,
    Buffer,
    Choose,
    Cover,
    For,
    Form,
    If,
    Kind,
    Let,
    Option,
    Program,
    Role,
    Size,
    Stmt,
    Store,
    Sync,
    Tile,
    TileAxis,
    Token,
    Tree,
)
from offcut.core.text.printer import shown
from offcut.core.traversal import Path, Rule
from offcut.errors import DescribeError

ExprRule = Callable[[Expr], Expr | None]

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


def _kind(tree: object) -> str:
    """What a tree is: program, statement, expression, statements; "" where it is none of them."""
    if isinstance(tree, tuple) and all(isinstance(one, Stmt) for one in tree):
        return "statements"
    return next((name for name, kind in _KINDS.items() if isinstance(tree, kind)), "")


def _check(op: str, tree: object, *kinds: str) -> None:
    """Refuse what is none of these kinds."""
    if _kind(tree) in kinds:
        return
    help = [_FOUND[kind] for kind in kinds if kind in _FOUND]
    if isinstance(tree, Stmt) and "statements" in kinds:
        help = ["(statement,) is a tuple of one"]
    raise DescribeError(
        op,
        f"cannot take {shown(tree)}",
        because=f"it is of type {type(tree).__name__}, not {', '.join(_CALLED[kind] for kind in kinds)}",
        help=tuple(help),
    )


_TREES = ("program", "statement", "statements")


def around(tree: Tree, path: Path = ()) -> Iterator[tuple[Stmt, Path]]:
    """Every statement of `tree` with those it stands in, outermost first, parents first.

    path   where `tree` stands itself

    A step of a path is a statement and which of its `blocks` was entered.
    Raises DescribeError for what is neither a program nor statements.
    """
    _check("around", tree, *_TREES)
    return _walking.walk_with_parents(tree, path)


def blocks(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The statement lists inside `stmt`, in printing order.

    Raises DescribeError for what is no statement.
    """
    _check("blocks", stmt, "statement")
    return _program.blocks(stmt)


def bound(stmt: Stmt) -> tuple[str, ...]:
    """The names that one statement binds in what is inside of it: of a loop, a `let`, the axes of a tile.

    Raises DescribeError for what is no statement.
    """
    _check("bound", stmt, "statement")
    return _walking.bound_names(stmt)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands, in printing order.

    Raises DescribeError for what is no expression.
    """
    _check("children", expr, "expression")
    return _expr.children(expr)


def dtype_of(expr: Expr) -> str:
    """The element type of an expression: "index", "bool" or a numeric type.

    Raises DescribeError for what is no expression.
    """
    _check("dtype_of", expr, "expression")
    return _expr.dtype_of(expr)


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of one statement, not of those inside it.

    Raises DescribeError for what is no statement.
    """
    _check("expressions", stmt, "statement")
    return _walking.expressions(stmt)


def plain(program: Program) -> Program:
    """`program` in plain loops: the same results, at every size, from loops, conditions and stores alone.

    program   no name is bound again inside of what binds it, as `parse` has it; tiles have instances
              that do not need each other, and windowed arrays are accessed in their windows

    Each `choose` is its first option. Arrays that nothing touches any more are left out. Of a program
    that is plain, the same object.
    Raises DescribeError for what is no program.
    """
    _check("plain", program, "program")
    return _plain.to_plain_loops(program)


def _memoized_rule(op: str, rule: Callable[[Any], Any], *kinds: str) -> Callable[[Any], Any]:
    """A rule whose answers take the place of what it was asked about."""
    if not callable(rule):
        raise DescribeError(
            op,
            f"cannot take rule={shown(rule)}",
            because="a rule is a function of a node that gives what takes its place, or None",
        )

    def answer(node: Any) -> Any:
        replacement = rule(node)
        if replacement is not None:
            _check(f"{op}, by its rule", replacement, *kinds)
        return replacement

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
        return _expr.rewrite(tree, _memoized_rule("rewrite", rule, "expression"))
    rule = _memoized_rule("rewrite", rule, "statement", "statements")
    if isinstance(tree, Program):
        return _walking.rewrite(tree, rule)
    return _walking.rewrite_body(tree, rule)


def rewrite_expressions(program: Program, rule: ExprRule) -> Program:
    """`program` with `rule` applied to every node of its statements' expressions, from the leaves up.

    Raises DescribeError for what is no program, and for a rule that gives no expression.
    """
    _check("rewrite_expressions", program, "program")
    rule = _memoized_rule("rewrite_expressions", rule, "expression")
    body = _walking.map_body(program.body, lambda expr: _expr.rewrite(expr, rule))
    return program if body is program.body else replace(program, body=body)


def free(tree: Tree | Expr) -> frozenset[str]:
    """The names that `tree` mentions and nothing in it binds.

    Raises DescribeError for what is no tree.
    """
    _check("free", tree, *_TREES, "expression")
    return frozenset(_expr.variables(tree)) if isinstance(tree, Expr) else _walking.free_names(tree)


__all__ = [
    "UNITS",
    "Action",
    "Alloc",
    "Binary",
    "Buffer",
    "Cast",
    "Choose",
    "Compare",
    "Const",
    "Cover",
    "Expr",
    "ExprRule",
    "For",
    "Form",
    "If",
    "Kind",
    "Layout",
    "Let",
    "Load",
    "Logic",
    "Lookup",
    "Option",
    "Program",
    "Reduce",
    "Role",
    "Rule",
    "Select",
    "Size",
    "Stmt",
    "Store",
    "Sync",
    "Tile",
    "TileAxis",
    "Token",
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
    "order",
    "panels",
    "plain",
    "rewrite",
    "rewrite_expressions",
    "walk",
    "words",
]
