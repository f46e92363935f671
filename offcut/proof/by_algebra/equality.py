"""Check that two computations give the same elements in exact arithmetic, at all sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.conditions import negate
from offcut.core.dtypes import FLOATS
from offcut.core.expr import Compare, Expr, Var, dtype_of
from offcut.core.program import Kind
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation
from offcut.polyhedral import Facts, Space
from offcut.proof.by_algebra import terms as tm
from offcut.proof.by_algebra.elements import Elements
from offcut.proof.by_algebra.terms import NotShown, Undecided, end_of

Side: TypeAlias = tuple[Computation, Mapping[str, Expr]]

MAX_CASES = 256
"""Cases of one result that are looked at, at most."""


def show_equal(before: Side, after: Side) -> None:
    """Check that two computations give the same elements in exact arithmetic, at all sizes that the first allows.

    Floats are real numbers, so that sums may be multiplied out and added in any order; what is divided by is not 0. Integers wrap around.

    before, after   computations of the same sizes and inputs, with results in the same order, and sizes that stand for expressions of others

    Raises NotShown, with the first result of which it is not shown.
    """
    inputs, results = (
        [[one for one in side.buffers if one.kind is kind] for side, _ in (before, after)]
        for kind in (Kind.INPUT, Kind.OUTPUT)
    )
    if inputs[0] != inputs[1]:
        raise NotShown("their inputs differ")
    sizes = {size.name: size for side, _ in (after, before) for size in side.sizes}
    facts = Facts(Space(tuple(sizes.values()), before[0].assumptions))
    for one, other in zip(*results, strict=True):
        try:
            _show(before, after, (one.name, other.name), facts, cuts_extremes=False)
        except NotShown:
            _show(before, after, (one.name, other.name), facts, cuts_extremes=True)


def _show(
    before: Side,
    after: Side,
    names: tuple[str, str],
    facts: Facts,
    cuts_extremes: bool,
) -> None:
    """Check that one result is the same.

    names           of it before and after
    cuts_extremes   as for `Elements`: fewer cases, or more that are decided
    """
    sides = Elements(*before, cuts_extremes), Elements(*after, cuts_extremes)
    stage = sides[0].stages[names[0]]
    axes = [Var(f"i@{place}") for place in range(len(stage.axes))]
    at = facts
    for axis, own in zip(axes, stage.axes, strict=True):
        at = at.loop(axis.name, ix.const(0), own.extent)
    try:
        _Result(names, axes, sides).show(at)
    except RecursionError:
        raise NotShown("its elements are too deep an expression") from None


class _Result:
    """One result on both sides."""

    def __init__(
        self, names: tuple[str, str], axes: list[Var], sides: tuple[Elements, Elements]
    ) -> None:
        self.names, self.axes, self.sides, self.cases = names, axes, sides, 0
        self.dtype = dtype_of(sides[0].stages[names[0]].body)

    def show(self, at: Facts, where: tuple[Expr, ...] = ()) -> None:
        """Check that its elements are equal where facts hold."""
        if not at.empty:
            self.at(self.axes, at, where)

    def at(self, point: Sequence[Expr], at: Facts, where: tuple[Expr, ...]) -> None:
        """Check that the elements at a point are equal where facts hold."""
        self.cases += 1
        if self.cases > MAX_CASES:
            raise NotShown(f"{self.names[0]} has more than {MAX_CASES} cases")
        try:
            one, other = (
                side.of(name, point, at) for side, name in zip(self.sides, self.names, strict=True)
            )
        except Undecided as undecided:
            for condition in (undecided.condition, negate(undecided.condition)):
                self.show(at.where(condition), (*where, condition))
            return
        if one == other:
            return
        modulus = tm.modulus_of(self.dtype)
        difference = tm.add(one, tm.scale(other, -1, modulus), modulus=modulus)
        if self.dtype in FLOATS:
            difference = tm.without_quotients(difference)
        if difference:
            fixed = [_only_value(one, at, where) for one in point]
            if fixed != list(point):
                self.at(fixed, at, where)
                return
            place = ", ".join(axis.name for axis in self.axes)
            holds = f" where {' and '.join(map(format_expr, where))}" if where else ""
            because = f"{self.names[0]}[{place}] is not shown to be the same{holds}"
            raise NotShown(because.replace("@", ""), _example(at, where))


def _example(at: Facts, where: Sequence[Expr]) -> dict[str, int] | None:
    """Return the smallest sizes at which conditions hold; None where there are none, or it is not told."""
    witness = at.example(where[-1]) if where else None
    names = {size.name for size in at.space.sizes}
    return witness and {name: value for name, value in witness.items() if name in names}


def _only_value(place: Expr, at: Facts, where: Sequence[Expr]) -> Expr:
    """Return what a coordinate is where conditions leave it one value; else the coordinate."""
    if not isinstance(place, Var):
        return place
    ends = [end_of(condition, {place.name}) for condition in where]
    values = [
        value
        for end in ends
        if end is not None
        for value in (end[1], None if end[2] is None else ix.simplify(ix.sub(end[2], 1)))
        if value is not None
    ]
    values.sort(key=lambda value: ix.literal_value(value) is None)
    return next((v for v in values if at.holds(Compare("==", place, v))), place)
