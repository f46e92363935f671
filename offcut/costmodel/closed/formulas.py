"""What a call costs as formulas in its sizes: those of `Cost`, as sympy writes them, for every size at once."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var, real, substitute
from offcut.core.interpret.values import evaluate_all
from offcut.core.memo import lazy_property
from offcut.core.names import RenamedAttribute
from offcut.core.program import Program
from offcut.core.sizes import samples
from offcut.core.text.printer import format_expr
from offcut.costmodel.arrays import Calls
from offcut.costmodel.clock import stage_formula
from offcut.costmodel.closed.cost import call_cycles, code_bytes, compile_seconds
from offcut.costmodel.closed.counting import count_operations
from offcut.costmodel.closed.counts import (
    ZERO,
    HowExact,
    OptionNumber,
    least_exact,
    total_of_options,
)
from offcut.costmodel.closed.display import Page, along, curve, draw
from offcut.costmodel.closed.prediction import (
    Predicted,
    Prediction,
    SampledPrediction,
    Stage,
    by_stage,
    predict,
    runs_by_stage,
)
from offcut.costmodel.closed.sums import Amount
from offcut.costmodel.closed.sympy_printer import Names
from offcut.costmodel.device import Device
from offcut.costmodel.resources import Hardware
from offcut.costmodel.simplification import select

if TYPE_CHECKING:
    import sympy
    from matplotlib.figure import Figure

LARGEST_TRIED = 512
"""The largest size at which the cycles of formulas are compared with those of a call."""


@dataclass(frozen=True, repr=False)
class Formulas:
    """A kernel's cost, in the user's names of sizes; see `Cost` for what each is.

    Where options compete, a formula is that of the option whose own price, at the size, is least.

    described   the program before it was scheduled, whose operations are counted
    machine     that it is predicted for
    code        bytes of code; compiled_in: seconds to compile it
    error       computes by which part the cycles are off at most at some sizes, where they are an estimate
    """

    described: Program
    prediction: Prediction
    machine: Device
    users: Mapping[str, str]
    code: int = 0
    compiled_in: float = 0.0
    error: Callable[[], float] = float

    @lazy_property
    def within(self) -> float:
        """The part by which the cycles are off from those of `Cost` at most, at sizes that were tried; computed when first asked for."""
        return self.error()

    @lazy_property
    def operations(self) -> Amount:
        """Return the operations of what is described."""
        return count_operations(self.described, {})

    @lazy_property
    def flop(self) -> sympy.Expr:
        """Operations of what is described."""
        return self._formula_text(self.operations.value)

    @lazy_property
    def cycles(self) -> sympy.Expr:
        """Of the call."""
        stages, loss = by_stage(self.prediction.pieces).items(), self.prediction.loss
        total = self._total((stage, stage_formula(each, loss)) for stage, each in stages)
        return self._formula_text(_plus(total, real(self.prediction.call)))

    @property
    def seconds(self) -> sympy.Expr:
        """Of the call, on one core."""
        return self.cycles / self.machine.hertz

    @lazy_property
    def bytes(self) -> dict[str, sympy.Expr]:
        """From each memory, the nearest first."""
        names = dict.fromkeys(name for one in self.prediction.pieces for name in one.bytes)
        return {name: self._bytes(name) for name in names}

    @lazy_property
    def energy(self) -> sympy.Expr:
        """Joules: an estimate."""
        return self._formula_text(self._by_piece(lambda one: one.joules))

    kept = RenamedAttribute("resident_bytes")

    @lazy_property
    def resident_bytes(self) -> dict[str, sympy.Expr]:
        """Bytes of the largest part of the call that fits each cache, and stays there."""
        return {name: self._formula_text(size) for name, size in self.prediction.kept.items()}

    @property
    def occupancy(self) -> dict[str, sympy.Expr]:
        """The same as shares of the caches."""
        caches = {memory.name: memory.bytes for memory in self.machine.memory}
        return {name: size / caches[name] for name, size in self.resident_bytes.items()}

    @lazy_property
    def code_bytes(self) -> sympy.Expr:
        """Of the kernel, whatever the sizes: right to a factor of three."""
        return self._formula_text(ix.const(self.code))

    @property
    def compile_seconds(self) -> sympy.Expr:
        """Likewise, to compile it."""
        return self._formula_text(real(self.compiled_in))

    @property
    def exactness(self) -> HowExact:
        """As `Cost.exactness`, at every size."""
        exactness = self.prediction.exactness
        return replace(exactness, flop=least_exact(exactness.flop, self.operations.exactness))

    @property
    def ways(self) -> tuple[tuple[str, ...], ...]:
        """The labels of those that compete, for each choice."""
        return tuple(
            tuple(option.label for option in options) for options in self.prediction.choices
        )

    def _bytes(self, name: str) -> sympy.Expr:
        return self._formula_text(self._by_piece(lambda one: real(one.bytes.get(name, ZERO))))

    def _by_piece(self, of: Callable[[Predicted], Expr]) -> Expr:
        """The sum over the pieces of the options that are taken."""
        pieces = self.prediction.pieces
        return self._total(((one.piece.option, one.piece.stage), of(one)) for one in pieces)

    def _total(self, parts: Iterable[tuple[Stage, Expr]]) -> Expr:
        """The sum over the stages that run of the options that are taken, and over what is in none."""
        by_stage: dict[Stage, Expr] = {}
        for stage, part in parts:
            by_stage[stage] = _plus(by_stage.get(stage, real(0.0)), part)
        by_option: dict[OptionNumber, Expr] = {}
        for (option, name), part in by_stage.items():
            runs = self._open_runs.get((option, name))
            part = part if runs is None else select(ix.compare(">", runs, 0), part, real(0.0))
            by_option[option] = _plus(by_option.get(option, real(0.0)), part)
        return total_of_options(by_option, self.prediction.choices, real(0.0), _plus)

    @lazy_property
    def _open_runs(self) -> dict[Stage, Expr]:
        """How often the pieces of a stage run together, of the stages that do not run at all sizes."""
        every = runs_by_stage(self.prediction.pieces)
        least = Calls.of_one({size.name: size.min for size in self.described.sizes})
        at_least = SampledPrediction(self.prediction, least)
        return {stage: runs for stage, runs in every.items() if at_least.at(runs)[0] <= 0}

    def _formula_text(self, expr: Expr) -> sympy.Expr:
        return self._names.formula(expr)

    @property
    def parts(self) -> dict[str, sympy.Expr]:
        """What the names in the formulas that were asked for stand for, each in terms of those before."""
        return self._names.parts

    @lazy_property
    def _names(self) -> Names:
        return Names(self.users, self.prediction.values)

    def __str__(self) -> str:
        """A page: pieces, what each resource takes as a short sum, what binds at which sizes."""
        flop, machine = str(self.flop), self.machine.name
        what = self.described, self.prediction, self.operations.value, flop, machine, self.users
        return "\n".join([str(Page(*what)), *self._fit_error()])

    def in_full(self) -> str:
        """The formulas of each piece as they are, in the names of the sizes: up to some 100,000 characters."""
        lines = [f"flop = {self.flop}"]
        for one in self.prediction.pieces:
            lines.append(f"{self._title(one)}:")
            first, cycles = next(iter(one.resources.items()))
            rows = {"runs": one.counts.runs, f"{first} cycles": cycles}
            rows |= {f"bytes from {name}": size for name, size in one.bytes.items()}
            lines += [f"  {name} = {self._in_user_names(value)}" for name, value in rows.items()]
        values = self.prediction.values.items()
        lines += [f"{name} = {self._in_user_names(value)}" for name, value in values]
        return "\n".join([*lines, *self._fit_error()])

    def _fit_error(self) -> list[str]:
        """How far cycles are off that are made of those at some sizes."""
        if self.within < 0.0005:
            return []
        return [f"cycles are an estimate, within {self.within:.1%} at sizes that were tried"]

    def __repr__(self) -> str:
        sizes = ", ".join(self.users.values())
        return f"<cost {self.described.name}({sizes}) on {self.machine.name}: formulas>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _title(self, one: Predicted) -> str:
        piece = one.piece
        label = ""
        if piece.option is not None:
            number, at = piece.option
            label = f"{self.prediction.choices[number][at].label}: "
        tile = "×".join(self._in_user_names(extent) for _, extent in piece.tile)
        parts = (piece.stage, tile, piece.microkernel or "loops")
        return label + "  ".join(part for part in parts if part)

    def _in_user_names(self, expr: Expr) -> str:
        names = {name: Var(user) for name, user in self.users.items()}
        return format_expr(substitute(expr, names))

    def plot(
        self,
        path: str | Path | None = None,
        size: str | None = None,
        over: tuple[int, int] | None = None,
        **others: int,
    ) -> Figure:
        """Draw predicted seconds over a size, each point in the colour of what binds; needs the extra ``plot``.

        path    where to write the picture; None: nothing is written
        size    that the curve runs along; None: the only one that `others` leaves
        over    its first and its last value; None: the first 512 from 1 on
        others  values of the other sizes

        Raises TargetError without matplotlib, CallError for sizes that are missing, unknown, or out of range.
        """
        axis, values = along(self.described.sizes, self.users, size, over, others)
        own = {user: name for name, user in self.users.items()}
        fixed = {own.get(user, user): value for user, value in others.items()}
        points = curve(self.prediction, axis.name, fixed, values, self.machine.hertz)
        title = f"{self.described.name} on {self.machine.name}"
        return draw(title, self.users.get(axis.name, axis.name), points, path)


def formulas(
    described: Program, program: Program, hardware: Hardware, users: Mapping[str, str]
) -> Formulas:
    """What `program`, which computes what is `described`, costs at any sizes.

    users   what the user calls the sizes, by the program's names
    """
    machine, prediction = hardware.machine, predict(program, hardware, {})
    code = code_bytes(program, hardware.microkernels, machine, hardware.lanes)
    error = partial(_error, described, program, hardware, prediction)
    seconds = compile_seconds(code, machine)
    return Formulas(described, prediction, machine, users, code, seconds, error)


def _error(
    described: Program, program: Program, hardware: Hardware, prediction: Prediction
) -> float:
    """Return by which part the cycles of a prediction over open sizes are off at most, at sizes around the multiples of its tiles."""
    extents = (
        ix.literal_value(extent) for one in prediction.pieces for _, extent in one.piece.tile
    )
    tile = max((one for one in extents if one is not None), default=16)
    edges = (0, 1, tile - 1, tile, tile + 1, 3 * tile, 3 * tile + 5)
    values = {
        size.name: [
            size.at_or_above(int(edge)) for edge in (*edges, *samples(size, 4, LARGEST_TRIED))
        ]
        for size in described.sizes
    }
    number = min(map(len, values.values()), default=0)
    points = {name: np.array(each[:number]) for name, each in values.items()}
    allowed = np.ones(number, bool)
    for condition in described.assumptions:
        allowed &= evaluate_all(condition, points, number)
    calls = Calls({name: each[allowed] for name, each in points.items()}, int(allowed.sum()))
    cycles = SampledPrediction(prediction, calls).cycles
    off = 0.0
    for place, predicted in enumerate(cycles):
        at = {name: int(each[place]) for name, each in calls.values.items()}
        known = call_cycles(program, hardware, at, {}).cycles
        off = max(off, abs(float(predicted) - known) / known if known else float(predicted))
    return off


def _plus(a: Expr, b: Expr) -> Expr:
    return b if a == real(0.0) else a if b == real(0.0) else Binary("+", a, b)
