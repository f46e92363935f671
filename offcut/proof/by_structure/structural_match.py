"""A source and an emitted program in; nothing out where one is the other with loops cut, read side by side.

Most cuts keep the shape of a program: where the source has a loop over x, the emitted program has
one or several nests that bind x, and where the source has a statement at x, each of these has it
too. The two texts are walked together, with what is known at each place:

a loop        the emitted nests' coordinates are the loop's, each once, ascending (`check_line`), or
              what they leave out does nothing; and each nest's inside is the loop's body there
a band        loops that carry no dependence may run in any order: the tiles' coordinates on each
              axis are the loop's, each point in one tile (`fills`)
a choice      each option runs what the loop program runs there
a condition   it is there, or what is known decides it
a statement   it is the same, with the conditions in its value decided by what is known

Each rule is a theorem for all sizes, and none knows how the program was made. A program of another
shape is `NotStructural`, which says nothing about it: `equivalence` compares by instances then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product, takewhile
from typing import assert_never

from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, analysis
from offcut.core.conditions import conjuncts, negate
from offcut.core.expr import Compare, Const, Expr, Var, loads, reads_memory
from offcut.core.memo import lazy_property, memo
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    Form,
    If,
    Let,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    blocks,
)
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.traversal import (
    all_bound_names,
    inside_loops,
    map_blocks,
    substitute_coordinates,
)
from offcut.polyhedral import Dependence, Facts, Space, dependences
from offcut.proof.by_axis.strips import NotSeparable
from offcut.proof.by_structure.places import (
    NotStructural,
    Place,
    Steps,
    check_in_any_order,
    check_in_turn,
    tile_at,
    tiles_of,
    without_guard,
    without_mask,
)
from offcut.proof.by_structure.value_equality import (
    are_equal_at,
    has_no_effect,
    same_store,
    simplify_at,
)


def check_structural_match(space: Space, source: Program, emitted: Program) -> bool:
    """Return whether instances run that are masked to nothing, where the text of `emitted` is that of `source`.

    Raises NotStructural, or NotSeparable, where that is not shown.
    """
    walker = _SideBySide(space, source)
    walker.block(source.body, emitted.body, Facts(space))
    return walker.masked


class _SideBySide:
    def __init__(self, space: Space, source: Program) -> None:
        self.space = space
        self.source = source
        self.nest = -1
        self.masked = False  # whether instances run that are masked to nothing
        self.top = source.body
        self.facts = analysis(source)
        self.iterators = analysis(source).iterators

    @lazy_property
    def carried(self) -> set[tuple[int, str, str]]:
        """(top-level statement, iterator, array) of the dependences that loops of the source carry."""
        return set(_carried_dependences(self.source))

    def carries(self, loop: For) -> bool:
        """Return whether a loop of the source carries a dependence: it accesses the array, and is named so."""
        return any(
            (self.nest, loop.iter, name) in self.carried for name in accessed_arrays((loop,))
        )

    def block(self, source: Sequence[Stmt], emitted: Sequence[Stmt], at: Facts) -> None:
        """Whether `emitted` runs what `source` does, in its order."""
        if tuple(source) == tuple(emitted) or at.empty:
            return
        rest: list[Stmt] = [stmt for stmt in emitted if not isinstance(stmt, Sync)]
        for position, stmt in enumerate(source):
            if source is self.top:
                self.nest = position
            rest = self.statement(stmt, source[position + 1 :], rest, at)
        if rest:
            raise NotStructural("statements that the source has not")

    def statement(
        self, stmt: Stmt, after: Sequence[Stmt], source: list[Stmt], at: Facts
    ) -> list[Stmt]:
        """What is left of `source` when its first part has run `stmt`."""
        if source and stmt == source[0]:
            return source[1:]
        if isinstance(stmt, Let | Tile | Alloc | Choose):
            return self.around(stmt, source, at)
        if source and isinstance(source[0], Choose):
            return self.choice(stmt, after, source[0], source[1:], at)
        match stmt:
            case Store():
                if source and isinstance(source[0], Store) and same_store(stmt, source[0], at):
                    return source[1:]
                if has_no_effect((stmt,), at, self.facts):
                    return source
                if source and isinstance(source[0], If):
                    verdict = simplify_at(source[0].condition, at)
                    if isinstance(verdict, Const):
                        branch = source[0].then if verdict.value else source[0].other
                        return self.statement(stmt, after, [*branch, *source[1:]], at)
                raise NotStructural(f"no {stmt.buffer} here")
            case If(condition, then, other):
                verdict = simplify_at(condition, at)
                if isinstance(verdict, Const):
                    return self.inline(then if verdict.value else other, source, at)
                for holds, branch in ((condition, then), (negate(condition), other)):
                    if at.expresses(condition) and at.where(negate(holds)).empty:
                        return self.inline(branch, source, at)
                first = source[0] if source else None
                if not isinstance(first, If) or not are_equal_at(condition, first.condition, at):
                    if has_no_effect((stmt,), at, self.facts):
                        return source
                    raise NotStructural(f"no {format_expr(condition)} here")
                self.block(then, first.then, at.where(condition))
                self.block(other, first.other, at.where(negate(condition)))
                return source[1:]
            case For():
                return self.loop(stmt, after, source, at)
            case Sync():
                return source
            case _:
                assert_never(stmt)

    def around(
        self, stmt: Let | Tile | Alloc | Choose, source: list[Stmt], at: Facts
    ) -> list[Stmt]:
        """What is left when `stmt` has run, which the source was cut into already: it must be there."""
        first = source[0] if source else None
        if first is None or _alone(stmt) != _alone(first):
            raise NotStructural(f"a {type(stmt).__name__} of the source that is not here")
        match stmt:
            case Let(name, lo, hi):
                at = at.loop(name, ix.const(lo), ix.const(hi))
            case Tile(axes, _, where):
                for axis in axes:
                    at = at.loop(axis.iter, axis.start, ix.add(axis.start, axis.extent))
                at = at if where is None else at.where(where)
            case _:
                pass
        for mine, theirs in zip(blocks(stmt), blocks(first), strict=True):
            self.block(mine, theirs, at)
        return source[1:]

    def choice(
        self, stmt: Stmt, after: Sequence[Stmt], first: Choose, rest: list[Stmt], at: Facts
    ) -> list[Stmt]:
        """What is left when `stmt` has run, whichever option runs: of the options, and then of `rest`."""
        ends = [self.statement(stmt, after, [*o.body, *rest], at) for o in first.options]
        own_counts = [len(end) - len(rest) for end in ends]
        if max(own_counts) <= 0 and min(own_counts) == max(own_counts):
            return ends[0]
        if min(own_counts) < 0:
            raise NotStructural("options that run different statements")
        parts = zip(first.options, ends, own_counts, strict=True)
        return [Choose(tuple(replace(o, body=tuple(end[:n])) for o, end, n in parts)), *rest]

    def inline(self, branch: Sequence[Stmt], source: list[Stmt], at: Facts) -> list[Stmt]:
        for position, stmt in enumerate(branch):
            source = self.statement(stmt, branch[position + 1 :], source, at)
        return source

    def loop(self, stmt: For, after: Sequence[Stmt], source: list[Stmt], at: Facts) -> list[Stmt]:
        """What is left when `stmt` has run: as one loop, or as one for each statement inside."""
        try:
            return self.one_loop(stmt, after, source, at)
        except (NotStructural, NotSeparable):
            parts = self.distribute(stmt)
            if len(parts) < 2:
                raise
        for position, part in enumerate(parts):
            source = self.loop(part, (*parts[position + 1 :], *after), source, at)
        return source

    def distribute(self, loop: For) -> list[For]:
        """Loops that carry no dependence, repeated around each statement inside.

        What an iteration runs depends on what the same iteration has run alone, so that another one
        may run in between; and on the bounds, which each repetition reads again.
        """
        chain = _chain(loop)
        if any(map(self.carries, chain)):
            return [loop]
        bounds = (bound for one in chain for bound in (one.lo, one.hi))
        read = {load.buffer for bound in bounds for load, _ in loads(bound)}
        if read & {buffer for buffer, _ in _buffers_written((loop,))}:
            return [loop]
        parts = (part for stmt in chain[-1].body for part in inside_loops(chain, (stmt,)))
        return [part for part in parts if isinstance(part, For)]

    def one_loop(
        self, stmt: For, after: Sequence[Stmt], source: list[Stmt], at: Facts
    ) -> list[Stmt]:
        written = _buffers_written((stmt,))
        mine: list[Stmt] = []
        while len(mine) < len(source):
            one = source[len(mine)]
            if isinstance(one, Choose):
                break
            runs_it = stmt.iter in all_bound_names(one) or self.steps_in(one, stmt)
            if not (_buffers_written((one,)) <= written and runs_it):
                break
            mine.append(one)
        if not mine:
            if has_no_effect((stmt,), at, self.facts):
                return source
            raise NotStructural(f"no loop over {stmt.iter} here")
        in_turn = [stmt, *takewhile(lambda one: _is_like(stmt, one), after)]
        if len(in_turn) == 1:
            self.nests(stmt, mine, at)
            return source[len(mine) :]
        each, rest = divmod(len(mine), len(in_turn))
        alike = (
            () if rest else (each,)
        )  # most likely, where they are cut alike: each try takes long
        for count in dict.fromkeys((*alike, *range(1, len(mine) + 1))):
            try:
                self.nests(stmt, mine[:count], at)
                return source[count:]
            except (NotStructural, NotSeparable):
                continue
        raise NotStructural("two loops in turn over one coordinate and one buffer")

    def nests(self, stmt: For, mine: Sequence[Stmt], at: Facts) -> None:
        """Whether `mine` are a loop of the source."""
        chain = _chain(stmt)
        try:
            self.each(chain, list(self.places_of(mine, chain, at)), at)
        except (NotStructural, NotSeparable):
            free = {one.iter for one in chain if not self.carries(one)}
            if len(free) < 2:
                raise
            self.each(chain, [p for one in mine for p in tiles_of(one, (), free)], at)

    def places_of(self, mine: Sequence[Stmt], chain: Sequence[For], at: Facts) -> Iterator[Place]:
        """Yield the nodes of `mine` that bind the first coordinate of a chain, or more of them."""
        steps = Steps(chain[0], mine, at)
        names = [one.iter for one in chain]
        for one in mine:
            yield from self.places(one, (), steps, names)

    def each(self, chain: Sequence[For], places: Sequence[Place], at: Facts) -> None:
        """Whether places run the coordinates of the first loops of a chain, and inside what these do."""
        names = [one.iter for one in chain]
        bound = {place.bound_names & set(names) for place in places}
        if len(bound) != 1:
            raise NotStructural("nests over different coordinates")
        count = len(next(iter(bound)))
        if count == 0:
            raise NotStructural("a tile that runs no coordinate")
        if set(names[:count]) != next(iter(bound)):
            raise NotStructural("coordinates out of their order")
        if count == 1:
            self.line(chain[0], places, at)
        else:
            self.band(chain[:count], places, at)

    def places(
        self,
        stmt: Stmt,
        path: tuple[For | Let | Expr, ...],
        steps: Steps,
        names: Sequence[str],
    ) -> Iterator[Place]:
        """Yield the nodes that bind the first of `names`, and more of them where one tile does."""
        match stmt:
            case For() if stmt.iter == names[0]:
                yield Place(path, ((stmt.iter, stmt.lo, stmt.hi),), (), stmt.body, Form.FULL, False)
            case For() if stmt.iter not in self.iterators and names[0] not in all_bound_names(stmt):
                yield self.step_loop(stmt, path, steps)
            case For() if stmt.iter not in self.iterators:
                for inner in stmt.body:
                    yield from self.places(inner, (*path, stmt), steps, names)
            case Let():
                for inner in stmt.body:
                    yield from self.places(inner, (*path, stmt), steps, names)
            case If(condition, then, other) if not reads_memory(condition):
                for inner in then:
                    yield from self.places(inner, (*path, *conjuncts(condition)), steps, names)
                for inner in other:
                    yield from self.places(
                        inner, (*path, *conjuncts(condition, False)), steps, names
                    )
            case Tile():
                yield tile_at(stmt, path)
            case _:
                raise NotStructural("a statement among the tiles of a loop")

    def steps_in(self, stmt: Stmt, loop: For) -> bool:
        """Return whether `stmt` holds a loop that the source has not, and is none over what only others of its loops run."""
        if isinstance(stmt, For) and stmt.iter in self.iterators - all_bound_names(loop):
            return False
        return any(s.iter not in self.iterators for s in statements((stmt,)) if isinstance(s, For))

    def step_loop(self, stmt: For, path: tuple[For | Let | Expr, ...], steps: Steps) -> Place:
        """Return a loop that runs several coordinates in each iteration, one after the other in its text."""
        loop = steps.loop
        for count in steps.counts():
            for start in steps.starts(stmt, count):
                first = ix.add(start, ix.mul(count, Var(stmt.iter)))
                lo, hi = (ix.add(start, ix.mul(count, end)) for end in (stmt.lo, stmt.hi))
                whole = ((loop.iter, lo, hi),)
                place = Place(path, whole, (), stmt.body, Form.FULL, False, True)
                at = replace(place, path=(*path, stmt), axes=()).inside(steps.at, {})
                at = at.where(Compare("<=", loop.lo, first))
                at = at.where(Compare("<=", ix.add(first, count), loop.hi))
                if at.empty:
                    continue
                bodies = (
                    substitute_coordinates(loop.body, {loop.iter: ix.add(first, k)})
                    for k in range(count)
                )
                try:
                    self.block([one for body in bodies for one in body], stmt.body, at)
                    return place
                except NotStructural:
                    continue
        raise NotStructural(f"no steps along {loop.iter}")

    def line(self, loop: For, places: Sequence[Place], at: Facts) -> None:
        """One loop, as nests that run its coordinates in its order."""
        places = [without_guard(place, loop) for place in places]
        unmasked = [without_mask(place, at) for place in places]
        self.masked |= any(one is not other for one, other in zip(unmasked, places, strict=True))
        check_in_turn(loop, unmasked, at, self.facts, ordered=self.carries(loop))
        for place in unmasked:
            self.inner(place, (loop,), at)

    def band(self, chain: Sequence[For], places: Sequence[Place], at: Facts) -> None:
        """Parallel loops, as tiles in any order."""
        if any(map(self.carries, chain)):
            raise NotStructural("a band whose loops carry dependences")
        check_in_any_order(chain, places, at)
        for place in places:
            self.inner(place, chain, at)

    def inner(self, place: Place, chain: Sequence[For], at: Facts) -> None:
        """The body of a place against that of the loops: at once, else for each bounded value."""
        if place.checked:
            return
        inside = self.within(place, chain, at, {})
        pinned: dict[str, Expr] = {
            name: first for name, first, end in place.axes if _is_one(name, first, end, inside)
        }
        body = substitute_coordinates(chain[-1].body, pinned) if pinned else chain[-1].body
        pinned_body = substitute_coordinates(place.body, pinned) if pinned else place.body
        try:
            self.block(body, pinned_body, inside)
            return
        except NotStructural:
            if not place.lets:
                raise
        for literals in product(*(range(let.lo, let.hi) for let in place.lets)):
            values: dict[str, Expr] = {
                let.name: ix.const(q) for let, q in zip(place.lets, literals, strict=True)
            }
            self.block(
                body,
                substitute_coordinates(pinned_body, values),
                self.within(place, chain, at, values),
            )

    def within(
        self, place: Place, chain: Sequence[For], at: Facts, values: Mapping[str, Expr]
    ) -> Facts:
        """What is known in the body of a place: where it lies, and that it lies in the loops."""
        known = {size.name for size in self.space.sizes} | set(at.names)
        fresh = [
            e.iter if isinstance(e, For) else e.name for e in place.path if isinstance(e, For | Let)
        ]
        if set(fresh) & known or len(set(fresh)) != len(fresh):
            raise NotStructural("a name that is bound twice")
        facts = place.inside(at, values)
        for one in chain:
            facts = facts.where(Compare("<=", one.lo, Var(one.iter)))
            facts = facts.where(Compare("<", Var(one.iter), one.hi))
        return facts


@memo(64)
def _carried_dependences(source: Program) -> tuple[tuple[int, str, str], ...]:
    """(top-level statement, iterator, array) of the dependences that loops carry."""
    carried_dependences = (one for one in dependences(source) if not _says_the_same(one))
    return tuple({(one.path[0], one.loop, one.buffer): None for one in carried_dependences})


def _says_the_same(one: Dependence) -> bool:
    """Return whether both ends store one number: in either order the element is that number."""
    first, second = one.source.store, one.target.store
    same = (first.value, first.reduce) == (second.value, second.reduce) == (first.value, None)
    return one.kind == "output" and isinstance(first.value, Const) and same


def _alone(stmt: Stmt) -> Stmt:
    """Return a statement with nothing inside."""
    return map_blocks(stmt, lambda _: ())


def _chain(loop: For) -> list[For]:
    """`loop` and the loops inside it, each of which holds nothing but the next."""
    chain = [loop]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
        chain.append(chain[-1].body[0])
    return chain


def _is_one(name: str, first: Expr, end: Expr, inside: Facts) -> bool:
    """Return whether a range is one literal number, or nothing."""
    if ix.literal_value(first) is None:
        return False
    return ix.sub(end, first) == ix.const(1) or inside.holds(Compare("==", Var(name), first))


def _is_like(loop: For, other: Stmt) -> bool:
    """Return whether `other` is a loop over the coordinate of `loop`, too, and writes what that writes."""
    alike = isinstance(other, For) and other.iter == loop.iter
    return alike and not _buffers_written((other,)).isdisjoint(_buffers_written((loop,)))


def _buffers_written(body: tuple[Stmt, ...]) -> set[tuple[str, str | None]]:
    return {(s.buffer, s.reduce) for s in statements(body) if isinstance(s, Store)}
