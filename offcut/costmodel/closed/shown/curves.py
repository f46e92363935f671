"""Predicted seconds over a size, and what binds at each: as numbers, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from offcut.core.expr import Expr, real
from offcut.core.memo import lazy_property
from offcut.core.program import Size
from offcut.costmodel.arrays import Formulas
from offcut.costmodel.clock import stage_arrays
from offcut.costmodel.closed.prediction import Prediction
from offcut.errors import CallError
from offcut.partition.show.figure_io import check_drawable, new_figure, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Numbers = npt.NDArray[np.float64]
"""One for each point."""

Way = tuple[int, int] | None
"""A choice and an option of it, by number; none, outside of choices."""


@dataclass(frozen=True)
class Sampled:
    """A prediction at points.

    points  the value of each size there, by the program's names: int64 arrays, all as long
    """

    prediction: Prediction
    points: Mapping[str, npt.NDArray[np.int64]]

    @property
    def count(self) -> int:
        """Of points."""
        return len(next(iter(self.points.values())))

    def at(self, expr: Expr) -> Numbers:
        """The values of an expression over the sizes and over what the prediction names."""
        return self._all([expr])[0]

    def _all(self, exprs: Sequence[Expr]) -> list[Numbers]:
        """Likewise of several, what they have in common once."""
        return [np.broadcast_to(one, (self.count,)) for one in Formulas(exprs)(self._values)]

    def is_cheapest(self, way: Way) -> npt.NDArray[np.bool_]:
        """Where that option of a choice is the cheapest, the first if equal; everywhere, of no option."""
        if way is None:
            return np.ones(self.count, bool)
        number, option = way
        is_cheapest: npt.NDArray[np.bool_] = self._cheapest[number] == option
        return is_cheapest

    @property
    def resources(self) -> tuple[str, ...]:
        """That a piece may take cycles of."""
        names = (name for one in self.prediction.pieces for name in one.resources)
        return tuple(dict.fromkeys(names))

    @lazy_property
    def cycles(self) -> Numbers:
        """Of a call."""
        total: Numbers = np.sum(list(self.binding.values()), axis=0)
        return np.broadcast_to(total, (self.count,))

    @property
    def own(self) -> dict[str, Numbers]:
        """Cycles of the call itself; nothing where none are known."""
        call = self.prediction.call
        return {"call": np.full(self.count, call)} if call else {}

    @lazy_property
    def binding(self) -> dict[str, Numbers]:
        """Cycles of a call that each resource is what binds for, its own among them."""
        names = self.resources
        cycles_of_resources = np.zeros((len(names), self.count))
        for way, each in self._stages:
            most, cycles = np.argmax(each, axis=0), stage_arrays(each, self.prediction.loss)
            cycles_of_resources[most, np.arange(self.count)] += np.where(
                self.is_cheapest(way), cycles, 0.0
            )
        return {**dict(zip(names, cycles_of_resources, strict=True)), **self.own}

    @lazy_property
    def by_resource(self) -> dict[str, Numbers]:
        """Cycles of a call that each resource takes by itself."""
        parts = [np.where(self.is_cheapest(way), each, 0.0) for way, each in self._stages]
        return dict(zip(self.resources, np.sum(parts, axis=0), strict=True))

    @lazy_property
    def by_piece(self) -> list[Numbers]:
        """Cycles that each piece would take by itself; 0 where its option is not taken."""
        return [
            np.where(self.is_cheapest(one.piece.way), own.max(axis=0), 0.0)
            for one, own in zip(self.prediction.pieces, self._pieces, strict=True)
        ]

    @property
    def bound_by(self) -> tuple[str, ...]:
        """The resource that binds for most of the cycles, at each point."""
        names, most = list(self.binding), np.argmax(list(self.binding.values()), axis=0)
        return tuple(names[k] for k in most)

    @lazy_property
    def _pieces(self) -> list[Numbers]:
        """Cycles that each resource takes of each piece: resources, then points."""
        none, pieces, names = real(0.0), self.prediction.pieces, self.resources
        every = self._all([one.resources.get(name, none) for one in pieces for name in names])
        return list(np.reshape(every, (len(pieces), len(names), self.count)))

    @lazy_property
    def _stages(self) -> list[tuple[Way, Numbers]]:
        """The same of the pieces of each stage together, and the option that it is in."""
        by_stage: dict[tuple[Way, str], Numbers] = {}
        for one, own in zip(self.prediction.pieces, self._pieces, strict=True):
            stage = one.piece.way, one.piece.stage
            by_stage[stage] = by_stage[stage] + own if stage in by_stage else own
        return [(way, own) for (way, _), own in by_stage.items()]

    @lazy_property
    def _cheapest(self) -> list[npt.NDArray[np.intp]]:
        return [
            np.argmin([self.at(way.cost) for way in ways], axis=0)
            for ways in self.prediction.choices
        ]

    @lazy_property
    def _values(self) -> dict[str, Numbers]:
        """What sizes, and names that the prediction has beside them, are at each point."""
        known = {name: np.asarray(at, np.float64) for name, at in self.points.items()}
        for name, value in self.prediction.values.items():
            (known[name],) = Formulas([value])(known)
        return known


_POINTS = 512  # of a curve, at most
_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve over a size.

    values    of the size, ascending
    seconds   of a call
    bound_by  the resource that binds for most of the cycles
    """

    values: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    bound_by: tuple[str, ...]


def curve(
    prediction: Prediction, along: str, others: Mapping[str, int], over: range, hertz: float
) -> Curve:
    """What a prediction says where a size takes its values.

    along, others   sizes by the program's names
    """
    values = np.array(over[:: max(1, len(over) // _POINTS)], np.int64)
    fixed = {name: np.full(len(values), value) for name, value in others.items()}
    found = Sampled(prediction, {along: values, **fixed})
    return Curve(values, found.cycles / hertz, found.bound_by)


def draw(title: str, label: str, found: Curve, path: str | Path | None) -> Figure:
    """A curve, each point in the colour of the resource that binds.

    Raises TargetError without matplotlib, CallError where the picture cannot be written.
    """
    check_drawable("the cost")

    figure = new_figure(7.0, 4.2)
    axes: Any = figure.subplots()
    axes.plot(found.values, found.seconds * 1e6, color="0.7", linewidth=1.0, zorder=1)
    for colour, name in zip(_COLOURS, dict.fromkeys(found.bound_by), strict=False):
        there = np.array([one == name for one in found.bound_by])
        axes.scatter(
            found.values[there],
            found.seconds[there] * 1e6,
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
    found = known[name]
    first, last = over or (max(found.min, 1), min(found.max, max(found.min, 1) + _POINTS))
    if not found.min <= first <= last <= found.max:
        raise CallError(
            "plot",
            f"cannot draw {name} in {first}…{last}",
            because=f"{name} is in {found.min}…{found.max}",
        )
    start = -(-first // found.multiple_of) * found.multiple_of
    return found, range(start, last + 1, found.multiple_of)
