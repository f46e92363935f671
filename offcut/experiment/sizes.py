"""The sizes that a sweep visits, from their text: ranges, lists, samples of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from offcut.errors import DescribeError


@dataclass(frozen=True, slots=True)
class SweptSizes:
    """The extents that some letters take together.

    letters   all of them have the same extent at each point
    values    the extents, ascending, in elements
    allowed   how many the text describes, of which `values` may be a sample
    """

    letters: str
    values: tuple[int, ...]
    allowed: int

    @property
    def sampled(self) -> bool:
        """Whether `values` leaves some out."""
        return len(self.values) < self.allowed

    def __str__(self) -> str:
        taken = f"{len(self.values)} of {self.allowed}" if self.sampled else f"all {self.allowed}"
        return f"{' = '.join(self.letters)}: {taken} sizes: {', '.join(map(str, self.values))}"


def sizes_of(text: str, points: int | None) -> SweptSizes:
    """The sizes that `text` describes, or a sample of them if it is a range of more than `points`.

    text     ``m=1:512`` every size, both ends included; ``m=1:512:8`` every eighth;
             ``m=1,7,100`` exactly these; ``ik=1:512`` sweeps two letters together
    points   most sizes taken of a range (None: no limit); a list is taken whole

    >>> sizes_of("m=1:512", 8).values
    (1, 3, 7, 17, 40, 95, 221, 512)

    Raises DescribeError when the text is none of these, or describes a size below 1.
    """

    def refused(because: str) -> DescribeError:
        return DescribeError(
            "sweep",
            "cannot read the sizes",
            at=f"--sizes {text}",
            because=because,
            help=("m=1:512 or m=1:512:8 for a range, both ends included", "m=1,7,100 for a list"),
        )

    letters, equals, body = text.replace(" ", "").partition("=")
    if not equals or not re.fullmatch("[A-Za-z]+", letters):
        raise refused("it does not begin with an axis and '=', such as m=")
    if not re.fullmatch(r"\d+(,\d+)*|\d+:\d+(:\d+)?", body):
        raise refused(f"{body!r} is neither a range nor a list of whole numbers from 0 on")
    numbers = [int(number) for number in re.split("[,:]", body)]
    if max(numbers) > 2**31 - 1:
        raise refused("a size is at most 2**31 - 1")
    if ":" not in body:
        values: Sequence[int] = sorted(set(numbers))
    else:
        first, last, step = (*numbers, 1)[:3]
        if first > last:
            raise refused(f"the range ends at {last}, before its start {first}")
        if step < 1:
            raise refused("the range does not advance: its step is 0")
        values = range(first, last + 1, step)
    if values[0] < 1:
        raise refused("size 0 has no work to time")
    if isinstance(values, range) and points is not None and len(values) > points:
        return SweptSizes(letters, sample(values, points), len(values))
    return SweptSizes(letters, tuple(values), len(values))


def sample(values: range, points: int) -> tuple[int, ...]:
    """About geometrically spaced members of `values`, both ends among them, many of them odd.

    A geometric progression hits powers of two, where everything is fast; every second inner point
    is moved to an odd neighbour where there is one.

    values   ascending, at least `points` members
    points   how many are returned; 2 or more, else 2
    """
    taken = [values[0]]
    inner = max(points, 2) - 2
    for position in range(inner):
        remaining = inner - position + 1
        last = max(taken[-1], 1)
        target = last * (values[-1] / last) ** (1 / remaining)
        least = values.index(taken[-1]) + 1
        most = len(values) - remaining
        index = min(max(round((target - values.start) / values.step), least), most)
        if position % 2 == 0 and values[index] % 2 == 0 and index < most:
            index += values[index + 1] % 2
        taken.append(values[index])
    return (*taken, values[-1])


def read_axes(texts: Sequence[str], points: int | None) -> tuple[SweptSizes, ...]:
    """The sizes of every text; `points` is the most combinations taken if all are ranges.

    Raises DescribeError as `sizes_of`, or when an axis is swept twice.
    """
    if points is not None and len(texts) > 1:
        points = max(2, round(points ** (1 / len(texts))))
    swept = tuple(sizes_of(text, points) for text in texts)
    seen: dict[str, str] = {}
    for axis, text in zip(swept, texts, strict=True):
        for letter in axis.letters:
            if letter in seen:
                raise DescribeError(
                    "sweep",
                    f"the axis {letter!r} is swept twice",
                    at=f"--sizes {text}",
                    because=f"--sizes {seen[letter]} has it too",
                    help=(f"--sizes {letter}=1,7,100: all of its sizes at once",),
                )
            seen[letter] = text
    return swept


def points_of(swept: Sequence[SweptSizes]) -> tuple[dict[str, int], ...]:
    """Every combination of the swept sizes, as letter -> extent."""
    combinations = itertools.product(*(axis.values for axis in swept))
    return tuple(
        {letter: value for axis, value in zip(swept, point, strict=True) for letter in axis.letters}
        for point in combinations
    )
