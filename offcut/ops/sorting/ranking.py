"""Ranks along an axis, as tensor expressions in which each element is compared with all: places of extremes, `topk`, `sort`.

Which of two elements comes first is 1 or 0: sums and products of these read both, where behind ``and`` and ``or`` elements are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from offcut.core.dtypes import FLOATS, NUMBERS, reduction_start
from offcut.core.integers import whole
from offcut.describe.functions import index, reduce_axis, where
from offcut.describe.functions import max as max_over
from offcut.describe.functions import min as min_over
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import axis_letters, axis_number, check_tensor, flag, integer, result_name

FEW = 8  # elements that are found one after the other


def argmax(x: Tensor, axis: int = -1, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """Return the place of the greatest element along `axis`, of int64; of several, the first.

    x          of any element type, with at least one axis
    axis       negative ones count from the last
    keepdims   whether the axis stays, of extent 1

    A NaN is greater than all else, as numpy has it. Along an axis without elements it is 2**31 - 1,
    which is a place of no array.

    Raises DescribeError where there is no such axis.
    """
    return _extreme_place("argmax", x, axis, keepdims, max_over, name)


def argmin(x: Tensor, axis: int = -1, keepdims: bool = False, *, name: str | None = None) -> Tensor:
    """Return the place of the least element along `axis`, of int64; of several, or of NaN, the first.

    x, axis, keepdims   as in `argmax`

    Raises DescribeError where there is no such axis.
    """
    return _extreme_place("argmin", x, axis, keepdims, min_over, name)


def topk(
    x: Tensor, k: int, axis: int = -1, largest: bool = True, *, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return the `k` greatest elements along `axis` in descending order, and their places, of int64.

    x         of numbers, with at least one axis
    k         an int of at least 0, at most the extent where that is a number; sizes at which the axis is shorter give, beyond its elements, the
              least value of the type and the place 2**31 - 1
    largest   False: the `k` least, ascending; beyond them the greatest value of the type

    Of equal elements the first comes first; a NaN is greater than all else. Up to 8 of the greatest are
    found one after the other, in ``2 * k`` passes. More of them, and the least, are found by their ranks, the
    number of elements that come before each: ``n * (n + k)`` comparisons for n elements, for axes of up to
    some thousands.

    The places are called ``{name}_places``. Raises DescribeError where there is no such axis or k.
    """
    check_tensor("topk", "x", x, least=1, dtypes=NUMBERS)
    position, largest = axis_number("topk", x, axis), flag("topk", "largest", largest)
    count, rank = integer("topk", "k", k, 0), len(x.shape)
    extent = whole(x.shape[position])
    if extent is not None and count > extent:
        raise DescribeError(
            "topk",
            f"cannot take k={count}",
            at=f"axis {position} of {x!r}",
            because=f"it has {extent} elements at every size",
            help=(f"k={extent}",),
        )
    options = (("", count, None), ("axis", position, rank - 1), ("least", not largest, False))
    name = result_name("topk", name, [x], *options)
    if largest and 0 < count <= FEW:
        return _one_by_one(x, count, position, name)
    return _by_rank(x, count, position, largest, name)


