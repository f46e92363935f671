"""Refusals of a study's file: each names the file and the place in it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from offcut.backends.host.shared_library import MOST
from offcut.core.extras import missing_package
from offcut.errors import DescribeError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a study's file.

    where  the name of the file, and the tables that lead to the place
    keys   in the last one of them, each inside of the one before
    each   keys whose values are those of the table `each`: what is at one of them is there

    >>> print(Place("layers.toml").entry("operator", 2, {}) / "sizes" / "m")
    layers.toml, operator 2, sizes.m
    >>> print(Place("layers.toml").entry("contender", 1, {"name": "mine"}) / "strategy")
    layers.toml, contender 'mine', strategy
    >>> print(Place("layers.toml, contender 1", each=("tune.trials",)) / "tune" / "trials")
    layers.toml, contender 1, each.tune.trials
    """

    where: str
    keys: tuple[str, ...] = ()
    each: tuple[str, ...] = ()

    def __truediv__(self, key: str) -> Place:
        """Return the place of a key in the table, or in the value, that is here."""
        return replace(self, keys=(*self.keys, key))

    def entry(self, kind: str, number: int, table: Any) -> Place:
        """Return the place of a table of a list, by its name where it has one, else by its number, from 1 on."""
        name = table.get("name", "") if isinstance(table, Mapping) else ""
        is_named = isinstance(name, str) and name.strip()
        return Place(f"{self}, {kind} {repr(name) if is_named else number}")

    def __str__(self) -> str:
        keys = ".".join(self.keys)
        is_of_each = any(f"{keys}.".startswith(f"{one}.") for one in self.each)
        return ", ".join(filter(None, (self.where, f"each.{keys}" if is_of_each else keys)))


def refusal(
    at: Place | str, because: str, *help: str, what: str = "cannot read the study"
) -> DescribeError:
    """Return the error for a study, or for something in its file.

    at    where it is
    help  what would be accepted
    """
    return DescribeError("study", what, at=str(at), because=because, help=help)


MAX_REASON_CHARS = 400
"""Maximum length of the message of an exception of a user's code."""


def error_text(error: BaseException) -> str:
    """Return what a user's code raised, in a line; of a package that an extra installs, that it is not there."""
    if package := missing_package(error):
        return f"{package} is not installed"
    text = in_a_line(str(error))
    more = " …" if len(text) > MAX_REASON_CHARS else ""
    return f"{type(error).__name__}: {text[:MAX_REASON_CHARS] or 'no reason'}{more}"


def check_keys(table: Mapping[str, Any], known: Iterable[str], at: Place) -> None:
    """Refuse a key of `table` that is none of `known`, and name the closest that is."""
    names = tuple(known)
    for key in table:
        if key not in names:
            close = get_close_matches(key, names, 1)
            help = (f"{close[0]} = …",) if close else (f"the keys are {', '.join(names)}",)
            raise refusal(at, f"there is no key {key!r}", *help)


def _value_of(
    table: Mapping[str, Any], key: str, at: Place, default: T, kind: type, why: str, example: str
) -> T:
    """Return the value under `key`, which is of a kind.

    Raises DescribeError where it is not, `why`.
    """
    value: T = table.get(key, default)
    if not isinstance(value, kind):
        raise refusal(at / key, f"{value!r} {why}", example)
    return value


def text_of(table: Mapping[str, Any], key: str, at: Place, default: str = "") -> str:
    """Return the string under `key`.

    Raises DescribeError where it is something else.
    """
    example = f'{key} = "{default or "…"}"'
    return _value_of(table, key, at, default, str, "is not text", example)


def pattern_of(table: Mapping[str, Any], key: str, at: Place) -> str:
    """Return the regular expression under `key`, "" without one.

    Raises DescribeError where it is none.
    """
    pattern = text_of(table, key, at)
    try:
        re.compile(pattern)
    except re.error as error:
        because = f"{pattern!r} is not a regular expression: {error}"
        raise refusal(at / key, because, f"{key} = '{re.escape(pattern)}'") from error
    return pattern


