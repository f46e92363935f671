"""Proofs of a cut, for all sizes, by isl; each theorem is a function, and refuses with a witness.

An axis is proved once for an abstract extent, and the result is lifted: the pieces of a
rectangular domain are the products of the segments of its axes, so they are disjoint and covering
when each axis' segments are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from offcut.core import index as ix
from offcut.core.computation import Names
from offcut.core.expr import Binary, Compare, Const, Expr, Logic, Var, rewrite, substitute
from offcut.core.printer import format_expr
from offcut.core.program import Size, Stmt, Store, Tile, TileAxis
from offcut.errors import PartitionError
from offcut.partition.segments import loops
from offcut.partition.strategies import Bounded, Segment, Strategy, segments
from offcut.polyhedral import Map, Set, Space, runs, smallest

_DEPTH = 8  # of time vectors: no axis nests deeper


@dataclass(frozen=True, slots=True)
class Theorem:
    """One thing that was proved: its name, the statement, and for which part."""

    name: str
    statement: str
    of: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was proved, for every size that the facts allow; a call is checked against the facts."""

    theorems: tuple[Theorem, ...]

    def __str__(self) -> str:
        width = max(len(theorem.name) for theorem in self.theorems)
        return "\n".join(f"{t.name:<{width}}  {t.statement}  ({t.of})" for t in self.theorems)


def owned_set(space: Space, segment: Segment) -> Set:
    """``{ [x] : x is owned by segment }`` over the sizes of `space`."""
    return space.set(("x",), [interval_text(space, segment, segment.owned, "x0")])


def interval_text(space: Space, segment: Segment, bounds: tuple[Expr, Expr], x: str) -> str:
    """``lo <= x < hi`` wherever `segment` exists, as an isl condition on the coordinate `x`."""
    cases = []
    for values in _literals(segment):
        closed = _closed(segment, values)
        facts = [_equals(let, values) for let in segment.lets]
        if closed.when is not None:
            facts.append(closed.when)
        known = [space.condition(fact, {}) for fact in facts]
        lo, hi = (space.expr(ix.simplify(substitute(bound, values)), {}) for bound in bounds)
        texts = [text for text in known if text is not None]
        cases.append(" and ".join([f"{lo} <= {x} < {hi}", *texts]))
    return "(" + " or ".join(f"({case})" for case in cases) + ")"


def _literals(segment: Segment) -> list[dict[str, Expr]]:
    found: list[dict[str, Expr]] = [{}]
    for let in segment.lets:
        literals = range(let.lo, let.hi)
        found = [{**known, let.name: ix.const(q)} for known in found for q in literals]
    return found


@cache
def check_axis(
    strategy: Strategy,
    tile: int,
    heights: tuple[int, ...] | None,
    ordered: bool,
    size: int | None = None,
) -> tuple[Theorem, ...]:
    """Prove a cut of ``0 <= x < e``, read back from the loops that it makes.

    size   the extent e where it is a literal; None: the proof is for every e

    disjoint    each x is owned by one segment, and its segment runs it in one tile
    covering    the owned sets together are ``0 <= x < e``, and each segment runs what it owns
    in bounds   what is executed (in a padded tile: what is kept) lies in ``0 <= x < e``
    ascending   x < y implies that x does not run after y; asked for a reduction (`ordered`)

    Quotients and rests become sizes of their own, bound to e, which spares isl the divisions. A
    bounded value is proved literal by literal; that its range holds wherever its segment exists, and
    that its literals leave out no extent, is proved too. ``exact`` is proved for the multiples of its
    tile; `check_divides` asks whether these are all.
    """
    extent: Expr = Var("e") if size is None else ix.const(size)
    of = f"{strategy.value} by {tile}"
    quotients = _Quotients()
    parts = [_mapped(s, quotients.named) for s in segments(strategy, extent, tile, heights)]
    facts = []
    if strategy is Strategy.EXACT:
        facts.append(ix.compare("==", quotients.named(ix.mod(extent, tile)), 0))
    facts += quotients.facts
    e = Size("e") if size is None else Size("e", size, size)
    whole = Space((e, *quotients.sizes), tuple(facts))
    bounded = max(parts, key=lambda s: sum(let.hi for let in s.lets), default=None)
    if bounded is None or not bounded.lets:
        if parts:
            _check_case(whole, parts, of, ordered)
    else:
        for segment in parts:
            _check_bounded(whole, segment, of)
        left = whole.context & Space(whole.sizes, (ix.compare(">", extent, 0),)).context
        for values in _literals(bounded):
            fixed = [_equals(let, values) for let in bounded.lets]
            space = Space(whole.sizes, (*whole.assumptions, *fixed))
            left = left - space.context
            if not space.context.is_empty():
                _check_case(space, [_closed(segment, values) for segment in parts], of, ordered)
        _refuse("bounded", of, left)
    theorems = [
        Theorem("disjoint", "no coordinate is owned twice", of),
        Theorem("covering", "every coordinate is owned", of),
        Theorem("in bounds", "what is executed and kept lies inside the extent", of),
    ]
    if ordered:
        theorems.append(Theorem("ascending", "tiles run in the order of the coordinate", of))
    return tuple(theorems)


