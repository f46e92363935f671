"""A prediction over open sizes -> numbers at many of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offcut.core.expr import Expr, real
from offcut.core.memo import lazy_property
from offcut.costmodel.arrays import Formulas
from offcut.costmodel.clock import stage_arrays
from offcut.costmodel.closed.predicted import Prediction

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

    def taken(self, way: Way) -> npt.NDArray[np.bool_]:
        """Where that option of a choice is the cheapest, the first if equal; everywhere, of no option."""
        if way is None:
            return np.ones(self.count, bool)
        number, option = way
        found: npt.NDArray[np.bool_] = self._cheapest[number] == option
        return found

    @property
    def resources(self) -> tuple[str, ...]:
        """That a piece may take cycles of."""
        names = (name for one in self.prediction.pieces for name in one.resources)
        return tuple(dict.fromkeys(names))

    @lazy_property
    def cycles(self) -> Numbers:
        """Of a call."""
        found: Numbers = np.sum(list(self.binding.values()), axis=0)
        return np.broadcast_to(found, (self.count,))

    @property
    def own(self) -> dict[str, Numbers]:
        """Cycles of the call itself; nothing where none are known."""
        call = self.prediction.call
        return {"call": np.full(self.count, call)} if call else {}

    @lazy_property
    def binding(self) -> dict[str, Numbers]:
        """Cycles of a call that each resource is what binds for, its own among them."""
        names = self.resources
        found = np.zeros((len(names), self.count))
        for way, each in self._stages:
            most, cycles = np.argmax(each, axis=0), stage_arrays(each, self.prediction.loss)
            found[most, np.arange(self.count)] += np.where(self.taken(way), cycles, 0.0)
        return {**dict(zip(names, found, strict=True)), **self.own}

    @lazy_property
    def by_resource(self) -> dict[str, Numbers]:
        """Cycles of a call that each resource takes by itself."""
        parts = [np.where(self.taken(way), each, 0.0) for way, each in self._stages]
        return dict(zip(self.resources, np.sum(parts, axis=0), strict=True))

    @lazy_property
    def by_piece(self) -> list[Numbers]:
        """Cycles that each piece would take by itself; 0 where its option is not taken."""
        return [
            np.where(self.taken(one.piece.way), own.max(axis=0), 0.0)
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
        found: dict[tuple[Way, str], Numbers] = {}
        for one, own in zip(self.prediction.pieces, self._pieces, strict=True):
            stage = one.piece.way, one.piece.stage
            found[stage] = found[stage] + own if stage in found else own
        return [(way, own) for (way, _), own in found.items()]

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
