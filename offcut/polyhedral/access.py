"""Domains and access relations of a stage: which instances there are, which elements they touch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import islpy as isl

from offcut.core.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Var,
    children,
    dtype_of,
    loads,
    variables,
    walk,
)
from offcut.core.index import linear
from offcut.core.program import Buffer
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Stage
from offcut.errors import InternalError, PartitionError
from offcut.polyhedral.affine import Map, Space, coordinates
from offcut.polyhedral.witness import holds_at, smallest


@dataclass(frozen=True, slots=True)
class Access:
    """One read of a stage: ``instance -> element`` wherever its `where` branches take it.

    relation   None where the index is not quasi-affine
    """

    load: Load
    relation: isl.Map | None
    path: tuple[Expr, ...]


_KEPT = 512  # stages, with their sets and what was proved of them


@dataclass(frozen=True, slots=True, eq=False)
class StageSets:
    """A stage as sets over ``(axes, reduction axes)``; one for each stage and space."""

    stage: Stage
    names: tuple[str, ...]
    domain: isl.Set
    reads: tuple[Access, ...]
    write: isl.Map


def space_of(computation: Computation) -> Space:
    """The sizes and promises of a computation."""
    return Space(computation.sizes, computation.assumptions)


@lru_cache(_KEPT)
def stage_sets(space: Space, stage: Stage) -> StageSets:
    """The iteration domain and the access relations of `stage`."""
    axes = (*stage.axes, *stage.reduce_axes)
    names = tuple(axis.name for axis in axes)
    at = coordinates(names)
    bounds = []
    for k, axis in enumerate(axes):
        extent = space.expr(axis.extent, {})
        assert extent is not None
        bounds.append(f"0 <= x{k} < {extent}")
    domain = space.set(names, bounds)
    reads = []
    for load, path in loads(stage.value):
        parts = [space.expr(part, at) for part in load.index]
        conditions = [space.condition(condition, at) for condition in path]
        relation = None
        if all(part is not None for part in parts):
            known = [c for c in conditions if c is not None]
            where = f" : {' and '.join(known)}" if known else ""
            relation = _map(space, len(names), [p for p in parts if p is not None], where)
            relation = relation.intersect_domain(domain)
        reads.append(Access(load, relation, path))
    write = _map(space, len(names), [f"x{k}" for k in range(len(stage.axes))], "")
    return StageSets(stage, names, domain, tuple(reads), write.intersect_domain(domain))


def _map(space: Space, rank: int, parts: list[str], where: str) -> isl.Map:
    xs = ", ".join(f"x{k}" for k in range(rank))
    return Map(f"{space.parameters}{{ [{xs}] -> [{', '.join(parts)}]{where} }}")


def check_in_bounds(computation: Computation, space: Space, sets: StageSets) -> None:
    """Refuse `sets` unless every read lies inside its tensor, for all sizes; where an index is read
    from memory, a call asks.

    Theorem: ``relation(domain)`` is a subset of ``{ [e] : 0 <= e < shape }``.
    """
    if not _reads_inside(sets, space, computation.buffers):
        _refuse_outside(computation, space, sets)


@lru_cache(_KEPT)
def _reads_inside(sets: StageSets, space: Space, buffers: tuple[Buffer, ...]) -> bool:
    by_name = {buffer.name: buffer for buffer in buffers}
    return all(
        access.relation is not None
        and access.relation.range().is_subset(_box(space, by_name[access.load.buffer]))
        for access in sets.reads
        if not access.load.asks_memory
    )


def _box(space: Space, buffer: Buffer) -> isl.Set:
    """``{ [e] : 0 <= e < shape }``."""
    elements = [f"e{k}" for k in range(len(buffer.shape))]
    inside = []
    for element, size in zip(elements, buffer.shape, strict=True):
        extent = space.expr(size, {})
        assert extent is not None
        inside.append(f"0 <= {element} < {extent}")
    return isl.Set(
        f"{space.parameters}{{ [{', '.join(elements)}] : {' and '.join(inside) or 'true'} }}"
    )


def _refuse_outside(computation: Computation, space: Space, sets: StageSets) -> None:
    labels = {buffer: label for label, buffer in computation.labels}
    buffers = {buffer.name: buffer for buffer in computation.buffers}
    for access in sets.reads:
        load, text = access.load, format_expr(access.load)
        at = f"{sets.stage.label}, reading {text}"
        if access.load.asks_memory:
            continue
        if access.relation is None:
            raise PartitionError(
                "represent",
                f"cannot bound the read {text}",
                at=at,
                because="its index is not quasi-affine: isl decides sums, integer multiples, "
                "and // and % by positive constants",
            )
        outside = access.relation.subtract_range(_box(space, buffers[load.buffer]))
        found = smallest(outside.wrap().flatten())
        if found is not None:
            sizes, point = found
            rank, known = len(sets.names), coordinates(sets.names)
            names = (*(size.name for size in space.sizes), *sets.names)
            values = dict(zip(names, (*sizes, *point), strict=False))
            others = (c for c in access.path if space.condition(c, known) is None)
            told = "" if all(holds_at(c, values) for c in others) else "as far as sets tell, "
            raise PartitionError(
                "represent",
                f"cannot read {text} out of bounds",
                at=at,
                because=f"{told}{_describe(computation, sets.names, sizes, point[:rank])}"
                f" reads {labels[load.buffer]}[{', '.join(map(str, point[rank:]))}] of a tensor "
                f"of shape ({', '.join(map(format_expr, buffers[load.buffer].shape))})",
                help=("where(condition, …) accesses a branch only where its condition holds",),
            )


def check_extents(computation: Computation, space: Space, stage: Stage) -> None:
    """Refuse `stage` unless every extent is at least 0, at all sizes."""
    for axis in (*stage.axes, *stage.reduce_axes):
        found = _negative(space, axis.extent)
        if found is not None:
            given = ", ".join(
                f"{user} = {value}"
                for (user, _), value in zip(computation.size_names, found[0], strict=True)
            )
            raise PartitionError(
                "represent",
                f"cannot take the extent {format_expr(axis.extent)}",
                at=f"axis {stage.label}.{axis.label}",
                because=f"it is negative with {given}",
                help=("give the size a larger min", f"assume({format_expr(axis.extent)} >= 0)"),
            )


@lru_cache(_KEPT)
def _negative(space: Space, extent: Expr) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The smallest sizes at which an extent is negative."""
    text = space.expr(extent, {})
    assert text is not None
    return smallest(space.set((), [f"{text} < 0"]))