def sort(
    x: Tensor, axis: int = -1, descending: bool = False, *, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return the elements along `axis` in ascending order, and their places, of int64.

    x            of numbers, with at least one axis
    descending   from the greatest on

    Of equal elements the first comes first, in either order; a NaN is greater than all else. By their ranks: ``2 * n * n``
    comparisons for n elements, for axes of up to some thousands.

    The places are called ``{name}_places``. Raises DescribeError where there is no such axis.
    """
    check_tensor("sort", "x", x, least=1, dtypes=NUMBERS)
    position, descending = axis_number("sort", x, axis), flag("sort", "descending", descending)
    options = (("axis", position, len(x.shape) - 1), ("descending", descending, False))
    name = result_name("sort", name, [x], *options)
    return _by_rank(x, x.shape[position], position, descending, name)


def _one_by_one(x: Tensor, count: int, position: int, name: str) -> tuple[Tensor, Tensor]:
    """Return the greatest elements, each the greatest of those that come after the one before."""
    shape, k = (*x.shape[:position], *x.shape[position + 1 :]), reduce_axis(x.shape[position], "k")
    letters = axis_letters(len(shape))
    nothing, nan = reduction_start("max", x.dtype), x.dtype in FLOATS
    values, places = list[Tensor](), list[Tensor]()

    def remaining_keys(at: tuple[Value, ...]) -> tuple[Value, Value | None]:
        """Return an element, and 1 where it comes after all that were found, else 0; None: nothing was."""
        own = x[(*at[:position], k, *at[position:])]
        if not values:
            return own, None
        return own, precedes(own, values[-1][at], cast(k, "int32") > places[-1][at], nan)

    for number in range(count):

        def greatest(*at: Value) -> Value:
            own, after = remaining_keys(at)
            return max_over(own if after is None else where(after > 0, own, nothing), axis=k)

        value = compute(shape, greatest, f"{name}_value_{number}", letters)

        def first(*at: Value, value: Tensor = value) -> Value:
            own, after = remaining_keys(at)
            is_equal = alike(own, value[at], nan)
            if after is not None:
                is_equal = is_equal * after
            return min_over(where(is_equal > 0, cast(k, "int32"), 2**31 - 1), axis=k)

        place = compute(shape, first, f"{name}_place_{number}", letters)
        values.append(value)
        places.append(place)

    def concatenate(parts: list[Tensor], dtype: str, called: str) -> Tensor:
        def part_at(*at: Value) -> Value:
            line = (*at[:position], *at[position + 1 :])
            result = cast(parts[-1][line], dtype)
            for number in reversed(range(count - 1)):
                result = where(at[position] < number + 1, cast(parts[number][line], dtype), result)
            return result

        whole = (*shape[:position], count, *shape[position:])
        return compute(whole, part_at, called, axis_letters(len(whole)))

    return concatenate(values, x.dtype, name), concatenate(places, "int64", f"{name}_places")


def _by_rank(
    x: Tensor, count: Any, position: int, largest: bool, name: str
) -> tuple[Tensor, Tensor]:
    """Return the elements that so many come before as their places say."""
    letters = axis_letters(len(x.shape))
    other = reduce_axis(x.shape[position], "r")
    key, turn = _comparison_keys(x, position, largest, name)

    def with_place(at: tuple[Value, ...], place: Value) -> tuple[Value, ...]:
        return (*at[:position], place, *at[position + 1 :])

    def earlier(*at: Value) -> Value:
        one = with_place(at, other)
        less, greater = (key(at), key(one)) if largest else (key(one), key(at))
        return sum_over(precedes(less, greater, turn(one) < turn(at), nan=False), axis=other)

    ranks = compute(x.shape, earlier, f"{name}_ranks", letters)
    shape = (*x.shape[:position], count, *x.shape[position + 1 :])

    def has_rank(at: tuple[Value, ...]) -> Value:
        return ranks[with_place(at, other)] == cast(at[position], "int32")

    places = compute(
        shape,
        lambda *at: min_over(where(has_rank(at), cast(other, "int32"), 2**31 - 1), axis=other),
        f"{name}_first",
        letters,
    )
    nothing = reduction_start("max" if largest else "min", x.dtype)

    def value(*at: Value) -> Value:
        there = places[at] < 2**31 - 1
        return where(there, x[with_place(at, index(where(there, places[at], 0)))], nothing)

    return compute(shape, value, name, letters), compute(
        shape, lambda *at: cast(places[at], "int64"), f"{name}_places", letters
    )


def _comparison_keys(
    x: Tensor, position: int, largest: bool, name: str
) -> tuple[Callable[[tuple[Value, ...]], Value], Callable[[tuple[Value, ...]], Value]]:
    """What elements are compared by, and of equal ones their turns, as int32: that of a NaN, beside infinity, is behind all that are
    less, and before them where the greatest come first.
    """

    def place(at: tuple[Value, ...]) -> Value:
        return cast(at[position], "int32")

    if x.dtype not in FLOATS:
        return lambda at: x[at], place
    letters, wide = axis_letters(len(x.shape)), "float64" if x.dtype == "float64" else "float32"
    keys = compute(
        x.shape,
        lambda *at: where(x[at] == x[at], cast(x[at], wide), inf),
        f"{name}_keys",
        letters,
    )

    def turn(*at: Value) -> Value:
        number = x[at] == x[at]
        return where(~number if largest else number, place(at) + -(2**31), place(at))

    turns = compute(x.shape, turn, f"{name}_turns", letters)
    return lambda at: keys[at], lambda at: turns[at]


def _extreme_place(
    op: str,
    x: Tensor,
    axis: int,
    keepdims: bool,
    over: Callable[..., Value],
    name: str | None,
) -> Tensor:
    check_tensor(op, "x", x, least=1)
    position, keepdims = axis_number(op, x, axis), flag(op, "keepdims", keepdims)
    rank = len(x.shape)
    name = result_name(op, name, [x], ("axis", position, rank - 1), ("kept", keepdims, False))
    shape, letters = (*x.shape[:position], *x.shape[position + 1 :]), axis_letters(rank - 1)
    k = reduce_axis(x.shape[position], "k")

    def along(at: tuple[Value, ...]) -> Value:
        value = x[(*at[:position], k, *at[position:])]
        return cast(value, "uint8") if x.dtype == "bool" else value

    extremes = compute(shape, lambda *at: over(along(at), axis=k), f"{name}_extreme", letters)

    def first(*at: Value) -> Value:
        own, best = along(at), extremes[at]
        is_equal = own == best
        if x.dtype in FLOATS:
            is_equal = is_equal | (own != own)  # where there is a NaN, the extreme is one
        return min_over(where(is_equal, cast(k, "int32"), 2**31 - 1), axis=k)

    places = compute(shape, first, f"{name}_first", letters)
    if not keepdims:
        return compute(shape, lambda *at: cast(places[at], "int64"), name, letters)
    kept_shape = (*x.shape[:position], 1, *x.shape[position + 1 :])

    def widened(*at: Value) -> Value:
        return cast(places[(*at[:position], *at[position + 1 :])], "int64")

    return compute(kept_shape, widened, name, axis_letters(rank))


def one(condition: Value) -> Value:
    """1 where it holds, else 0."""
    return where(condition, cast(1, "int32"), 0)


def alike(a: Value, b: Value, nan: bool) -> Value:
    """1 where two elements are equal, or, with `nan`, both NaN; else 0."""
    is_equal = one(a == b)
    return is_equal + one(a != a) * one(b != b) if nan else is_equal


def precedes(a: Value, b: Value, earlier: Value, nan: bool) -> Value:
    """1 where `a` is less than `b`, or alike and `earlier`; else 0. With `nan`, a NaN is greater than all else; without, there is none."""
    less = one(a < b)
    if nan:
        less = less + one(a == a) * one(b != b)
    return less + alike(a, b, nan) * one(earlier)
