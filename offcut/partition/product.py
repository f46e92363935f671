"""An emitted program of a described computation proved axis by axis, from its own text.

In nearly every cut, the instances that a tile runs are a product: each loop, window and condition
around a store speaks of one axis, and the sizes. Then, with the statements grouped by what they say
about an axis a,

    covering   the groups' coordinates on a cover the axis, and each group covers the other axes
    disjoint   the groups are disjoint on a, and each is disjoint on the other axes

suffice, one axis after the other, and each axis is a question in one dimension (`line.py`). A
condition on sizes alone may stand with any axis: for given sizes, the product is the same. It is
put where its subterms occur; a poor choice can only make the proof fail.

Inside a tile the order is that of the text: a start, then all terms ascending, then the stages that
follow at the same point. A program of another form is `NotSeparable`, which says nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.computation import Stage, StageAxis
from offcut.core.conditions import conjuncts
from offcut.core.expr import Const, Expr, Load, Var, substitute, variables, walk
from offcut.core.program import Alloc, Choose, For, Form, If, Kind, Let, Stmt, Store, Tile
from offcut.core.program import walk as statements
from offcut.partition.line import Broken, NotSeparable, Strip, Value, X, check_line
from offcut.polyhedral import Space

Conditions = Callable[[Store], tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class Wrong:
    """A theorem about one axis that fails: of which axis of which stage, and how."""

    stage: Stage
    axis: StageAxis
    broken: Broken


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tile of the program: what encloses it, and where it stands. Statements of one point that
    stand in no tile are one of no axes.

    path     loops, values, and conditions that hold, outermost first
    place    its position in each block around it, outermost first
    loops    the counters of the loops around it, and how many positions say which loop it is
    windows  the windows of buffers around it, and their places
    """

    path: tuple[For | Let | Expr, ...]
    tile: Tile
    place: tuple[int, ...]
    loops: tuple[tuple[str, int], ...] = ()
    windows: tuple[tuple[Alloc, tuple[int, ...]], ...] = ()


def check_product(
    space: Space,
    stages: Sequence[Stage],
    kinds: dict[str, Kind],
    body: tuple[Stmt, ...],
    kept_where: Callable[[Stage], Conditions],
) -> Wrong | None:
    """None where `body` runs every instance of `stages` as it should; `check_program` says how.

    stages      those that must be run, in their order
    kinds       of the buffers
    kept_where  checks what a store of the stage computes, and gives the conditions outside of which
                its term is masked

    Raises NotSeparable where the program is of another form, or the proof fails in a way that says
    nothing about the program.
    """
    leaves = list(_leaves(body, Leaf((), _NOTHING, ())))
    order: dict[str, list[tuple[Leaf, int]]] = {stage.buffer: [] for stage in stages}
    by_name = {stage.buffer: stage for stage in stages}
    terms: dict[tuple[str, tuple[Stmt, ...]], None] = {}
    for leaf in leaves:
        for position, (buffer, block) in enumerate(_blocks(leaf.tile.body)):
            stage = by_name.get(buffer)
            if stage is None:
                raise NotSeparable("a store of a buffer that no stage makes")
            if any(other is leaf for other, _ in order[buffer]):
                raise NotSeparable("a stage twice in one tile")
            order[buffer].append((leaf, position))
            terms[buffer, block] = None
    for buffer, block in terms:
        wrong = _check_terms(space, by_name[buffer], block, kept_where(by_name[buffer]))
        if wrong is not None:
            return wrong
    _check_reads(order, kinds)
    _check_windows(order, by_name, leaves)
    done: set[tuple[tuple[StageAxis, ...], tuple[int, ...]]] = set()
    for stage in stages:
        mine = [leaf for leaf, _ in order[stage.buffer]]
        key = stage.axes, tuple(map(id, mine))
        if key in done:
            continue
        done.add(key)
        products = [product_of(leaf, stage.axes, space) for leaf in mine]
        failed = check_axes(space, stage, stage.axes, products)
        if failed is not None:
            return failed
    return None


