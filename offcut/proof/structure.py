"""Whether an emitted program is its source with loops cut, read side by side.

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
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import assert_never

from offcut.core import index as ix
from offcut.core.accesses import touched
from offcut.core.conditions import all_of, conjuncts, negated
from offcut.core.dtypes import is_identity
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    loads,
    substitute,
    variables,
    walk,
)
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    Form,
    If,
    Let,
    Program,
    Size,
    Stmt,
    Store,
    Tile,
    TileAxis,
    blocks,
    canonical,
    expressions,
    starts_of,
    substituted,
    with_blocks,
)
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.walking import around, bound, bound_in
from offcut.describe.computation import StageAxis
from offcut.polyhedral import INDEX_LIMIT, Dependence, Facts, Space, accesses_outside, dependences
from offcut.polyhedral.around import equal
from offcut.proof.by_axis.coverage import check_line
from offcut.proof.by_axis.product import Leaf, fills, product_of
from offcut.proof.by_axis.strips import NotSeparable, Strip
from offcut.proof.known_equal import alike, idle, reads_memory, same_store, settled

_MOST_STEPS = 8


class NotStructural(Exception):
    """The emitted program has another shape than its source, or the proof does not reach it."""


def check_structure(source: Program, emitted: Program) -> None:
    """Prove that `emitted` computes what `source` does; raises NotStructural where it cannot."""
    given = source
    source, emitted = (bare(canonical(program)) for program in (source, emitted))
    if _declared(source) != _declared(emitted):
        raise NotStructural("other declarations")
    if any(one.sizes is not None for one in accesses_outside(given)):
        raise NotStructural("accesses that may lie outside")
    if source.body == emitted.body:
        return
    space = Space(source.sizes, source.assumptions)
    if _rebinds(emitted):
        raise NotStructural("a name that is bound twice")
    walker = _SideBySide(space, source)
    try:
        walker.block(source.body, emitted.body, Facts(space))
    except NotSeparable as reason:
        raise NotStructural(str(reason)) from None
    if walker.masked and any(one.sizes is not None for one in accesses_outside(emitted)):
        raise NotStructural("a masked instance that leaves an array")


def bare(program: Program) -> Program:
    """`program` without what does not say what it computes: roles, marks, and names of microkernels."""

    def plain(stmt: Stmt) -> Stmt:
        match stmt:
            case For():
                stmt = For(stmt.iter, stmt.lo, stmt.hi, stmt.body)
            case Tile():
                stmt = Tile(stmt.axes, stmt.body, stmt.where, stmt.form)
            case _:
                pass
        return with_blocks(stmt, lambda body: tuple(map(plain, body)))

    return replace(program, body=tuple(map(plain, program.body)))


def _alone(stmt: Stmt) -> Stmt:
    """A statement with nothing inside."""
    return with_blocks(stmt, lambda _: ())


def _declared(program: Program) -> tuple[object, ...]:
    """What a program declares, but for the layout of what it alone sees."""
    buffers = {replace(buffer, layout=None, scope=None) for buffer in program.buffers}
    return program.sizes, program.assumptions, buffers


def _rebinds(program: Program) -> bool:
    """Whether a loop, a tile or a value takes a name that is bound around it."""
    sizes = [size.name for size in program.sizes]
    for stmt, path in around(program):
        names = [*sizes, *(name for outer, _ in path for name in bound(outer)), *bound(stmt)]
        if bound(stmt) and len(set(names)) < len(names):
            return True
    return False


@lru_cache(maxsize=64)
def carried_names(source: Program) -> tuple[tuple[int, str, str], ...]:
    """(top-level statement, iterator, array) of the dependences that loops carry."""
    found = (one for one in dependences(source) if not _says_the_same(one))
    return tuple({(one.path[0], one.loop, _array(one)): None for one in found})


def _array(one: Dependence) -> str:
    """The array that both ends access."""
    return (one.target if one.kind == "anti" else one.source).store.buffer


def _says_the_same(one: Dependence) -> bool:
    """Whether both ends store one number: in either order the element is that number."""
    first, second = one.source.store, one.target.store
    same = (first.value, first.reduce) == (second.value, second.reduce) == (first.value, None)
    return one.kind == "output" and isinstance(first.value, Const) and same


@dataclass(frozen=True)
class _Place:
    """A node of the emitted program that binds coordinates of the source, and the way to it.

    path   loops over tiles, bounded values, and conditions, outermost first
    axes   (coordinate, first, one past the last)
    checked  whether its body is known to be that of the source
    """

    path: tuple[For | Let | Expr, ...]
    axes: tuple[tuple[str, Expr, Expr], ...]
    where: tuple[Expr, ...]
    body: tuple[Stmt, ...]
    form: Form
    together: bool
    checked: bool = False

    @property
    def leaf(self) -> Leaf:
        """The same as a tile of a product."""
        axes = tuple(TileAxis(name, lo, ix.sub(hi, lo)) for name, lo, hi in self.axes)
        where = all_of(self.where) if self.where else None
        return Leaf(self.path, Tile(axes, self.body, where, self.form))

    @property
    def bound(self) -> frozenset[str]:
        """The names that it binds, and those of the loops on the way."""
        loops = (entry.iter for entry in self.path if isinstance(entry, For))
        return frozenset((*loops, *(name for name, _, _ in self.axes)))

    def is_loop(self, loop: For) -> bool:
        """Whether it is `loop` itself, all that the bounds say."""
        return not (self.path or self.where) and self.axes == ((loop.iter, loop.lo, loop.hi),)

    @property
    def lets(self) -> tuple[Let, ...]:
        """The bounded values around it."""
        return tuple(entry for entry in self.path if isinstance(entry, Let))

    def inside(self, at: Facts, values: Mapping[str, Expr]) -> Facts:
        """What is known in its body, with these bounded values fixed."""

        def fixed(expr: Expr) -> Expr:
            return ix.folded(substitute(expr, values)) if values else expr

        for entry in self.path:
            match entry:
                case For():
                    at = at.loop(entry.iter, fixed(entry.lo), fixed(entry.hi))
                case Let(name, lo, hi, value):
                    if name not in values:
                        at = at.loop(name, ix.const(lo), ix.const(hi))
                        continue
                    for condition in equal(value, values[name]):
                        at = at.where(condition)
                case _:
                    at = at.where(fixed(entry))
        for name, first, end in self.axes:
            at = at.loop(name, fixed(first), fixed(end))
        for condition in self.where:
            at = at.where(fixed(condition))
        return at


@dataclass(frozen=True)
class _Steps:
    """How a loop of the source may be run several coordinates at a time, by `emitted`."""

    loop: For
    emitted: Sequence[Stmt]
    at: Facts

    def counts(self) -> tuple[int, ...]:
        """The divisors that the body of the loop mentions."""
        found: dict[int, None] = {}

        exprs = (expr for stmt in statements(self.loop.body) for expr in expressions(stmt))
        for node in (node for expr in exprs for node in walk(expr)):
            if isinstance(node, Binary) and node.op in ("//", "%"):
                divisor = ix.literal(node.b)
                if divisor is not None and 1 < divisor <= _MOST_STEPS:
                    found[divisor] = None
        return tuple(found)

    def starts(self, stepped: For, count: int) -> tuple[Expr, ...]:
        """The coordinate where the counter of `stepped` is 0, if it runs from the start of the loop on,
        after another part of it, or before one.
        """
        found: dict[Expr, None] = {self.loop.lo: None}
        before, length = ix.mul(count, stepped.lo), ix.mul(count, stepped.hi)
        for first, end in _ranges(self.emitted, self.loop.iter, {}, {}):
            found |= dict.fromkeys((end, ix.sub(end, before), ix.sub(first, length)))
        return tuple(found)


def _ranges(
    body: Sequence[Stmt], name: str, first: Mapping[str, Expr], last: Mapping[str, Expr]
) -> Iterator[tuple[Expr, Expr]]:
    """Where loops and tiles over `name` start and end, with the loops around at `first` and `last`."""
    for stmt in body:
        match stmt:
            case For(one, lo, hi) if one == name:
                yield ix.folded(substitute(lo, first)), ix.folded(substitute(hi, last))
            case For(one, lo, hi, inner):
                low = ix.folded(substitute(lo, first))
                high = ix.folded(substitute(ix.sub(hi, 1), last))
                yield from _ranges(inner, name, {**first, one: low}, {**last, one: high})
            case Tile(axes):
                for axis in axes:
                    if axis.iter == name:
                        end = ix.add(axis.start, axis.extent)
                        start = ix.folded(substitute(axis.start, first))
                        yield start, ix.folded(substitute(end, last))
            case _:
                for inside in blocks(stmt):
                    yield from _ranges(inside, name, first, last)


class _SideBySide:
    def __init__(self, space: Space, source: Program) -> None:
        self.space = space
        self.source = source
        self.nest = -1
        self.masked = False  # whether instances run that are masked to nothing
        self.top = source.body
        self.starts = starts_of(source)
        self.iterators = {s.iter for s in statements(source.body) if isinstance(s, For)}

    @cached_property
    def carried(self) -> set[tuple[int, str, str]]:
        """(top-level statement, iterator, array) of the dependences that loops of the source carry."""
        return set(carried_names(self.source))

    def carries(self, loop: For) -> bool:
        """Whether a loop of the source carries a dependence: it accesses the array, and is named so."""
        return any((self.nest, loop.iter, name) in self.carried for name in touched((loop,)))

    def block(self, source: Sequence[Stmt], emitted: Sequence[Stmt], at: Facts) -> None:
        """Whether `emitted` runs what `source` does, in its order."""
        if tuple(source) == tuple(emitted) or at.empty:
            return
        left = list(emitted)
        for position, stmt in enumerate(source):
            if source is self.top:
                self.nest = position
            left = self.statement(stmt, source[position + 1 :], left, at)
        if left:
            raise NotStructural("statements that the source has not")

    def statement(
        self, stmt: Stmt, after: Sequence[Stmt], left: list[Stmt], at: Facts
    ) -> list[Stmt]:
        """What is left of `left` when its first part has run `stmt`."""
        if left and stmt == left[0]:
            return left[1:]
        if isinstance(stmt, Let | Tile | Alloc | Choose):
            return self.around(stmt, left, at)
        if left and isinstance(left[0], Choose):
            return self.choice(stmt, after, left[0], left[1:], at)
        match stmt:
            case Store():
                if left and isinstance(left[0], Store) and same_store(stmt, left[0], at):
                    return left[1:]
                if idle((stmt,), at, self.starts):
                    return left
                if left and isinstance(left[0], If):
                    asked = settled(left[0].condition, at)
                    if isinstance(asked, Const):
                        branch = left[0].then if asked.value else left[0].other
                        return self.statement(stmt, after, [*branch, *left[1:]], at)
                raise NotStructural(f"no {stmt.buffer} here")
            case If(condition, then, other):
                asked = settled(condition, at)
                if isinstance(asked, Const):
                    return self.inline(then if asked.value else other, left, at)
                for holds, branch in ((condition, then), (negated(condition), other)):
                    if at.expresses(condition) and at.where(negated(holds)).empty:
                        return self.inline(branch, left, at)
                first = left[0] if left else None
                if not isinstance(first, If) or not alike(condition, first.condition, at):
                    if idle((stmt,), at, self.starts):
                        return left
                    raise NotStructural(f"no {format_expr(condition)} here")
                self.block(then, first.then, at.where(condition))
                self.block(other, first.other, at.where(negated(condition)))
                return left[1:]
            case For():
                return self.loop(stmt, after, left, at)
            case _:
                assert_never(stmt)

    def around(self, stmt: Let | Tile | Alloc | Choose, left: list[Stmt], at: Facts) -> list[Stmt]:
        """What is left when `stmt` has run, which the source was cut into already: it must be there."""
        first = left[0] if left else None
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
        return left[1:]

    def choice(
        self, stmt: Stmt, after: Sequence[Stmt], first: Choose, rest: list[Stmt], at: Facts
    ) -> list[Stmt]:
        """What is left when `stmt` has run, whichever option runs: of the options, and then of `rest`."""
        ends = [self.statement(stmt, after, [*o.body, *rest], at) for o in first.options]
        kept = [len(end) - len(rest) for end in ends]
        if max(kept) <= 0 and min(kept) == max(kept):
            return ends[0]
        if min(kept) < 0:
            raise NotStructural("options that run different statements")
        parts = zip(first.options, ends, kept, strict=True)
        return [Choose(tuple(replace(o, body=tuple(end[:n])) for o, end, n in parts)), *rest]

    def inline(self, branch: Sequence[Stmt], left: list[Stmt], at: Facts) -> list[Stmt]:
        for position, stmt in enumerate(branch):
            left = self.statement(stmt, branch[position + 1 :], left, at)
        return left

    def loop(self, stmt: For, after: Sequence[Stmt], left: list[Stmt], at: Facts) -> list[Stmt]:
        """What is left when `stmt` has run: as one loop, or as one for each statement inside."""
        try:
            return self.one_loop(stmt, after, left, at)
        except (NotStructural, NotSeparable):
            parts = self.distributed(stmt)
            if len(parts) < 2:
                raise
        for position, part in enumerate(parts):
            left = self.loop(part, (*parts[position + 1 :], *after), left, at)
        return left

    def distributed(self, loop: For) -> list[For]:
        """Loops that carry no dependence, repeated around each statement inside.

        What an iteration runs depends on what the same iteration has run alone, so that another one
        may run in between; and on the bounds, which each repetition reads again.
        """
        chain = _chain(loop)
        if any(map(self.carries, chain)):
            return [loop]
        bounds = (bound for one in chain for bound in (one.lo, one.hi))
        read = {load.buffer for bound in bounds for load, _ in loads(bound)}
        if read & {buffer for buffer, _ in _written((loop,))}:
            return [loop]
        return [_around(chain, stmt) for stmt in chain[-1].body]

    def one_loop(self, stmt: For, after: Sequence[Stmt], left: list[Stmt], at: Facts) -> list[Stmt]:
        written = _written((stmt,))
        mine: list[Stmt] = []
        while len(mine) < len(left):
            one = left[len(mine)]
            if isinstance(one, Choose):
                break
            runs_it = stmt.iter in bound_in(one) or self.steps_in(one)
            if not (_written((one,)) <= written and runs_it):
                break
            mine.append(one)
        if not mine:
            if idle((stmt,), at, self.starts):
                return left
            raise NotStructural(f"no loop over {stmt.iter} here")
        follows = after[0] if after else None
        if not (
            isinstance(follows, For)
            and follows.iter == stmt.iter
            and _written((follows,)) & written
        ):
            self.nests(stmt, mine, at)
            return left[len(mine) :]
        for count in range(1, len(mine) + 1):
            try:
                self.nests(stmt, mine[:count], at)
                return left[count:]
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
            self.each(chain, [p for one in mine for p in self.tiles(one, (), free)], at)

    def places_of(self, mine: Sequence[Stmt], chain: Sequence[For], at: Facts) -> Iterator[_Place]:
        """The nodes of `mine` that bind the first coordinate of a chain, or more of them."""
        steps = _Steps(chain[0], mine, at)
        names = [one.iter for one in chain]
        for one in mine:
            yield from self.places(one, (), steps, names)

    def each(self, chain: Sequence[For], places: Sequence[_Place], at: Facts) -> None:
        """Whether places run the coordinates of the first loops of a chain, and inside what these do."""
        names = [one.iter for one in chain]
        bound = {place.bound & set(names) for place in places}
        if len(bound) != 1:
            raise NotStructural("nests over different coordinates")
        count = len(next(iter(bound)))
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
        steps: _Steps,
        names: Sequence[str],
    ) -> Iterator[_Place]:
        """The nodes that bind the first of `names`, and more of them where one tile does."""
        match stmt:
            case For() if stmt.iter == names[0]:
                yield _Place(
                    path, ((stmt.iter, stmt.lo, stmt.hi),), (), stmt.body, Form.FULL, False
                )
            case For() if stmt.iter not in self.iterators and names[0] not in bound_in(stmt):
                yield self.stepped(stmt, path, steps)
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
                yield _tile_at(stmt, path)
            case _:
                raise NotStructural("a statement among the tiles of a loop")

    def tiles(
        self, stmt: Stmt, path: tuple[For | Let | Expr, ...], names: set[str]
    ) -> Iterator[_Place]:
        """The innermost nodes that bind any of `names`, with the loops over others of them around."""
        match stmt:
            case For() if stmt.iter in names and names.isdisjoint(bound_in(stmt) - {stmt.iter}):
                axes = ((stmt.iter, stmt.lo, stmt.hi),)
                yield _Place(path, axes, (), stmt.body, Form.FULL, False)
            case For() | Let():
                for inner in stmt.body:
                    yield from self.tiles(inner, (*path, stmt), names)
            case If(condition, then, other) if not reads_memory(condition):
                for holds, block in ((True, then), (False, other)):
                    for inner in block:
                        way = (*path, *conjuncts(condition, holds))
                        yield from self.tiles(inner, way, names)
            case Tile():
                yield _tile_at(stmt, path)
            case _:
                raise NotStructural("a statement among the tiles of a band")

    def steps_in(self, stmt: Stmt) -> bool:
        """Whether `stmt` holds a loop that the source has not."""
        return any(s.iter not in self.iterators for s in statements((stmt,)) if isinstance(s, For))

    def stepped(self, stmt: For, path: tuple[For | Let | Expr, ...], steps: _Steps) -> _Place:
        """A loop that runs several coordinates in each iteration, one after the other in its text."""
        loop = steps.loop
        for count in steps.counts():
            for start in steps.starts(stmt, count):
                first = ix.add(start, ix.mul(count, Var(stmt.iter)))
                lo, hi = (ix.add(start, ix.mul(count, end)) for end in (stmt.lo, stmt.hi))
                whole = ((loop.iter, lo, hi),)
                place = _Place(path, whole, (), stmt.body, Form.FULL, False, True)
                at = replace(place, path=(*path, stmt), axes=()).inside(steps.at, {})
                at = at.where(Compare("<=", loop.lo, first))
                at = at.where(Compare("<=", ix.add(first, count), loop.hi))
                if at.empty:
                    continue
                bodies = (
                    substituted(loop.body, {loop.iter: ix.add(first, k)}) for k in range(count)
                )
                try:
                    self.block([one for body in bodies for one in body], stmt.body, at)
                    return place
                except NotStructural:
                    continue
        raise NotStructural(f"no steps along {loop.iter}")

    def line(self, loop: For, places: Sequence[_Place], at: Facts) -> None:
        """One loop, as nests that run its coordinates in its order."""
        places = [self.unmasked(place, at) for place in places]
        ordered = self.carries(loop)
        extent = ix.sub(loop.hi, loop.lo)
        alone = StageAxis(loop.iter, extent, loop.iter)
        space = _space_at(at)
        if any(place.form is Form.SHIFT for place in places):
            self.check_repeatable(loop.body)
        if ordered and any(place.together for place in places):
            raise NotStructural("lanes of a loop that carries a dependence")
        if ordered and _entwined(places):
            raise NotStructural("nests of one loop over tiles, which run in turn")
        plain = all(not any(isinstance(e, For | Let) for e in p.path) for p in places)
        if len(places) == 1 and places[0].is_loop(loop):
            pass  # whatever its bounds are
        elif plain and not any(place.form is Form.SHIFT for place in places):
            self.parts(loop, places, at)
        else:
            products = [product_of(place.leaf, (alone,), space) for place in places]
            strips = [
                replace(_from(one[loop.iter], loop.lo), repeats=one[""].repeats) for one in products
            ]
            if check_line(space, extent, strips, ordered=ordered) is not None:
                raise NotStructural(f"the coordinates of {loop.iter} are not the loop's")
        for place in places:
            self.inner(place, (loop,), at)

    def unmasked(self, place: _Place, at: Facts) -> _Place:
        """`place`, where each term is masked to nothing outside a condition: only where that holds."""
        stores = [s for s in statements(place.body) if isinstance(s, Store)]
        if place.together:
            return place
        if any(reads_memory(part) for store in stores for part in store.index):
            return place
        masks = {
            s.value.condition for s in stores if self.is_masked(s) and isinstance(s.value, Select)
        }
        if len(masks) == 1 and all(self.is_masked(store) for store in stores):
            (mask,) = masks
            names = {name for name, _, _ in place.axes}
            known = place.inside(at, {}).expresses(mask)
            if known and isinstance(mask, Compare) and variables(mask) & names:
                self.masked = True
                return replace(place, where=(*place.where, mask))
        return place

    def is_masked(self, store: Store) -> bool:
        match store.value:
            case Select(_, _, Const(value, dtype)) if store.reduce is not None:
                return is_identity(store.reduce, value, dtype)
            case _:
                return False

    def parts(self, loop: For, places: Sequence[_Place], at: Facts) -> None:
        """Loops one after the other: ascending, and what they leave out does nothing."""
        inside = at.loop(loop.iter, loop.lo, loop.hi)
        left = inside
        for position, place in enumerate(places):
            (_, lo, hi), holds = place.axes[0], (*_conditions(place), *place.where)
            mine = at.loop(loop.iter, lo, hi)
            for condition in holds:
                mine = mine.where(condition)
            x = Var(loop.iter)
            outside = Logic("or", (Compare("<", x, loop.lo), Compare(">=", x, loop.hi)))
            if not mine.where(outside).empty:
                raise NotStructural(f"{loop.iter} leaves its bounds")
            away = (Compare("<", x, lo), Compare(">=", x, hi), *map(negated, holds))
            left = left.where(Logic("or", away))
            for later in places[position + 1 :]:
                (_, start, end), others = later.axes[0], (*_conditions(later), *later.where)
                both = mine.loop("#later", start, end).where(Compare("<=", Var("#later"), x))
                for condition in others:
                    both = both.where(substitute(condition, {loop.iter: Var("#later")}))
                if not both.empty:
                    raise NotStructural(f"{loop.iter} does not ascend")
        if not left.empty and not idle(loop.body, left, self.starts):
            raise NotStructural(f"coordinates of {loop.iter} are left out")

    def band(self, chain: Sequence[For], places: Sequence[_Place], at: Facts) -> None:
        """Parallel loops, as tiles in any order."""
        names = {one.iter for one in chain}
        if any(map(self.carries, chain)):
            raise NotStructural("a band whose loops carry dependences")
        if any(names & (variables(one.lo) | variables(one.hi)) for one in chain):
            raise NotStructural("a band whose bounds depend on each other")
        if any(place.form is Form.SHIFT for place in places):
            self.check_repeatable(chain[-1].body)
        space = _space_at(at)
        axes = tuple(StageAxis(o.iter, ix.sub(o.hi, o.lo), o.iter) for o in chain)
        products = []
        for place in places:
            found = product_of(place.leaf, axes, space)
            for one in chain:
                found[one.iter] = _from(found[one.iter], one.lo)
            products.append(found)
        if not fills(space, axes, products):
            raise NotStructural("the tiles of a band are not its points")
        for place in places:
            self.inner(place, chain, at)

    def inner(self, place: _Place, chain: Sequence[For], at: Facts) -> None:
        """The body of a place against that of the loops: at once, else for each bounded value."""
        if place.checked:
            return
        inside = self.within(place, chain, at, {})
        pinned: dict[str, Expr] = {
            name: first for name, first, end in place.axes if _is_one(name, first, end, inside)
        }
        body = substituted(chain[-1].body, pinned) if pinned else chain[-1].body
        found = substituted(place.body, pinned) if pinned else place.body
        try:
            self.block(body, found, inside)
            return
        except NotStructural:
            if not place.lets:
                raise
        for literals in product(*(range(let.lo, let.hi) for let in place.lets)):
            values: dict[str, Expr] = {
                let.name: ix.const(q) for let, q in zip(place.lets, literals, strict=True)
            }
            self.block(body, substituted(found, values), self.within(place, chain, at, values))

    def within(
        self, place: _Place, chain: Sequence[For], at: Facts, values: Mapping[str, Expr]
    ) -> Facts:
        """What is known in the body of a place: where it lies, and that it lies in the loops."""
        known = {size.name for size in self.space.sizes} | set(at.names)
        fresh = [
            e.iter if isinstance(e, For) else e.name for e in place.path if isinstance(e, For | Let)
        ]
        if set(fresh) & known or len(set(fresh)) != len(fresh):
            raise NotStructural("a name that is bound twice")
        found = place.inside(at, values)
        for one in chain:
            found = found.where(Compare("<=", one.lo, Var(one.iter)))
            found = found.where(Compare("<", Var(one.iter), one.hi))
        return found

    def check_repeatable(self, body: Sequence[Stmt]) -> None:
        """Refuse a body that changes when it runs again: each buffer that it writes is assigned
        first, always, and from other buffers, or only takes a maximum, or a minimum, of values from others.
        """
        stores = [s for s in statements(tuple(body)) if isinstance(s, Store)]
        written = {s.buffer for s in stores}
        absorbing = {
            b for b in written if {s.reduce for s in stores if s.buffer == b} in ({"max"}, {"min"})
        }
        assigned: set[tuple[str, tuple[Expr, ...]]] = set()
        for stmt in body:
            for inner in statements((stmt,)):
                read = {
                    (load.buffer, load.index)
                    for expr in expressions(inner)
                    for load in walk(expr)
                    if isinstance(load, Load)
                }
                match inner:
                    case Store(buffer, index, _, reduce) if reduce and buffer not in absorbing:
                        read.add((buffer, index))
                    case _:
                        pass
                if any(at not in assigned for at in read if at[0] in written):
                    raise NotStructural("a body that does not repeat")
            if isinstance(stmt, Store) and stmt.reduce is None:
                assigned.add((stmt.buffer, stmt.index))
        own = (store for store in stores if store.buffer not in absorbing)
        if any((store.buffer, store.index) not in assigned for store in own):
            raise NotStructural("a body that does not repeat")


def _tile_at(tile: Tile, path: tuple[For | Let | Expr, ...]) -> _Place:
    """A tile as a place."""
    bounds = tuple((a.iter, a.start, ix.add(a.start, a.extent)) for a in tile.axes)
    where = () if tile.where is None else conjuncts(tile.where)
    return _Place(path, bounds, where, tile.body, tile.form, True)


def _chain(loop: For) -> list[For]:
    """`loop` and the loops inside it, each of which holds nothing but the next."""
    chain = [loop]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
        chain.append(chain[-1].body[0])
    return chain


def _around(chain: Sequence[For], stmt: Stmt) -> For:
    """The loops of `chain` around one statement."""
    made = replace(chain[-1], body=(stmt,))
    for loop in reversed(chain[:-1]):
        made = replace(loop, body=(made,))
    return made


def _is_one(name: str, first: Expr, end: Expr, inside: Facts) -> bool:
    """Whether a range is one literal number, or nothing."""
    if ix.literal(first) is None:
        return False
    return ix.sub(end, first) == ix.const(1) or inside.holds(Compare("==", Var(name), first))


def _written(body: tuple[Stmt, ...]) -> set[tuple[str, str | None]]:
    return {(s.buffer, s.reduce) for s in statements(body) if isinstance(s, Store)}


def _entwined(places: Sequence[_Place]) -> bool:
    """Whether two places lie in one loop over tiles: each of its iterations then runs both."""
    loops = [id(entry) for place in places for entry in place.path if isinstance(entry, For)]
    return len(set(loops)) != len(loops)


def _conditions(place: _Place) -> tuple[Expr, ...]:
    return tuple(entry for entry in place.path if not isinstance(entry, For | Let))


def _from(strip: Strip, lo: Expr) -> Strip:
    """`strip` with coordinates that count from `lo`."""
    if lo == ix.const(0):
        return strip
    to_x: dict[str, Expr] = {"#x": ix.add(Var("#x"), lo)}
    return replace(
        strip,
        lower=ix.sub(strip.lower, lo),
        upper=ix.sub(strip.upper, lo),
        holds=tuple(ix.folded(substitute(condition, to_x)) for condition in strip.holds),
    )


def _space_at(at: Facts) -> Space:
    """The sizes, and the iterators around as if they were sizes."""
    sizes = list(at.space.sizes)
    for name in at.names:
        natural = at.holds(Compare(">=", Var(name), ix.const(0)))
        sizes.append(Size(name, 0 if natural else -INDEX_LIMIT))
    known = tuple(c for c in at.conditions if at.expresses(c))
    return Space(tuple(sizes), (*at.space.assumptions, *known))
