"""A program with choices in; one program for each combination of options out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

from offcut.core.analysis import analysis
from offcut.core.expr import Expr, reads_memory, variables
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    If,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
)


def count_combinations(body: tuple[Stmt, ...]) -> int:
    """How many combinations of options there are."""
    inside = ([count_combinations(block) for block in blocks(stmt)] for stmt in body)
    pairs = zip(body, inside, strict=True)
    return prod(sum(ways) if isinstance(stmt, Choose) else prod(ways) for stmt, ways in pairs)


def find_iteration_dependent_cost(program: Program) -> Expr | None:
    """A cost by which one iteration may take another option than the one before; None where sizes alone decide."""
    sizes = {size.name for size in program.sizes}
    costs = (option.cost for s in analysis(program).of(Choose) for option in s.options)
    return next((c for c in costs if variables(c) - sizes or reads_memory(c)), None)


def pair_options(source: Program, emitted: Program) -> list[tuple[Program, Program]] | None:
    """Two programs for each combination of options that a call takes in both of them; None where one may take others than
    the other does.
    """
    if find_iteration_dependent_cost(source) is not None or _labels_and_costs(
        source
    ) != _labels_and_costs(emitted):
        return None
    one, other = list(options(source.body)), list(options(emitted.body))
    if [label for label, _ in one] != [label for label, _ in other]:
        return None
    pairs = zip(one, other, strict=True)
    return [(replace(source, body=a), replace(emitted, body=b)) for (_, a), (_, b) in pairs]


def pair_whole_options(source: Program, emitted: Program) -> list[tuple[Program, Program]] | None:
    """Two programs for each option of a choice that is all of `emitted`, or ends it, whose source has no choice, or the same one behind
    the same statements; None where there is no such choice, or an iteration decides it.
    """
    match source.body, emitted.body:
        case (*begin, Choose(before)), (*same, Choose(after)) if begin == same and [
            (o.label, o.cost) for o in before
        ] == [(o.label, o.cost) for o in after]:
            bodies = [
                ((*begin, *a.body), (*begin, *b.body)) for a, b in zip(before, after, strict=True)
            ]
        case _, (*begin, Choose(after)) if (
            count_combinations(source.body) == count_combinations(tuple(begin)) == 1
        ):
            bodies = [(source.body, (*begin, *option.body)) for option in after]
        case _:
            return None
    if find_iteration_dependent_cost(emitted) is not None:
        return None
    return [(replace(source, body=a), replace(emitted, body=b)) for a, b in bodies]


def _labels_and_costs(program: Program) -> list[list[tuple[str, Expr]]]:
    """Labels and costs of each choice."""
    choices = iter(analysis(program).of(Choose))
    return [[(option.label, option.cost) for option in one.options] for one in choices]


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