def strips_of(space: Space, body: tuple[Stmt, ...], axis: str) -> list[Strip]:
    """What each tile of a program over one axis says about it."""
    alone = (StageAxis(axis, ix.const(0), axis),)
    leaves = _leaves(body, Leaf((), _NOTHING, ()))
    products = [product_of(leaf, alone, space) for leaf in leaves]
    return [replace(one[axis], repeats=one[""].repeats) for one in products]


def _leaves(body: Sequence[Stmt], at: Leaf) -> Iterator[Leaf]:
    """The tiles in a block, below what `at` says of what is around it."""
    position = 0
    while position < len(body):
        stmt, place = body[position], (*at.place, position)
        here = replace(at, place=place)
        position += 1
        match stmt:
            case For(body=inner):
                loops = (*at.loops, (stmt.iter, len(place)))
                yield from _leaves(inner, replace(here, path=(*at.path, stmt), loops=loops))
            case Let(body=inner):
                yield from _leaves(inner, replace(here, path=(*at.path, stmt)))
            case If(condition, then, other):
                for branch, (block, holds) in enumerate(((then, True), (other, False))):
                    path = (*at.path, *conjuncts(condition, holds))
                    yield from _leaves(block, replace(here, path=path, place=(*place, branch)))
            case Alloc(body=inner):
                yield from _leaves(inner, replace(here, windows=(*at.windows, (stmt, place))))
            case Tile():
                yield replace(here, tile=stmt)
            case Store():
                first = position - 1
                while position < len(body) and _is_of_the_point(body[position]):
                    position += 1
                yield replace(here, tile=Tile((), tuple(body[first:position])))
            case _:
                raise NotSeparable("a choice")


def _is_of_the_point(stmt: Stmt) -> bool:
    """Whether a statement behind a store runs at its point: a store, or loops of a reduction."""
    if isinstance(stmt, Store):
        return True
    inside = list(statements((stmt,)))
    stores = [one for one in inside if isinstance(one, Store)]
    plain = not any(isinstance(one, Tile | Alloc | Choose) for one in inside)
    return plain and bool(stores) and all(one.reduce is not None for one in stores)


_NOTHING = Tile((), ())


def _blocks(body: tuple[Stmt, ...]) -> list[tuple[str, tuple[Stmt, ...]]]:
    """(buffer, statements) of a tile, in the order of the text."""
    found: list[tuple[str, tuple[Stmt, ...]]] = []
    for stmt in body:
        inner = list(statements((stmt,)))
        buffers = {one.buffer for one in inner if isinstance(one, Store)}
        if len(buffers) != 1 or any(isinstance(one, Tile) for one in inner):
            raise NotSeparable("a statement of several stages")
        buffer = buffers.pop()
        if found and found[-1][0] == buffer:
            found[-1] = buffer, (*found[-1][1], stmt)
        else:
            found.append((buffer, (stmt,)))
    return found


def _check_reads(order: dict[str, list[tuple[Leaf, int]]], kinds: dict[str, Kind]) -> None:
    """A stage runs after those it reads: further up at its own point, or in an earlier statement of
    what they share.
    """
    for buffer, found in order.items():
        for leaf, position in found:
            stores = [
                stmt
                for stmt in statements(leaf.tile.body)
                if isinstance(stmt, Store) and stmt.buffer == buffer
            ]
            reads = [
                (node, store)
                for store in stores
                for node in walk(store.value)
                if isinstance(node, Load) and node.buffer in order
            ]
            for node, store in reads:
                above = [p for other, p in order[node.buffer] if other is leaf]
                beside = bool(above) and above[0] < position and node.index == store.index
                writers = [writer for writer, _ in order[node.buffer]]
                later = not above and all(_is_complete(node, w, leaf) for w in writers)
                private = kinds.get(node.buffer) is Kind.PRIVATE
                if not (beside or (later and not private)):
                    raise NotSeparable("a read of what may not be complete")


