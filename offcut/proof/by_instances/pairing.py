"""Two programs side by side: their statements, and which one an emitted statement is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.analysis import Analysis, analysis, read_arrays
from offcut.core.dtypes import ANY_ORDER
from offcut.core.expr import (
    Expr,
    Load,
    Logic,
    Select,
    loads,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.program import Kind, Program, Store
from offcut.core.program import walk as statements_of
from offcut.core.text.printer import ASSIGN, format_expr
from offcut.core.traversal import map_expressions
from offcut.errors import PartitionError
from offcut.polyhedral import Set
from offcut.polyhedral.extract_statements import extract_statements
from offcut.polyhedral.program_sets import ProgramSets, Statement
from offcut.polyhedral.witness import holds_at
from offcut.proof.by_instances.substitution import ReadPair, prime_iterators

SCRATCH = (Kind.LOCAL, Kind.PRIVATE)
UNDECIDED = "cannot tell whether the emitted program computes what the source does"


def difference_error(of: str, because: str, *help: str) -> PartitionError:
    """Return the error of a program that does not compute what another one does."""
    what = "the emitted program does not compute what the source does"
    return PartitionError("prove", what, at=of, because=because, help=help)


def undecided_error(of: str, because: str) -> PartitionError:
    """Return the error of a program of which it is not known."""
    return PartitionError("prove", UNDECIDED, at=of, because=because)


@dataclass(frozen=True, slots=True)
class CandidateDifference:
    """Sizes at which two programs seem to differ.

    because  what is wrong there, with these sizes; "" where no more is known
    element  of a result, which is not left as in the source: its buffer and index
    """

    sizes: Sequence[int]
    because: str
    element: tuple[str, tuple[int, ...]] | None = None


class ProgramsDiffer(Exception):
    """Two programs differ, as far as the pairs tell into which their statements were put.

    what   the statement or the result of the emitted program that does
    cases  where and how, the smallest sizes first
    """

    def __init__(self, what: str, cases: Iterable[CandidateDifference]) -> None:
        super().__init__(what)
        self.what, self.cases = what, cases


@dataclass(frozen=True, slots=True)
class Side:
    """A program as statements.

    domains   of each store before what changes nothing was left out
    written   the buffers that it stores into
    copies    statements that are seen through: what they store is what they read
    """

    program: Program
    statements: tuple[Statement, ...]
    domains: Mapping[str, Set]
    written: frozenset[str]
    copies: frozenset[str]

    def kind(self, buffer: str) -> Kind:
        """Who owns the buffer."""
        return self.program.buffer(buffer).kind


@dataclass(frozen=True, slots=True)
class Match:
    """Instances of an emitted statement as instances of a source statement.

    at  the source's iterators (primed) over the emitted ones
    """

    source: Statement
    at: Mapping[str, Expr]
    pairs: tuple[ReadPair, ...]

    def of(self, expr: Expr) -> Expr:
        """Return a source expression over the emitted iterators."""
        return ix.fold_indices(substitute(expr, self.at))

    @property
    def point(self) -> list[Expr]:
        """Return the source instance."""
        return [self.at[name] for name in self.source.iters]


@dataclass(frozen=True, slots=True)
class Part:
    """Emitted instances with the source instances that they are; None: they copy an element."""

    statement: Statement
    match: Match | None


class Sides:
    """Two programs to compare: `source`, and what should be equal to it at every size.

    of            what is proved, for messages
    reassociate   whether the updates of a sum may run in any order
    same          buffers of both programs: each stands for itself alone, but for what was copied
    """

    def __init__(
        self, flows: ProgramSets, source: Program, emitted: Program, reassociate: bool, of: str
    ) -> None:
        self.flows, self.of, self.reassociate = flows, of, reassociate
        self.source = self.side(source, "S")
        self.emitted = self.side(emitted, "E")
        used = {b.name for b in source.buffers if b.kind not in SCRATCH} | self.source.written
        copied = {s.store.buffer for s in self.source.statements if s.name in self.source.copies}
        self.same = frozenset(used - copied) & {b.name for b in emitted.buffers}

    def side(self, program: Program, letter: str) -> Side:
        """Return the statements of a program; those of the source with primed iterators."""
        statements = extract_statements(self.flows, program, letter)
        if letter == "S":
            statements = [_with_primed_iterators(statement) for statement in statements]
        facts = analysis(program)
        effective_statements = [self.effective(statement, facts) for statement in statements]
        written = frozenset(
            stmt.buffer for stmt in statements_of(program.body) if isinstance(stmt, Store)
        )
        return Side(
            program,
            tuple(s for s in effective_statements if not s.domain.is_empty()),
            {s.name: s.domain for s in statements},
            written,
            _copies(effective_statements),
        )

    def effective(self, statement: Statement, facts: Analysis) -> Statement:
        """Return an update without the instances that change nothing."""
        store, domain = statement.store, statement.domain
        while store.reduce is not None and isinstance(store.value, Select):
            condition, then, other = store.value.condition, store.value.then, store.value.other
            if facts.adds_nothing(store, other):
                holding, value = condition, then
            elif facts.adds_nothing(store, then):
                holding, value = Logic("not", (condition,)), other
            else:
                break
            restricted = self.flows.restrict(domain, holding, statement.coordinates)
            if restricted is None:
                break
            store, domain = replace(store, value=value), restricted
        if facts.adds_nothing(store, store.value):
            domain = domain.empty(domain.get_space())
        return replace(statement, store=store, domain=domain)

    def instance(self, statement: Statement, sizes: Sequence[int], point: Sequence[int]) -> str:
        """``C[0, 1] += ... (i = 0, j = 1)``."""
        here = replace(statement, store=self.at(statement, sizes, point))
        pairs = zip(statement.iters, point, strict=True)
        at = ", ".join(f"{strip_prime(name)} = {value}" for name, value in pairs)
        return text_of(here) + (f" ({at})" if at else "")

    def text(self, statement: Statement) -> str:
        """``C[i, j] += A[i, k] * B[k, j]``, sizes as the user wrote them."""
        store = map_expressions(statement.store, self.flows.write_quotients)
        assert isinstance(store, Store)
        return text_of(replace(statement, store=store))

    def at(self, statement: Statement, sizes: Sequence[int], point: Sequence[int]) -> Store:
        """What an instance stores, over the elements that it reads."""
        values = self.values(statement, sizes, point)
        store = map_expressions(
            statement.store,
            lambda expr: ix.fold_indices(rewrite(substitute(expr, values), _value_of_where)),
        )
        assert isinstance(store, Store)
        return store

    def values(
        self, statement: Statement, sizes: Sequence[int], point: Sequence[int]
    ) -> dict[str, Expr]:
        """What the iterators, the sizes and the quotients are at an instance."""
        values_by_name: dict[str, Expr] = {
            name: ix.const(x) for name, x in zip(statement.iters, point, strict=True)
        }
        values_by_name |= {
            s.name: ix.const(x) for s, x in zip(self.flows.sizes, sizes, strict=True)
        }
        return values_by_name | self.flows.quotients_at(sizes)


def _value_of_where(node: Expr) -> Expr | None:
    """Return the value of a ``where`` whose condition is of numbers alone."""
    if not isinstance(node, Select) or variables(node.condition):
        return None
    if any(isinstance(part, Load) for part in walk(node.condition)):
        return None
    return node.then if holds_at(node.condition, {}) else node.other


def _with_primed_iterators(statement: Statement) -> Statement:
    """Return a source statement with its iterators told from the emitted program's."""
    iters = statement.iters

    def new(expr: Expr) -> Expr:
        return prime_iterators(expr, iters)

    def entry(e: int | str | tuple[str, ...]) -> int | str | tuple[str, ...]:
        if isinstance(e, tuple):
            return tuple(f"{x}'" for x in e)
        return f"{e}'" if isinstance(e, str) else e

    store = statement.store
    return replace(
        statement,
        store=replace(store, index=tuple(map(new, store.index)), value=new(store.value)),
        iters=tuple(f"{x}'" for x in iters),
        predicates=tuple(map(new, statement.predicates)),
        time=tuple(map(entry, statement.time)),
        storages=tuple(
            replace(
                s,
                prefix=tuple(f"{x}'" for x in s.prefix),
                window=None
                if s.window is None
                else tuple((new(start), new(extent)) for start, extent in s.window),
            )
            for s in statement.storages
        ),
    )


