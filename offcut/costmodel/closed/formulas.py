"""What a call costs as formulas in its sizes: those of `Cost`, as sympy writes them, for every size at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Expr, Select, real
from offcut.core.program import Program
from offcut.costmodel.closed.counted import Units, counted
from offcut.costmodel.closed.in_sympy import in_sympy
from offcut.costmodel.closed.predicted import Predicted, Prediction, predicted

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True)
class Formulas:
    """A kernel's cost, in the user's names of sizes; see `Cost` for what each is.

    Where ways compete, a formula is that of the way whose own price, at the size, is least.

    exact   whether every count is one; else some are bounds
    """

    described: Program
    prediction: Prediction
    units: Units
    users: Mapping[str, str]

    @cached_property
    def flop(self) -> sympy.Expr:
        """Operations of what is described."""
        whole = counted(self.described, self.units, {})
        return self._shown(ix.add(*(counts.flop for counts in whole.counts)))

    @cached_property
    def cycles(self) -> sympy.Expr:
        """Of the call."""
        return self._shown(self._total(lambda one: one.cycles))

    @property
    def seconds(self) -> sympy.Expr:
        """Of the call, on one core."""
        return self.cycles / self.units.machine.hertz

    @cached_property
    def bytes(self) -> dict[str, sympy.Expr]:
        """From each memory, the nearest first."""
        names = dict.fromkeys(name for one in self.prediction.pieces for name in one.bytes)
        return {name: self._bytes(name) for name in names}

    @cached_property
    def energy(self) -> sympy.Expr:
        """Joules: an estimate."""
        return self._shown(self._total(lambda one: one.joules))

    @property
    def exact(self) -> bool:
        """Whether every count is one; else some are bounds."""
        return self.prediction.exact

    @property
    def ways(self) -> tuple[tuple[str, ...], ...]:
        """The labels of those that compete, for each choice."""
        return tuple(tuple(way.label for way in ways) for ways in self.prediction.choices)

    def _bytes(self, name: str) -> sympy.Expr:
        return self._shown(self._total(lambda one: real(one.bytes[name])))

    def _total(self, of: Callable[[Predicted], Expr]) -> Expr:
        """The sum over the pieces that run."""
        by_way: dict[tuple[int, int] | None, Expr] = {}
        for one in self.prediction.pieces:
            way = one.piece.way
            by_way[way] = _plus(by_way.get(way, real(0.0)), of(one))
        total = by_way.get(None, real(0.0))
        for number, ways in enumerate(self.prediction.choices):
            costs = [way.cost for way in ways]
            parts = [by_way.get((number, k), real(0.0)) for k in range(len(ways))]
            total = _plus(total, _cheapest(costs, parts))
        return total

    def _shown(self, expr: Expr) -> sympy.Expr:
        return in_sympy(expr, self.users, self.prediction.values)

    def __str__(self) -> str:
        lines = [f"flop    {self.flop}", f"cycles  {self.cycles}"]
        lines += [f"bytes from {name}  {size}" for name, size in self.bytes.items()]
        return "\n".join([*lines, f"energy  {self.energy}"])


def formulas(
    described: Program, program: Program, units: Units, users: Mapping[str, str]
) -> Formulas:
    """What `program`, which computes what is `described`, costs at any sizes.

    users   what the user calls the sizes, by the program's names
    """
    return Formulas(described, predicted(program, units, {}), units, users)


def _plus(a: Expr, b: Expr) -> Expr:
    return b if a == real(0.0) else a if b == real(0.0) else Binary("+", a, b)


def _cheapest(costs: list[Expr], parts: list[Expr]) -> Expr:
    """The part whose cost is least, the first if equal."""
    best, part = costs[0], parts[0]
    for cost, other in zip(costs[1:], parts[1:], strict=True):
        holds = Compare("<", cost, best)
        best, part = Select(holds, cost, best), Select(holds, other, part)
    return part
