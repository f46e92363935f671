"""What a program does along one axis, proved for all sizes.

A `Strip` is what a loop nest says about one coordinate x: loops whose counters move a window, the
window, and the conditions around it. Most nests are runs of tiles that lie edge to edge,

    for t in a:b    s + c*t <= x < s + c*t + c    with a literal c > 0

and then x lies in the tile ``t = (x - s) // c`` and in no other, so that the whole loop is the
interval ``s + c*a <= x < s + c*b`` (empty where b <= a). Rewritten so from the inside out, a strip
has no counter left, and what remains for isl are intervals over the sizes. Counters that do not
fit the equation stay, as further dimensions.

Bounded values are fixed literal by literal, and every ``a // c`` and ``a % c`` becomes a pair of
sizes, so that what isl decides is affine. What was decided is kept by its text, with names made
canonical: the rows of every contraction cut alike are one theorem, and so are ``lo:hi`` and ``0:n``,
where nothing but ``hi - lo`` matters. It is tried first for sizes about which nothing is known, so
that it serves them all; then with the facts there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Var,
    dtype_of,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.program import Size
from offcut.polyhedral import INDEX_LIMIT, Map, Set, Space, coefficient, over_sizes, smallest
from offcut.proof.by_axis.two_heights import Span, is_shared_out, joined

X = Var("#x")  # the coordinate; no program can name it so
_EXTENT = Var("#e")  # an extent as a size
_LEAST = -INDEX_LIMIT  # of a quotient whose numerator may be negative
_KEPT = 4096  # theorems


class NotSeparable(Exception):
    """The program, or a part of it, is not of the form that this proof reads."""


@dataclass(frozen=True, slots=True)
class Value:
    """``let name in lo:hi = value``, and conditions on sizes that hold wherever it is reached."""

    name: str
    lo: int
    hi: int
    value: Expr
    given: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Strip:
    """``lower <= X < upper`` in every iteration of `loops` in which all of `holds` are true.

    loops    (counter, lo, hi), outermost first
    repeats  coordinates may be met again here, or be met by another strip as well
    """

    lower: Expr
    upper: Expr
    loops: tuple[tuple[str, Expr, Expr], ...] = ()
    holds: tuple[Expr, ...] = ()
    values: tuple[Value, ...] = ()
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Broken:
    """Why ``0 <= X < extent`` is not what the strips do, with the smallest witness.

    what   missing, outside, twice, late, or bounded
    sizes  (name, value) of the sizes that matter
    at     the coordinate; None for a bounded value
    """

    what: str
    sizes: tuple[tuple[str, int], ...]
    at: int | None


def check_line(
    space: Space,
    extent: Expr,
    strips: Sequence[Strip],
    *,
    ordered: bool = False,
) -> Broken | None:
    """None where, for all sizes, the strips are ``0 <= X < extent``.

    missing   every coordinate lies in a strip
    outside   no other one does
    twice     it lies in one iteration of one strip; strips that repeat do not count
    late      a strip's coordinates are less than those of the strips behind it, if `ordered`; each
              strip must be a run of tiles, which ascends
    bounded   where a value's conditions hold, it lies in its range and its divisor is positive

    Raises NotSeparable where a part is not quasi-affine, or not of a form that keeps an order.
    """
    return _asked(space, extent, tuple(strips), ordered, _decide)


def check_within(space: Space, inner: Strip, outer: Strip) -> Broken | None:
    """None where, for all sizes, `outer` meets each coordinate of `inner`, and meets it once.

    Raises NotSeparable where a part is not quasi-affine.
    """
    return _asked(space, ix.const(0), (inner, outer), False, _decide_within)


_Decide: TypeAlias = Callable[
    [Expr, tuple[Strip, ...], tuple[Size, ...], tuple[Expr, ...], bool], Broken | None
]


def _asked(
    space: Space,
    extent: Expr,
    strips: tuple[Strip, ...],
    ordered: bool,
    decide: _Decide,
) -> Broken | None:
    """What `decide` says of any extent, where nothing else matters; else of these sizes."""
    alone = _in_extent(extent, strips)
    if alone is not None:
        negative = space.condition(ix.compare("<", extent, 0), {})
        some = negative is None or not space.set((), [negative]).is_empty()
        sizes = Space((Size(_EXTENT.name, _LEAST if some else 0),))
        with suppress(NotSeparable):  # it may be seen by what is known of the sizes
            if _of_sizes(sizes, _EXTENT, alone, ordered, decide) is None:
                return None
    return _of_sizes(space, extent, strips, ordered, decide)


def _in_extent(extent: Expr, strips: tuple[Strip, ...]) -> tuple[Strip, ...] | None:
    """`strips` over `_EXTENT` and their own names alone; None where sizes are left, or it is one."""
    form = ix.linear(extent)
    local = {X.name, _EXTENT.name}
    for strip in strips:
        local |= {name for name, _, _ in strip.loops} | {value.name for value in strip.values}
    for atom, factor in () if isinstance(extent, Var) else form.terms:
        if abs(factor) != 1:
            continue
        rest = ix.sub(extent, ix.mul(factor, atom))
        same = ix.mul(factor, ix.sub(_EXTENT, rest))

        def by_extent(expr: Expr, atom: Expr = atom, same: Expr = same) -> Expr:
            made = ix.folded(rewrite(expr, lambda node: same if node == atom else None))
            if isinstance(made, Compare) and dtype_of(made.a) == "index":
                return ix.compare(made.op, ix.sub(made.a, made.b), 0)
            return made

        made = tuple(_mapped(strip, by_extent) for strip in strips)
        if all(variables(expr) <= local for strip in made for expr in _exprs(strip)):
            return made
    return None


def _of_sizes(
    space: Space,
    extent: Expr,
    strips: tuple[Strip, ...],
    ordered: bool,
    decide: _Decide,
) -> Broken | None:
    """What `decide` says with canonical names: for any sizes, else with the facts there are."""
    bound = {X.name}
    for strip in strips:
        bound |= {name for name, _, _ in strip.loops} | {value.name for value in strip.values}
    names: dict[str, str] = {X.name: X.name}
    for expr in (extent, *(e for strip in strips for e in _exprs(strip))):
        for node in walk(expr):
            if isinstance(node, Var) and node.name not in names:
                names[node.name] = f"{'v' if node.name in bound else 's'}{len(names)}"
    for strip in strips:
        for name in (*(n for n, _, _ in strip.loops), *(value.name for value in strip.values)):
            names.setdefault(name, f"v{len(names)}")
    canonical = tuple(_renamed(strip, names) for strip in strips)
    known = {size.name: size for size in space.sizes}
    if not {name for name in names if name not in bound} <= set(known):
        raise NotSeparable("a name that is no size")
    length = _rename(extent, names)
    used = [name for name in names if name not in bound]
    plain = tuple(Size(names[name], min(0, known[name].min)) for name in used)
    found = decide(length, canonical, plain, (), ordered)
    if found is None:
        return None
    used = _connected(used, space.assumptions)
    names |= {name: f"s{name}" for name in used if name not in names}
    sizes = tuple(replace(known[name], name=names[name]) for name in used)
    facts = tuple(_rename(f, names) for f in space.assumptions if variables(f) <= set(used))
    if sizes != plain or facts:
        found = decide(length, canonical, sizes, facts, ordered)
    if found is None:
        return None
    back = {new: old for old, new in names.items()}
    return replace(found, sizes=tuple((back[name], value) for name, value in found.sizes))


def _connected(names: Sequence[str], facts: Iterable[Expr]) -> list[str]:
    """`names` and the sizes that `facts` tie them to."""
    found, pending = list(names), [variables(fact) for fact in facts]
    grown = True
    while grown:
        grown = False
        for tied in pending:
            new = sorted(tied - set(found)) if tied & set(found) else []
            found += new
            grown = grown or bool(new)
    return found


def _exprs(strip: Strip) -> Iterator[Expr]:
    for _, lo, hi in strip.loops:
        yield from (lo, hi)
    yield from (strip.lower, strip.upper, *strip.holds)
    for value in strip.values:
        yield from (value.value, *value.given)


def _rename(expr: Expr, names: Mapping[str, str]) -> Expr:
    return substitute(expr, {old: Var(new) for old, new in names.items()})


def _renamed(strip: Strip, names: Mapping[str, str]) -> Strip:
    new = _mapped(strip, lambda expr: _rename(expr, names))
    return replace(
        new,
        loops=tuple((names[name], lo, hi) for name, lo, hi in new.loops),
        values=tuple(replace(value, name=names[value.name]) for value in new.values),
    )


def _mapped(strip: Strip, change: Callable[[Expr], Expr]) -> Strip:
    return replace(
        strip,
        lower=change(strip.lower),
        upper=change(strip.upper),
        loops=tuple((name, change(lo), change(hi)) for name, lo, hi in strip.loops),
        holds=tuple(map(change, strip.holds)),
        values=tuple(
            replace(v, value=change(v.value), given=tuple(map(change, v.given)))
            for v in strip.values
        ),
    )


@lru_cache(_KEPT)
def _decide(
    extent: Expr,
    strips: tuple[Strip, ...],
    sizes: tuple[Size, ...],
    facts: tuple[Expr, ...],
    ordered: bool,
) -> Broken | None:
    if not strips and ix.literal(extent) == 0:
        return None
    return _Line(extent, sizes, facts, ordered).decide(strips)


@lru_cache(_KEPT)
def _decide_within(
    extent: Expr,
    strips: tuple[Strip, ...],
    sizes: tuple[Size, ...],
    facts: tuple[Expr, ...],
    ordered: bool,
) -> Broken | None:
    return _Line(extent, sizes, facts, ordered).decide_within(*strips)


@dataclass(frozen=True, slots=True)
class _Case:
    """Strips without bounded values, and conditions, as isl text, on the sizes that they are for."""

    where: tuple[str, ...]
    strips: tuple[Strip, ...]


class _Line:
    def __init__(
        self,
        extent: Expr,
        sizes: tuple[Size, ...],
        facts: tuple[Expr, ...],
        ordered: bool,
    ) -> None:
        self.quotients = Quotients(sizes)
        self.extent, self.sizes, self.given = self.quotients.named(extent), sizes, facts
        self.ordered = ordered

    def named(self, strips: Sequence[Strip]) -> list[Strip]:
        """`strips` with quotients as sizes, and the space that these make."""
        parts = [_mapped(strip, self.quotients.named) for strip in strips]
        known = [self.quotients.named(fact) for fact in self.given]
        facts = (*known, *self.quotients.facts)
        self.space = Space((*self.sizes, *self.quotients.sizes), facts)
        return parts

    def decide_within(self, inner: Strip, outer: Strip) -> Broken | None:
        parts = self.named((inner, outer))
        spans = [self.span(part) for part in parts]
        if None not in spans and spans[0] == spans[1]:
            return None
        marked = [replace(part, repeats=k == 0) for k, part in enumerate(parts)]
        for case in self.cases(marked, ()):
            mine, run, again = (self.set(case.where, ["false"]) for _ in range(3))
            for strip in case.strips:
                reached, twice = self.reached(case.where, _joined(strip))
                if strip.repeats:
                    mine = reached
                else:
                    run, again = reached, again if twice is None else twice
            if not mine.is_subset(run):
                return self.witness("missing", mine - run)
            if not (mine & again).is_empty():
                return self.witness("twice", mine & again)
        return None

    def decide(self, strips: tuple[Strip, ...]) -> Broken | None:
        parts = self.named(strips)
        for value in dict.fromkeys(value for part in parts for value in part.values):
            conditions = [self.condition(given) for given in value.given]
            broken = self.broken("bounded", (), [*conditions, self.leaves(value)])
            if broken is not None:
                return broken
        if self.shares_out(parts):
            return None
        for case in self.cases(parts, ()):
            broken = self.check(case)
            if broken is not None:
                return broken
        return None

    def shares_out(self, strips: Sequence[Strip]) -> bool:
        """Whether algebra shows it; False: it does not say."""
        spans = [self.span(strip) for strip in strips]
        known = [span for span in spans if span is not None]
        if not known or len(known) < len(spans):
            return False
        least = {size.name: size.min for size in self.space.sizes}
        return is_shared_out(self.extent, known, least, self.refuted, self.ordered)

    def span(self, strip: Strip) -> Span | None:
        """A strip of one bounded value as an interval."""
        if len(strip.values) != 1 or strip.repeats:
            return None
        value = strip.values[0]
        one: dict[str, Expr] = {value.name: Var("#v")}
        same = _mapped(strip, lambda expr: substitute(expr, one))
        least = {size.name: size.min for size in self.space.sizes} | {"#v": value.lo}
        interval = joined(same.lower, same.upper, same.loops, least)
        local = {X.name, *(name for name, _, _ in strip.loops)}
        if interval is None or any(variables(condition) & local for condition in same.holds):
            return None
        return Span(
            *interval,
            frozenset(same.holds),
            "#v",
            value.value,
            value.lo,
            value.hi,
            frozenset(value.given),
        )

    def refuted(self, conditions: Sequence[Expr]) -> bool:
        """Whether no sizes satisfy all of `conditions`."""
        texts = [self.space.condition(condition, {}) for condition in conditions]
        known = [text for text in texts if text is not None]
        return len(known) == len(texts) and self.space.set((), known).is_empty()

    def leaves(self, value: Value) -> str:
        """``value < lo or value >= hi``, or its divisor is not positive."""
        a, b = self.fraction(value.value)
        return f"({b} <= 0 or {a} < {value.lo}*({b}) or {a} >= {value.hi}*({b}))"

    def fraction(self, value: Expr) -> tuple[str, str]:
        match value:
            case Binary("//", a, b):
                return self.text(a), self.text(b)
        return self.text(value), "1"

    def cases(self, strips: Sequence[Strip], where: tuple[str, ...]) -> Iterator[_Case]:
        """The strips literal by literal of their bounded values, then where there is none."""
        values = [value.value for strip in strips for value in strip.values]
        if not values:
            yield _Case(where, tuple(strips))
            return
        value = values[0]
        a, b = self.fraction(value)
        mine = [v for strip in strips for v in strip.values if v.value == value]
        low, high = min(v.lo for v in mine), max(v.hi for v in mine)
        for literal in range(low, high):
            fixed = [f for strip in strips for f in _fixed(strip, value, literal)]
            at = f"{literal}*({b}) <= {a} < {literal + 1}*({b})"
            yield from self.cases(fixed, (*where, at))
        rest = [strip for strip in strips if all(v.value != value for v in strip.values)]
        yield from self.cases(
            rest, (*where, f"({b} <= 0 or {a} < {low}*({b}) or {a} >= {high}*({b}))")
        )

    def check(self, case: _Case) -> Broken | None:
        joined = (_joined(strip) for strip in case.strips)
        strips = [strip for strip in joined if Const(0, "bool") not in strip.holds]
        if self.plain(strips):
            return None
        domain = self.set(case.where, [f"0 <= x0 < {self.text(self.extent)}"])
        seen: Set | None = None
        covered: Set | None = None
        behind: list[Set] = []
        for strip in strips:
            if self.ordered and (strip.loops or strip.repeats):
                raise NotSeparable("tiles that need not ascend")
            mine, again = self.reached(case.where, strip)
            checks: list[tuple[str, Set]] = []
            if not strip.repeats:
                if again is not None:
                    checks.append(("twice", again))
                if seen is not None:
                    checks.append(("twice", mine & seen))
                seen = mine if seen is None else seen | mine
            if self.ordered:
                checks += [("late", mine & _above(self.space, earlier)) for earlier in behind]
                behind.append(mine)
            covered = mine if covered is None else covered | mine
            for what, found in checks:
                if not found.is_empty():
                    return self.witness(what, found)
        if covered is None:
            return None if domain.is_empty() else self.witness("missing", domain)
        if covered.is_equal(domain):
            return None
        missing = domain - covered
        if not missing.is_empty():
            return self.witness("missing", missing)
        return self.witness("outside", covered - domain)

    def plain(self, strips: Sequence[Strip]) -> bool:
        """Whether the one strip there is says ``0 <= X < extent``, and nothing else."""
        if len(strips) != 1:
            return False
        strip = strips[0]
        bare = not strip.loops and not strip.holds and not (self.ordered and strip.repeats)
        return bare and strip.lower == ix.const(0) and strip.upper == self.extent

    def reached(self, where: tuple[str, ...], strip: Strip) -> tuple[Set, Set | None]:
        """The coordinates of a strip, and those that two of its iterations meet."""
        names = {X.name: "x0"} | {name: f"v{k}" for k, (name, _, _) in enumerate(strip.loops)}
        conditions = [
            f"{self.text(strip.lower, names)} <= x0 < {self.text(strip.upper, names)}",
            *(self.condition(condition, names) for condition in strip.holds),
            *(
                f"{self.text(lo, names)} <= {names[name]} < {self.text(hi, names)}"
                for name, lo, hi in strip.loops
            ),
        ]
        if not strip.loops:
            return self.set(where, conditions), None
        counters = ", ".join(names[name] for name, _, _ in strip.loops)
        facts = " and ".join([self.space.facts, *where, *conditions])
        tiles = Map(f"{self.space.parameters}{{ [x0] -> [{counters}] : {facts} }}")
        again = None if tiles.is_single_valued() else (tiles - tiles.lexmin()).domain()
        return tiles.domain(), again

    def set(self, where: tuple[str, ...], conditions: Sequence[str]) -> Set:
        return self.space.set(("x",), [*where, *conditions])

    def text(self, expr: Expr, names: Mapping[str, str] | None = None) -> str:
        text = self.space.expr(expr, names or {})
        if text is None:
            raise NotSeparable("not quasi-affine")
        return text

    def condition(self, expr: Expr, names: Mapping[str, str] | None = None) -> str:
        text = self.space.condition(expr, names or {})
        if text is None:
            raise NotSeparable("not quasi-affine")
        return text

    def broken(self, what: str, where: tuple[str, ...], conditions: Sequence[str]) -> Broken | None:
        found = self.space.set((), [*where, *conditions])
        return None if found.is_empty() else self.witness(what, found)

    def witness(self, what: str, found: Set) -> Broken:
        least = smallest(over_sizes(found, len(self.sizes)))
        assert least is not None
        sizes, point = least
        names = (size.name for size in self.sizes)
        return Broken(what, tuple(zip(names, sizes, strict=True)), point[0] if point else None)


def _above(space: Space, earlier: Set) -> Set:
    """The coordinates that are at most one of `earlier`."""
    return earlier.apply(Map(f"{space.parameters}{{ [x] -> [y] : y <= x }}"))


def _fixed(strip: Strip, value: Expr, literal: int) -> Iterator[Strip]:
    """`strip` where `value` is this literal, unless it does not run there."""
    mine = [v for v in strip.values if v.value == value]
    if not all(v.lo <= literal < v.hi for v in mine):
        return
    values: dict[str, Expr] = {v.name: ix.const(literal) for v in mine}
    rest = tuple(v for v in strip.values if v.value != value)
    new = _mapped(replace(strip, values=()), lambda e: ix.simplify(substitute(e, values)))
    yield replace(new, values=tuple(replace(v, value=substitute(v.value, values)) for v in rest))


def _joined(strip: Strip) -> Strip:
    """`strip` with the counters of adjacent tiles left out, and conditions that are certain."""
    lower, uppers = strip.lower, list(_least(strip.upper))
    holds = list(strip.holds)
    loops = list(strip.loops)
    upper = uppers[0]
    for other in uppers:
        if loops and _step(other, lower) is not None:
            upper = other
    uppers.remove(upper)
    holds += [Compare("<", X, other) for other in uppers]
    while loops:
        name, lo, hi = loops[-1]
        step, height = coefficient(lower, name), _step(upper, lower)
        if step is None or step <= 0 or height != step:
            break
        start = substitute(lower, {name: ix.const(0)})
        if any(name in variables(condition) for condition in holds):
            if step != 1:
                break
            number = {name: ix.sub(X, start)}
            holds = [ix.folded(substitute(condition, number)) for condition in holds]
        lower = ix.simplify(ix.add(start, ix.mul(step, lo)))
        upper = ix.simplify(ix.add(start, ix.mul(step, hi)))
        loops.pop()
    kept: list[Expr] = []
    for condition in holds:
        folded = condition
        if isinstance(condition, Compare):
            folded = ix.compare(condition.op, condition.a, condition.b)
        if folded != Const(1, "bool"):
            kept.append(folded)
    return replace(strip, lower=lower, upper=upper, loops=tuple(loops), holds=tuple(kept))


def _least(expr: Expr) -> Iterator[Expr]:
    """``min(a, b)`` as its parts."""
    match expr:
        case Binary("min", a, b):
            yield from _least(a)
            yield from _least(b)
        case _:
            yield expr


def _step(upper: Expr, lower: Expr) -> int | None:
    return ix.literal(ix.sub(upper, lower))


class Quotients:
    """Names for ``a // c`` and ``a % c``: sizes q and r with ``a == c*q + r`` and ``0 <= r < c``.

    Only where `a` is made of `sizes`.
    """

    def __init__(self, sizes: Iterable[Size]) -> None:
        self.known: dict[tuple[Expr, int], tuple[Expr, Expr]] = {}
        self.facts: list[Expr] = []
        self.sizes: list[Size] = []
        self.least = {size.name: size.min for size in sizes}

    def named(self, expr: Expr) -> Expr:
        """`expr` without divisions of sizes by literals."""
        return ix.folded(rewrite(expr, self._quotient))

    def _quotient(self, node: Expr) -> Expr | None:
        match node:
            case Binary("//" | "%" as op, a, Const(value, _)) if value > 0:
                if not variables(a) <= set(self.least):
                    return None
                pair = self._pair(ix.simplify(a), int(value))
                return pair[0] if op == "//" else pair[1]
            case _:
                return None

    def _pair(self, a: Expr, divisor: int) -> tuple[Expr, Expr]:
        if (a, divisor) not in self.known:
            number = len(self.known)
            q, r = Var(f"q{number}"), Var(f"r{number}")
            self.known[a, divisor] = q, r
            form = ix.linear(a)
            positive = form.const >= 0 and all(
                factor > 0 and isinstance(atom, Var) and self.least[atom.name] >= 0
                for atom, factor in form.terms
            )
            least = 0 if positive else _LEAST
            self.sizes += [Size(q.name, least), Size(r.name, 0, divisor - 1)]
            self.least |= {q.name: least, r.name: 0}
            self.facts.append(ix.compare("==", a, ix.add(ix.mul(divisor, q), r)))
        return self.known[a, divisor]
