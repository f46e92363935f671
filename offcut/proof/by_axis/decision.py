"""Strips and an extent in; whether the strips share it out, at all sizes, out: with a witness where not.

Bounded values are fixed literal by literal, and every ``a // c`` and ``a % c`` becomes a pair of
sizes (`contiguity`), so that what isl decides is affine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.expr import Const, Expr, Var, substitute, variables
from offcut.core.memo import memo
from offcut.core.program import Size
from offcut.polyhedral import Set, Space, parse_map, project_onto_sizes, smallest_point
from offcut.polyhedral.facts import in_range
from offcut.proof.by_axis.contiguity import (
    Quotients,
    Span,
    are_contiguous,
    is_partition,
    join_spans,
)
from offcut.proof.by_axis.strips import NotSeparable, Strip, Value, X

_KEPT = 4096  # theorems


@dataclass(frozen=True, slots=True)
class CoverageCounterexample:
    """Why ``0 <= X < extent`` is not what the strips do, with the smallest witness.

    what   missing, outside, twice, late, or bounded
    sizes  (name, value) of the sizes that matter
    at     the coordinate; None for a bounded value
    """

    what: str
    sizes: tuple[tuple[str, int], ...]
    at: int | None


@memo(_KEPT)
def decide_coverage(
    extent: Expr,
    strips: tuple[Strip, ...],
    sizes: tuple[Size, ...],
    facts: tuple[Expr, ...],
    ordered: bool,
) -> CoverageCounterexample | None:
    """None where the strips are ``0 <= X < extent``, in their order if `ordered`, at all sizes with these `facts`."""
    if not strips and ix.literal_value(extent) == 0:
        return None
    return _Line(extent, sizes, facts, ordered).decide(strips)


@memo(_KEPT)
def decide_within(
    extent: Expr,
    strips: tuple[Strip, ...],
    sizes: tuple[Size, ...],
    facts: tuple[Expr, ...],
    ordered: bool,
) -> CoverageCounterexample | None:
    """None where the second strip meets each coordinate of the first, once, at all sizes with these `facts`."""
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
        self.extent, self.sizes, self.given = self.quotients.without_divisions(extent), sizes, facts
        self.ordered = ordered

    def with_quotient_names(self, strips: Sequence[Strip]) -> list[Strip]:
        """`strips` with quotients as sizes, and the space that these make."""
        parts = [strip.mapped(self.quotients.without_divisions) for strip in strips]
        known = [self.quotients.without_divisions(fact) for fact in self.given]
        facts = (*known, *self.quotients.facts)
        self.space = Space((*self.sizes, *self.quotients.sizes), facts)
        return parts

    def decide_within(self, inner: Strip, outer: Strip) -> CoverageCounterexample | None:
        parts = self.with_quotient_names((inner, outer))
        spans = [self.span(part) for part in parts]
        if None not in spans and spans[0] == spans[1]:
            return None
        marked = [replace(part, repeats=k == 0) for k, part in enumerate(parts)]
        for case in self.cases(marked, ()):
            mine, run, again = (self.set(case.where, ["false"]) for _ in range(3))
            for strip in case.strips:
                reached, twice = self.coordinates_of(case.where, strip.joined())
                if strip.repeats:
                    mine = reached
                else:
                    run, again = reached, again if twice is None else twice
            if not mine.is_subset(run):
                return self.witness("missing", mine - run)
            if not (mine & again).is_empty():
                return self.witness("twice", mine & again)
        return None

    def decide(self, strips: tuple[Strip, ...]) -> CoverageCounterexample | None:
        parts = self.with_quotient_names(strips)
        for value in dict.fromkeys(value for part in parts for value in part.values):
            conditions = [self.condition(condition) for condition in value.given]
            broken = self.violation(
                "bounded", (), [*conditions, f"not ({self.ranged(value, value.lo, value.hi)})"]
            )
            if broken is not None:
                return broken
        if self.shares_out(parts) or are_contiguous(self.extent, parts, self.quotients, self.sizes):
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
        return is_partition(self.extent, known, least, self.are_contradictory, self.ordered)

    def span(self, strip: Strip) -> Span | None:
        """A strip of one bounded value as an interval."""
        if len(strip.values) != 1 or strip.repeats:
            return None
        value = strip.values[0]
        one: dict[str, Expr] = {value.name: Var("#v")}
        same = strip.mapped(lambda expr: substitute(expr, one))
        least = {size.name: size.min for size in self.space.sizes} | {"#v": value.lo}
        interval = join_spans(same.lower, same.upper, same.loops, least)
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

    def are_contradictory(self, conditions: Sequence[Expr]) -> bool:
        """Whether no sizes satisfy all of `conditions`."""
        texts = [self.space.condition(condition, {}) for condition in conditions]
        known = [text for text in texts if text is not None]
        return len(known) == len(texts) and self.space.set((), known).is_empty()

    def ranged(self, value: Value, lo: int, hi: int) -> str:
        """``lo <= value < hi``, and its divisor is positive."""
        return " and ".join(map(self.condition, in_range(value.value, lo, hi)))

    def cases(self, strips: Sequence[Strip], where: tuple[str, ...]) -> Iterator[_Case]:
        """The strips literal by literal of their bounded values, then where there is none."""
        values = [value for strip in strips for value in strip.values]
        if not values:
            yield _Case(where, tuple(strips))
            return
        first = values[0]
        mine = [value for value in values if value.value == first.value]
        low, high = min(v.lo for v in mine), max(v.hi for v in mine)
        for literal in range(low, high):
            fixed = [f for strip in strips for f in strip.fixed(first.value, literal)]
            yield from self.cases(fixed, (*where, self.ranged(first, literal, literal + 1)))
        rest = [strip for strip in strips if all(v.value != first.value for v in strip.values)]
        yield from self.cases(rest, (*where, f"not ({self.ranged(first, low, high)})"))

    def check(self, case: _Case) -> CoverageCounterexample | None:
        merged_strips = (strip.joined() for strip in case.strips)
        strips = [strip for strip in merged_strips if Const(0, "bool") not in strip.holds]
        if self.plain(strips):
            return None
        domain = self.set(case.where, [f"0 <= x0 < {self.text(self.extent)}"])
        run_before: Set | None = None
        covered: Set | None = None
        behind: list[Set] = []
        for strip in strips:
            if self.ordered and (strip.loops or strip.repeats):
                raise NotSeparable("tiles that need not ascend")
            mine, again = self.coordinates_of(case.where, strip)
            checks: list[tuple[str, Set]] = []
            if not strip.repeats:
                if again is not None:
                    checks.append(("twice", again))
                if run_before is not None:
                    checks.append(("twice", mine & run_before))
                run_before = mine if run_before is None else run_before | mine
            if self.ordered:
                checks += [("late", mine & _above(self.space, earlier)) for earlier in behind]
                behind.append(mine)
            covered = mine if covered is None else covered | mine
            for what, counterexamples in checks:
                if not counterexamples.is_empty():
                    return self.witness(what, counterexamples)
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

    def coordinates_of(self, where: tuple[str, ...], strip: Strip) -> tuple[Set, Set | None]:
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
        tiles = parse_map(f"{self.space.parameters}{{ [x0] -> [{counters}] : {facts} }}")
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

    def violation(
        self, what: str, where: tuple[str, ...], conditions: Sequence[str]
    ) -> CoverageCounterexample | None:
        broken_set = self.space.set((), [*where, *conditions])
        return None if broken_set.is_empty() else self.witness(what, broken_set)

    def witness(self, what: str, counterexamples: Set) -> CoverageCounterexample:
        least = smallest_point(project_onto_sizes(counterexamples, len(self.sizes)))
        assert least is not None
        sizes, point = least
        names = (size.name for size in self.sizes)
        return CoverageCounterexample(
            what, tuple(zip(names, sizes, strict=True)), point[0] if point else None
        )


def _above(space: Space, earlier: Set) -> Set:
    """The coordinates that are at most one of `earlier`."""
    return earlier.apply(parse_map(f"{space.parameters}{{ [x] -> [y] : y <= x }}"))
