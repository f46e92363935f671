"""Joins cases of the sizes that are equal but for names: of ``if n % 16 == 1 … if n % 16 == 2 …`` a call runs one at most.

    if n % 16 == 1                    if n % 16 >= 1 and n % 16 <= 2
      T1[0] = A[0]                      T1[0] = A[0]
      B[0] = T1[0]         ->           B[0] = T1[0]
    if n % 16 == 2                    if n % 16 == 2
      T2[0] = A[0]
      B[0] = T2[0]

A buffer that only one case uses, as T2, takes the name of its counterpart in the first case. At each size both programs have the
same instances, which touch the same places but for these names: so synchronization that keeps the order of one keeps that of
the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Compare, Expr, Logic, all_loads, variables
from offcut.core.program import Alloc, If, Kind, Program, Stmt, Store, walk
from offcut.core.traversal import Place, expressions, with_buffer_renamed, with_numbered_blocks


@dataclass(frozen=True)
class Cases:
    """A program whose equal cases are joined.

    program  the first case stands for all; the others are empty, so that statements keep their places
    others   the places of the other cases, by the place of the first
    """

    program: Program
    others: Mapping[Place, tuple[Place, ...]]

    def places(self, place: Place) -> frozenset[Place]:
        """Return a place, and the places of the statements that the one there stands for."""
        result = {place}
        for depth in range(1, len(place) + 1):
            for other in self.others.get(place[:depth], ()):
                result |= self.places((*other, *place[depth:]))
        return frozenset(result)


def join_cases(program: Program) -> Cases:
    """Return `program` with its cases joined; the same object if no two cases are equal."""
    joiner = _CaseJoiner(program)
    body = joiner.block(program.body)
    result = program if body is program.body else replace(program, body=body)
    return Cases(result, joiner.others)


class _CaseJoiner:
    def __init__(self, program: Program) -> None:
        self.sizes = {size.name for size in program.sizes}
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.uses = _uses(program.body)
        self.others: dict[Place, tuple[Place, ...]] = {}

    def block(self, body: tuple[Stmt, ...], place: Place = ()) -> tuple[Stmt, ...]:
        """Return a block in which cases that follow one another are joined."""
        result = [
            with_numbered_blocks(stmt, (*place, position), self.block)
            for position, stmt in enumerate(body)
        ]
        at = 0
        while at < len(result):
            cases = self.cases(result[at:])
            if len(cases) > 1:
                result[at] = replace(cases[0], condition=_any_of([c.condition for c in cases]))
                end = at + len(cases)
                result[at + 1 : end] = [replace(case, then=()) for case in cases[1:]]
                self.others[(*place, at)] = tuple((*place, index) for index in range(at + 1, end))
            at += max(len(cases), 1)
        return body if all(a is b for a, b in zip(result, body, strict=True)) else tuple(result)

    def cases(self, body: Sequence[Stmt]) -> list[If]:
        """Return the cases that a block begins with: the longest run of statements that are cases equal to the first."""
        cases: list[If] = []
        values = set[int]()
        for stmt in body:
            value = self.value_of(stmt)
            if not isinstance(stmt, If) or value is None or value[1] in values:
                break
            first = self.value_of(cases[0]) if cases else None
            if first is not None and (first[0] != value[0] or not self.are_equal(cases[0], stmt)):
                break
            values.add(value[1])
            cases.append(stmt)
        return cases

    def value_of(self, stmt: Stmt) -> tuple[Expr, int] | None:
        """Return the expression over sizes of a case, and the value of it at which the case runs; None if the statement is not a case."""
        match stmt:
            case If(Compare("==", expr, bound), then, ()) if then:
                value = ix.literal_value(bound)
                of_sizes = bool(variables(expr)) and variables(expr) <= self.sizes
                return (expr, value) if of_sizes and value is not None else None
        return None

    def are_equal(self, one: If, other: If) -> bool:
        """Return whether two cases are equal but for the names of buffers that each alone uses."""
        body = other.then
        for mine, theirs in zip(_uses(one.then), _uses(body), strict=False):
            if mine == theirs:
                continue
            are_local = self.is_own(mine, one) and self.is_own(theirs, other)
            if not are_local or mine in _uses(body) or not self.have_one_declaration(mine, theirs):
                return False
            body = with_buffer_renamed(body, theirs, mine)
        return body == one.then

    def is_own(self, name: str, case: If) -> bool:
        """Return whether a case alone uses a buffer."""
        buffer = self.buffers.get(name)
        local = buffer is not None and buffer.kind is Kind.LOCAL
        return local and _uses(case.then)[name] == self.uses[name]

    def have_one_declaration(self, one: str, other: str) -> bool:
        """Return whether the declarations of two buffers are equal but for the name."""
        mine, theirs = self.buffers[one], self.buffers[other]
        return replace(theirs, name=one) == mine


def _any_of(conditions: Sequence[Expr]) -> Expr:
    """Return the disjunction of conditions ``e == value`` with one expression and different values."""
    values = []
    for condition in conditions:
        assert isinstance(condition, Compare)
        values.append(ix.literal_value(condition.b))
        expr = condition.a
    numbers = sorted(value for value in values if value is not None)
    if numbers[-1] - numbers[0] + 1 == len(numbers):
        return conjunction(
            (ix.compare(">=", expr, numbers[0]), ix.compare("<=", expr, numbers[-1]))
        )
    return Logic("or", tuple(conditions))


def _uses(body: Sequence[Stmt]) -> Counter[str]:
    """Return how often statements name each buffer, in the order of the text."""
    return Counter(_names(body))


def _names(body: Sequence[Stmt]) -> Iterator[str]:
    for stmt in walk(tuple(body)):
        if isinstance(stmt, Store | Alloc):
            yield stmt.buffer
        for expr in expressions(stmt):
            yield from (load.buffer for load in all_loads(expr))
