"""Formulas of a cost, for people: as a page, and as a curve over a size.

A page has a prediction's pieces, what each resource takes as a short sum, and what binds at which sizes. Pieces and sums are looked at on a grid of
sizes; what binds, at every value of one size while the others stay in the middle. A sum is the polynomial of few terms that is near the
numbers everywhere. A formula that is exact has a choice for each tile, each cache and each ragged end, and is longer than anybody reads. Most of it
says by how little one size differs from its neighbour. What is left is a sum of products of sizes, as the work itself is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from offcut.core.expr import Binary, Const, Expr, Select, Unary, Var, substitute
from offcut.core.program import Program, Size
from offcut.core.sizes import samples
from offcut.core.text.printer import format_expr
from offcut.core.text.tables import table
from offcut.costmodel.arrays import Array, Calls
from offcut.costmodel.closed.prediction import Predicted, Prediction, SampledPrediction
from offcut.errors import CallError
from offcut.partition.show.figures import check_drawable, new_figure, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LAST = 4096  # where a size may be larger, what is looked at ends here
_POINTS = 256  # that are looked at, of all sizes together
_PIECES = 12  # that have a line of their own
_WIDE = 100  # characters of a formula that is written as it is
_DEGREE = 4  # of terms of a sum


@dataclass(frozen=True)
class Page:
    """What is written of a kernel's cost.

    users   what the user calls the sizes, by the program's names
    operations, flop  of what is described, and the same as text
    """

    described: Program
    prediction: Prediction
    operations: Expr
    flop: str
    machine: str
    users: Mapping[str, str]

    def __str__(self) -> str:
        sizes = self.described.sizes
        looked = ", ".join(
            f"{self._user(one)} in {one.at_or_above(1)}…{_last(one)}" for one in sizes
        )
        called = ", ".join(map(self._user, sizes))
        sampled = self._on_a_grid()
        return "\n".join(
            [
                f"{self.described.name}({called}) on {self.machine}, looked at for {looked}",
                *self._flop(sampled),
                "",
                *self._pieces(sampled),
                *self._values(),
                "",
                *self._resources(sampled),
                "",
                *(self._bound_by_size(one) for one in sizes),
            ]
        )

    def _user(self, size: Size) -> str:
        return self.users.get(size.name, size.name)

    def _on_a_grid(self) -> SampledPrediction:
        sizes = self.described.sizes
        each = max(3, int(_POINTS ** (1 / len(sizes))))
        axes = [samples(one, each, _LAST) for one in sizes]
        grid = np.meshgrid(*axes, indexing="ij")
        points = {one.name: axis.ravel() for one, axis in zip(sizes, grid, strict=True)}
        return SampledPrediction(self.prediction, Calls(points, grid[0].size))

    def _flop(self, sampled: SampledPrediction) -> list[str]:
        if len(self.flop) <= _WIDE:
            return [f"flop = {self.flop}"]
        flop = sampled.at(self.operations)
        fit = fit_terms(flop, np.maximum(flop, 1.0), self._terms(), self._floats(sampled))
        return [f"flop is about {fit}, off by {fit.off}"]

    def _pieces(self, sampled: SampledPrediction) -> list[str]:
        """A line for each of the pieces that take most, and what the others take."""
        cycles = np.maximum(sampled.cycles, 1e-9)
        shares = [own / cycles for own in sampled.by_piece]
        nonempty = [k for k, share in enumerate(shares) if share.max(initial=0.0) > 0]
        most = sorted(nonempty, key=lambda k: -shares[k].max())[:_PIECES]
        rows = [["stage", "role", "tile", "microkernel", "of the call, at most"]]
        rows += [
            [*self._row(self.prediction.pieces[k]), self._at_most(shares[k], sampled)]
            for k in sorted(most)
        ]
        if self.prediction.choices:
            options = ["option", *(self._option(self.prediction.pieces[k]) for k in sorted(most))]
            rows = [[option, *row] for option, row in zip(options, rows, strict=True)]
        lines = table(rows)
        if others := [k for k in nonempty if k not in most]:
            share = max(shares[k].max() for k in others)
            lines.append(f"and {len(others)} more, each at most {share:.0%} of the call")
        return lines

    def _row(self, one: Predicted) -> list[str]:
        piece = one.piece
        tile = "×".join(self._text(extent) for _, extent in piece.tile)
        return [piece.stage, piece.role, tile, piece.microkernel or "loops"]

    def _option(self, one: Predicted) -> str:
        if one.piece.option is None:
            return "any"
        number, at = one.piece.option
        return self.prediction.choices[number][at].label

    def _at_most(self, share: Array, sampled: SampledPrediction) -> str:
        most = int(np.argmax(share))
        at = ", ".join(
            f"{self.users.get(k, k)} = {v[most]}" for k, v in sampled.calls.values.items()
        )
        return f"{min(share[most], 1.0):.0%}, {at}"

    def _values(self) -> list[str]:
        """What names stand for that are no sizes, where they are short."""
        texts = {name: self._text(value) for name, value in self.prediction.values.items()}
        return [f"{name} = {text}" for name, text in texts.items() if len(text) <= _WIDE]

    def _resources(self, sampled: SampledPrediction) -> list[str]:
        """A sum for each resource, and one for the call."""
        call = np.maximum(sampled.cycles, 1e-9)
        floats, terms = self._floats(sampled), self._terms()
        rows = [["cycles", "about", "off by, of the call", "binds for"]]
        for name, own in {**sampled.by_resource, "the call": sampled.cycles}.items():
            if name == "the call" and self.prediction.call:
                share = float(np.mean(self.prediction.call / call))
                cycles = f"{self.prediction.call:,.0f}"
                rows.append(["itself", cycles, "", f"{share:.0%}" if share >= 0.005 else ""])
            if not own.any():
                continue
            fit = fit_terms(own, call, terms, floats)
            binding = sampled.binding.get(name)
            share = 0.0 if binding is None else float(np.mean(binding / call))
            rows.append([name, str(fit), fit.off, f"{share:.0%}" if share else ""])
        return table(rows)

    def _bound_by_size(self, size: Size) -> str:
        """Of each resource, the values of a size at which it is what binds."""
        values = np.arange(size.at_or_above(1), _last(size) + 1, size.multiple_of, dtype=np.int64)
        points, assignments = {size.name: values}, []
        for other in self.described.sizes:
            if other != size:
                middle = samples(other, 3, _LAST)
                at = int(middle[len(middle) // 2])
                points[other.name] = np.full(len(values), at, np.int64)
                assignments.append(f"{self._user(other)} = {at}")
        calls = Calls(points, len(values))
        bound = np.array(SampledPrediction(self.prediction, calls).bound_by)
        parts = []
        for name in dict.fromkeys(bound.tolist()):
            there = values[bound == name]
            span = (values >= there[0]) & (values <= there[-1])
            share = len(there) / int(span.sum())
            some = "" if share == 1 else f" ({share:.0%} of them)"
            where = str(there[0]) if len(there) == 1 else f"{there[0]}…{there[-1]}"
            parts.append(f"{name} at {where}{some}")
        others = f", {', '.join(assignments)}" if assignments else ""
        return f"bound over {self._user(size)}{others}: {'; '.join(parts)}"

    def _terms(self) -> tuple[Term, ...]:
        """What a sum may be made of: what divides a term of the operations, bounded values aside, and each size."""
        sizes = [one.name for one in self.described.sizes]
        grown = (
            tuple(name for name in term if name in sizes) for term in _terms_in(self.operations)
        )
        monomials = {term[:_DEGREE] for term in grown}
        return terms_of([*monomials, *((name,) for name in sizes)], self.users)

    def _floats(self, sampled: SampledPrediction) -> dict[str, Array]:
        """The sizes at each point, by the user's names."""
        return {
            self.users.get(name, name): np.asarray(values, np.float64)
            for name, values in sampled.calls.values.items()
        }

    def _text(self, expr: Expr) -> str:
        return format_expr(substitute(expr, {k: Var(user) for k, user in self.users.items()}))