def strip_prime(name: str) -> str:
    """Return the name of an iterator as the source has it."""
    return name.removesuffix("'")


def text_for_user(text: str) -> str:
    """Return `text` as a user may read it."""
    return text.replace("'", "")


def text_of(statement: Statement) -> str:
    """``C[i, j] += A[i, k] * B[k, j]``."""
    store = statement.store
    index = ", ".join(map(format_expr, store.index))
    return text_for_user(
        f"{store.buffer}[{index}] {ASSIGN[store.reduce]} {format_expr(store.value)}"
    )


def reads_of(statement: Statement) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """Yield the reads of a value and of the conditions around it, but that of an update's own element."""
    yield from loads(statement.store.value)
    for part in statement.store.index:
        yield from loads(part)
    for predicate in statement.predicates:
        yield from loads(predicate)


def timing(statement: Statement) -> tuple[tuple[int | str | tuple[str, ...], ...], dict[str, int]]:
    """Return the time of a statement, and the positions of its iterators."""
    return statement.time, {name: k for k, name in enumerate(statement.iters)}


def _copies(statements: Sequence[Statement]) -> frozenset[str]:
    """Statements that store what they read, at an index that no array says, and reads do not lead back
    to what they store.
    """
    copy_loads = [
        (s, s.store.value)
        for s in statements
        if isinstance(s.store.value, Load) and s.store.reduce is None and not s.predicates
        if not read_arrays(s.store.value.index)
    ]
    edges: dict[str, set[str]] = {}
    for statement, load in copy_loads:
        edges.setdefault(statement.store.buffer, set()).add(load.buffer)

    def leads(start: str) -> set[str]:
        reached: set[str] = set()
        todo = [start]
        while todo:
            for name in edges.get(todo.pop(), set()) - reached:
                reached.add(name)
                todo.append(name)
        return reached

    return frozenset(s.name for s, _ in copy_loads if s.store.buffer not in leads(s.store.buffer))


def reorderable_buffers(side: Side, reassociate: bool) -> frozenset[str]:
    """Buffers whose updates are all of one kind that may run in any order."""
    ops: dict[str, set[str]] = {}
    for statement in side.statements:
        store = statement.store
        if store.reduce is not None:
            ops.setdefault(store.buffer, set()).add(store.reduce)
            mine = any(
                load.buffer == store.buffer and load.index == store.index
                for load, _ in reads_of(statement)
            )
            if mine or statement.predicates:
                ops[store.buffer].add("ordered")
    relaxed = {*ANY_ORDER} | ({"sum"} if reassociate else set())
    return frozenset(
        name for name, operators in ops.items() if len(operators) == 1 and operators <= relaxed
    )
