"""A program with choices in; one program for each combination of options out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

from offcut.core.accesses import outside, stored
from offcut.core.expr import Expr, reads_memory, variables
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
    walk,
)


def combinations(body: tuple[Stmt, ...]) -> int:
    """How many combinations of options there are."""
    inside = ([combinations(block) for block in blocks(stmt)] for stmt in body)
    pairs = zip(body, inside, strict=True)
    return prod(sum(ways) if isinstance(stmt, Choose) else prod(ways) for stmt, ways in pairs)


def changing(program: Program) -> Expr | None:
    """A cost by which an iteration may take another option than the one before, and find what that left in scratch.

    What options store in the same results is the same, one by one; what lies in scratch is each option's own affair.
    """
    sizes = {size.name for size in program.sizes}
    scratch = {
        buffer.name for buffer in program.buffers if buffer.kind in (Kind.LOCAL, Kind.PRIVATE)
    }
    for stmt in walk(program.body):
        if not isinstance(stmt, Choose):
            continue
        if any(stored(o.body) & outside(o.body) & scratch for o in stmt.options):
            for cost in (option.cost for option in stmt.options):
                if variables(cost) - sizes or reads_memory(cost):
                    return cost
    return None


def options(body: tuple[Stmt, ...]) -> Iterator[tuple[str, tuple[Stmt, ...]]]:
    """`body` once for every combination of options, at any depth, with the labels."""
    for choice in product(*(list(_option(stmt)) for stmt in body)):
        label = " ".join(label for label, _ in choice if label)
        yield label, tuple(stmt for _, part in choice for stmt in part)


def _option(stmt: Stmt) -> Iterator[tuple[str, tuple[Stmt, ...]]]:
    match stmt:
        case For() | Let() | Tile() | Alloc():
            for label, body in options(stmt.body):
                yield label, (replace(stmt, body=body),)
        case If(_, then, other):
            for (one, a), (two, b) in product(list(options(then)), list(options(other))):
                yield f"{one} {two}".strip(), (replace(stmt, then=a, other=b),)
        case Choose():
            for option in stmt.options:
                for label, body in options(option.body):
                    yield f"{option.label} {label}".strip(), body
        case Store():
            yield "", (stmt,)
