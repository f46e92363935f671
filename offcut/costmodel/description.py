"""Reads machine descriptions: TOML files, those in `machines/` by name and any other by its path.

``like = "cascade-lake"`` takes from a shipped one whatever a file does not state itself: a table field by
field, an element of a list of tables from the one of the same name. In a table, ``like`` takes that table
alone. A file with ``[core]`` is of a processor, any other of an accelerator; one that is no description is
refused with its line and the field.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache, lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from offcut.costmodel.device import Accelerator, Device
from offcut.costmodel.machine import Machine
from offcut.costmodel.machine_validation import UNSTATED, machine_faults
from offcut.errors import TargetError

SHIPPED = Path(__file__).with_name("machines")
T = TypeVar("T")


def shipped_machines() -> tuple[str, ...]:
    """The names of the descriptions that come with the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def load(machine: str | os.PathLike[str]) -> Device:
    """The description of that name, or in that file.

    machine  a shipped name, or a path that ends in ``.toml``

    Raises TargetError, with the line, for what is no description.
    """
    if isinstance(machine, os.PathLike) or str(machine).endswith(".toml"):
        path = Path(machine)
        return _File(path, _text_of(path)).machine()
    if machine not in shipped_machines():
        raise TargetError(
            "target",
            f"cannot plan for machine={machine!r}",
            because="no description that is shipped has that name",
            help=(", ".join(shipped_machines()), 'machine="mine.toml" reads a file'),
        )
    return _shipped_text(str(machine))


def processors(architecture: str) -> tuple[Machine, ...]:
    """Return the shipped descriptions of processors of an architecture, as LLVM names it."""
    machines = (load(name) for name in shipped_machines())
    return tuple(
        one for one in machines if isinstance(one, Machine) and one.architecture == architecture
    )


def plain(device: Device) -> dict[str, Any]:
    """A description field by field, as JSON has them; not those that are as they are where nothing is said."""
    result: dict[str, Any] = _plain(device)
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    values = {field.name: (getattr(value, field.name), field.default) for field in fields(value)}
    return {
        name: _plain(one) for name, (one, default) in values.items() if one not in (None, default)
    }


def of_plain(stated: Mapping[str, Any]) -> Device:
    """The description that `plain` was given.

    Raises TargetError for fields that are of none.
    """
    file = _File(Path(str(stated.get("name", "machine"))), "")
    return file.section(Machine if "core" in stated else Accelerator, stated, ())


@cache
def _shipped_text(name: str) -> Device:
    path = SHIPPED / f"{name}.toml"
    return _File(path, path.read_text(encoding="utf-8")).machine()


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        because = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise TargetError(
            "target",
            f"cannot read the machine {path.name}",
            at=str(path),
            because=f"{because}",
            help=("a description that is shipped: " + ", ".join(shipped_machines()),),
        ) from None


@lru_cache(maxsize=32)
def _tables(text: str) -> dict[str, Any]:
    """What a text states, which nobody changes: several descriptions are like one."""
    return tomllib.loads(text)


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


