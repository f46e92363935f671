"""Makes what fails small: simpler programs of one, and a search that goes from one to the next while it fails.

The search is delta debugging that knows the syntax: it never proposes what `parse` would not read.

Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", TSE 2002; Regehr et al.,
"Test-case reduction for C compiler bugs", PLDI 2012, as to steps that follow the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import TypeVar

from offcut.core.analysis import accessed_arrays
from offcut.core.dtypes import FLOATS, UNSIGNED
from offcut.core.expr import Cast, Const, Expr, Load, children, dtype_of, rebuild, variables
from offcut.core.plain_loops import tile_to_loops
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    Form,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
)
from offcut.core.text.parser import parse
from offcut.core.traversal import (
    expressions,
    free_names,
    map_blocks,
    map_own_expressions,
    substitute_coordinates,
)
from offcut.errors import OffcutError

T = TypeVar("T")
MOST_CHECKS = 300
_SIMPLER_TYPES = {
    "bfloat16": "float32",
    "float16": "float32",
    "float64": "float32",
    "float32": "int32",
    "int64": "int32",
    **dict.fromkeys(("int16", "int8", *UNSIGNED), "int32"),
    "bool": "int32",
}


def shrink(
    failing: T,
    simpler: Callable[[T], Iterable[T]],
    fails: Callable[[T], bool],
    key: Callable[[T], Hashable] = str,
    checks: int = MOST_CHECKS,
) -> T:
    """`failing` made simpler step by step, while it fails as it does.

    simpler   what may take its place, the greatest steps first
    fails     whether one of these fails in the same way
    key       equal for two that need not both be tried
    checks    calls of `fails`, at most

    A search that found something goes on where it was, so that each part is tried in turn. No clock ends it: the same
    failure is made as small on each machine.
    """
    place, seen = 0, {key(failing)}
    while True:
        later = islice(enumerate(simpler(failing)), place, None)
        ahead = chain(later, islice(enumerate(simpler(failing)), place))
        for position, one in ahead:
            name = key(one)
            if name in seen:
                continue
            if checks <= 0:
                return failing
            seen.add(name)
            checks -= 1
            if fails(one):
                failing, place = one, position
                break
        else:
            return failing


def simpler_programs(program: Program) -> Iterator[Program]:
    """Programs with one thing less than `program`, the greatest steps first; each is read back from its text."""
    shorter = (replace(program, body=body) for body in _bodies(program.body))
    for candidate in chain(shorter, _smaller_declarations(program)):
        try:
            yield parse(str(candidate))
        except OffcutError:  # a place where only the replaced expression may stand
            continue
    yield from _of_simpler_types(program)


def _bodies(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """`body` with one statement less, then with one that is simpler, then with a simpler one inside."""
    for place, stmt in enumerate(body):
        before, after = body[:place], body[place + 1 :]
        if before or after:
            yield (*before, *after)
        for instead in _instead(stmt):
            yield (*before, *instead, *after)
        for number, block in enumerate(blocks(stmt)):
            for inner in _bodies(block):
                yield (*before, _with_block(stmt, number, inner), *after)
        for number, expr in enumerate(expressions(stmt)):
            for simple in _simpler(expr):
                yield (*before, _with_expression(stmt, number, simple), *after)


def _instead(stmt: Stmt) -> Iterator[tuple[Stmt, ...]]:
    """What may take the place of a statement: what is inside of it, or the same with less said of it."""
    match stmt:
        case For(name, lo, hi, body):
            yield substitute_coordinates(body, {name: lo})
            yield (For(name, lo, hi, body),)
            yield (replace(stmt, lo=Const(0, "index")),)
        case If(condition, then, other):
            yield then
            if other:
                yield other
                yield (If(condition, then),)
        case Let(name, _, _, value, body):
            yield substitute_coordinates(body, {name: value})
        case Tile(axes, body):
            yield substitute_coordinates(body, {axis.iter: axis.start for axis in axes})
            yield tile_to_loops(stmt)
            yield (replace(stmt, where=None, form=Form.FULL),)
            yield (Tile(axes, body, stmt.where, stmt.form),)
        case Alloc(buffer, axes, body):
            yield body
            yield (Alloc(buffer, axes, body),)
        case Choose(options):
            for option in options:
                yield option.body
            for place in range(len(options)):
                yield (Choose((*options[:place], *options[place + 1 :])),)
        case Store():
            yield (replace(stmt, reduce=None),)


def _with_block(stmt: Stmt, number: int, block: tuple[Stmt, ...]) -> Stmt:
    numbers = iter(range(len(blocks(stmt))))
    return map_blocks(stmt, lambda old: block if next(numbers) == number else old)


def _with_expression(stmt: Stmt, number: int, expr: Expr) -> Stmt:
    numbers = iter(range(len(expressions(stmt))))
    return map_own_expressions(stmt, lambda old: expr if next(numbers) == number else old)


def _simpler(expr: Expr) -> Iterator[Expr]:
    """`expr` with an operand in place of an operation, or a literal 1 in place of what is read or converted."""
    dtype = dtype_of(expr)
    one = Const(1.0 if dtype in FLOATS else 1, dtype)
    literal = isinstance(expr, Const) and dtype != "bool" and expr.value > 1
    if literal or isinstance(expr, Load | Cast):
        yield one
    parts = children(expr)
    if not isinstance(expr, Load):
        yield from (part for part in parts if dtype_of(part) == dtype)
    for place, part in enumerate(parts):
        for simple in _simpler(part):
            yield rebuild(expr, (*parts[:place], simple, *parts[place + 1 :]))


def _smaller_declarations(program: Program) -> Iterator[Program]:
    """`program` with fewer and simpler declarations."""
    used = accessed_arrays(program.body)
    for place, buffer in enumerate(program.buffers):
        before, after = program.buffers[:place], program.buffers[place + 1 :]
        if buffer.name not in used:
            yield replace(program, buffers=(*before, *after))
        kind = Kind.INPUT if buffer.kind is Kind.CONSTANT else buffer.kind
        plain = replace(buffer, kind=kind, layout=None, scope=None)
        yield replace(program, buffers=(*before, plain, *after))
    for place in range(len(program.assumptions)):
        fewer = (*program.assumptions[:place], *program.assumptions[place + 1 :])
        yield replace(program, assumptions=fewer)
    shapes = (extent for buffer in program.buffers for extent in buffer.shape)
    named = free_names(program.body).union(*map(variables, (*shapes, *program.assumptions)))
    for place, size in enumerate(program.sizes):
        sizes = program.sizes[:place], program.sizes[place + 1 :]
        if size.name not in named:
            yield replace(program, sizes=(*sizes[0], *sizes[1]))
        plain_size = replace(size, min=0, multiple_of=1)
        yield replace(program, sizes=(*sizes[0], plain_size, *sizes[1]))


def _of_simpler_types(program: Program) -> Iterator[Program]:
    """`program` with one element type in place of another, everywhere."""
    text = str(program)
    for old, new in _SIMPLER_TYPES.items():
        if re.search(rf"\b{old}\b", text):
            try:
                yield parse(re.sub(rf"\b{old}\b", new, text))
            except OffcutError:  # an int32 that is divided, say
                continue


def error_signature(text: str) -> str:
    """The first line of a message without what differs as a program is made small: numbers, indices, witnesses."""
    line = text.strip().split("\n")[0]
    line = re.sub(r"(with )?\b\w+ = -?\d+(, | )?", "", line)
    line = re.sub(r"\[.*\]", "[…]", line)
    return re.sub(r"-?\b\d+(\.\d+)?\b", "0", line)[:160]


def error_class(text: str) -> str:
    """The first line of a message without what differs from program to program: names of arrays too."""
    return re.sub(r"\S*\[…\]", "X[…]", error_signature(text))
