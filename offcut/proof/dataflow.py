"""Two programs whose reads see the same values: the general proof, and the witness where they do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from offcut.core import index as ix
from offcut.core.expr import Const, Expr, Load, Var, dtype_of, loads, substitute
from offcut.core.program import Kind
from offcut.core.text.printer import format_expr
from offcut.polyhedral import Map, Set
from offcut.polyhedral.flow import Statement, memory_name
from offcut.polyhedral.orders import (
    UnionMap,
    cross_lanes,
    in_name,
    last_writes,
    len_in,
    map_pieces,
    out_name,
    reached_twice,
    renamed,
    terms_between,
    time_depth,
    time_text,
    union,
)
from offcut.proof.pairing import (
    Case,
    Differs,
    Part,
    Side,
    Sides,
    free_of,
    reads_of,
    refused,
    shown,
    timing,
    untold,
)
from offcut.proof.substitution import Pair


@dataclass(frozen=True, slots=True)
class _Read:
    """A read of an emitted statement: of what, and what the source reads there; None in a copy."""

    name: str
    part: Part
    load: Load
    own: tuple[Expr, ...]
    source: Load | None
    path: tuple[Expr, ...]


class DataFlow:
    """The general argument: every read sees what the source's read sees."""

    def __init__(self, comparison: Sides, parts: Sequence[Part]) -> None:
        self.all, self.flows = comparison, comparison.flows
        self.parts = [
            replace(part, match=None)
            if part.statement.name.partition("_")[0] in comparison.emitted.copies
            else part
            for part in parts
        ]
        self.free_here, self.free_there = self.free_buffers()
        self.reads = [read for part in self.parts for read in self.reads_of(part)]
        self.there: dict[tuple[str, Load, tuple[Expr, ...]], str] = {}
        for read in self.reads:
            if read.source is not None:
                assert read.part.match is not None
                self.source_read(read.part.match.source, read.source, read.path)
        self.copies = {
            s.name: s for s in comparison.source.statements if s.name in comparison.source.copies
        }
        for statement in self.copies.values():
            for load, path in loads(statement.store.value):
                self.source_read(statement, load, path)

    def free_buffers(self) -> tuple[frozenset[str], frozenset[str]]:
        """The emitted and the source's buffers whose updates run in any order."""
        here = set(free_of(self.all.emitted, self.all.reassociate))
        there = set(free_of(self.all.source, self.all.reassociate))
        changed = True
        while changed:
            changed = False
            for part in self.parts:
                if part.match is None or part.statement.store.reduce is None:
                    continue
                mine, theirs = part.statement.store.buffer, part.match.source.store.buffer
                if (mine in here) != (theirs in there):
                    here.discard(mine)
                    there.discard(theirs)
                    changed = True
        return frozenset(here), frozenset(there)

    def reads_of(self, part: Part) -> Iterator[_Read]:
        """What a part reads that the flow of data must decide."""
        statement, match = part.statement, part.match
        name = f"{statement.name}r"
        if match is None:
            for k, (load, own) in enumerate(loads(statement.store.value)):
                yield _Read(f"{name}{k}", part, load, own, None, ())
            return
        for k, pair in enumerate(match.pairs):
            if not self.is_given(part, pair):
                yield _Read(f"{name}{k}", part, pair.emitted, pair.own, pair.source, pair.path)
        store, theirs = statement.store, match.source.store
        update = store.reduce is not None and store.buffer not in self.free_here
        if update or statement.predicates:
            dtype = dtype_of(store.value)
            mine, other = (Load(s.buffer, s.index, dtype) for s in (store, theirs))
            yield _Read(f"{name}t", part, mine, (), other, ())

    def is_given(self, part: Part, pair: Pair) -> bool:
        """Whether both read one element of what no statement writes."""
        assert part.match is not None
        a, b = pair.source, pair.emitted
        if a.buffer != b.buffer or a.buffer in self.all.source.written | self.all.emitted.written:
            return False
        match = part.match
        return all(match.of(x) == ix.folded(y) for x, y in zip(a.index, b.index, strict=True))

    def source_read(self, statement: Statement, load: Load, path: tuple[Expr, ...]) -> str:
        """The name of a read of the source; one name per read."""
        return self.there.setdefault(
            (statement.name, load, path), f"{statement.name}r{len(self.there)}"
        )

    def check(self) -> None:
        """Raise with the smallest witness unless all reads and all results agree."""
        self.check_lanes()
        here, terms = self.emitted_values()
        there, wanted = self.source_values()
        self.compare(here, there)
        if self.free_here or self.free_there:
            self.compare_terms(terms, wanted)

    def check_lanes(self) -> None:
        """No lane of a tile touches what another lane of it writes."""
        side, flows = self.all.emitted, self.flows
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
                    self.touched(one), self.touched(other)
                ):
                    relaxed = update and again and a in self.free_here
                    if a != b or not (writes or also) or a not in side.written or relaxed:
                        continue
                    first, second = flows.access(one, a, x), flows.access(other, b, y)
                    if first is None or second is None:
                        raise untold(
                            self.all.of, f"cannot bound {self.all.text(one)}: not quasi-affine"
                        )
                    pairs = first.apply_range(second.reverse())
                    wrong = cross_lanes(pairs, timing(one), timing(other))
                    for each in wrong:
                        found = flows.smallest(each.wrap())
                        if found is not None:
                            sizes, point = found
                            rank = len(one.iters)
                            i = self.all.instance(one, sizes, point[:rank])
                            j = self.all.instance(other, sizes, point[rank:])
                            raise refused(
                                self.all.of,
                                f"{flows.given(sizes)}{i} and {j} are lanes of one tile and touch "
                                f"one element of {a}",
                            )

    def touched(self, statement: Statement) -> list[tuple[str, tuple[Expr, ...], bool, bool]]:
        """(buffer, index, whether it writes, whether it is an update) of every access."""
        store = statement.store
        found = [(store.buffer, store.index, True, store.reduce is not None)]
        found += [(load.buffer, load.index, False, False) for load, _ in reads_of(statement)]
        return list(dict.fromkeys(found))

    def emitted_values(self) -> tuple[UnionMap, UnionMap]:
        """Per read and per result: the source instance, or the initial element, whose value it is;
        and the emitted updates in any order that are added to it.
        """
        flows, side = self.flows, self.all.emitted
        accesses = {}
        direct = []
        for read in self.reads:
            found = flows.access(read.part.statement, read.load.buffer, read.load.index, read.own)
            if found is None:
                text = format_expr(read.load)
                raise untold(self.all.of, f"cannot follow the read {shown(text)}: not quasi-affine")
            named = renamed(found, read.name)
            if read.load.buffer in side.written:
                accesses[read.name] = named
            else:
                direct.append(named)
        last, initial, terms = self.flow(
            side,
            [part.statement for part in self.parts],
            {read.name: read.part.statement for read in self.reads},
            list(accesses.values()),
            self.free_here,
        )
        given = self.given(side, initial)
        values = {}
        copies = []
        for part in self.parts:
            if part.match is None:
                copies.append((part.statement.name, f"{part.statement.name}r0"))
                continue
            name = part.match.source.name
            found = flows.map(part.statement, name, part.match.point)
            assert found is not None
            values[part.statement.name] = found
        self.mapped = union(list(values.values()), last)
        found = self.resolved(last, given, direct, values, copies)
        return found, self.all_terms(last, terms, copies)

    def source_values(self) -> tuple[UnionMap, UnionMap]:
        """The same of the source's reads, as the emitted program's."""
        flows, side = self.flows, self.all.source
        statements = {s.name: s for s in side.statements}
        accesses: list[Map] = []
        direct: list[Map] = []
        for (of, load, path), name in self.there.items():
            found = flows.access(statements[of], load.buffer, load.index, path)
            if found is None:
                text = shown(format_expr(load))
                raise untold(self.all.of, f"cannot follow the read {text}: not quasi-affine")
            named = renamed(found, name)
            (accesses if load.buffer in side.written else direct).append(named)
        last, initial, terms = self.flow(
            side,
            side.statements,
            {name: statements[of] for (of, _, _), name in self.there.items()},
            accesses,
            self.free_there,
        )
        values = {s.name: s.domain.identity() for s in side.statements if s.name not in self.copies}
        copies = []
        for name, statement in self.copies.items():
            ((load, path),) = loads(statement.store.value)
            copies.append((name, self.there[name, load, path]))
        found = self.resolved(last, self.given(side, initial), direct, values, copies)
        translated = []
        for read in self.reads:
            if read.source is None:
                continue
            match = read.part.match
            assert match is not None
            name = self.there[match.source.name, read.source, read.path]
            to = flows.map(read.part.statement, name, match.point)
            assert to is not None
            translated.append(renamed(to, read.name))
        results = [self.result(b.name).identity() for b in side.program.results]
        to_source = union([*translated, *results], found)
        terms = self.all_terms(last, terms, copies)
        return to_source.apply_range(found), to_source.apply_range(terms)

    def flow(
        self,
        side: Side,
        statements: Sequence[Statement],
        readers: Mapping[str, Statement],
        accesses: Sequence[Map],
        free: frozenset[str],
    ) -> tuple[UnionMap, UnionMap, UnionMap]:
        """The last write before each read and before the end, what has none, and the updates in
        any order since.
        """
        writes: list[Map] = []
        updates: list[Map] = []
        for statement in statements:
            store = statement.store
            relaxed = store.reduce is not None and store.buffer in free
            (updates if relaxed else writes).append(self.write(statement))
        reads = [*accesses, *(self.end(buffer.name) for buffer in side.program.results)]
        times = self.times(side, statements, readers)
        last, initial = last_writes(reads, writes, times)
        terms = union([], times)
        if updates:
            terms = terms_between(reads, writes, updates, times)
        return last, initial, terms

    def all_terms(
        self, last: UnionMap, terms: UnionMap, copies: Sequence[tuple[str, str]]
    ) -> UnionMap:
        """``read -> update``, those of what a copy copied too."""
        known = terms
        through = self.all_through(copies)
        for _ in copies:
            known = terms.union(last.apply_range(through.apply_range(known)))
        return known

    def write(self, statement: Statement) -> Map:
        """``instance -> the element that it writes``."""
        found = self.flows.access(statement, statement.store.buffer, statement.store.index)
        if found is None:
            raise untold(
                self.all.of,
                f"cannot follow {self.all.text(statement)}: its index is not quasi-affine",
            )
        return found

    def times(
        self, side: Side, statements: Sequence[Statement], readers: Mapping[str, Statement]
    ) -> UnionMap:
        """``instance -> time`` of all that writes and of all that reads, results last."""
        depth = time_depth(statements)
        texts = [time_text(s.name, s, depth, 1) for s in statements]
        texts += [time_text(name, s, depth, 0) for name, s in readers.items()]
        last = ", ".join([str(len(side.program.body)), *("0" for _ in range(depth))])
        for buffer in side.program.results:
            xs = ", ".join(f"x{k}" for k in range(len(buffer.shape)))
            texts.append(f"F_{buffer.name}[{xs}] -> [{last}]")
        return UnionMap(f"{self.flows.space.parameters}{{ {'; '.join(texts)} }}")

    def result(self, buffer: str) -> Set:
        """The elements of a result, each as the end of its own flow."""
        shape = self.all.source.program.buffer(buffer).shape
        extents = self.flows.texts(shape, {})
        if extents is None:
            raise untold(self.all.of, f"the shape of {buffer} is not quasi-affine")
        xs = [f"x{k}" for k in range(len(shape))]
        inside = [f"0 <= {x} < {extent}" for x, extent in zip(xs, extents, strict=True)]
        text = f"F_{buffer}[{', '.join(xs)}] : {' and '.join(inside) or 'true'}"
        found = Set(f"{self.flows.space.parameters}{{ {text} }}")
        return found.intersect_params(self.flows.context)

    def end(self, buffer: str) -> Map:
        """``element -> itself`` of a result, read when all is done."""
        xs = ", ".join(f"x{k}" for k in range(len(self.all.source.program.buffer(buffer).shape)))
        text = f"{{ F_{buffer}[{xs}] -> {memory_name(buffer, None)}[{xs}] }}"
        return Map(f"{self.flows.space.parameters}{text}").intersect_domain(self.result(buffer))

    def given(self, side: Side, initial: UnionMap) -> list[Map]:
        """What reads see of what the caller gave: the rest of it holds nothing."""
        given = (Kind.INPUT, Kind.CONSTANT, Kind.INOUT)
        names = {memory_name(b.name, None) for b in side.program.buffers if b.kind in given}
        return [each for each in map_pieces(initial) if out_name(each) in names]

    def resolved(
        self,
        last: UnionMap,
        given: Sequence[Map],
        direct: Sequence[Map],
        values: Mapping[str, Map],
        copies: Sequence[tuple[str, str]],
    ) -> UnionMap:
        """``read -> value``, seen through the copies: (what writes, its read)."""
        base = last.apply_range(union(list(values.values()), last)).union(
            union([*given, *direct], last)
        )
        known = base
        through = self.all_through(copies)
        for _ in copies:
            known = base.union(last.apply_range(through.apply_range(known)))
        return known

    def all_through(self, copies: Sequence[tuple[str, str]]) -> UnionMap:
        """``copy -> its read``."""
        texts = "; ".join(self.through(*copy) for copy in copies)
        return UnionMap(f"{self.flows.space.parameters}{{ {texts} }}")

    def through(self, writer: str, reader: str) -> str:
        """The same for one copy, as text."""
        statements = [part.statement for part in self.parts] + list(self.copies.values())
        rank = next(len(s.iters) for s in statements if s.name == writer)
        xs = ", ".join(f"x{k}" for k in range(rank))
        return f"{writer}[{xs}] -> {reader}[{xs}]"

    def compare(self, here: UnionMap, there: UnionMap) -> None:
        """Refuse unless both say the same of every read and every result."""
        wanted = {read.name for read in self.reads if read.source is not None}
        wanted |= {f"F_{b.name}" for b in self.all.source.program.results}
        mine = union([m for m in map_pieces(here) if in_name(m) in wanted], here)
        broken = [m.domain() for m in map_pieces(mine.subtract(there).union(there.subtract(mine)))]
        points = [(found, each) for each in broken if (found := self.flows.smallest(each))]
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
        raise self.differs(name, point, Case(sizes, because))

    def differs(self, name: str, point: Sequence[int], case: Case) -> Differs:
        """A read that sees another value, or an element of a result that is left otherwise."""
        if name.startswith("F_"):
            element = name[2:], tuple(point)
            return Differs(f"the result {name[2:]}", [replace(case, element=element)])
        read = next(read for read in self.reads if read.name == name)
        return Differs(self.all.text(read.part.statement), [case])

    def value_at(
        self, values: UnionMap, name: str, sizes: Sequence[int], point: Sequence[int]
    ) -> tuple[str, tuple[int, ...]] | None:
        """The value that a read sees: its tuple and coordinates; None: nothing."""
        xs = ", ".join(f"x{k}" for k in range(len(point)))
        at = " and ".join(f"x{k} = {x}" for k, x in enumerate(point)) or "true"
        here = Set(f"{self.flows.space.parameters}{{ {name}[{xs}] : {at} }}")
        here = here.intersect_params(self.flows.at_sizes(sizes))
        for each in map_pieces(values):
            if in_name(each) == name:
                found = self.flows.smallest(each.intersect_domain(here).range())
                if found is not None:
                    return out_name(each), found[1]
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
        given = self.flows.given(sizes)
        want, have = self.described(expected, sizes), self.described(actual, sizes)
        if name.startswith("F_"):
            element = f"{name[2:]}[{', '.join(map(str, point))}]"
            if expected is not None and actual is None and not self.is_memory(expected):
                return f"{given}{element} has no value: {want} is not run"
            return f"{given}{element} is left by {have}, not by {want}"
        read = next(read for read in self.reads if read.name == name)
        statement = read.part.statement
        who = self.run(read.part, sizes, point)
        at = self.all.values(statement, sizes, point)
        index = ", ".join(format_expr(ix.folded(substitute(i, at))) for i in read.load.index)
        element = f"{read.load.buffer}[{index}]"
        if expected is not None and not self.is_memory(expected):
            runs = self.runs_of(expected, sizes)
            if not runs:
                return f"{given}{want} is never run, and {who} reads it"
            if all(self.is_later(part, when, read.part, point) for part, when in runs):
                return f"{given}{who} runs before {want}"
        return f"{given}{who} reads {element} of {have}, not of {want}"

    def is_memory(self, value: tuple[str, tuple[int, ...]]) -> bool:
        """Whether a value is one that the caller gave."""
        return value[0].startswith("m_")

    def described(self, value: tuple[str, tuple[int, ...]] | None, sizes: Sequence[int]) -> str:
        """A value, as an instance of the source or an initial element."""
        if value is None:
            return "nothing"
        name, point = value
        if name.startswith("m_"):
            return f"the initial {name[2:]}[{', '.join(map(str, point))}]"
        statement = next(s for s in self.all.source.statements if s.name == name)
        return self.all.instance(statement, sizes, point)

    def run(self, part: Part, sizes: Sequence[int], point: Sequence[int]) -> str:
        """An emitted instance, as the instance of the source that it is."""
        if part.match is None:
            return self.all.instance(part.statement, sizes, point)
        at = self.all.values(part.statement, sizes, point)
        there = [ix.literal(ix.folded(substitute(x, at))) for x in part.match.point]
        assert all(x is not None for x in there)
        return self.all.instance(part.match.source, sizes, [x or 0 for x in there])

    def runs_of(
        self, value: tuple[str, tuple[int, ...]], sizes: Sequence[int]
    ) -> list[tuple[Part, tuple[int, ...]]]:
        """An emitted instance of every part that is this source instance."""
        name, point = value
        xs = ", ".join(f"x{k}" for k in range(len(point)))
        at = " and ".join(f"x{k} = {x}" for k, x in enumerate(point)) or "true"
        here = Set(f"{self.flows.space.parameters}{{ {name}[{xs}] : {at} }}")
        here = here.intersect_params(self.flows.at_sizes(sizes))
        runs = []
        for part in self.parts:
            if part.match is not None and part.match.source.name == name:
                to = self.flows.map(part.statement, name, part.match.point)
                assert to is not None
                found = self.flows.smallest(to.intersect_range(here).domain())
                if found is not None:
                    runs.append((part, found[1]))
        return runs

    def is_later(self, one: Part, when: Sequence[int], other: Part, then: Sequence[int]) -> bool:
        """Whether the first emitted instance runs after the second."""
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

    def compare_terms(self, terms: UnionMap, wanted: UnionMap) -> None:
        """Refuse unless every read and result has the updates that the source's has, sums once."""
        mine = terms.apply_range(self.mapped)
        names = {read.name for read in self.reads if read.source is not None}
        names |= {f"F_{b.name}" for b in self.all.source.program.results}
        mine = union([m for m in map_pieces(mine) if in_name(m) in names], mine)
        sums = {p.statement.name for p in self.parts if p.statement.store.reduce == "sum"}
        counted = union([m for m in map_pieces(terms) if out_name(m) in sums], terms)
        for broken, what in (
            (wanted.subtract(mine), "lacks"),
            (mine.subtract(wanted), "has"),
            (reached_twice(counted, self.mapped), "has twice"),
        ):
            points = [
                (found, in_name(each), out_name(each), len_in(each))
                for each in map_pieces(broken)
                if (found := self.flows.smallest(each.wrap()))
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
            update = self.described((term, point[rank:]), sizes)
            because = f"{self.flows.given(sizes)}{who} {what} {update}"
            raise self.differs(name, at, Case(sizes, because))


def _says_the_same(one: Statement, other: Statement) -> bool:
    """Whether two statements store one number."""
    first, second = one.store, other.store
    same = (first.value, first.reduce) == (second.value, second.reduce) == (first.value, None)
    return same and isinstance(first.value, Const) and first.buffer == second.buffer


def _shared_lanes(one: Statement, other: Statement) -> tuple[str, ...]:
    """The axes of the tiles that both are in."""
    found: tuple[str, ...] = ()
    for a, b in zip(one.time, other.time, strict=False):
        if a != b:
            break
        if isinstance(a, tuple):
            found += a
    return found


def _may_conflict(one: Statement, other: Statement, lanes: Sequence[str]) -> bool:
    """False where every access to what either writes is at an index that names all lanes."""
    for a, b in ((one, other), (other, one)):
        named = [a.store.index]
        named += [load.index for load, _ in reads_of(b) if load.buffer == a.store.buffer]
        if b.store.buffer == a.store.buffer:
            named.append(b.store.index)
        elif len(named) == 1:
            continue
        for lane in lanes:
            places = [{k for k, part in enumerate(i) if part == Var(lane)} for i in named]
            if not set.intersection(*places):
                return True
    return False
