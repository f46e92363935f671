"""Two programs whose instances are paired in; the value that every read and every result sees, out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import Expr, Load, dtype_of, loads
from offcut.core.memo import lazy_property
from offcut.core.program import Kind
from offcut.core.text.printer import format_expr
from offcut.polyhedral import Map, Set, parse_map, parse_set
from offcut.polyhedral.program_sets import Statement, memory_name
from offcut.polyhedral.time_relations import (
    UnionMap,
    last_writes,
    map_pieces,
    out_name,
    rename_domain,
    terms_between,
    time_depth,
    time_text,
    union,
)
from offcut.proof.by_instances.pairing import (
    Part,
    Side,
    Sides,
    reorderable_buffers,
    text_for_user,
    undecided_error,
)
from offcut.proof.by_instances.substitution import ReadPair


@dataclass(frozen=True, slots=True)
class Read:
    """A read of an emitted statement: of what, and what the source reads there; None in a copy."""

    name: str
    part: Part
    load: Load
    own: tuple[Expr, ...]
    source: Load | None
    path: tuple[Expr, ...]


class Values:
    """What the reads and the results of two programs see: instances of the source, or initial elements.

    parts   which source instance every emitted one is
    """

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
        here = set(reorderable_buffers(self.all.emitted, self.all.reassociate))
        there = set(reorderable_buffers(self.all.source, self.all.reassociate))
        is_changing = True
        while is_changing:
            is_changing = False
            for part in self.parts:
                if part.match is None or part.statement.store.reduce is None:
                    continue
                mine, theirs = part.statement.store.buffer, part.match.source.store.buffer
                if (mine in here) != (theirs in there):
                    here.discard(mine)
                    there.discard(theirs)
                    is_changing = True
        return frozenset(here), frozenset(there)

    def reads_of(self, part: Part) -> Iterator[Read]:
        """What a part reads that the flow of data must decide."""
        statement, match = part.statement, part.match
        name = f"{statement.name}r"
        if match is None:
            for k, (load, own) in enumerate(loads(statement.store.value)):
                yield Read(f"{name}{k}", part, load, own, None, ())
            return
        for k, pair in enumerate(match.pairs):
            if not self.is_given(part, pair):
                yield Read(f"{name}{k}", part, pair.emitted, pair.own, pair.source, pair.path)
        store, theirs = statement.store, match.source.store
        update = store.reduce is not None and store.buffer not in self.free_here
        if update or statement.predicates:
            dtype = dtype_of(store.value)
            mine, other = (Load(s.buffer, s.index, dtype) for s in (store, theirs))
            yield Read(f"{name}t", part, mine, (), other, ())

    def is_given(self, part: Part, pair: ReadPair) -> bool:
        """Whether both read one element of what no statement writes."""
        assert part.match is not None
        a, b = pair.source, pair.emitted
        if a.buffer != b.buffer or a.buffer in self.all.source.written | self.all.emitted.written:
            return False
        match = part.match
        return all(match.of(x) == ix.fold_indices(y) for x, y in zip(a.index, b.index, strict=True))

    def source_read(self, statement: Statement, load: Load, path: tuple[Expr, ...]) -> str:
        """The name of a read of the source; one name per read."""
        return self.there.setdefault(
            (statement.name, load, path), f"{statement.name}r{len(self.there)}"
        )

    @lazy_property
    def source_instances(self) -> dict[str, Map]:
        """``emitted instance -> source instance``, by emitted statement; copies are none."""
        values = {}
        for part in self.parts:
            if part.match is not None:
                name = part.match.source.name
                relation = self.flows.map(part.statement, name, part.match.point)
                assert relation is not None
                values[part.statement.name] = relation
        return values

    def emitted_values(self) -> tuple[UnionMap, UnionMap]:
        """Per read and per result: the source instance, or the initial element, whose value it is;
        and the emitted updates in any order that are added to it.
        """
        flows, side = self.flows, self.all.emitted
        accesses = {}
        direct = []
        for read in self.reads:
            relation = flows.access(
                read.part.statement, read.load.buffer, read.load.index, read.own
            )
            if relation is None:
                text = format_expr(read.load)
                raise undecided_error(
                    self.all.of, f"cannot follow the read {text_for_user(text)}: not quasi-affine"
                )
            by_read = rename_domain(relation, read.name)
            if read.load.buffer in side.written:
                accesses[read.name] = by_read
            else:
                direct.append(by_read)
        last, initial, terms = self.flow(
            side,
            [part.statement for part in self.parts],
            {read.name: read.part.statement for read in self.reads},
            list(accesses.values()),
            self.free_here,
        )
        initial_values = self.initial_reads(side, initial)
        copies = [
            (part.statement.name, f"{part.statement.name}r0")
            for part in self.parts
            if part.match is None
        ]
        relation = self.resolve_copies(last, initial_values, direct, self.source_instances, copies)
        return relation, self.all_terms(last, terms, copies)

    def source_values(self) -> tuple[UnionMap, UnionMap]:
        """The same of the source's reads, as the emitted program's."""
        flows, side = self.flows, self.all.source
        statements = {s.name: s for s in side.statements}
        accesses: list[Map] = []
        direct: list[Map] = []
        for (of, load, path), name in self.there.items():
            relation = flows.access(statements[of], load.buffer, load.index, path)
            if relation is None:
                text = text_for_user(format_expr(load))
                raise undecided_error(
                    self.all.of, f"cannot follow the read {text}: not quasi-affine"
                )
            by_read = rename_domain(relation, name)
            (accesses if load.buffer in side.written else direct).append(by_read)
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
        relation = self.resolve_copies(
            last, self.initial_reads(side, initial), direct, values, copies
        )
        translated = []
        for read in self.reads:
            if read.source is None:
                continue
            match = read.part.match
            assert match is not None
            name = self.there[match.source.name, read.source, read.path]
            to = flows.map(read.part.statement, name, match.point)
            assert to is not None
            translated.append(rename_domain(to, read.name))
        results = [self.result(b.name).identity() for b in side.program.results]
        to_source = union([*translated, *results], relation)
        terms = self.all_terms(last, terms, copies)
        return to_source.apply_range(relation), to_source.apply_range(terms)

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
        relation = self.flows.access(statement, statement.store.buffer, statement.store.index)
        if relation is None:
            raise undecided_error(
                self.all.of,
                f"cannot follow {self.all.text(statement)}: its index is not quasi-affine",
            )
        return relation

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
            raise undecided_error(self.all.of, f"the shape of {buffer} is not quasi-affine")
        xs = [f"x{k}" for k in range(len(shape))]
        inside = [f"0 <= {x} < {extent}" for x, extent in zip(xs, extents, strict=True)]
        text = f"F_{buffer}[{', '.join(xs)}] : {' and '.join(inside) or 'true'}"
        elements = parse_set(f"{self.flows.space.parameters}{{ {text} }}")
        return elements.intersect_params(self.flows.context)

    def end(self, buffer: str) -> Map:
        """``element -> itself`` of a result, read when all is done."""
        xs = ", ".join(f"x{k}" for k in range(len(self.all.source.program.buffer(buffer).shape)))
        text = f"{{ F_{buffer}[{xs}] -> {memory_name(buffer, None)}[{xs}] }}"
        return parse_map(f"{self.flows.space.parameters}{text}").intersect_domain(
            self.result(buffer)
        )

    def initial_reads(self, side: Side, initial: UnionMap) -> list[Map]:
        """What reads see of what the caller gave: the rest of it holds nothing."""
        kinds = (Kind.INPUT, Kind.CONSTANT, Kind.INOUT)
        names = {memory_name(b.name, None) for b in side.program.buffers if b.kind in kinds}
        return [each for each in map_pieces(initial) if out_name(each) in names]

    def resolve_copies(
        self,
        last: UnionMap,
        initial_values: Sequence[Map],
        direct: Sequence[Map],
        values: Mapping[str, Map],
        copies: Sequence[tuple[str, str]],
    ) -> UnionMap:
        """``read -> value``, seen through the copies: (what writes, its read)."""
        base = last.apply_range(union(list(values.values()), last)).union(
            union([*initial_values, *direct], last)
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
