"""Two programs whose instances are paired in; nothing out where their reads see the same values, else a witness.

Before that, no lane of a tile may touch what another one writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from offcut.core import index as ix
from offcut.core.expr import Const, Expr, Var, substitute
from offcut.core.text.printer import format_expr
from offcut.polyhedral.program_sets import Statement
from offcut.polyhedral.time_relations import (
    UnionMap,
    cross_lane_pairs,
    in_name,
    len_in,
    map_pieces,
    out_name,
    reached_twice,
    union,
)
from offcut.proof.by_instances.pairing import (
    CandidateDifference,
    Part,
    ProgramsDiffer,
    Sides,
    difference_error,
    reads_of,
    timing,
    undecided_error,
)
from offcut.proof.by_instances.value_flow import Values


class DataFlow:
    """The general argument: every read sees what the source's read sees."""

    def __init__(self, comparison: Sides, parts: Sequence[Part]) -> None:
        self.all, self.flows = comparison, comparison.flows
        self.values = Values(comparison, parts)
        self.parts, self.reads = self.values.parts, self.values.reads

    def check(self) -> None:
        """Raise with the smallest witness unless all reads and all results agree."""
        check_lanes(self.all, self.values.free_here)
        here, terms = self.values.emitted_values()
        there, source_terms = self.values.source_values()
        self.compare(here, there)
        if self.values.free_here or self.values.free_there:
            self.compare_terms(terms, source_terms)

    def compare(self, here: UnionMap, there: UnionMap) -> None:
        """Refuse unless both say the same of every read and every result."""
        names = {read.name for read in self.reads if read.source is not None}
        names |= {f"F_{b.name}" for b in self.all.source.program.results}
        mine = union([m for m in map_pieces(here) if in_name(m) in names], here)
        broken = [m.domain() for m in map_pieces(mine.subtract(there).union(there.subtract(mine)))]
        points = [(smallest, each) for each in broken if (smallest := self.flows.smallest(each))]
        if not points:
            return
        order = {read.name: k for k, read in enumerate(self.reads)}
        (sizes, point), where = min(
            points,
            key=lambda p: (
                sum(p[0][0]),
                p[0][0],
                order.get(p[1].get_tuple_name(), len(order)),
                p[0][1],
            ),
        )
        name = where.get_tuple_name()
        expected = self.value_at(there, name, sizes, point)
        actual = self.value_at(mine, name, sizes, point)
        because = self.message(name, sizes, point, expected, actual)
        raise self.differs(name, point, CandidateDifference(sizes, because))

    def differs(self, name: str, point: Sequence[int], case: CandidateDifference) -> ProgramsDiffer:
        """Return a read that sees another value, or an element of a result that is left otherwise."""
        if name.startswith("F_"):
            element = name[2:], tuple(point)
            return ProgramsDiffer(f"the result {name[2:]}", [replace(case, element=element)])
        read = next(read for read in self.reads if read.name == name)
        return ProgramsDiffer(self.all.text(read.part.statement), [case])

    def value_at(
        self, values: UnionMap, name: str, sizes: Sequence[int], point: Sequence[int]
    ) -> tuple[str, tuple[int, ...]] | None:
        """Return the value that a read sees: its tuple and coordinates; None: nothing."""
        here = self.flows.point(name, point).intersect_params(self.flows.at_sizes(sizes))
        for each in map_pieces(values):
            if in_name(each) == name:
                smallest = self.flows.smallest(each.intersect_domain(here).range())
                if smallest is not None:
                    return out_name(each), smallest[1]
        return None

    def message(
        self,
        name: str,
        sizes: Sequence[int],
        point: Sequence[int],
        expected: tuple[str, tuple[int, ...]] | None,
        actual: tuple[str, tuple[int, ...]] | None,
    ) -> str:
        """What a reader or a result sees, and what it should see."""
        at_sizes = self.flows.given(sizes)
        want, have = self.value_text(expected, sizes), self.value_text(actual, sizes)
        if name.startswith("F_"):
            element = f"{name[2:]}[{', '.join(map(str, point))}]"
            if expected is not None and actual is None and not self.is_memory(expected):
                return f"{at_sizes}{element} has no value: {want} is not run"
            return f"{at_sizes}{element} is left by {have}, not by {want}"
        read = next(read for read in self.reads if read.name == name)
        statement = read.part.statement
        who = self.run(read.part, sizes, point)
        at = self.all.values(statement, sizes, point)
        index = ", ".join(format_expr(ix.fold_indices(substitute(i, at))) for i in read.load.index)
        element = f"{read.load.buffer}[{index}]"
        if expected is not None and not self.is_memory(expected):
            runs = self.runs_of(expected, sizes)
            if not runs:
                return f"{at_sizes}{want} is never run, and {who} reads it"
            if all(self.is_later(part, when, read.part, point) for part, when in runs):
                return f"{at_sizes}{who} runs before {want}"
        return f"{at_sizes}{who} reads {element} of {have}, not of {want}"

    def is_memory(self, value: tuple[str, tuple[int, ...]]) -> bool:
        """Return whether a value is one that the caller gave."""
        return value[0].startswith("m_")

    def value_text(self, value: tuple[str, tuple[int, ...]] | None, sizes: Sequence[int]) -> str:
        """Return a value, as an instance of the source or an initial element."""
        if value is None:
            return "nothing"
        name, point = value
        if name.startswith("m_"):
            return f"the initial {name[2:]}[{', '.join(map(str, point))}]"
        statement = next(s for s in self.all.source.statements if s.name == name)
        return self.all.instance(statement, sizes, point)

    def run(self, part: Part, sizes: Sequence[int], point: Sequence[int]) -> str:
        """Return an emitted instance, as the instance of the source that it is."""
        if part.match is None:
            return self.all.instance(part.statement, sizes, point)
        at = self.all.values(part.statement, sizes, point)
        there = [ix.literal_value(ix.fold_indices(substitute(x, at))) for x in part.match.point]
        assert all(x is not None for x in there)
        return self.all.instance(part.match.source, sizes, [x or 0 for x in there])

    def runs_of(
        self, value: tuple[str, tuple[int, ...]], sizes: Sequence[int]
    ) -> list[tuple[Part, tuple[int, ...]]]:
        """Return an emitted instance of every part that is this source instance."""
        name, point = value
        here = self.flows.point(name, point).intersect_params(self.flows.at_sizes(sizes))
        runs = []
        for part in self.parts:
            if part.match is not None and part.match.source.name == name:
                to = self.flows.map(part.statement, name, part.match.point)
                assert to is not None
                smallest = self.flows.smallest(to.intersect_range(here).domain())
                if smallest is not None:
                    runs.append((part, smallest[1]))
        return runs

    def is_later(self, one: Part, when: Sequence[int], other: Part, then: Sequence[int]) -> bool:
        """Return whether the first emitted instance runs after the second."""
        first, second = (
            [
                [dict(zip(p.statement.iters, at, strict=True))[x] for x in e]
                if isinstance(e, tuple)
                else [e if isinstance(e, int) else dict(zip(p.statement.iters, at, strict=True))[e]]
                for e in p.statement.time
            ]
            for p, at in ((one, when), (other, then))
        )
        return first > second

    def compare_terms(self, terms: UnionMap, source_terms: UnionMap) -> None:
        """Refuse unless every read and result has the updates that the source's has, sums once."""
        mapped = union(list(self.values.source_instances.values()), terms)
        mine = terms.apply_range(mapped)
        names = {read.name for read in self.reads if read.source is not None}
        names |= {f"F_{b.name}" for b in self.all.source.program.results}
        mine = union([m for m in map_pieces(mine) if in_name(m) in names], mine)
        sums = {p.statement.name for p in self.parts if p.statement.store.reduce == "sum"}
        counted = union([m for m in map_pieces(terms) if out_name(m) in sums], terms)
        for broken, what in (
            (source_terms.subtract(mine), "lacks"),
            (mine.subtract(source_terms), "has"),
            (reached_twice(counted, mapped), "has twice"),
        ):
            points = [
                (smallest, in_name(each), out_name(each), len_in(each))
                for each in map_pieces(broken)
                if (smallest := self.flows.smallest(each.wrap()))
            ]
            if not points:
                continue
            (sizes, point), name, term, rank = min(points, key=lambda p: (sum(p[0][0]), p[0]))
            at = point[:rank]
            if name.startswith("F_"):
                who = f"{name[2:]}[{', '.join(map(str, at))}]"
            else:
                read = next(read for read in self.reads if read.name == name)
                who = f"what {self.run(read.part, sizes, at)} reads"
            update = self.value_text((term, point[rank:]), sizes)
            because = f"{self.flows.given(sizes)}{who} {what} {update}"
            raise self.differs(name, at, CandidateDifference(sizes, because))


