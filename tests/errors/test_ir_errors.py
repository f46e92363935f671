"""What `offcut.ir` refuses: trees that are none, rules that give something else than a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import ir

TEXT = """program p
size n in 0:64
inout c: float32[n]
for i in 0:n
  c[i] = 1.0
"""
PROGRAM: Any = oc.parse(TEXT)
STATEMENT: Any = PROGRAM.body[0]

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    **refusals(
        r"""
a text
>>> ir.walk(TEXT)
walk: cannot take 'program p\nsize n in 0:64\ninout c: float32[n]\nfor i in 0:…
  because  it is of type str, not a program, a statement, a tuple of statements, an expression
  help     oc.parse(text) makes a program
  help     program.body is its statements
  help     ir.expressions(statement) are its expressions

a list of statements
>>> ir.free([])
free: cannot take []
  because  it is of type list, not a program, a statement, a tuple of statements, an expression
  help     oc.parse(text) makes a program
  help     program.body is its statements
  help     ir.expressions(statement) are its expressions

numbers for statements
>>> [*ir.around((1, 2))]
around: cannot take (1, 2)
  because  it is of type tuple, not a program, a statement, a tuple of statements
  help     oc.parse(text) makes a program
  help     program.body is its statements

a statement for an expression
>>> ir.dtype_of(STATEMENT)
dtype_of: cannot take for i in 0:n
  because  it is of type For, not an expression
  help     ir.expressions(statement) are its expressions

nothing for a statement
>>> ir.bound(None)
bound: cannot take None
  because  it is of type NoneType, not a statement

a number for a statement
>>> ir.expressions(3)
expressions: cannot take 3
  because  it is of type int, not a statement

no program to make plain
>>> ir.plain(None)
plain: cannot take None
  because  it is of type NoneType, not a program
  help     oc.parse(text) makes a program

no rule
>>> ir.rewrite(PROGRAM, None)
rewrite: cannot take rule=None
  because  a rule is a function of a node that gives what takes its place, or None

a rule that gives an expression for a statement
>>> ir.rewrite(PROGRAM, lambda stmt: ir.Var('i'))
rewrite, by its rule: cannot take i
  because  it is of type Var, not a statement, a tuple of statements
  help     program.body is its statements

a rule that gives a number for an expression
>>> ir.rewrite_expressions(PROGRAM, lambda expr: 3)
rewrite_expressions, by its rule: cannot take 3
  because  it is of type int, not an expression
  help     ir.expressions(statement) are its expressions

one statement to rewrite
>>> ir.rewrite(STATEMENT, lambda stmt: None)
rewrite: cannot take for i in 0:n
  because  it is of type For, not a program, a tuple of statements, an expression
  help     (statement,) is a tuple of one

a text by name, after another argument
>>> ir.around(path=(), tree=TEXT)
around: cannot take 'program p\nsize n in 0:64\ninout c: float32[n]\nfor i in 0:…
  because  it is of type str, not a program, a statement, a tuple of statements
  help     oc.parse(text) makes a program
  help     program.body is its statements

an expression that holds a number
>>> ir.bound(ir.Binary('?', 3, None))
bound: cannot take Binary(op='?', a=3, b=None)
  because  it is of type Binary, not a statement

a text to rewrite
>>> ir.rewrite_expressions('p', lambda expr: None)
rewrite_expressions: cannot take 'p'
  because  it is of type str, not a program
  help     oc.parse(text) makes a program""",
        globals(),
    ),
    "a program for an expression": (
        lambda: ir.children(PROGRAM),
        f"""\
children: cannot take {PROGRAM!r}
  because  it is of type Program, not an expression
  help     ir.expressions(statement) are its expressions""",
    ),
    "a program for a statement": (
        lambda: ir.blocks(PROGRAM),
        f"blocks: cannot take {PROGRAM!r}\n  because  it is of type Program, not a statement",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_tree_is_refused(case: str) -> None:
    ask, text = REFUSED[case]
    with rejection(f"DescribeError: {text}"):
        ask()


def test_trees_of_all_kinds_are_taken() -> None:
    (store,) = STATEMENT.body
    assert ir.bound(STATEMENT) == ("i",)
    assert ir.blocks(STATEMENT) == ((store,),)
    assert [one for one, _ in ir.around(PROGRAM)] == [STATEMENT, store]
    assert [*ir.around(path=((STATEMENT, 0),), tree=STATEMENT.body)] == [(store, ((STATEMENT, 0),))]
    assert ir.free(store.value) == frozenset()
    assert ir.children(store.value) == ()
    assert ir.plain(PROGRAM) is PROGRAM
    assert ir.rewrite(PROGRAM.body, lambda stmt: None) is PROGRAM.body