def _is_complete(read: Load, writer: Leaf, reader: Leaf) -> bool:
    """Whether a tile is done with what another one reads.

    It stands before it in the innermost block around both, and the loops around that block are over
    axes of the buffer, at whose counters it is read.
    """
    common = 0
    while writer.place[common] == reader.place[common]:
        common += 1
    stored = next(
        stmt.index
        for stmt in statements(writer.tile.body)
        if isinstance(stmt, Store) and stmt.buffer == read.buffer
    )
    shared = [Var(name) for name, depth in reader.loops if depth <= common]
    return writer.place[common] < reader.place[common] and all(
        any(mine == theirs == counter for mine, theirs in zip(read.index, stored, strict=True))
        for counter in shared
    )


def _check_windows(
    order: dict[str, list[tuple[Leaf, int]]], stages: dict[str, Stage], leaves: Sequence[Leaf]
) -> None:
    """What lives in a window is used in that one alone, and inside of it."""
    homes = {
        buffer: {_window_of(leaf, buffer) for leaf, _ in found} for buffer, found in order.items()
    }
    for leaf in leaves:
        for stmt in statements(leaf.tile.body):
            if not isinstance(stmt, Store):
                continue
            read = [n for n in walk(stmt.value) if isinstance(n, Load) and n.buffer in order]
            accesses = [(node.buffer, node.index) for node in read]
            for buffer, index in ((stmt.buffer, stmt.index), *accesses):
                home = _window_of(leaf, buffer)
                if homes[buffer] != {home}:
                    raise NotSeparable("a buffer that is used outside of its window")
                if home is None:
                    continue
                axes = zip(index, home[0].axes, stages[buffer].axes, strict=True)
                for part, (start, extent), axis in axes:
                    whole = ix.literal(start) == 0 and extent == axis.extent
                    if not whole and not (part == start and ix.literal(extent) == 1):
                        raise NotSeparable("an access that may leave its window")


def _window_of(leaf: Leaf, buffer: str) -> tuple[Alloc, tuple[int, ...]] | None:
    """The innermost window of a buffer around a tile, and its place."""
    return next((one for one in reversed(leaf.windows) if one[0].buffer == buffer), None)


def check_axes(
    space: Space, stage: Stage, axes: Sequence[StageAxis], products: Sequence[dict[str, Strip]]
) -> Wrong | None:
    """Whether the products cover all of `axes` and, but for those that repeat, are disjoint."""
    if not axes:
        if not products:
            raise NotSeparable("a stage that is never run")
        if sum(not product[""].repeats for product in products) > 1:
            raise NotSeparable("a point in two tiles")
        return None
    first: Wrong | None = None
    for axis in axes:
        groups: dict[Strip, list[dict[str, Strip]]] = {}
        for product in products:
            alone = replace(product[axis.name], repeats=False)
            groups.setdefault(alone, []).append(product)
        strips = [
            replace(strip, repeats=all(one[""].repeats for one in group))
            for strip, group in groups.items()
        ]
        broken = check_line(space, axis.extent, strips)
        if broken is not None:
            first = first or Wrong(stage, axis, broken)
            continue
        rest = [other for other in axes if other is not axis]
        results = [check_axes(space, stage, rest, group) for group in groups.values()]
        failed = next((wrong for wrong in results if wrong is not None), None)
        if failed is None:
            return None
        first = first or failed
    return first