def check_lanes(both: Sides, free: frozenset[str]) -> None:
    """Refuse a lane of a tile that touches what another lane of it writes.

    free   buffers whose updates may run in any order
    """
    side, flows = both.emitted, both.flows
    tiled = [s for s in side.statements if any(isinstance(e, tuple) for e in s.time)]
    read = {load.buffer for one in side.statements for load, _ in reads_of(one)}
    read |= {one.store.buffer for one in side.statements if one.store.reduce is not None}
    for k, one in enumerate(tiled):
        for other in tiled[k:]:
            if one.store.buffer not in read and _says_the_same(one, other):
                continue
            shared = _shared_lanes(one, other)
            if not shared or not _may_conflict(one, other, shared):
                continue
            for (a, x, writes, update), (b, y, also, again) in product(
                _accesses_of(one), _accesses_of(other)
            ):
                relaxed = update and again and a in free
                if a != b or not (writes or also) or a not in side.written or relaxed:
                    continue
                first, second = flows.access(one, a, x), flows.access(other, b, y)
                if first is None or second is None:
                    raise undecided_error(
                        both.of, f"cannot bound {both.text(one)}: not quasi-affine"
                    )
                pairs = first.apply_range(second.reverse())
                wrong = cross_lane_pairs(pairs, timing(one), timing(other))
                for each in wrong:
                    smallest = flows.smallest(each.wrap())
                    if smallest is not None:
                        sizes, point = smallest
                        rank = len(one.iters)
                        i = both.instance(one, sizes, point[:rank])
                        j = both.instance(other, sizes, point[rank:])
                        raise difference_error(
                            both.of,
                            f"{flows.given(sizes)}{i} and {j} are lanes of one tile and touch "
                            f"one element of {a}",
                        )