def _last(size: Size) -> int:
    """The largest of its values that is looked at."""
    return int(samples(size, 2, _LAST)[-1])


def _terms_in(expr: Expr) -> set[Term]:
    """Products of sizes that an expression grows as."""
    match expr:
        case Var(name):
            return {(name,)}
        case Const():
            return {()}
        case Binary("*", a, b):
            return {tuple(sorted((*one, *other))) for one in _terms_in(a) for other in _terms_in(b)}
        case Binary("//" | "%", a, _):
            return _terms_in(a)
        case Binary(_, a, b) | Select(_, a, b):
            return _terms_in(a) | _terms_in(b)
        case Unary(_, a):
            return _terms_in(a)
        case _:
            return {()}


Term = tuple[str, ...]
"""Sizes that are multiplied, each as often as it stands there; none: 1."""

_SEEN = 1e-2  # of the unit: a term that adds less wherever one looks is left out


@dataclass(frozen=True, slots=True)
class TermFit:
    """A sum of terms, and how far it is off, in the unit that was asked for.

    half   at half of the points at most
    worst  at the others
    """

    terms: tuple[tuple[float, Term], ...]
    half: float
    worst: float

    @property
    def off(self) -> str:
        """Both, as shares."""
        return f"{self.half:.0%}, at worst {self.worst:.0%}"

    def __str__(self) -> str:
        parts = ["*".join((round_significant(factor), *term)) for factor, term in self.terms]
        return " + ".join(parts) or "0"


def terms_of(highest: Sequence[Term], users: Mapping[str, str]) -> tuple[Term, ...]:
    """All that divide one of the products, the largest first, in the user's names.

    users  the user's names of sizes, by the program's
    """
    terms: set[Term] = {()}
    for one in highest:
        names = tuple(dict.fromkeys(one))
        for powers in product(*(range(one.count(name) + 1) for name in names)):
            terms.add(
                tuple(n for n, power in zip(names, powers, strict=True) for _ in range(power))
            )
    monomials = {tuple(sorted(users.get(name, name) for name in term)) for term in terms}
    return tuple(sorted(monomials, key=lambda term: (-len(term), term)))


