"""The sizes that a kernel is tuned for: what a user writes in, vectors of sizes with weights out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import isfinite, prod
from typing import Any

from offcut.core.integers import whole
from offcut.core.interpret.values import evaluate
from offcut.core.program import Program, Size
from offcut.core.text.printer import format_expr
from offcut.errors import DescribeError
from offcut.experiment.sizes import sample
from offcut.partition import Users

POINTS = 8
"""Sizes that are taken of a range, and of several together."""

Weights = tuple[tuple[Mapping[str, int], float], ...]
_HELP = ('sizes={"n": [1, 7, 33]}', 'sizes={"n": (1, 512)}', 'sizes={"n": {1: 0.7, 33: 0.3}}')


def distribution(program: Program, users: Users, given: object) -> Weights:
    """Vectors of sizes, by the user's names, each with its share of the calls; the shares sum up to 1.

    given   by size, independently of the others: a list of values, all as likely; a ``range``, or both ends
            ``(low, high)``, of which `POINTS` are taken, geometrically; or a weight by value

    Raises DescribeError for sizes that are missing, not allowed, or not what is described here.
    """
    names = {name: user for user, name in users.sizes}
    sizes = {names[size.name]: size for size in program.sizes}
    if given is None and not sizes:
        return (({}, 1.0),)
    if not isinstance(given, Mapping) or not given:
        raise _refused(given, f"it does not say which values {_listed(sizes)} take")
    for name in given:
        if name not in sizes:
            raise _refused(name, f"the sizes are {_listed(sizes)}", at="sizes=")
    missing = [name for name in sizes if name not in given]
    if missing:
        raise _refused(given, f"it does not say which values {_listed(missing)} take")
    points = max(2, round(POINTS ** (1 / len(sizes))))
    axes = {name: _values(size, name, given[name], points) for name, size in sizes.items()}
    found = []
    for values in product(*(axis.items() for axis in axes.values())):
        vector = {name: value for name, (value, _) in zip(axes, values, strict=True)}
        _check_assumed(program, dict(users.sizes), vector)
        found.append((vector, prod(weight for _, weight in values)))
    total = sum(weight for _, weight in found)
    return tuple((vector, weight / total) for vector, weight in found)


def read_sizes(texts: Sequence[str]) -> dict[str, range | list[int]]:
    """What is given of each size, as text: ``n=1,7,33`` a list; ``n=1:512``, ``n=1:512:8`` a range with both ends.

    >>> read_sizes(["n=1,7", "m=8:64:8"])
    {'n': [1, 7], 'm': range(8, 65, 8)}

    Raises DescribeError for any other text, and for a size that is given twice.
    """
    found: dict[str, range | list[int]] = {}
    for text in texts:
        name, _, values = (part.strip() for part in text.partition("="))
        numbers = [int(number) for number in re.findall(r"\d+", values)]
        if not name or not re.fullmatch(r"\d+(,\d+)*|\d+:\d+(:\d+)?", values):
            because = "it is not a name with a list or a range of whole numbers from 0 on"
        elif name in found:
            because = f"--sizes {name}=… came before"
        elif ":" in values and numbers[2:] == [0]:
            because = "the range does not advance: its step is 0"
        else:
            step = numbers[2] if len(numbers) == 3 else 1
            found[name] = range(numbers[0], numbers[1] + 1, step) if ":" in values else numbers
            continue
        help = ("--sizes n=1,7,33", "--sizes n=1:512", "--sizes n=1:512:8")
        raise DescribeError(
            "tune", "cannot read the sizes", at=f"--sizes {text}", because=because, help=help
        )
    return found


def _values(size: Size, name: str, given: Any, points: int) -> dict[int, float]:
    """The values of a size, with a weight each."""
    single = whole(given)
    if single is not None:
        given = [single]
    if isinstance(given, Mapping):
        found = {_allowed(size, name, value): _weight(name, w) for value, w in given.items()}
        if not any(found.values()):
            raise _refused(given, "some weight is above 0", at=f"sizes of {name}")
        return {value: weight for value, weight in found.items() if weight}
    if isinstance(given, tuple):
        if len(given) != 2 or any(whole(end) is None for end in given) or given[0] > given[1]:
            raise _refused(given, "a tuple is both ends, ascending", at=f"sizes of {name}")
        ends = [_within(size, name, end) for end in given]
        step = size.multiple_of
        given = range(-(-ends[0] // step) * step, ends[1] + 1, step)
    if isinstance(given, range):
        given = given if given.step > 0 else given[::-1]
        given = sample(given, points) if len(given) > points else given
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _refused(given, "it is not a list, range, pair or mapping", at=f"sizes of {name}")
    values: dict[int, float] = {}
    for value in given:
        values[_allowed(size, name, value)] = values.get(value, 0.0) + 1.0
    if not values:
        raise _refused(given, "there is no value in it", at=f"sizes of {name}")
    return values


def _allowed(size: Size, name: str, value: Any) -> int:
    found = _within(size, name, value)
    if found % size.multiple_of:
        because = f"{name} is a multiple of {size.multiple_of}"
        raise _refused(value, because, at=f"sizes of {name}")
    return found


def _within(size: Size, name: str, value: Any) -> int:
    found = whole(value)
    if found is None:
        raise _refused(value, "it is not a whole number", at=f"sizes of {name}")
    if not size.min <= found <= size.max:
        because = f"{name} is from {size.min} to {size.max}"
        raise _refused(value, because, at=f"sizes of {name}")
    return found


def _weight(name: str, weight: Any) -> float:
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not number or not isfinite(weight) or weight < 0:
        raise _refused(weight, "a weight is a number that is at least 0", at=f"sizes of {name}")
    return float(weight)


def _check_assumed(program: Program, names: Mapping[str, str], vector: Mapping[str, int]) -> None:
    at = {names[user]: value for user, value in vector.items()}
    for condition in program.assumptions:
        if not evaluate(condition, at):
            said = ", ".join(f"{name} = {value}" for name, value in vector.items())
            raise _refused(said, f"every call meets {format_expr(condition)}", at="sizes=")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _refused(given: object, because: str, at: str = "") -> DescribeError:
    shown = given if isinstance(given, str) else repr(given)
    return DescribeError(
        "tune", f"cannot tune for {shown}", at=at, because=because, help=_HELP if not at else ()
    )