@dataclass(frozen=True, slots=True)
class _File:
    """A file and its text, which refusals quote by the line."""

    path: Path
    text: str

    def machine(self) -> Device:
        """What the file describes."""
        stated = self.merge()
        kind: type[Device] = Machine if "core" in stated else Accelerator
        device = self.section(kind, stated, ())
        for at, because, *help in machine_faults(device):
            raise self.refusal(at, because, *help)
        return device

    def merge(self) -> dict[str, Any]:
        """What the file states, on what the machine states that it is like."""
        try:
            stated = deepcopy(_tables(self.text))
        except tomllib.TOMLDecodeError as error:
            raise TargetError(
                "target",
                f"cannot read the machine {self.path.name}",
                at=str(self.path),
                because=f"it is not TOML: {error}",
            ) from None
        if "name" not in stated:
            raise self.refusal(("name",), "a description has a name of its own")
        if stated["name"] in shipped_machines() and self.path.parent != SHIPPED:
            raise self.refusal(("name",), f"{stated['name']} is shipped: it has a name of its own")
        like = stated.pop("like", None)
        base = {} if like is None else self.other(like, ("like",))
        for key, value in stated.items():
            under = base.get(key)
            if isinstance(value, dict) and "like" in value:
                under = self.other(value.pop("like"), (key, "like")).get(key)
            base[key] = _over(under, value)
        return base

    def other(self, like: Any, at: tuple[str, ...]) -> dict[str, Any]:
        """What the shipped description of that name states."""
        if like not in shipped_machines():
            raise self.refusal(at, f"no description that is shipped is named {like!r}")
        path = SHIPPED / f"{like}.toml"
        return _File(path, path.read_text(encoding="utf-8")).merge()

    def section(self, kind: type[T], table: Mapping[str, Any], at: tuple[str, ...]) -> T:
        """A table as a record of `kind`: every field of it, and no other."""
        hints = _hints(kind)  # type: ignore[arg-type]
        known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
        for key in table:
            if key not in known:
                raise self.refusal((*at, key), f"the keys here are {', '.join(known)}")
        for key, field in known.items():
            if key not in table and not _may_lack(field, hints[key]):
                raise self.refusal((*at, key), UNSTATED)
        keys = [key for key in known if key in table or known[key].default is MISSING]
        return kind(
            **{
                key: self.value(
                    hints[key], table.get(key), (*at, key), "zero" in known[key].metadata
                )
                for key in keys
            }
        )

    def value(self, hint: Any, value: Any, at: tuple[str, ...], zero: bool = False) -> Any:
        """A value of a field as its type says.

        zero  whether a number may be 0
        """
        if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
            if isinstance(value, dict):
                return self.section(hint, value, at)
            raise self.refusal(at, f"it is a table, [{at[-1]}]")
        parts = get_args(hint)
        if type(None) in parts:
            return None if value is None else self.value(parts[0], value, at, zero)
        if parts and parts[-1] is Ellipsis:
            if isinstance(value, list) and (value or parts[0] is str):
                return tuple(
                    self.value(parts[0], one, (*at, str(number)))
                    for number, one in enumerate(value)
                )
            raise self.refusal(at, f"it is a list, got {value!r}")
        if hint is str:
            if isinstance(value, str) and value:
                return value
            raise self.refusal(at, f"it is a text, got {value!r}")
        if hint is bool:
            if isinstance(value, bool):
                return value
            raise self.refusal(at, f"it is true or false, got {value!r}")
        whole = hint is int
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not isfinite(value) or value < 0 or (value == 0 and not zero):
            kind = ("an int" if whole else "a number") + (", 0 or above" if zero else " above 0")
            raise self.refusal(at, f"it is {kind}, got {value!r}")
        return value if whole else float(value)

    def refusal(self, at: tuple[str, ...], because: str, *help: str) -> TargetError:
        """The refusal of a field, at the line that states it, or its table.

        help   what would be accepted
        """
        line = _line(self.text, at)
        where = f"{self.path}:{line}  {'.'.join(at)}" if line else f"{self.path}  {'.'.join(at)}"
        return TargetError(
            "target",
            f"cannot read the machine {self.path.name}",
            at=where,
            because=because,
            help=help,
        )


def _may_lack(field: Field[Any], hint: Any) -> bool:
    return field.default is not MISSING or type(None) in get_args(hint)


def _over(under: Any, stated: Any) -> Any:
    """What is stated of a key, on what another description states of it."""
    if isinstance(stated, dict) and isinstance(under, dict):
        entries = {key: _over(under.get(key), value) for key, value in stated.items()}
        return under | entries | _source_over(under, stated)
    if not (isinstance(stated, list) and isinstance(under, list)):
        return stated
    by_name = {str(one.get("name")): one for one in under if isinstance(one, dict)}
    return [
        _over(by_name.get(str(one.get("name")), {}), one) if isinstance(one, dict) else one
        for one in stated
    ]


def _source_over(under: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, str]:
    """The source of a table whose numbers are partly stated anew, where none is: what is new is not said to be
    from where the rest is.
    """
    new = [key for key, value in stated.items() if under.get(key) != value]
    if not new or "source" not in under or "source" in stated:
        return {}
    return {"source": f"{', '.join(new)}: it is not said; the rest: {under['source']}"}


def _line(text: str, at: tuple[str, ...]) -> int | None:
    """The line, from 1, that states a field; where none does, that of what it is in.

    at   keys, and the positions of elements of lists, from 0
    """
    table: tuple[str, ...] = ()
    counts = Counter[str]()
    lines: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        head = line.split("#")[0].strip()
        if head.startswith("[["):
            name = head.strip("[] ")
            table = (*name.split("."), str(counts[name]))
            counts[name] += 1
            lines.setdefault(table, number)
            lines.setdefault(table[:-1], number)
        elif head.startswith("["):
            table = tuple(head.strip("[] ").split("."))
            lines.setdefault(table, number)
        elif "=" in head:
            lines.setdefault((*table, head.split("=")[0].strip()), number)
    return next((lines[at[:k]] for k in range(len(at), 0, -1) if at[:k] in lines), None)
