"""Two programs as statements in; the ways to say which source instance each emitted one is, out.

Each store of the emitted program is matched to a store of the source with an equal value (`unify`), as a
function of its iterators. One that is several stores of the source is divided into parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, product

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Logic, Var, walk
from offcut.core.memo import lazy_property
from offcut.core.program import Store
from offcut.core.program import walk as statements_of
from offcut.core.traversal import expressions
from offcut.polyhedral import Set
from offcut.polyhedral.program_sets import Statement
from offcut.proof.by_instances.pairing import (
    CandidateDifference,
    Match,
    Part,
    ProgramsDiffer,
    Sides,
    strip_prime,
)
from offcut.proof.by_instances.substitution import Unified, solutions, unify

_MOST_SIZES = 6
_MOST_INSTANCES = 256


def ways(both: Sides) -> Iterator[list[Part]]:
    """Ways to say which source instance every emitted one is, the likeliest first.

    Raises Differs where there is none.
    """
    matching = _Matching(both)
    candidates = [matching.candidates(statement) for statement in both.emitted.statements]
    yield from matching.attempts(candidates)


class _Matching:
    def __init__(self, both: Sides) -> None:
        self.all, self.flows, self.same = both, both.flows, both.same
        self.source, self.emitted = both.source, both.emitted

    def attempts(self, candidates: Sequence[Sequence[Match]]) -> Iterator[list[Part]]:
        """Ways to say which source instance every emitted one is, the likeliest first."""
        choices: list[list[list[Part]]] = []
        twins: dict[tuple[str, ...], int] = {}
        for statement, matches in zip(self.emitted.statements, candidates, strict=True):
            whole = [m for m in matches if _subset(statement.domain, self.inside(statement, m))]
            if whole:
                key = tuple(m.source.name for m in whole)
                turn = twins[key] = twins.get(key, -1) + 1
                first = turn % len(whole)
                ordered = [*whole[first:], *whole[:first]]
                choices.append([[Part(statement, m)] for m in ordered])
            elif matches:
                choices.append([self.split_by_match(statement, matches)])
            elif statement.name in self.emitted.copies:
                choices.append([[Part(statement, None)]])
            else:
                raise ProgramsDiffer(self.all.text(statement), self.first_unmatched(statement))
        for choice in product(*choices):
            yield [part for parts in choice for part in parts]

    def candidates(self, statement: Statement) -> list[Match]:
        """The source statements that `statement` may be, those of its buffer first."""
        matches: list[Match] = []
        for other in self.source.statements:
            match = self.match(statement, other)
            if match is not None:
                matches.append(match)
        return sorted(matches, key=lambda m: m.source.store.buffer != statement.store.buffer)

    def match(self, statement: Statement, other: Statement) -> Match | None:
        mine, theirs = statement.store, other.store
        if mine.reduce != theirs.reduce or len(statement.predicates) != len(other.predicates):
            return None
        renamed = mine.buffer != theirs.buffer
        if renamed and mine.buffer in self.same and theirs.buffer in self.same:
            return None
        dtypes = [
            side.program.buffer(name).dtype
            for side, name in ((self.emitted, mine.buffer), (self.source, theirs.buffer))
        ]
        if dtypes[0] != dtypes[1]:
            return None
        values = list(unify(theirs.value, mine.value, self.same))
        tests = [
            list(unify(a, b, self.same))
            for a, b in zip(other.predicates, statement.predicates, strict=True)
        ]
        for choice in product(values, *tests):
            unified = sum(choice, Unified())
            equations = [(a, b) for a, b, _ in unified.equal]
            if not renamed and len(theirs.index) == len(mine.index):
                equations += zip(theirs.index, mine.index, strict=True)
            for pair in unified.pairs:
                same = pair.source.buffer == pair.emitted.buffer
                if same and len(pair.source.index) == len(pair.emitted.index):
                    equations += zip(pair.source.index, pair.emitted.index, strict=True)
            for a, b, _ in unified.alike:
                for inner in islice(unify(a, b, self.same), 1):
                    equations += [(x, y) for x, y, _ in inner.equal]
            if renamed and len(theirs.index) == len(mine.index):
                equations += zip(theirs.index, mine.index, strict=True)
            iters = [strip_prime(name) for name in other.iters]
            fitting: list[Match] = []
            for at, guessed in solutions(
                iters, equations, statement.iters, lambda: self.guesses(statement)
            ):
                primed = {f"{name}'": value for name, value in at.items()}
                match = Match(other, primed, unified.pairs)
                if self.agrees(statement, match, unified) and self.meets(statement, match):
                    if not guessed or self.is_bijective(statement, match):
                        return match
                    fitting.append(match)
            if fitting:
                return fitting[0]
        return None

    def is_bijective(self, statement: Statement, match: Match) -> bool:
        """Whether no two instances of the statement are one of the source, and all are some."""
        to = self.flows.map(statement, match.source.name, match.point)
        inside = self.inside(statement, match)
        return to is not None and bool(to.is_injective()) and _subset(statement.domain, inside)

    def guesses(self, statement: Statement) -> Iterator[Expr]:
        """What an iterator of the source may be that no index of the statement tells."""
        yield from map(Var, statement.iters)
        for k, outer in enumerate(statement.iters):
            for inner in statement.iters[k + 1 :]:
                for step in self.steps:
                    yield ix.add(ix.mul(step, Var(outer)), Var(inner))

    @lazy_property
    def steps(self) -> list[int]:
        """The factors of iterators in the emitted program."""
        body = statements_of(self.emitted.program.body)
        nodes = (node for stmt in body for expr in expressions(stmt) for node in walk(expr))
        factors = {
            int(node.a.value)
            for node in nodes
            if isinstance(node, Binary) and node.op == "*" and isinstance(node.a, Const)
        }
        return sorted(factor for factor in factors if factor > 1)

    def agrees(self, statement: Statement, match: Match, unified: Unified) -> bool:
        """Whether the values are equal on all of the domain."""

        def never(conditions: Sequence[Expr], path: Sequence[Expr]) -> bool:
            domain = self.flows.instances_on_path(statement, [match.of(p) for p in path])
            for condition in conditions:
                here = self.flows.restrict(domain, condition, statement.coordinates)
                if here is None:
                    return False
                domain = here
            return bool(domain.is_empty())

        for a, b, path in unified.equal:
            a, b = match.of(a), ix.fold_indices(b)
            if a != b and not never([ix.compare("!=", a, b)], path):
                return False
        for a, b, path in unified.alike:
            a, b = match.of(a), ix.fold_indices(b)
            if a != b and not (
                never([a, Logic("not", (b,))], path) and never([b, Logic("not", (a,))], path)
            ):
                return False
        return all(
            never([Logic("not", (match.of(condition),))], path) for condition, path in unified.holds
        )

    def meets(self, statement: Statement, match: Match) -> bool:
        """Whether any instance is one of the source."""
        inside = self.inside(statement, match)
        return inside is not None and not inside.is_empty()

    def inside(self, statement: Statement, match: Match) -> Set | None:
        """The instances that are instances of the matched source statement."""
        function = self.flows.substitution(statement, match.source.name, match.point)
        if function is None:
            return None
        return statement.domain & match.source.domain.preimage_pw_multi_aff(function)

    def split_by_match(self, statement: Statement, matches: Sequence[Match]) -> list[Part]:
        """`statement` in parts, each with the source statement that it is of."""
        parts, rest = [], statement.domain
        for number, match in enumerate(matches):
            inside = self.inside(statement, match)
            assert inside is not None
            here = rest & inside
            if here.is_empty():
                continue
            rest = rest - here
            name = f"{statement.name}_{number}"
            parts.append(
                Part(replace(statement, name=name, domain=here.set_tuple_name(name)), match)
            )
        witness = self.flows.smallest(rest)
        if witness is not None:
            sizes, point = witness
            case = self.case(statement, sizes, point, "is not an instance of the source")
            raise ProgramsDiffer(self.all.text(statement), [case])
        return parts

    def first_unmatched(self, statement: Statement) -> Iterator[CandidateDifference]:
        """The first sizes and instances of a statement that is none of the source's."""
        rest = statement.domain
        for _ in range(_MOST_SIZES):
            witness = self.flows.smallest(rest)
            if witness is None:
                return
            sizes, point = witness
            yield self.case(statement, sizes, point, "matches no statement of the source")
            rest = rest - rest.intersect_params(self.flows.at_sizes(sizes))

    def case(
        self, statement: Statement, sizes: Sequence[int], point: Sequence[int], is_none: str
    ) -> CandidateDifference:
        """An instance that is none of the source, in words where the source has no equal one."""
        store = self.all.at(statement, sizes, point)
        same = (other for other in self.source.statements if self.has(other, sizes, store))
        what = f"{self.flows.given(sizes)}{self.all.instance(statement, sizes, point)}"
        return CandidateDifference(sizes, "" if next(same, None) else f"{what} {is_none}")

    def has(self, statement: Statement, sizes: Sequence[int], store: Store) -> bool:
        """Whether some instance of a statement of the source stores just this, or they are too many."""
        mine = statement.store
        if (mine.buffer, mine.reduce) != (store.buffer, store.reduce):
            return False
        domain = statement.domain.intersect_params(self.flows.at_sizes(sizes))
        for part, place in zip(mine.index, store.index, strict=True):
            equal = ix.compare("==", part, place)
            if isinstance(equal, Const):
                if not equal.value:
                    return False
                continue
            here = self.flows.restrict(domain, equal, statement.coordinates)
            domain = domain if here is None else here
        for _ in range(_MOST_INSTANCES):
            witness = self.flows.smallest(domain)
            if witness is None:
                return False
            if self.all.at(statement, *witness) == store:
                return True
            domain = domain - self.flows.point(statement.name, witness[1])
        return True


def _subset(domain: Set, inside: Set | None) -> bool:
    return inside is not None and bool(domain.is_subset(inside))
