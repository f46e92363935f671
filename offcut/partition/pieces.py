"""Pieces, and the partition that they make up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.core import interpreter
from offcut.core.computation import Computation, Stage
from offcut.core.expr import Expr
from offcut.core.printer import format_expr
from offcut.core.program import Form, Kind, Program, Role
from offcut.partition.prove import Certificate, interval_text
from offcut.partition.strategies import Segment
from offcut.polyhedral import Set, Space


@dataclass(frozen=True)
class Piece:
    """A part of an iteration domain that is executed in one way.

    segments     (axis, segment) of every axis that is cut
    microkernel  the one that covers its tiles; None where plain vector loops do
    """

    space: Space
    stage: Stage
    segments: tuple[tuple[str, Segment], ...]
    microkernel: str | None

    @property
    def roles(self) -> dict[str, Role]:
        """Body or tail, by axis."""
        return {self._label(axis): segment.role for axis, segment in self.segments}

    @property
    def role(self) -> str:
        """``body``; ``tail`` where one axis is a tail; ``corner`` where several are."""
        tails = [segment for _, segment in self.segments if segment.role is Role.TAIL]
        return ("body", "tail", "corner")[min(len(tails), 2)]

    @property
    def tile(self) -> dict[str, int]:
        """The largest extent of its tiles, by axis."""
        return {self._label(axis): segment.heights[1] for axis, segment in self.segments}

    @property
    def form(self) -> Form:
        """How its tiles are executed, the most particular of its axes."""
        forms = {segment.form for _, segment in self.segments}
        return next((f for f in (Form.SHIFT, Form.PAD, Form.MASK) if f in forms), Form.FULL)

    @property
    def ranges(self) -> dict[str, tuple[Expr, Expr]]:
        """``lo, hi`` of the owned coordinates, by axis; in the sizes and in bounded values."""
        return {self._label(axis): segment.owned for axis, segment in self.segments}

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the coordinates of `owned` and `executed`, by position."""
        return tuple(a.label for a in (*self.stage.axes, *self.stage.reduce_axes))

    @property
    def owned(self) -> Set:
        """The instances that this piece answers for; the pieces' sets are disjoint and covering."""
        return self._instances({axis: segment.owned for axis, segment in self.segments})

    @property
    def executed(self) -> Set:
        """What actually runs: repeated and padded instances too."""
        return self._instances({axis: segment.executed for axis, segment in self.segments})

    def _label(self, name: str) -> str:
        axes = (*self.stage.axes, *self.stage.reduce_axes)
        return next(axis.label for axis in axes if axis.name == name)

    def _instances(self, bounds: Mapping[str, tuple[Expr, Expr]]) -> Set:
        cut = dict(self.segments)
        axes = (*self.stage.axes, *self.stage.reduce_axes)
        conditions = []
        for position, axis in enumerate(axes):
            x = f"x{position}"
            if axis.name in cut:
                text = interval_text(self.space, cut[axis.name], bounds[axis.name], x)
                conditions.append(text)
            else:
                conditions.append(f"0 <= {x} < {self.space.expr(axis.extent, {})}")
        return self.space.set([axis.name for axis in axes], conditions)

    def __str__(self) -> str:
        parts = [
            f"{axis} {role.value} {format_expr(self.ranges[axis][0])}:"
            f"{format_expr(self.ranges[axis][1])} by {self.tile[axis]}"
            for axis, role in self.roles.items()
        ]
        return f"{self.stage.label} {self.role}: {', '.join(parts)}; {self.microkernel or 'loops'}"


@dataclass(frozen=True)
class Partition:
    """A computation cut into pieces, as a loop program, with its proof.

    pieces   every part of every stage's domain
    loops    the loop program; ``str(partition)`` is its text
    """

    computation: Computation
    pieces: tuple[Piece, ...]
    loops: Program
    certificate: Certificate

    def prove(self) -> Certificate:
        """What isl proved when the partition was made, and the emitted loops read back into sets.

        Raises PartitionError with a witness where a theorem fails.
        """
        from offcut.partition.verify import check_program

        return Certificate(
            (*self.certificate.theorems, *check_program(self.computation, self.loops))
        )

    def run(self, inputs: Mapping[str, Any], **sizes: int) -> Any:
        """The result of the reference interpreter on numpy arrays, by the users' names.

        Raises CallError where an input or a size does not fit.
        """
        buffers, names = dict(self.computation.labels), dict(self.computation.size_names)
        results = interpreter.run(
            self.loops,
            {buffers.get(name, name): value for name, value in inputs.items()},
            {names.get(name, name): value for name, value in sizes.items()},
        )
        outputs = [b.name for b in self.loops.buffers if b.kind is Kind.OUTPUT]
        return results[outputs[0]] if len(outputs) == 1 else tuple(results[o] for o in outputs)

    def plot(self, path: str | Path | None = None, **sizes: int) -> Any:
        """Draw the tiles of the first two cut axes at these sizes; needs the extra ``plot``.

        path   where to write a picture; None: only the figure is returned
        """
        from offcut.partition.plot import plot

        return plot(self, path, sizes)

    def __str__(self) -> str:
        return str(self.loops)