def product_of(leaf: Leaf, axes: Sequence[StageAxis], space: Space) -> dict[str, Strip]:
    """What a tile says about each axis; the entry ``""`` says whether it may repeat."""
    names = {axis.name for axis in axes}
    sizes = {size.name for size in space.sizes}
    path: list[For | Let | Expr] = list(leaf.path)
    windows = {}
    for axis in leaf.tile.axes:
        windows[axis.iter] = (axis.start, ix.add(axis.start, axis.extent))
    loops = [entry for entry in path if isinstance(entry, For)]
    lets = [entry for entry in path if isinstance(entry, Let)]
    bound = [*(one.iter for one in loops), *windows, *(one.name for one in lets)]
    if len(set(bound)) != len(bound) or set(bound) & sizes:
        raise NotSeparable("a name that is bound twice")
    windows |= {one.iter: (one.lo, one.hi) for one in loops if one.iter in names}
    if set(windows) != names:
        raise NotSeparable("a tile over other axes than its stage's")
    _check_scopes(leaf, sizes)
    conditions = [entry for entry in path if not isinstance(entry, For | Let)]
    if leaf.tile.where is not None:
        conditions += conjuncts(leaf.tile.where)
    classes = _Classes(bound)
    for one in loops:
        classes.join({one.iter} | variables(one.lo) | variables(one.hi))
    for name, (start, end) in windows.items():
        classes.join({name} | variables(start) | variables(end))
    for condition in conditions:
        classes.join(variables(condition))
    home: dict[str, str] = {}
    for name in names:
        if classes.root(name) in home:
            raise NotSeparable("two axes in one condition")
        home[classes.root(name)] = name
    used = set().union(
        *(variables(e) for w in windows.values() for e in w),
        *(variables(condition) for condition in conditions),
        *(variables(e) for one in loops for e in (one.lo, one.hi)),
    )
    where: dict[str, list[Expr]] = {name: [] for name in names}
    terms: dict[str, list[Expr]] = {name: list(windows[name]) for name in names}
    for one in loops:
        if classes.root(one.iter) not in home:
            raise NotSeparable("a loop that no axis depends on")
        terms[home[classes.root(one.iter)]] += [one.lo, one.hi]
    for let in lets:
        if let.name in used and classes.root(let.name) in home:
            terms[home[classes.root(let.name)]].append(let.value)
        elif let.name in used:
            raise NotSeparable("a value that no axis depends on")
    for condition in conditions:
        inner = variables(condition) & set(bound)
        if inner:
            where[home[classes.root(inner.pop())]].append(condition)
    for entry in conditions:
        if not variables(entry) & set(bound):
            axis_name = _nearest(entry, terms, _inside(entry, path, classes, home))
            where[axis_name].append(entry)
    found = {"": Strip(ix.const(0), ix.const(1), repeats=leaf.tile.form is Form.SHIFT)}
    for name in names:
        to_x: dict[str, Expr] = {name: X}

        def at(expr: Expr, to_x: dict[str, Expr] = to_x) -> Expr:
            return substitute(expr, to_x)

        root = classes.root(name)
        start, end = windows[name]
        found[name] = Strip(
            start,
            end,
            tuple(
                (one.iter, one.lo, one.hi)
                for one in loops
                if one.iter != name and classes.root(one.iter) == root
            ),
            tuple(at(condition) for condition in where[name]),
            tuple(
                _value(let, path, set(bound), where[name])
                for let in lets
                if classes.root(let.name) == root and let.name in used
            ),
        )
    for let in lets:
        if let.name not in used:
            raise NotSeparable("a value that nothing uses")
    return _canonical(found, names)


def _check_scopes(leaf: Leaf, sizes: set[str]) -> None:
    """Whether each expression speaks of what is bound around it."""
    known = set(sizes)
    for entry in leaf.path:
        match entry:
            case For(iter=name, lo=lo, hi=hi):
                used, new = variables(lo) | variables(hi), {name}
            case Let(name=name, value=value):
                used, new = variables(value), {name}
            case _:
                used, new = variables(entry), set()
        if not used <= known:
            raise NotSeparable("a name that nothing binds")
        known |= new
    tile = leaf.tile
    if not all(variables(axis.start) | variables(axis.extent) <= known for axis in tile.axes):
        raise NotSeparable("a name that nothing binds")
    known |= {axis.iter for axis in tile.axes}
    if tile.where is not None and not variables(tile.where) <= known:
        raise NotSeparable("a name that nothing binds")


