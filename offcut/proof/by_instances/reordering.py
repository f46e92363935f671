"""Two programs of the same instances -> whether dependences keep their order; cheaper than comparing what reads see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.polyhedral import Map
from offcut.polyhedral.program_sets import Statement
from offcut.polyhedral.time_relations import misordered_pairs, ordered_pairs
from offcut.proof.by_instances.pairing import (
    Part,
    Sides,
    reads_of,
    reorderable_buffers,
    timing,
    undecided_error,
)


class Order:
    """The cheaper argument: every instance once, on the same elements, conflicts in order."""

    def __init__(self, comparison: Sides, parts: Sequence[Part]) -> None:
        self.all, self.flows, self.parts = comparison, comparison.flows, parts

    def holds(self) -> bool:
        """Whether it applies, and proves the programs equal."""
        both = (*self.all.source.statements, *self.all.emitted.statements)
        if any(statement.storages for statement in both):
            return False
        if not all(self.is_same(part) for part in self.parts):
            return False
        return self.once() and self.is_covering() and self.keeps_order()

    def is_same(self, part: Part) -> bool:
        """Whether an instance touches the elements that its source instance touches."""
        match = part.match
        if match is None:
            return False
        mine, theirs = part.statement.store, match.source.store
        if mine.buffer != theirs.buffer:
            return False
        accesses = [(theirs.index, mine.index)]
        for pair in match.pairs:
            if pair.source.buffer != pair.emitted.buffer:
                return False
            accesses.append((pair.source.index, pair.emitted.index))
        return all(
            self.agree(part, match.of(a), ix.fold_indices(b))
            for theirs_, mine_ in accesses
            for a, b in zip(theirs_, mine_, strict=True)
        )

    def agree(self, part: Part, a: Expr, b: Expr) -> bool:
        """Whether two indices are equal on all instances of a part."""
        if a == b:
            return True
        statement = part.statement
        differ = self.flows.restrict(
            statement.domain, ix.compare("!=", a, b), statement.coordinates
        )
        return differ is not None and bool(differ.is_empty())

    def together(self, one: Part, other: Part, pairs: Map) -> Map:
        """Emitted instances whose source instances are related."""
        assert one.match is not None
        assert other.match is not None
        first = self.flows.substitution(one.statement, one.match.source.name, one.match.point)
        second = self.flows.substitution(
            other.statement, other.match.source.name, other.match.point
        )
        return (
            pairs.preimage_domain_pw_multi_aff(first)
            .preimage_range_pw_multi_aff(second)
            .intersect_domain(one.statement.domain)
            .intersect_range(other.statement.domain)
        )

    def once(self) -> bool:
        """Whether no source instance is run twice."""
        for k, one in enumerate(self.parts):
            assert one.match is not None
            same = one.match.source.domain.universe(one.match.source.domain.get_space()).identity()
            for other in self.parts[k:]:
                assert other.match is not None
                if other.match.source is not one.match.source:
                    continue
                twice = self.together(one, other, same)
                if one is other:
                    if not twice.is_subset(one.statement.domain.identity()):
                        return False
                elif not twice.is_empty():
                    return False
        return True

    def is_covering(self) -> bool:
        """Whether every source instance is run."""
        rests = {s.name: s.domain for s in self.all.source.statements}
        for part in self.parts:
            assert part.match is not None
            name = part.match.source.name
            image = self.flows.map(part.statement, name, part.match.point)
            assert image is not None
            rests[name] = rests[name] - image.range()
        return all(rest.is_empty() for rest in rests.values())

    def keeps_order(self) -> bool:
        """Whether conflicting instances keep their order."""
        groups: dict[str, list[Part]] = {}
        for part in self.parts:
            assert part.match is not None
            groups.setdefault(part.match.source.name, []).append(part)
        for one, other, pairs in self.conflicts():
            for first, second in product(groups.get(one, ()), groups.get(other, ())):
                ours, theirs = timing(first.statement), timing(second.statement)
                if _precedes(first.statement, second.statement):
                    continue
                here = self.together(first, second, pairs)
                if here.is_empty():
                    continue
                if any(not wrong.is_empty() for wrong in misordered_pairs(here, ours, theirs)):
                    return False
        return True

    def conflicts(self) -> Iterator[tuple[str, str, Map]]:
        """``first -> second`` source instances that touch one element, one of them writing it."""
        free = _free(self.all)
        source = self.all.source
        for one, other in product(source.statements, source.statements):
            for (a, x, writes, update), (b, y, also, again) in product(
                self.accesses(one), self.accesses(other)
            ):
                if a != b or not (writes or also) or a not in source.written:
                    continue
                if update and again and a in free:
                    continue
                first = self.flows.access(one, a, x)
                second = self.flows.access(other, b, y)
                if first is None or second is None:
                    raise undecided_error(
                        self.all.of,
                        f"it changes the order of accesses to {a}, and an index of {a} is not "
                        "quasi-affine, so any two of them may be one element",
                    )
                pairs = first.apply_range(second.reverse())
                yield from (
                    (one.name, other.name, level)
                    for level in ordered_pairs(pairs, timing(one), timing(other))
                )

    def accesses(self, statement: Statement) -> list[tuple[str, tuple[Expr, ...], bool, bool]]:
        """(buffer, index, whether it writes, whether it is an update)."""
        store = statement.store
        touched = [(store.buffer, store.index, True, store.reduce is not None)]
        for load, _ in reads_of(statement):
            if (load.buffer in self.all.source.written and load.index != store.index) or (
                load.buffer in self.all.source.written and load.buffer != store.buffer
            ):
                touched.append((load.buffer, load.index, False, False))
            elif load.buffer == store.buffer and store.reduce is not None:
                touched[0] = (store.buffer, store.index, True, False)
        return list(dict.fromkeys(touched))


def _precedes(one: Statement, other: Statement) -> bool:
    """Whether the text alone says that every instance of `one` runs first."""
    for a, b in zip(one.time, other.time, strict=False):
        if not (isinstance(a, int) and isinstance(b, int)):
            return False
        if a != b:
            return a < b
    return False


def _free(comparison: Sides) -> frozenset[str]:
    both = comparison.source, comparison.emitted
    here, there = (reorderable_buffers(side, comparison.reassociate) for side in both)
    return here & there