class _Quotients:
    """Names for ``a // c`` and ``a % c``: sizes q and r with ``a == c*q + r`` and ``0 <= r < c``."""

    def __init__(self) -> None:
        self.known: dict[tuple[Expr, int], tuple[Expr, Expr]] = {}
        self.facts: list[Expr] = []
        self.sizes: list[Size] = []

    def named(self, expr: Expr) -> Expr:
        """`expr` without divisions by literals."""
        return ix.simplify(rewrite(expr, self._quotient))

    def _quotient(self, node: Expr) -> Expr | None:
        match node:
            case Binary("//" | "%" as op, a, Const(value, _)):
                pair = self._pair(ix.simplify(a), int(value))
                return pair[0] if op == "//" else pair[1]
            case _:
                return None

    def _pair(self, a: Expr, divisor: int) -> tuple[Expr, Expr]:
        if (a, divisor) not in self.known:
            number = len(self.known)
            q, r = Var(f"q{number}"), Var(f"r{number}")
            self.known[a, divisor] = q, r
            self.sizes += [Size(q.name), Size(r.name, 0, divisor - 1)]
            self.facts.append(ix.compare("==", a, ix.add(ix.mul(divisor, q), r)))
        return self.known[a, divisor]


def _check_bounded(space: Space, segment: Segment, of: str) -> None:
    """Wherever the segment exists, its bounded values lie in their ranges."""
    when = "true" if segment.when is None else space.condition(segment.when, {})
    for let in segment.lets:
        assert isinstance(let.value, Binary)
        a, b = space.expr(let.value.a, {}), space.expr(let.value.b, {})
        outside = f"({b} <= 0 or {a} < {let.lo}*({b}) or {a} >= {let.hi}*({b}))"
        _refuse("bounded", of, space.set((), [f"{when} and {outside}"]))


def _check_case(space: Space, parts: Sequence[Segment], of: str, ordered: bool) -> None:
    domain = space.set(("x",), ["0 <= x0 < p0"])
    owned = [owned_set(space, segment) for segment in parts]
    times: dict[int, Map] = {}
    for run in runs(space, _loops(parts), lambda _: ("x",), _DEPTH):
        position = int(run.store.buffer)
        _refuse("in bounds", of, run.owned - domain)
        times[position] = run.times.intersect_domain(owned[position] & run.owned)
    covered = space.set(("x",), ["false"])
    for position, mine in enumerate(owned):
        kept = times[position]
        _refuse("disjoint", of, (kept - kept.lexmin()).domain())
        _refuse("covering", of, mine - kept.domain())
        _refuse("disjoint", of, mine & covered)
        covered = covered | mine
    _refuse("covering", of, domain - covered)
    if ordered:
        order = times[0]
        for position in range(1, len(owned)):
            order = order | times[position]
        later_first = order.lex_gt_map(order) & Map("{ [x] -> [y] : x < y }")
        _refuse("ascending", of, later_first.domain())