def _value(
    let: Let, path: Sequence[For | Let | Expr], bound: set[str], mine: Sequence[Expr]
) -> Value:
    """A bounded value, with those of its axis' conditions around it that speak of sizes alone."""
    if variables(let.value) & bound:
        raise NotSeparable("a bounded value of other than sizes")
    around = path[: next(k for k, entry in enumerate(path) if entry is let)]
    given = tuple(c for c in mine if not variables(c) & bound and any(c is e for e in around))
    return Value(let.name, let.lo, let.hi, let.value, given)


def _inside(
    entry: Expr, path: Sequence[For | Let | Expr], classes: _Classes, home: dict[str, str]
) -> str | None:
    """The axis of the first loop or value inside a condition."""
    behind = [k for k, other in enumerate(path) if other is entry]
    for other in path[behind[0] + 1 :] if behind else ():
        if isinstance(other, For | Let):
            return home.get(classes.root(other.iter if isinstance(other, For) else other.name))
    return None


def _nearest(condition: Expr, terms: dict[str, list[Expr]], inside: str | None) -> str:
    """The axis that shares most with a condition on sizes; where equal, the one inside of it."""
    if not terms:
        raise NotSeparable("a condition around no axis")
    parts = {node for node in walk(condition) if not isinstance(node, Const)}

    def shared(axis: str) -> tuple[int, bool]:
        known = {node for expr in terms[axis] for node in walk(expr)}
        return len(parts & known), axis == inside

    return max(sorted(terms), key=shared)


def _canonical(found: dict[str, Strip], names: set[str]) -> dict[str, Strip]:
    """Counters and values named by position, so that equal strips are equal as nodes."""
    result = {}
    for name, strip in found.items():
        local = [*(n for n, _, _ in strip.loops), *(v.name for v in strip.values)]
        new: dict[str, Expr] = {old: Var(f"#{k}") for k, old in enumerate(local)}

        def at(expr: Expr, new: dict[str, Expr] = new) -> Expr:
            return substitute(expr, new)

        result[name] = Strip(
            at(strip.lower),
            at(strip.upper),
            tuple((f"#{k}", at(lo), at(hi)) for k, (_, lo, hi) in enumerate(strip.loops)),
            tuple(at(condition) for condition in strip.holds),
            tuple(
                replace(v, name=f"#{len(strip.loops) + k}", value=at(v.value))
                for k, v in enumerate(strip.values)
            ),
            strip.repeats,
        )
    return result


class _Classes:
    """Names that occur together in a bound or a condition, joined."""

    def __init__(self, names: Sequence[str]) -> None:
        self.above = {name: name for name in names}

    def root(self, name: str) -> str:
        while self.above[name] != name:
            name = self.above[name]
        return name

    def join(self, names: set[str]) -> None:
        roots = sorted({self.root(name) for name in names if name in self.above})
        for other in roots[1:]:
            self.above[other] = roots[0]


def _check_terms(
    space: Space, stage: Stage, block: tuple[Stmt, ...], kept_where: Conditions
) -> Wrong | None:
    """A stage inside a tile: a start, then every term once, ascending (max and min: any order)."""
    if stage.reducer is None:
        if len(block) != 1 or not isinstance(block[0], Store) or kept_where(block[0]):
            raise NotSeparable("more than the one store of a stage")
        return None
    start = block[0]
    if not isinstance(start, Store) or start.reduce is not None or kept_where(start):
        raise NotSeparable("a reduction that is not started first")
    idempotent = stage.reducer in ("max", "min")
    named = {axis.name for axis in (*stage.axes, *stage.reduce_axes)}
    named |= {size.name for size in space.sizes}
    inside = list(statements(block[1:]))
    bound = {one.iter for one in inside if isinstance(one, For)}
    bound -= {axis.name for axis in stage.reduce_axes}
    if (bound | {one.name for one in inside if isinstance(one, Let)}) & named:
        raise NotSeparable("a counter or a value with the name of something else")
    levels, left = _levels(block[1:], stage.reduce_axes, kept_where)
    if left:
        raise NotSeparable("a term that is masked by more than its own axes")
    for axis, strips in zip(stage.reduce_axes, levels, strict=True):
        if not idempotent and len(strips) > 1 and any(strip.repeats for strip in strips):
            raise NotSeparable("terms whose loops are entwined")
        alone = [replace(strip, repeats=False) for strip in strips]
        broken = check_line(space, axis.extent, alone, once=not idempotent, ordered=not idempotent)
        if broken is not None:
            return Wrong(stage, axis, broken)
    return None


