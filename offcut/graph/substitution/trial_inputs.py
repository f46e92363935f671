"""Sizes and elements that a rule of substitution is tried at, as `offcut.graph.substitution.rules` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from itertools import product as pairs
from math import isfinite, prod
from typing import Any

import numpy as np

from offcut.core.dtypes import finite_range, numpy_dtype
from offcut.core.expr import Const, Expr, children
from offcut.core.program import Size
from offcut.describe.request import Array
from offcut.graph.graph import Argument, Graph, Value
from offcut.graph.sizes.extent_values import Numbers

SMALL = 5
"""The smallest values of a size that a rule is tried at in all combinations, as far as `TRIALS` goes."""


TRIALS = 16
"""Sets of sizes that a rule is tried at, the smallest first; besides, some in which no size is 0."""


LONG = 17
"""A size that is longer than a vector."""


ROOM = 1 << 12
"""Elements of a value at most, where a size is a number that a graph names."""


FAR = 20.0
"""How far from 0 elements are in every other trial."""


LARGE = 1e3
"""A magnitude of which the exponential function is no number that float32 or float64 has."""


HUGE = 1e6
"""Another, which float16 has not, and whose sixth power float32 has not."""


OUTSIDE = 0.25
"""The part of the elements that are infinite or NaN where some are."""


Drawn = Callable[[np.random.Generator, list[int]], Array]


def trial_sizes(sizes: tuple[Size, ...]) -> list[dict[str, int]]:
    """Sets of sizes, the least sum first: the smallest, some in which none is 0, and for each size one in which it is longer than a
    vector.
    """
    first = [[*islice(_smallest_allowed(size, size.min), SMALL)] for size in sizes]
    some = [
        [*islice(_smallest_allowed(size, max(size.min, 1)), SMALL)] or few
        for size, few in zip(sizes, first, strict=True)
    ]
    far = [
        next(iter(_smallest_allowed(size, LONG)), few[-1])
        for size, few in zip(sizes, first, strict=True)
    ]
    vectors = sorted(pairs(*first), key=lambda values: (sum(values), values))[:TRIALS]
    vectors.append(tuple(few[0] for few in some))
    for turn in range(3):
        vectors.append(tuple(few[(at + turn) % min(len(few), 3)] for at, few in enumerate(some)))
    for at, long in enumerate(far):
        vectors.append(tuple(long if n == at else few[0] for n, few in enumerate(some)))
    every = sorted(dict.fromkeys(vectors), key=lambda values: (sum(values), values))
    return [{size.name: n for size, n in zip(sizes, values, strict=True)} for values in every]


def sizes_at_named_numbers(
    before: Graph, after: Graph, known_sizes: list[dict[str, int]]
) -> list[dict[str, int]]:
    """Sets of sizes with one that is a number which the graphs name, next to that, or the greatest of its size, the others as small as can
    be, where no value has more than `ROOM` elements; without what is tried.
    """
    graphs = (before, after)
    every = [
        n for graph in graphs for n in (*named_numbers(graph), *_lengths(graph)) if isfinite(n)
    ]
    near = {int(n) + off for n in every for off in (-1, 0, 1)}
    shapes = {value.shape for graph in graphs for value in graph.values.values()}
    least = {size.name: next(iter(_smallest_allowed(size, 1)), size.min) for size in before.sizes}
    sizes_list = []
    for size in before.sizes:
        known = {sizes[size.name] for sizes in known_sizes if all(sizes.values())} | {0}
        last = {next(iter(_smallest_allowed(size, size.max - size.multiple_of + 1)), size.min)}
        for n in (near | last) - known:
            sizes = least | {size.name: n}
            if n not in _smallest_allowed(size, n):
                continue
            extent = Numbers(sizes)
            if all(prod(extent(axis) for axis in shape) <= ROOM for shape in shapes):
                sizes_list.append(sizes)
    return sorted(sizes_list, key=lambda sizes: sum(sizes.values()))


def _lengths(graph: Graph) -> Iterator[int]:
    """Yield the numbers that stand in extents of a graph."""

    def within(expr: Expr) -> Iterator[int]:
        if isinstance(expr, Const):
            yield int(expr.value)
        for part in children(expr):
            yield from within(part)

    for value in graph.values.values():
        for extent in value.shape:
            yield from within(extent)


def _smallest_allowed(size: Size, least: int) -> range:
    by = size.multiple_of
    return range(-(-max(least, size.min) // by) * by, size.max + 1, by)


def named_numbers(graph: Graph) -> Iterator[float]:
    """Yield the numbers that operators of a graph are called with."""

    def within(argument: Argument) -> Iterator[float]:
        if isinstance(argument, (int, float)) and not isinstance(argument, bool):
            yield argument
        elif isinstance(argument, tuple):
            for part in argument:
                yield from within(part)

    for node in graph.nodes:
        yield from within((*node.arguments, *(argument for _, argument in node.options)))


def floats_by_distance(number: int) -> Drawn:
    """Floats near 0 in even trials, further away in odd ones."""
    most = FAR if number % 2 else 2.0
    return lambda generator, shape: generator.uniform(-most, most, shape)


def near_named_numbers(
    literals: list[float], turn: int, generator: np.random.Generator, shape: list[int]
) -> Array:
    """0, halves, small integers, of which several are equal, and numbers that the graphs name, with what is next to them: all of these in an
    array that has room for them, else in turn in even trials.
    """
    near = [by * float(n) + off for off in (0, 0.5) for by in (1, -1, 2, -2) for n in literals]
    every = np.array([*near, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0])
    elements = np.asarray(generator.choice(every, shape))
    if elements.size >= every.size:
        elements.flat[generator.permutation(elements.size)[: every.size]] = every
    elif turn % 2 == 0:
        elements.flat[:] = np.roll(every, -(turn // 2) * elements.size)[: elements.size]
    return elements


def large_floats(generator: np.random.Generator, shape: list[int]) -> Array:
    """Numbers near 0, about half of them larger by `LARGE`."""
    return np.asarray(generator.uniform(-2.0, 2.0, shape) * generator.choice([1.0, LARGE], shape))


def huge_floats(generator: np.random.Generator, shape: list[int]) -> Array:
    """What may leave the numbers of a narrow type on the way."""
    return np.asarray(
        generator.uniform(-2.0, 2.0, shape) * generator.choice([1.0, LARGE, HUGE], shape)
    )


def _along_one(generator: np.random.Generator, shape: list[int]) -> list[int]:
    """Return the shape of an array that varies along one axis."""
    axis = generator.integers(max(len(shape), 1))
    return [n if place == axis else 1 for place, n in enumerate(shape)]


def equal_along_axes(generator: np.random.Generator, shape: list[int]) -> Array:
    """Numbers far from 0, in about every other array equal along all axes but one."""
    varied = _along_one(generator, shape) if generator.integers(2) else shape
    return np.broadcast_to(generator.uniform(-FAR, FAR, varied), shape)


def small_floats(scales: list[float], generator: np.random.Generator, shape: list[int]) -> Array:
    """Numbers near 0, of one magnitude at each place of an axis."""
    return np.asarray(
        generator.uniform(-2.0, 2.0, shape) * generator.choice(scales, _along_one(generator, shape))
    )


def with_nonfinite(generator: np.random.Generator, shape: list[int]) -> Array:
    """Infinities, NaN or both among numbers near 0."""
    near = generator.uniform(-2.0, 2.0, shape)
    every = [np.inf, -np.inf, np.nan]
    most = generator.choice(generator.choice([every, *([one] * 3 for one in every)]), shape)
    return np.where(generator.uniform(size=shape) < OUTSIDE, most, near)


def infinite_first_row(generator: np.random.Generator, shape: list[int]) -> Array:
    """Numbers near 0, and all elements of the first row infinite."""
    elements = np.asarray(generator.uniform(-2.0, 2.0, shape))
    elements[slice(1) if shape else ...] = generator.choice([np.inf, -np.inf])
    return elements


def _integers(
    dtype: np.dtype[Any],
    literals: list[float],
    number: int,
    generator: np.random.Generator,
    shape: list[int],
) -> Array:
    """Small ones in even trials. In odd ones all that there are, with the ends of the type, 0 and the numbers that the graphs name, and
    what is next to these: all in an array that has room for them, else some in three of four of those trials.
    """
    info = np.iinfo(dtype)
    if number % 2 == 0:
        return generator.integers(max(info.min, -2), 2, shape, dtype, endpoint=True)
    elements = generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    centres = {info.min, info.max, 0} | {
        by * int(n) for n in literals if isfinite(n) for by in (1, -1)
    }
    near = {centre + off for centre in centres for off in (-1, 0, 1)}
    special = np.array(sorted(n for n in near if info.min <= n <= info.max), dtype)
    if elements.size >= special.size:
        elements.flat[generator.permutation(elements.size)[: special.size]] = special
    elif number % 8 > 1:
        elements.flat[:] = np.roll(special, -(number // 2) * elements.size)[: elements.size]
    return elements


def draw_input(
    value: Value,
    shape: list[int],
    number: int,
    generator: np.random.Generator,
    floats: Drawn,
    literals: list[float],
) -> Array:
    """Values of an input; finite ones that its type has not are near 0 instead."""
    dtype = numpy_dtype(value.dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        return _integers(dtype, literals, number, generator, shape)
    values, most = floats(generator, shape), finite_range(value.dtype)[1]
    beyond = np.isfinite(values) & (np.abs(values) > most)
    return np.where(beyond, values / HUGE, values).astype(dtype)
