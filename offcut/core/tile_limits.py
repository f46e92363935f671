"""The conditions of a tile: those that limit an axis, and those that are asked of each instance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.expr import Binary, Compare, Const, Expr, Load, Logic, Var, variables, walk
from offcut.core.program import Tile, TileAxis


def limits(tile: Tile, axis: str) -> Iterator[Expr]:
    """Yield the `hi` of every condition ``axis < hi`` of a tile, equal for all its instances."""
    for condition in _conditions(tile.where):
        if isinstance(condition, Compare) and _limit(tile, condition) == axis:
            yield condition.b


def residual_conditions(tile: Tile) -> tuple[Expr, ...]:
    """Return the conditions of a tile that are no `limits` of an axis."""
    return tuple(c for c in _conditions(tile.where) if _limit(tile, c) is None)


def normalize_start(tile: Tile) -> Tile:
    """`tile` starting at the least instance that its conditions allow: a condition ``axis >= lo`` is a start."""
    floors: dict[str, list[Expr]] = {}
    left: list[Expr] = []
    for condition in _conditions(tile.where):
        match condition:
            case Compare(">=", Var(name), lo) if _limit(tile, replace(condition, op="<")):
                floors.setdefault(name, []).append(lo)
            case _:
                left.append(condition)
    if not floors:
        return tile
    axes: list[TileAxis] = []
    for axis in tile.axes:
        if axis.iter in floors:
            left.append(Compare("<", Var(axis.iter), ix.add(axis.start, axis.extent)))
            axis = replace(axis, start=reduce(ix.maximum, floors[axis.iter], axis.start))
        axes.append(axis)
    return replace(tile, axes=tuple(axes), where=conjunction(left))


def at_most(extent: Expr) -> int | None:
    """Return a literal that an index expression does not exceed, as its form shows; None where it shows none."""
    form = ix.to_linear(extent)
    if not form.terms:
        return form.const
    bounds = []
    for atom, factor in form.terms:
        match atom, factor:
            case (Binary("min", a, b), 1) | (Binary("max", a, b), -1):
                rest = ix.sub(extent, atom) if factor == 1 else ix.add(extent, atom)
                for side in (a, b):
                    bounds.append(
                        at_most(ix.add(rest, side) if factor == 1 else ix.sub(rest, side))
                    )
            case (Binary("%", _, Const(by, _)), _) if factor > 0:
                most = ix.sub(int(by) - 1, atom)
                bounds.append(at_most(ix.add(extent, ix.mul(factor, most))))
    return min((value for value in bounds if value is not None), default=None)


def _limit(tile: Tile, condition: Expr) -> str | None:
    axes = {axis.iter for axis in tile.axes}
    match condition:
        case Compare("<", Var(name), hi) if name in axes and not variables(hi) & axes:
            plain = not any(isinstance(node, Load) for node in walk(hi))
            return name if plain else None
    return None


def _conditions(where: Expr | None) -> Iterator[Expr]:
    match where:
        case None:
            return
        case Logic("and", args):
            for arg in args:
                yield from _conditions(arg)
        case _:
            yield where
