"""Loops of one body over ranges that follow each other -> the one loop over both.

Iterations run in the same order, whatever they depend on, so this needs nothing but the bounds::

    for n in 0:b - b % 2                      for n in 0:b
      S[n]                             ->       S[n]
    for n in b - b % 2:b
      S[n]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from offcut.core import index as ix
from offcut.core.expr import variables
from offcut.core.plain_loops import strip_annotations
from offcut.core.program import For, Program, Stmt
from offcut.polyhedral import Facts, Space, try_isl


def unequal_pairs(pairs: Iterable[tuple[Program, Program]]) -> tuple[int, ...]:
    """Return the numbers of the pairs that differ in more than annotations, and loops that follow each other."""
    plain = [tuple(map(strip_annotations, pair)) for pair in pairs]
    return tuple(
        number
        for number, (before, after) in enumerate(plain)
        if before != after and concatenate_loops(before) != concatenate_loops(after)
    )


def concatenate_loops(program: Program) -> Program:
    """`program`, bare, with loops joined that follow each other at every size; bounds are of sizes."""
    facts = Facts(Space(program.sizes, program.assumptions))
    sizes = {size.name for size in program.sizes}

    def follow(one: For, other: For) -> bool:
        if (one.iter, one.hi, one.body) != (other.iter, other.lo, other.body):
            return False
        bounds = (one.lo, one.hi, other.hi)
        if not all(variables(bound) <= sizes for bound in bounds):
            return False
        ordered = [ix.compare("<=", low, high) for low, high in pairwise(bounds)]
        return try_isl(lambda: all(map(facts.holds, ordered)), False)

    def joined(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        statements: list[Stmt] = []
        for stmt in body:
            last = statements[-1] if statements else None
            if isinstance(last, For) and isinstance(stmt, For) and follow(last, stmt):
                statements[-1] = replace(last, hi=stmt.hi)
            else:
                statements.append(stmt)
        return tuple(statements)

    plain = strip_annotations(program)
    return replace(plain, body=joined(plain.body))