INDEX_LIMIT = 2**62  # of every intermediate value: the generated code computes in int64


def check_fits(computation: Computation, stage: Stage) -> None:
    """Refuse `stage` unless all its index arithmetic stays within 2^62, for all sizes.

    Theorem: the interval of every subexpression, over the facts of the sizes and the extents of the
    axes, lies in ``[-2^62, 2^62]``; so int64 computes what isl decided over the integers.
    """
    ranges = {size.name: (size.min, size.max) for size in computation.sizes}
    for axis in (*stage.axes, *stage.reduce_axes):
        low, high = interval(axis.extent, ranges, stage.label)
        ranges[axis.name] = (min(0, low), max(0, high - 1))
    for node in walk(stage.value):
        if dtype_of(node) == "index":
            interval(node, ranges, stage.label)


def interval(expr: Expr, ranges: Mapping[str, tuple[int, int]], at: str) -> tuple[int, int]:
    """Bounds of an index expression over the ranges of its names; refused where int64 may not hold it."""
    match expr:
        case Const(value, _):
            low = high = int(value)
        case Var(name):
            low, high = ranges[name]
        case Cast(a, _):
            high = 2**31 if dtype_of(a) != "int64" else INDEX_LIMIT // 2
            low = -high
        case Binary(op, a, b):
            x, y = interval(a, ranges, at), interval(b, ranges, at)
            if op == "%":
                low, high = 0, y[1]
            else:
                ends = [_APPLY[op](p, q) for p in x for q in y]
                low, high = min(ends), max(ends)
        case _:
            below = [interval(child, ranges, at) for child in children(expr)]
            high = max((max(abs(low), abs(high)) for low, high in below), default=0)
            low = -high
    if max(abs(low), abs(high)) > INDEX_LIMIT:
        raise PartitionError(
            "represent",
            f"cannot compute {format_expr(expr)} in int64",
            at=at,
            because=f"it reaches {high if high > INDEX_LIMIT else low}, past 2**62",
            help=("give the sizes a smaller max", "use smaller factors"),
        )
    return low, high


_APPLY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": lambda a, b: a // b if b else 0,
    "min": min,
    "max": max,
}


@lru_cache(_KEPT)
def check_parallel(sets: StageSets) -> None:
    """Refuse a stage whose instances at different points write one element.

    Theorem: ``write^-1 . write`` relates only instances that agree on every axis, so that all
    dependences of a reduction run along its reduction axes, and the axes are parallel.
    """
    same = sets.write.apply_range(sets.write.reverse())
    agreeing = same
    for k in range(len(sets.stage.axes)):
        agreeing = agreeing.equate(isl.dim_type.in_, k, isl.dim_type.out, k)
    if not same.is_subset(agreeing):
        raise InternalError(f"{sets.stage.label} writes one element at two points")


def _describe(
    computation: Computation, names: tuple[str, ...], sizes: tuple[int, ...], point: tuple[int, ...]
) -> str:
    given = [
        f"{user} = {value}" for (user, _), value in zip(computation.size_names, sizes, strict=True)
    ]
    at = ", ".join(f"{name} = {value}" for name, value in zip(names, point, strict=True))
    return (f"with {', '.join(given)}, " if given else "") + (f"the instance {at}" if at else "it")


def coefficient(part: Expr, axis: str) -> int | None:
    """The factor of `axis` in an affine index; None where it occurs inside ``//``, ``%``, min, max."""
    total = 0
    for atom, factor in linear(part).terms:
        if atom == Var(axis):
            total += factor
        elif axis in variables(atom):
            return None
    return total
