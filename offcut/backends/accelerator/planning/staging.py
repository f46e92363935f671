"""Copies on the chip of what a nest reads: which elements, padded how, and by which index they are read.

An element that is read at sums of loops is copied along these sums, so that windows that overlap share
their elements::

    where(2*y + r - 1 >= 0 and 2*y + r - 1 < h, X[2*y + r - 1], 0)      read at 2*y + r - 1
    X_in[y_] = where(y_ - 1 >= 0 and y_ - 1 < h, X[y_ - 1], 0)          copied along y_ = 2*y + r

What a load cannot do, a step between words or sums that several axes share, the host does when it packs
the operand: the copy is then of an array in main memory that it has filled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.backends.accelerator.isa import MemorySpace
from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import Compare, Const, Expr, Load, Select, Var, reads_memory, variables
from offcut.describe.computation import Names, StageAxis


@dataclass(frozen=True, slots=True)
class Element:
    """What is read of an array: ``load`` where all `conditions` hold, else `fill`."""

    load: Load
    conditions: tuple[Expr, ...] = ()
    fill: int = 0

    @property
    def value(self) -> Expr:
        """The expression."""
        if not self.conditions:
            return self.load
        return Select(conjunction(self.conditions), self.load, Const(self.fill, self.load.dtype))


@dataclass(frozen=True, slots=True)
class Staged:
    """``name[axes] = element``, which a nest reads at `index`, sums of its own loops.

    origin   the element by the loops of the nest
    by_host  whether the host fills an array of these elements first, which is copied then
    """

    name: str
    axes: tuple[StageAxis, ...]
    element: Element
    index: tuple[Expr, ...]
    place: MemorySpace
    origin: Element
    by_host: bool = False

    @property
    def point(self) -> tuple[Expr, ...]:
        """The element that an instance of the copy writes."""
        return tuple(Var(axis.name) for axis in self.axes)

    def along(self, axis: str) -> int | None:
        """Which of its axes the loop `axis` of the nest is, alone and by steps of one."""
        return next((at for at, part in enumerate(self.index) if part == Var(axis)), None)


def stage_element(
    name: str,
    element: Element,
    axes: Sequence[StageAxis],
    place: MemorySpace,
    lanes: Sequence[str],
    names: Names,
) -> Staged:
    """The copy of `element`, read in a nest over `axes`, in words whose lanes run along `lanes`."""
    extents = {axis.name: axis.extent for axis in axes}
    window = _along_sums(name, element, extents, place, names)
    if window is None or any(a in variables_of(element) and window.along(a) is None for a in lanes):
        window = _along_loops(name, element, extents, place)
    loadable = _is_loadable(window, lanes) and (
        element.fill == 0 or place is MemorySpace.ACCUMULATORS
    )
    return replace(window, by_host=not loadable)


def is_laid_by_loops(element: Element, axes: Sequence[StageAxis]) -> bool:
    """Return whether a copy of `element` has an axis for each loop: indices of the array share loops, or are no sums of them."""
    extents = {axis.name: axis.extent for axis in axes}
    return _along_sums("", element, extents, MemorySpace.INPUTS, Names(extents)) is None


def variables_of(element: Element) -> frozenset[str]:
    """The loops and sizes that say which element it is."""
    parts = (*element.load.index, *element.conditions)
    return frozenset().union(*map(variables, parts)) if parts else frozenset()


def _along_loops(
    name: str, element: Element, extents: Mapping[str, Expr], place: MemorySpace
) -> Staged:
    """A copy with an axis for each loop."""
    used = variables_of(element)
    axes = tuple(StageAxis(a, extent, a) for a, extent in extents.items() if a in used)
    return Staged(name, axes, element, tuple(Var(a.name) for a in axes), place, element)


def _along_sums(
    name: str, element: Element, extents: Mapping[str, Expr], place: MemorySpace, names: Names
) -> Staged | None:
    """A copy with an axis for each axis of the array; None where these share loops."""
    axes: list[StageAxis] = []
    index: list[Expr] = []
    own: list[Expr] = []
    sums: list[tuple[dict[str, int], Expr]] = []
    seen: set[str] = set()
    for part in element.load.index:
        steps = _steps(part, extents)
        if steps is None or seen & steps.keys():
            return None
        seen |= steps.keys()
        if not steps:
            own.append(part)
            continue
        if len(steps) == 1:
            ((loop, _),) = steps.items()
            axes.append(StageAxis(loop, extents[loop], loop))
            index.append(Var(loop))
            own.append(part)
            continue
        total = _total(steps)
        first = ix.add(*(ix.mul(k, ix.sub(extents[a], 1)) for a, k in steps.items() if k < 0))
        last = ix.add(*(ix.mul(k, ix.sub(extents[a], 1)) for a, k in steps.items() if k > 0))
        axis = names.fresh(f"{next(iter(steps))}_")
        axes.append(StageAxis(axis, ix.add(ix.sub(last, first), 1), axis))
        index.append(ix.sub(total, first))
        own.append(ix.add(ix.sub(part, total), Var(axis), first))
        sums.append((steps, ix.add(Var(axis), first)))
    conditions = tuple(_over(one, sums) for one in element.conditions)
    loops = {loop for steps, _ in sums for loop in steps}
    if any(one is None or variables(one) & loops for one in conditions):
        return None
    load = Load(element.load.buffer, tuple(own), element.load.dtype)
    known = tuple(one for one in conditions if one is not None)
    copied = Element(load, known, element.fill)
    if variables_of(copied) & extents.keys() - {axis.name for axis in axes}:
        return None
    return Staged(name, tuple(axes), copied, tuple(index), place, element)


def _steps(part: Expr, extents: Mapping[str, Expr]) -> dict[str, int] | None:
    """By how much an index moves with each loop; None where it is no sum of their multiples."""
    factors: dict[str, int] = {}
    for atom, factor in ix.to_linear(part).terms:
        if isinstance(atom, Var) and atom.name in extents:
            factors[atom.name] = factor
        elif variables(atom) & extents.keys():
            return None
    return factors


def _total(steps: Mapping[str, int]) -> Expr:
    return ix.add(*(ix.mul(factor, Var(loop)) for loop, factor in steps.items()))


def _over(condition: Expr, sums: Sequence[tuple[dict[str, int], Expr]]) -> Expr | None:
    """A comparison of indices with each sum of loops named; None for what is no comparison."""
    if not isinstance(condition, Compare):
        return None
    return Compare(condition.op, _in_sums(condition.a, sums), _in_sums(condition.b, sums))


def _in_sums(part: Expr, sums: Sequence[tuple[dict[str, int], Expr]]) -> Expr:
    for steps, named in sums:
        loop, factor = next(iter(steps.items()))
        terms = {a.name: k for a, k in ix.to_linear(part).terms if isinstance(a, Var)}
        times, rest = divmod(terms.get(loop, 0), factor)
        if times and not rest:
            part = ix.add(ix.sub(part, ix.mul(times, _total(steps))), ix.mul(times, named))
    return part


def _is_loadable(copy: Staged, lanes: Sequence[str]) -> bool:
    """Whether a load finds the words of the copy in an array whose elements lie in such words: each
    axis of the array is one of the copy's by steps of one, lanes begin where words do.
    """
    extents = {axis.name: axis.extent for axis in copy.axes}
    seen: set[str] = set()
    for part in copy.element.load.index:
        steps = _steps(part, extents)
        if steps is None or len(steps) > 1 or seen & steps.keys():
            return False
        seen |= steps.keys()
        for axis, factor in steps.items():
            if factor != 1 or (axis in lanes and part != Var(axis)):
                return False
    bounded = all(_is_bound(one, extents) for one in copy.element.conditions)
    return bounded and not any(variables(one) & set(lanes) for one in copy.element.conditions)


def _is_bound(condition: Expr, extents: Mapping[str, Expr]) -> bool:
    """Whether a condition bounds one axis from one side."""
    if not isinstance(condition, Compare) or condition.op not in ("<", "<=", ">", ">="):
        return False
    steps = _steps(ix.sub(condition.a, condition.b), extents)
    return steps is not None and len(steps) == 1 and abs(next(iter(steps.values()))) == 1


def element_of(expr: Expr) -> Element | None:
    """An expression that is an element of an array, or a constant where conditions fail; None for any other."""
    match expr:
        case Load():
            return None if expr.asks_memory else Element(expr)
        case Select(condition, Load() as load, Const(value, _)) if not load.asks_memory:
            parts = tuple(conjuncts(condition))
            if not any(reads_memory(part) for part in parts):
                return Element(load, parts, int(value))
    return None
