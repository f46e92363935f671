"""Whether one loop program computes what another one does, for all sizes.

Most cuts are proved by reading the two texts side by side (`structure`). Where that fails it is tried once
more: the emitted program without the copies that the source has not (`forwarding`) and without windows
(`windows`), the source with loops joined (`joining`) and sums ordered (`terms`) as they are there. Where
they differ in shape all the same, both programs are read back into statement instances. Each store of the emitted program is matched to a store of the source (`unify`),
which says of which source instance an emitted one is. Then

- where every instance runs exactly once, on the same elements, it is enough that any two that touch
  one element, one of them writing it, keep their order (`Order`);
- otherwise, and to say what is wrong, every read must see the value that the source's read sees: the
  last write before it, mapped to the source, is the source's last write, and so for what is left in
  every result (`DataFlow`). Repeated and recomputed instances, copies, and windows need this one. By
  induction over the time of the emitted program each instance then computes the source's value.

A store of a literal that changes nothing (``+= -0.0``), and the part of ``+= where(c, term, -0.0)``
outside `c`, is no instance in either program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import islice, product
from math import prod

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Logic, Var, loads, substitute, walk
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
    expressions,
)
from offcut.core.program import walk as statements_of
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError
from offcut.polyhedral import Set, accesses_outside, answered, bounded
from offcut.polyhedral.flow import Flows, Statement, bounds_of
from offcut.polyhedral.reading import NotReadable, cases
from offcut.proof.certificate import Theorem
from offcut.proof.dataflow import DataFlow
from offcut.proof.differing import confirmed
from offcut.proof.forms.forwarding import forwarded
from offcut.proof.forms.joining import joined_like
from offcut.proof.forms.starts import given, started
from offcut.proof.forms.terms import in_order_of
from offcut.proof.forms.turning import told_apart, turned_back, turned_like
from offcut.proof.forms.windows import without_windows
from offcut.proof.pairing import (
    NOT_TOLD,
    SCRATCH,
    Case,
    Differs,
    Match,
    Part,
    Side,
    Sides,
    reads_of,
    refused,
    shown,
    unprimed,
    untold,
)
from offcut.proof.places import NotStructural
from offcut.proof.reordering import Order
from offcut.proof.structure import check_structure
from offcut.proof.substitution import Unified, solutions, unify

_MOST_ALTERNATIVES = 256
_MOST_ATTEMPTS = 16
_MOST_SIZES = 6
_MOST_INSTANCES = 256
_PROVED = (
    ("instances", "every emitted instance is one of the source"),
    ("in bounds", "every access lies in its buffer and its window"),
    ("data flow", "every read sees what the source's read sees"),
    ("results", "every result is left by the source's last write"),
)


def check_equal(
    source: Program,
    emitted: Program,
    *,
    reassociate: bool = False,
    users: Mapping[str, str] | None = None,
    through: Program | None = None,
) -> tuple[Theorem, ...]:
    """Prove that `emitted` computes what `source` does, at every size that the source allows.

    reassociate   whether the updates of a sum may run in any order, each once; those of max= and
                  min= always may
    users         the users' names of sizes, by the program's, for messages
    through       a program on the way from one to the other: two small steps are often easier to see

    instances   every emitted instance is an instance of the source
    in bounds   every access lies inside its buffer, and inside the window that holds it
    data flow   every read sees the value that the source's read sees
    results     every element of every result is left by the instance that leaves it in the source

    Raises PartitionError with the smallest witness.
    """
    names = tuple((users or {}).items())
    return _proved(source, emitted, reassociate, names, through or source)


@lru_cache(maxsize=32)
def _proved(
    source: Program,
    emitted: Program,
    reassociate: bool,
    names: tuple[tuple[str, str], ...],
    through: Program,
) -> tuple[Theorem, ...]:
    """`check_equal`, which proves a pair of programs once."""
    with bounded("prove", NOT_TOLD, at=emitted.name):
        return _theorems(source, emitted, reassociate, dict(names), through)


def _theorems(
    source: Program,
    emitted: Program,
    reassociate: bool,
    users: Mapping[str, str],
    through: Program,
) -> tuple[Theorem, ...]:
    source = given(source, emitted)
    if reassociate:
        emitted = started(emitted, {buffer.name for buffer in source.buffers})
    _check_declarations(source, emitted)
    way = [source]
    if through != source and is_same_shape(source, through):
        way.append(through)
    if any(is_same_shape(step, emitted) for step in reversed(way)):
        return tuple(Theorem(*proved, emitted.name) for proved in _PROVED)
    if _is_alike(source, emitted, reassociate):
        return tuple(Theorem(*proved, emitted.name) for proved in _PROVED)
    if _combinations(source.body) > 1:
        raise untold(source.name, "the source leaves a choice, and a proof is of one program")
    plain = replace(source, body=next(_options(source.body))[1])
    if _combinations(emitted.body) > _MOST_ALTERNATIVES:
        raise untold(emitted.name, f"it has more than {_MOST_ALTERNATIVES} combinations of options")
    theorems: list[Theorem] = []
    for label, body in _options(emitted.body):
        of = f"{emitted.name}, {label}" if label else emitted.name
        theorems += [Theorem(*proved, of) for proved in _PROVED]
        whole = replace(emitted, body=body)
        if label and any(is_same_shape(step, whole) for step in reversed(way)):
            continue
        if label and _is_alike(plain, whole, reassociate):
            continue
        whole = told_apart(whole, plain)
        _check_conditions(plain, whole)
        flows = Flows(source.sizes, source.assumptions, users)
        pair = flows.prepared(plain), flows.prepared(whole)
        try:
            for case in cases(flows, pair[1]):
                _Comparison(case, *pair, reassociate, of).prove()
        except Differs as found:
            raise confirmed(found, plain, whole, flows, reassociate, of) from None
        except NotReadable as why:
            raise untold(of, f"{why.refused}: {why.because}") from None
        _check_inside(whole, users)
    return tuple(theorems)


def _is_alike(source: Program, emitted: Program, reassociate: bool) -> bool:
    """Whether two programs have one shape when copies, windows, and orders that may differ are gone.

    What an array that is gone held is read where it was read: inside of it, or nothing is known.
    """
    one, other = _shaped(source, emitted, reassociate)
    if (one, other) == (source, emitted) or not is_same_shape(one, other):
        return False
    gone = frozenset(b.name for b in emitted.buffers) - {b.name for b in other.buffers}
    inside = answered(lambda: not accesses_outside(emitted, gone), False)
    return not gone or inside


def _check_conditions(source: Program, emitted: Program) -> None:
    """Refuse programs of two shapes whose conditions read what they write: such a condition is
    evaluated at a moment, and instances are compared as if each evaluated its own.
    """
    for program in (source, emitted):
        stores = [s for s in statements_of(program.body) if isinstance(s, Store)]
        written = {store.buffer for store in stores}
        for stmt in statements_of(program.body):
            condition = stmt.condition if isinstance(stmt, If) else None
            condition = stmt.where if isinstance(stmt, Tile) else condition
            if condition is None:
                continue
            for load, _ in loads(condition):
                if load.buffer in written:
                    raise untold(
                        emitted.name,
                        f"{format_expr(condition)} reads {load.buffer}, which the program writes, and "
                        "the two programs differ in shape: when it is evaluated cannot be compared",
                    )


def _check_inside(emitted: Program, users: Mapping[str, str]) -> None:
    """Refuse a program that leaves an array, conditions and indices included."""
    for one in accesses_outside(emitted):
        if one.sizes is None:
            continue
        rank = len(one.statement.loops)
        names = [users.get(size.name, size.name) for size in emitted.sizes]
        at = [f"{n} = {v}" for n, v in zip(names, one.sizes, strict=True)]
        loops = zip(one.statement.iterators, one.point[:rank], strict=True)
        at += [f"{name} = {value}" for name, value in loops]
        given = f"with {', '.join(at)}, " if at else ""
        element = ", ".join(map(str, one.point[rank:]))
        raise refused(
            emitted.name, f"{given}{one.access} is [{element}], which lies outside of its array"
        )


def _shaped(source: Program, emitted: Program, reassociate: bool) -> tuple[Program, Program]:
    """Programs that do the same as these two, as near to each other as is easily seen.

    All that `emitted` accesses must lie inside: a copy that is gone is not asked for its accesses.
    """
    own = [buffer.name for buffer in source.buffers]
    emitted = answered(lambda: turned_back(forwarded(emitted, own), own), emitted)
    emitted = without_windows(turned_like(emitted, source))
    return in_order_of(emitted, joined_like(emitted, source), reassociate), emitted


def is_same_shape(source: Program, emitted: Program) -> bool:
    """Whether the proof side by side holds; where not, nothing is known yet."""
    return answered(lambda: _is_same_shape(source, emitted), False)


def _is_same_shape(source: Program, emitted: Program) -> bool:
    try:
        check_structure(source, emitted)
    except NotStructural:
        return False
    return True


def _check_declarations(source: Program, emitted: Program) -> None:
    if source.sizes != emitted.sizes or source.assumptions != emitted.assumptions:
        raise refused(emitted.name, "its sizes, or what it assumes of them, are not the source's")
    mine = {b.name: b for b in emitted.buffers if b.kind not in SCRATCH}
    for buffer in source.buffers:
        if buffer.kind in SCRATCH:
            continue
        other = mine.pop(buffer.name, None)
        if other is None or (other.dtype, other.shape, other.kind) != (
            buffer.dtype,
            buffer.shape,
            buffer.kind,
        ):
            raise refused(
                emitted.name, f"{buffer.kind.value} {buffer.name} is not declared as in the source"
            )
    if mine:
        name, buffer = next(iter(mine.items()))
        raise refused(emitted.name, f"the source has no {buffer.kind.value} {name}")


def _combinations(body: tuple[Stmt, ...]) -> int:
    """How many combinations of options there are."""
    inside = ([_combinations(block) for block in blocks(stmt)] for stmt in body)
    pairs = zip(body, inside, strict=True)
    return prod(sum(ways) if isinstance(stmt, Choose) else prod(ways) for stmt, ways in pairs)


def _options(body: tuple[Stmt, ...]) -> Iterator[tuple[str, tuple[Stmt, ...]]]:
    """`body` once for every combination of options, at any depth, with the labels."""
    for choice in product(*(list(_option(stmt)) for stmt in body)):
        label = " ".join(label for label, _ in choice if label)
        yield label, tuple(stmt for _, part in choice for stmt in part)


def _option(stmt: Stmt) -> Iterator[tuple[str, tuple[Stmt, ...]]]:
    match stmt:
        case For() | Let() | Tile() | Alloc():
            for label, body in _options(stmt.body):
                yield label, (replace(stmt, body=body),)
        case If(_, then, other):
            for (one, a), (two, b) in product(list(_options(then)), list(_options(other))):
                yield f"{one} {two}".strip(), (replace(stmt, then=a, other=b),)
        case Choose(options):
            for option in options:
                for label, body in _options(option.body):
                    yield f"{option.label} {label}".strip(), body
        case Store():
            yield "", (stmt,)


class _Comparison(Sides):
    def prove(self) -> None:
        """The cheaper argument where it applies, else the general one."""
        self.check_source_bounds()
        candidates = [self.candidates(statement) for statement in self.emitted.statements]
        attempts = self.attempts(candidates)
        failure: PartitionError | Differs | None = None
        for parts in islice(attempts, _MOST_ATTEMPTS):
            try:
                self.check(parts)
            except (PartitionError, Differs) as error:
                failure = failure or error
                continue
            return
        assert failure is not None
        raise failure

    def check(self, parts: Sequence[Part]) -> None:
        if not Order(self, parts).holds():
            self.check_bounds(parts)
            DataFlow(self, parts).check()
        self.check_masked_bounds(parts)

    def candidates(self, statement: Statement) -> list[Match]:
        """The source statements that `statement` may be, those of its buffer first."""
        found: list[Match] = []
        for other in self.source.statements:
            match = self.match(statement, other)
            if match is not None:
                found.append(match)
        return sorted(found, key=lambda m: m.source.store.buffer != statement.store.buffer)

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
            found = sum(choice, Unified())
            equations = [(a, b) for a, b, _ in found.equal]
            if not renamed and len(theirs.index) == len(mine.index):
                equations += zip(theirs.index, mine.index, strict=True)
            for pair in found.pairs:
                same = pair.source.buffer == pair.emitted.buffer
                if same and len(pair.source.index) == len(pair.emitted.index):
                    equations += zip(pair.source.index, pair.emitted.index, strict=True)
            for a, b, _ in found.alike:
                for inner in islice(unify(a, b, self.same), 1):
                    equations += [(x, y) for x, y, _ in inner.equal]
            if renamed and len(theirs.index) == len(mine.index):
                equations += zip(theirs.index, mine.index, strict=True)
            iters = [unprimed(name) for name in other.iters]
            fitting: list[Match] = []
            for at, guessed in solutions(
                iters, equations, statement.iters, lambda: self.guesses(statement)
            ):
                named = {f"{name}'": value for name, value in at.items()}
                match = Match(other, named, found.pairs, guessed)
                if self.agrees(statement, match, found) and self.meets(statement, match):
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

    @cached_property
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

    def agrees(self, statement: Statement, match: Match, found: Unified) -> bool:
        """Whether the values are equal on all of the domain."""

        def never(conditions: Sequence[Expr], path: Sequence[Expr]) -> bool:
            domain = self.flows.kept(statement, [match.of(p) for p in path])
            for condition in conditions:
                here = self.flows.restricted(domain, condition, statement.coordinates)
                if here is None:
                    return False
                domain = here
            return bool(domain.is_empty())

        for a, b, path in found.equal:
            a, b = match.of(a), ix.folded(b)
            if a != b and not never([ix.compare("!=", a, b)], path):
                return False
        for a, b, path in found.alike:
            a, b = match.of(a), ix.folded(b)
            if a != b and not (
                never([a, Logic("not", (b,))], path) and never([b, Logic("not", (a,))], path)
            ):
                return False
        return all(
            never([Logic("not", (match.of(condition),))], path) for condition, path in found.holds
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
                choices.append([self.divided(statement, matches)])
            elif statement.name in self.emitted.copies:
                choices.append([[Part(statement, None)]])
            else:
                raise Differs(self.text(statement), self.unmatched(statement))
        for choice in product(*choices):
            yield [part for parts in choice for part in parts]

    def divided(self, statement: Statement, matches: Sequence[Match]) -> list[Part]:
        """`statement` in parts, each with the source statement that it is of."""
        parts, left = [], statement.domain
        for number, match in enumerate(matches):
            inside = self.inside(statement, match)
            assert inside is not None
            here = left & inside
            if here.is_empty():
                continue
            left = left - here
            name = f"{statement.name}_{number}"
            parts.append(
                Part(replace(statement, name=name, domain=here.set_tuple_name(name)), match)
            )
        found = self.flows.smallest(left)
        if found is not None:
            sizes, point = found
            case = self.case(statement, sizes, point, "is no instance of the source")
            raise Differs(self.text(statement), [case])
        return parts

    def unmatched(self, statement: Statement) -> Iterator[Case]:
        """The first sizes and instances of a statement that is none of the source's."""
        left = statement.domain
        for _ in range(_MOST_SIZES):
            found = self.flows.smallest(left)
            if found is None:
                return
            sizes, point = found
            yield self.case(statement, sizes, point, "matches no statement of the source")
            left = left - left.intersect_params(self.flows.at_sizes(sizes))

    def case(
        self, statement: Statement, sizes: Sequence[int], point: Sequence[int], is_none: str
    ) -> Case:
        """An instance that is none of the source, in words where the source has no equal one."""
        store = self.at(statement, sizes, point)
        same = (other for other in self.source.statements if self.has(other, sizes, store))
        what = f"{self.flows.given(sizes)}{self.instance(statement, sizes, point)}"
        return Case(sizes, "" if next(same, None) else f"{what} {is_none}")

    def has(self, statement: Statement, sizes: Sequence[int], store: Store) -> bool:
        """Whether some instance of a statement of the source stores just this, or they are too many."""
        mine = statement.store
        if (mine.buffer, mine.reduce) != (store.buffer, store.reduce):
            return False
        domain = statement.domain.intersect_params(self.flows.at_sizes(sizes))
        for part, wanted in zip(mine.index, store.index, strict=True):
            equal = ix.compare("==", part, wanted)
            if isinstance(equal, Const):
                if not equal.value:
                    return False
                continue
            here = self.flows.restricted(domain, equal, statement.coordinates)
            domain = domain if here is None else here
        for _ in range(_MOST_INSTANCES):
            found = self.flows.smallest(domain)
            if found is None:
                return False
            if self.at(statement, *found) == store:
                return True
            domain = domain - self.flows.point(statement, found[1])
        return True

    def check_source_bounds(self) -> None:
        for statement in self.source.statements:
            for load, path in reads_of(statement):
                self.check_access(self.source, statement, load.buffer, load.index, path, True)
            store = statement.store
            whole = replace(statement, domain=self.source.domains[statement.name])
            self.check_access(self.source, whole, store.buffer, store.index, (), True)

    def check_bounds(self, parts: Sequence[Part]) -> None:
        for part in parts:
            statement, store = part.statement, part.statement.store
            for load, path in reads_of(statement):
                self.check_access(self.emitted, statement, load.buffer, load.index, path)
            self.check_access(self.emitted, statement, store.buffer, store.index, ())

    def check_masked_bounds(self, parts: Sequence[Part]) -> None:
        """Updates that change nothing still touch their element."""
        known = {part.statement.name for part in parts}
        for statement in self.emitted.statements:
            whole = self.emitted.domains[statement.name]
            if statement.name in known and statement.domain.plain_is_equal(whole):
                continue
            store = statement.store
            self.check_access(
                self.emitted, replace(statement, domain=whole), store.buffer, store.index, ()
            )

    def undecided(self, statement: Statement, condition: Expr) -> bool:
        coordinates = statement.coordinates
        return self.flows.restricted(statement.domain, condition, coordinates) is None

    def check_access(
        self,
        side: Side,
        statement: Statement,
        buffer: str,
        index: Sequence[Expr],
        path: Sequence[Expr],
        source: bool = False,
    ) -> None:
        declared = side.program.buffer(buffer)
        bounds: list[tuple[Expr, Expr]] = [(ix.const(0), extent) for extent in declared.shape]
        storage = statement.storage(buffer)
        window = f"of shape ({', '.join(map(format_expr, declared.shape))})"
        windows = [(bounds, window)]
        if storage is not None and storage.window is not None:
            text = ", ".join(f"{format_expr(a)} +: {format_expr(n)}" for a, n in storage.window)
            windows = [(list(storage.window), f"in the window [{shown(text)}]")]
        undecided = [*statement.predicates, *(part for c in path for part in bounds_of(c))]
        if storage is None and any(self.undecided(statement, part) for part in undecided):
            return  # what isl does not decide guards it, here as in the source
        for limits, text in windows:
            broken = self.flows.outside(statement, index, limits, path)
            if broken is None:
                continue
            found = self.flows.smallest(broken)
            if found is None:
                continue
            sizes, point = found
            at = self.values(statement, sizes, point)
            element = ", ".join(format_expr(ix.folded(substitute(part, at))) for part in index)
            whose = "the source: " if source else ""
            raise refused(
                self.of,
                f"{whose}{self.flows.given(sizes)}{self.instance(statement, sizes, point)} touches "
                f"{buffer}[{element}], outside {buffer} {text}",
            )


def _subset(domain: Set, inside: Set | None) -> bool:
    return inside is not None and bool(domain.is_subset(inside))