def _accesses_of(statement: Statement) -> list[tuple[str, tuple[Expr, ...], bool, bool]]:
    """(buffer, index, whether it writes, whether it is an update) of every access."""
    store = statement.store
    accesses = [(store.buffer, store.index, True, store.reduce is not None)]
    accesses += [(load.buffer, load.index, False, False) for load, _ in reads_of(statement)]
    return list(dict.fromkeys(accesses))


def _says_the_same(one: Statement, other: Statement) -> bool:
    """Return whether two statements store one number."""
    first, second = one.store, other.store
    same = (first.value, first.reduce) == (second.value, second.reduce) == (first.value, None)
    return same and isinstance(first.value, Const) and first.buffer == second.buffer


def _shared_lanes(one: Statement, other: Statement) -> tuple[str, ...]:
    """Return the axes of the tiles that both are in."""
    lanes_: tuple[str, ...] = ()
    for a, b in zip(one.time, other.time, strict=False):
        if a != b:
            break
        if isinstance(a, tuple):
            lanes_ += a
    return lanes_


def _may_conflict(one: Statement, other: Statement, lanes: Sequence[str]) -> bool:
    """False where every access to what either writes is at an index that names all lanes."""
    for a, b in ((one, other), (other, one)):
        indices = [a.store.index]
        indices += [load.index for load, _ in reads_of(b) if load.buffer == a.store.buffer]
        if b.store.buffer == a.store.buffer:
            indices.append(b.store.index)
        elif len(indices) == 1:
            continue
        for lane in lanes:
            places = [{k for k, part in enumerate(i) if part == Var(lane)} for i in indices]
            if not set.intersection(*places):
                return True
    return False