def _strip_of(
    path: tuple[For | Let | Expr, ...],
    loop: For,
    masks: Sequence[Expr],
    repeats: bool,
) -> Strip:
    """What a loop over a reduction axis says about it, inside the loops, values and conditions of
    `path` and where `masks` hold.
    """
    counters = [entry for entry in path if isinstance(entry, For)]
    lets = [entry for entry in path if isinstance(entry, Let)]
    conditions = [entry for entry in path if not isinstance(entry, For | Let)]
    taken = [*(one.iter for one in counters), *(let.name for let in lets)]
    # Counters are of this axis alone: others' loops lie inside.
    if len({*taken, loop.iter}) <= len(taken):
        raise NotSeparable("a name that is bound twice")
    values = tuple(_value(let, path, {*taken, loop.iter}, conditions) for let in lets)
    mine = Strip(
        loop.lo,
        loop.hi,
        tuple((one.iter, one.lo, one.hi) for one in counters),
        tuple(substitute(condition, {loop.iter: X}) for condition in (*conditions, *masks)),
        values,
        repeats,
    )
    return _canonical({loop.iter: mine}, {loop.iter})[loop.iter]


def _levels(
    body: tuple[Stmt, ...], axes: Sequence[StageAxis], kept_where: Conditions
) -> tuple[tuple[tuple[Strip, ...], ...], frozenset[Expr]]:
    """The strips of each reduction axis, nested in their order, and conditions on other names.

    `Strip.repeats` says here that a loop around the strip is around another one too.
    """
    if not axes:
        if len(body) != 1 or not isinstance(body[0], Store):
            raise NotSeparable("more than one term inside the loops of a reduction")
        if body[0].reduce is None:
            raise NotSeparable("a start inside the loops of a reduction")
        parts = (part for condition in kept_where(body[0]) for part in conjuncts(condition))
        return (), frozenset(parts)
    axis, rest = axes[0], axes[1:]
    inner: set[tuple[tuple[tuple[Strip, ...], ...], frozenset[Expr]]] = set()
    strips: list[Strip] = []
    for path, loop, shared in _holes(body, axis.name, (), False):
        deeper, conditions = _levels(loop.body, rest, kept_where)
        mine = sorted((c for c in conditions if axis.name in variables(c)), key=lambda c: repr(c))
        inner.add((deeper, conditions - set(mine)))
        strips.append(_strip_of(path, loop, mine, shared))
    if len(inner) > 1:
        raise NotSeparable("terms that differ by where they are")
    if not inner:
        return tuple(() for _ in axes), frozenset()
    deeper, left = inner.pop()
    return (tuple(strips), *deeper), left


def _holes(
    body: tuple[Stmt, ...], axis: str, path: tuple[For | Let | Expr, ...], shared: bool
) -> Iterator[tuple[tuple[For | Let | Expr, ...], For, bool]]:
    """(what encloses it, the loop over `axis`, whether a loop encloses another one too)."""
    for stmt in body:
        match stmt:
            case For(iter=name) if name == axis:
                yield path, stmt, shared
            case For():
                inside = [one for one in statements(stmt.body) if isinstance(one, For)]
                several = shared or sum(one.iter == axis for one in inside) > 1
                yield from _holes(stmt.body, axis, (*path, stmt), several)
            case Let():
                yield from _holes(stmt.body, axis, (*path, stmt), shared)
            case If(condition, then, other):
                yield from _holes(then, axis, (*path, *conjuncts(condition)), shared)
                yield from _holes(other, axis, (*path, *conjuncts(condition, False)), shared)
            case _:
                raise NotSeparable("a term outside the loops of its reduction")
