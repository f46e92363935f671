"""Reads machine descriptions: TOML files, those in `machines/` by name and any other by its path.

``like = "cascade-lake"`` takes from a shipped one whatever a file does not state itself. A file that
is no description is refused with its line and the field.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from offcut.costmodel.machine import Machine
from offcut.errors import TargetError

_LONGEST = 2**31 - 1  # cycles that a waiting thread counts
SHIPPED = Path(__file__).with_name("machines")
T = TypeVar("T")


def shipped() -> tuple[str, ...]:
    """The names of the descriptions that come with the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def load(named: str | os.PathLike[str]) -> Machine:
    """The description of that name, or in that file.

    named   a shipped name, or a path that ends in ``.toml``

    Raises TargetError, with the line, for what is no description.
    """
    if isinstance(named, os.PathLike) or str(named).endswith(".toml"):
        path = Path(named)
        return _File(path, _text_of(path)).machine()
    if named not in shipped():
        raise TargetError(
            "target",
            f"cannot plan for machine={named!r}",
            because="no description that is shipped has that name",
            help=(", ".join(shipped()), 'machine="mine.toml" reads a file'),
        )
    return _shipped(str(named))


@cache
def _shipped(name: str) -> Machine:
    path = SHIPPED / f"{name}.toml"
    return _File(path, path.read_text(encoding="utf-8")).machine()


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        because = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise TargetError(
            "target",
            f"cannot read the machine {path.name}",
            at=str(path),
            because=f"{because}",
            help=("a description that is shipped: " + ", ".join(shipped()),),
        ) from None


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


@dataclass(frozen=True, slots=True)
class _File:
    """A file and its text, which refusals quote by the line."""

    path: Path
    text: str

    def machine(self) -> Machine:
        made = self.section(Machine, self.merged(), ())
        unroll = made.tiles.unroll
        if len(made.memory) < 3:
            raise self.refused(("memory",), "packed operands stream from the third of its levels")
        if unroll < 4 or unroll & (unroll - 1):
            raise self.refused(("tiles", "unroll"), f"it is a power of 2, at least 4, got {unroll}")
        if max(made.threads.spin_cycles, made.threads.recent_cycles) > _LONGEST:
            raise self.refused(("threads",), f"spin_cycles, recent_cycles are at most {_LONGEST}")
        return made

    def merged(self) -> dict[str, Any]:
        """What the file states, on what the machine states that it is like."""
        try:
            stated = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise TargetError(
                "target",
                f"cannot read the machine {self.path.name}",
                at=str(self.path),
                because=f"it is no TOML: {error}",
            ) from None
        like = stated.pop("like", None)
        if like is None:
            return stated
        if like not in shipped():
            raise self.refused(("like",), f"no description that is shipped is named {like!r}")
        path = SHIPPED / f"{like}.toml"
        base = _File(path, path.read_text(encoding="utf-8")).merged()
        for key, value in stated.items():
            both = isinstance(value, dict) and isinstance(base.get(key), dict)
            base[key] = {**base[key], **value} if both else value
        return base

    def section(self, kind: type[T], table: Mapping[str, Any], at: tuple[str, ...]) -> T:
        """A table as a record of `kind`: every field of it, and no other."""
        hints = _hints(kind)  # type: ignore[arg-type]
        known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        for key in table:
            if key not in known:
                raise self.refused((*at, key), f"a {kind.__name__} has {', '.join(known)}")
        for key in known:
            if key not in table and not _may_lack(hints[key]):
                raise self.refused((*at, key), "it is not stated, and no like= states it")
        return kind(**{key: self.value(hints[key], table.get(key), (*at, key)) for key in known})

    def value(self, hint: Any, value: Any, at: tuple[str, ...]) -> Any:
        """A value of a field as its type says."""
        if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
            if isinstance(value, dict):
                return self.section(hint, value, at)
            raise self.refused(at, f"it is a table, [{at[-1]}]")
        parts = get_args(hint)
        if parts and parts[-1] is Ellipsis:
            if isinstance(value, list) and (value or parts[0] is str):
                return tuple(
                    self.value(parts[0], one, (*at, str(number)))
                    for number, one in enumerate(value)
                )
            raise self.refused(at, f"it is a list, got {value!r}")
        if value is None and _may_lack(hint):
            return None
        if hint is str:
            if isinstance(value, str) and value:
                return value
            raise self.refused(at, f"it is a text, got {value!r}")
        whole = hint is int
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not isfinite(value) or value <= 0:
            kind = "an int" if whole else "a number"
            raise self.refused(at, f"it is {kind} above 0, got {value!r}")
        return value if whole else float(value)

    def refused(self, at: tuple[str, ...], because: str) -> TargetError:
        """The refusal of a field, at the line that states it, or its table."""
        line = _line(self.text, at)
        where = f"{self.path}:{line}  {'.'.join(at)}" if line else f"{self.path}  {'.'.join(at)}"
        return TargetError(
            "target", f"cannot read the machine {self.path.name}", at=where, because=because
        )


def _may_lack(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _line(text: str, at: tuple[str, ...]) -> int | None:
    """The line, from 1, that states a field; where none does, that of what it is in.

    at   keys, and the positions of elements of lists, from 0
    """
    table: tuple[str, ...] = ()
    seen = Counter[str]()
    found: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        head = line.split("#")[0].strip()
        if head.startswith("[["):
            name = head.strip("[] ")
            table = (name, str(seen[name]))
            seen[name] += 1
            found.setdefault(table, number)
        elif head.startswith("["):
            table = (head.strip("[] "),)
            found.setdefault(table, number)
        elif "=" in head:
            found.setdefault((*table, head.split("=")[0].strip()), number)
    return next((found[at[:k]] for k in range(len(at), 0, -1) if at[:k] in found), None)
