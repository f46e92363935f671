"""Ways to lay a microkernel over a statement: which of its axes runs along which iterator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.expr import Expr, Load
from offcut.core.memo import memo
from offcut.describe.computation import Stage
from offcut.describe.microkernel import Microkernel
from offcut.partition.judge.moves import Movement, is_linear
from offcut.partition.judge.terms import pairings


@dataclass(frozen=True, slots=True)
class Match:
    """A microkernel laid over a statement.

    axes      (axis of the microkernel, iterator of the statement); None: the statement has no such
              axis, which has one value
    operands  what the statement reads for each operand of the microkernel, by its name
    """

    microkernel: Microkernel
    axes: tuple[tuple[str, str | None], ...]
    operands: tuple[tuple[str, Load], ...]

    def axis(self, name: str) -> str | None:
        """Return the iterator of an axis of the microkernel."""
        for axis, iterator in self.axes:
            if axis == name:
                return iterator
        return None

    def operand(self, name: str) -> Load:
        """Return what the statement reads for the microkernel's operand `name`."""
        return dict(self.operands)[name]

    @property
    def rows(self) -> str | None:
        """Return the iterator of the axis before the last one of the microkernel's result."""
        return self.axis(self.microkernel.rows)

    @property
    def columns(self) -> str | None:
        """Return the iterator of the last axis of the microkernel's result."""
        return self.axis(self.microkernel.columns)

    @property
    def depth(self) -> str:
        """Return the innermost loop of the sum; "" where the microkernel has none."""
        return self.axis(self.microkernel.depth) or ""

    @property
    def by_rows(self) -> Load:
        """What the statement reads for the operand that moves along the microkernel's rows."""
        return self.operand(self.microkernel.operand_along(self.microkernel.rows))

    @property
    def by_columns(self) -> Load:
        """What the statement reads for the operand that moves along the microkernel's columns."""
        return self.operand(self.microkernel.operand_along(self.microkernel.columns))

    def axes_in_function(self, lead: Stage) -> tuple[str, ...]:
        """Return the axes of a sum, of known extents, that run inside of the microkernel's functions around its depth."""
        others = [axis for axis in lead.reduce_axes if axis.name != self.depth]
        inside: list[str] = []
        for axis in others[::-1][: self.microkernel.turns]:
            if not ix.literal_value(axis.extent):
                break
            inside.insert(0, axis.name)
        return tuple(inside)


@memo(1 << 10)
def matches(
    microkernel: Microkernel,
    value: Expr,
    reducer: str | None,
    axes: tuple[str, ...],
    reduce_axes: tuple[str, ...],
) -> tuple[Match, ...]:
    """Return every way to lay `microkernel` over ``C[axes] reducer= value``, the preferred ones first.

    Preferred: the last axis of the microkernel on the innermost axis, the one before it on the next that
    fits, its reductions on the innermost ones.
    """
    if microkernel.reducer != reducer:
        return ()
    names = (*microkernel.axes, *microkernel.reduce_axes)
    candidates = []
    for pairing in pairings(microkernel, value):
        movements = [
            Movement(*pair, names, (*axes, *reduce_axes), microkernel.repeated_axes(pair[0]))
            for pair in pairing
        ]
        every = [one.likely for one in movements]
        candidates.append((pairing, movements, frozenset.intersection(*every) if every else None))
    if not candidates:
        return ()
    ways: list[Match] = []
    for own in _choices(microkernel.axes, axes[::-1]):
        near = [one for one in candidates if one[2] is None or own.items() <= one[2]]
        for summed in _assignments(microkernel.reduce_axes, reduce_axes[::-1]) if near else ():
            mapping = {**own, **summed}
            for pairing, movements, likely in near:
                if likely is not None and not summed.items() <= likely:
                    continue
                if is_linear(movements, mapping):
                    loads = tuple(
                        (m.buffer, t)
                        for m, t in pairing
                        if isinstance(t, Load) and isinstance(m, Load)
                    )
                    ways.append(Match(microkernel, tuple(mapping.items()), loads))
    return tuple(ways)


def all_matches(stage: Stage, microkernels: Sequence[Microkernel]) -> Iterator[Match]:
    """Yield every way in which a microkernel computes what `stage` does, the preferred ones first."""
    axes = tuple([axis.name for axis in stage.axes])
    reduced = tuple([axis.name for axis in stage.reduce_axes])
    for kernel in microkernels:
        yield from matches(kernel, stage.value, stage.reducer, axes, reduced)


@memo(1 << 6)
def _choices(kernel: tuple[str, ...], inner: tuple[str, ...]) -> list[dict[str, str | None]]:
    """Return iterators of the axes of a result, the last axis on the innermost one first. An axis is left out where
    those behind it are on the innermost axes in their order, or left out too.

    inner  the axes of the statement, innermost first
    """

    def choices(
        names: Sequence[str], before: tuple[str | None, ...]
    ) -> Iterator[tuple[str | None, ...]]:
        if not names:
            yield before
            return
        free = [name for name in inner if name not in before]
        ordered = before == inner[: len(before)]
        left_out: list[str | None] = [None] if ordered or not any(before) else []
        for name in (*free, *left_out):
            yield from choices(names[1:], (*before, name))

    backwards = kernel[::-1]
    return [
        dict(reversed(list(zip(backwards, choice, strict=True))))
        for choice in choices(backwards, ())
    ]


@memo(1 << 6)
def _assignments(kernel: tuple[str, ...], inner: tuple[str, ...]) -> list[dict[str, str | None]]:
    """Return loops of the reductions of a microkernel, each one of its own, the last on the innermost one first."""
    if not kernel:
        return [{}]
    return [
        {**others, kernel[-1]: name}
        for name in inner
        for others in _assignments(kernel[:-1], tuple(other for other in inner if other != name))
    ]