def _equals(let: Bounded, values: dict[str, Expr]) -> Expr:
    """``let.value == literal`` as a quasi-affine condition."""
    q = ix.literal(values[let.name])
    assert isinstance(let.value, Binary)
    assert q is not None
    a, b = let.value.a, let.value.b
    at_least = ix.compare("<=", ix.mul(q, b), a)
    return Logic("and", (at_least, ix.compare("<", a, ix.mul(q + 1, b))))


def _closed(segment: Segment, values: dict[str, Expr]) -> Segment:
    """`segment` with its bounded values fixed."""

    return replace(_mapped(segment, lambda expr: ix.simplify(substitute(expr, values))), lets=())


def _mapped(segment: Segment, change: Callable[[Expr], Expr]) -> Segment:
    """`segment` with `change` applied to every expression."""
    return replace(
        segment,
        start=change(segment.start),
        height=change(segment.height),
        owned=(change(segment.owned[0]), change(segment.owned[1])),
        count=None if segment.count is None else change(segment.count),
        when=None if segment.when is None else change(segment.when),
        lets=tuple(replace(let, value=change(let.value)) for let in segment.lets),
    )


def _loops(parts: Sequence[Segment]) -> tuple[Stmt, ...]:
    """The loops of every segment around a store that names the segment."""
    body: tuple[Stmt, ...] = ()
    for position, segment in enumerate(parts):

        def tile(start: Expr, height: Expr, position: int = position) -> tuple[Stmt, ...]:
            store = Store(str(position), (Var("x"),), ix.const(0))
            part = parts[position]
            where = Compare("<", Var("x"), part.owned[1]) if part.predicate else None
            return (Tile((TileAxis("x", start, height),), (store,), where, part.form),)

        body += loops(segment, "x", Names(("x", "e")), tile)
    return body


def _refuse(theorem: str, of: str, broken: Set) -> None:
    """Raise, with the smallest witness, unless `broken` is empty."""
    found = smallest(broken)
    if found is not None:
        (extent, *_), point = found
        where = f"the coordinate {point[0]} breaks it" if point else "it breaks"
        raise PartitionError(
            "prove",
            f"the cut {of} is not {theorem}",
            because=f"with an extent of {extent}, {where}",
        )


def _instead_of_exact(extent: Expr, tile: int) -> tuple[str, ...]:
    rest, full = (format_expr(Binary(op, extent, ix.const(tile))) for op in ("%", "//"))
    separate = f'tail="cut" separates {tile}*({full}) iterations from the last {rest}'
    promise = f"assume({rest} == 0) if every caller guarantees it"
    return (separate,) if ix.literal(extent) is not None else (separate, promise)


def check_divides(
    space: Space, names: dict[str, str], extent: Expr, tile: int, *, at: str
) -> Theorem:
    """Prove that `tile` divides `extent` at every allowed size.

    names   the user's name of each size

    Raises PartitionError with the smallest size that leaves a rest.
    """
    text = space.expr(extent, {})
    assert text is not None
    found = smallest(space.set((), [f"({text}) mod {tile} != 0"]))
    shown = format_expr(extent)
    if found is not None:
        sizes = dict(zip((size.name for size in space.sizes), found[0], strict=True))
        value = ix.literal(
            ix.simplify(substitute(extent, {n: ix.const(v) for n, v in sizes.items()}))
        )
        assert value is not None
        given = ", ".join(f"{names[name]} = {size}" for name, size in sizes.items())
        allowed = f"{given} is allowed and leaves" if given else f"an extent of {value} leaves"
        raise PartitionError(
            "partition",
            'cannot take tail="exact"',
            at=at,
            because=f"{allowed} {value % tile} of {tile} iterations over",
            help=_instead_of_exact(extent, tile),
        )
    return Theorem("exact", f"{tile} divides {shown} at every allowed size", at)