def in_a_line(text: str) -> str:
    """Return a text in one line: signs that are not printed, and several blanks, are one blank.

    >>> in_a_line("a\\tb\\n\\n c")
    'a b c'
    """
    return " ".join("".join(x if x.isprintable() else " " for x in text).split())


def check_names(names: Sequence[str], what: str, at: Place) -> None:
    """Refuse names that tables cannot show in a line, and two that are equal.

    what  is called so: ``operator``, ``contender``
    """
    for name in names:
        if not name.strip() or not name.isprintable():
            because = f"{name!r} is not a name that a table can show in a line"
            raise refusal(at / f"{what}s", because, f'name = "{in_a_line(name) or what}"')
        if names.count(name) > 1:
            raise refusal(at / f"{what}s", f"two {what}s are called {name!r}", 'name = "…"')


def number_of(
    table: Mapping[str, Any],
    key: str,
    at: Place,
    default: float,
    least: float,
    most: float = math.inf,
    what: str = "number",
) -> float:
    """Return the number under `key`, which is finite, and from `least` to `most`.

    what  it is: ``number`` or ``whole number``

    Raises DescribeError for anything else.
    """
    value: Any = table.get(key, default)
    kinds = int if what == "whole number" else (int, float)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or value == math.inf:
        end = "on" if most == math.inf else f"to {most:.12g}"
        because = f"{value!r} is not a {what} from {least:g} {end}"
        raise refusal(at / key, because, f"{key} = {default:.12g}")
    return value  # type: ignore[no-any-return]


def whole_of(
    table: Mapping[str, Any], key: str, at: Place, default: int, least: int, most: float = math.inf
) -> int:
    """Return the whole number under `key`, from `least` to `most`.

    Raises DescribeError as `number_of`.
    """
    return int(number_of(table, key, at, default, least, most, "whole number"))


MAX_SECONDS = 86_400.0
"""Seconds for which a cell, or a candidate, is measured at most: a day."""


def seconds_of(table: Mapping[str, Any], key: str, at: Place, default: float) -> float:
    """Return the seconds under `key`, for which something is measured.

    Raises DescribeError as `number_of`.
    """
    return number_of(table, key, at, default, 1e-4, MAX_SECONDS)


def threads_of(table: Mapping[str, Any], at: Place, default: int) -> int:
    """Return the threads that a study, or a contender, says.

    Raises DescribeError as `number_of`.
    """
    return whole_of(table, "threads", at, default, 1, MOST)


def flag_of(table: Mapping[str, Any], key: str, at: Place, default: bool) -> bool:
    """Return the truth value under `key`.

    Raises DescribeError where it is something else.
    """
    example = f"{key} = {str(not default).lower()}"
    return _value_of(table, key, at, default, bool, "is neither true nor false", example)


def table_of(table: Mapping[str, Any], key: str, at: Place, example: str) -> Mapping[str, Any]:
    """Return the table under `key`, an empty one without it.

    Raises DescribeError where it is something else.
    """
    empty: Mapping[str, Any] = {}
    return _value_of(table, key, at, empty, Mapping, "is not a table", example)


def file_of(table: Mapping[str, Any], key: str, at: Place, folder: Path, *examples: str) -> Path:
    """Return the file of `folder` that is named under `key`.

    Raises DescribeError where there is none.
    """
    file = folder / text_of(table, key, at)
    if not file.is_file():
        raise refusal(at / key, f"there is no file {table[key]}", *examples)
    return file


def texts_of(value: Any, at: Place, example: str) -> tuple[str, ...]:
    """Return a text, or the texts of a list.

    Raises DescribeError where it is neither.
    """
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, str) for one in values):
        raise refusal(at, f"{value!r} is neither a text nor a list of texts", example)
    return tuple(values)