def fit_terms(
    numbers: Array, unit: Array, terms: Sequence[Term], points: Mapping[str, Array]
) -> TermFit:
    """The sum of these terms that is nearest, with factors above 0 of three digits.

    unit    what the distance at each point is a share of, above 0
    points  the sizes, by name
    """
    candidates, shown_terms = list(terms), tuple[tuple[float, Term], ...]()
    while candidates and not shown_terms:
        columns = np.stack([_values(term, points) / unit for term in candidates], axis=1)
        # Terms are of very unlike size; the solver would take the small ones for none.
        scale = np.abs(columns).max(axis=0)
        factors = np.linalg.lstsq(columns / scale, numbers / unit, rcond=None)[0]
        if factors.min() >= _SEEN:
            pairs = zip(factors / scale, candidates, strict=True)
            shown_terms = tuple((float(f"{factor:.3g}"), term) for factor, term in pairs)
        else:
            del candidates[int(np.argmin(factors))]
    total = sum(
        (factor * _values(term, points) for factor, term in shown_terms), np.zeros(len(numbers))
    )
    off = np.abs(total - numbers) / unit
    return TermFit(shown_terms, float(np.median(off)), float(off.max()))


def _values(term: Term, points: Mapping[str, Array]) -> Array:
    """Of a term at each point."""
    ones = np.ones(len(next(iter(points.values()))))
    return reduce(np.multiply, (points[name] for name in term), ones)


def round_significant(value: float) -> str:
    """Three digits: ``18,200``, ``0.31``."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


_CURVE_POINTS = 512  # of a curve, at most
_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve over a size.

    values    of the size, ascending
    seconds   of a call
    bound_by  the resource that binds for most of the cycles
    """

    values: npt.NDArray[np.int64]
    seconds: Array
    bound_by: tuple[str, ...]


def curve(
    prediction: Prediction, along: str, others: Mapping[str, int], over: range, hertz: float
) -> Curve:
    """What a prediction says where a size takes its values.

    along, others   sizes by the program's names
    """
    values = np.array(over[:: max(1, len(over) // _CURVE_POINTS)], np.int64)
    fixed = {name: np.full(len(values), value) for name, value in others.items()}
    sampled = SampledPrediction(prediction, Calls({along: values, **fixed}, len(values)))
    return Curve(values, sampled.cycles / hertz, sampled.bound_by)


def draw(title: str, label: str, points: Curve, path: str | Path | None) -> Figure:
    """A curve, each point in the colour of the resource that binds.

    Raises TargetError without matplotlib, CallError where the picture cannot be written.
    """
    check_drawable("the cost")

    figure = new_figure(7.0, 4.2)
    axes: Any = figure.subplots()
    axes.plot(points.values, points.seconds * 1e6, color="0.7", linewidth=1.0, zorder=1)
    for colour, name in zip(_COLOURS, dict.fromkeys(points.bound_by), strict=False):
        there = np.array([one == name for one in points.bound_by])
        axes.scatter(
            points.values[there],
            points.seconds[there] * 1e6,
            s=6.0,
            color=colour,
            label=f"bound by {name}",
            zorder=2,
        )
    axes.set_xlabel(label)
    axes.set_ylabel("predicted µs (lower is better)")
    axes.set_title(title)
    axes.legend()
    write(figure, path, 'kernel.cost().plot("cost.png")')
    return figure


def along(
    sizes: Sequence[Size],
    users: Mapping[str, str],
    size: str | None,
    over: tuple[int, int] | None,
    others: Mapping[str, int],
) -> tuple[Size, range]:
    """The size that a curve runs along, and its values.

    users  the user's names, by the program's

    Raises CallError for a size that is not there, is missing, or has no such values.
    """
    known = {users.get(one.name, one.name): one for one in sizes}
    free = [name for name in known if name not in others]
    name = free[0] if size is None and len(free) == 1 else size
    unknown = [one for one in others if one not in known]
    if name is None or name not in known or unknown or set(free) - {name}:
        raise CallError(
            "plot",
            "cannot draw a curve",
            at=", ".join([*unknown, *([size] if size is not None else [])]) or "no size",
            because=f"it runs along one of {', '.join(known) or 'no sizes'}, and the others have values",
            help=("kernel.cost().plot(size=…, others=…)",),
        )
    own = known[name]
    first, last = over or (max(own.min, 1), min(own.max, max(own.min, 1) + _CURVE_POINTS))
    if not own.min <= first <= last <= own.max:
        raise CallError(
            "plot",
            f"cannot draw {name} in {first}…{last}",
            because=f"{name} is in {own.min}…{own.max}",
        )
    start = -(-first // own.multiple_of) * own.multiple_of
    return own, range(start, last + 1, own.multiple_of)
