"""What a record names by digest only, in full: a program as text, and a place to plan for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from offcut.errors import OffcutError


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A program that was tuned.

    digest  `Program.digest`, which records call it by
    text    as `parse` reads it; which inputs are constants is in it
    sizes   the program's names of the sizes, by the user's

    Raises OffcutError for a field of another type.
    """

    digest: str
    text: str
    sizes: Mapping[str, str] = field(hash=False)

    def __post_init__(self) -> None:
        _check(self, digest=_is_text, text=_is_text, sizes=_is_names)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was measured: all that `place_of` makes a digest of.

    digest        which records call it by
    target        its name
    machine       the description that it plans for, field by field
    threads       of a call, at most
    reassociate   whether sums may be reassociated
    microkernels  names of those that were handed over, which nothing here describes

    Raises OffcutError for a field of another type.
    """

    digest: str
    target: str
    machine: Mapping[str, Any] = field(hash=False)
    threads: int
    reassociate: bool
    microkernels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "microkernels", tuple(self.microkernels))
        _check(
            self,
            digest=_is_text,
            target=_is_text,
            machine=lambda value: isinstance(value, Mapping),
            threads=lambda value: type(value) is int and value >= 1,
            reassociate=lambda value: type(value) is bool,
            microkernels=lambda value: all(map(_is_text, value)),
        )


Origin: TypeAlias = ProgramText | Place
KINDS: Mapping[str, type[ProgramText] | type[Place]] = {"program": ProgramText, "place": Place}
"""By what a line of JSON calls them."""


def plain(origin: Origin) -> dict[str, Any]:
    """The fields as JSON has them, behind their ``kind``."""
    kind = "program" if isinstance(origin, ProgramText) else "place"
    found = {one.name: getattr(origin, one.name) for one in fields(origin)}
    return {"kind": kind, **found}


def text_of(origin: Origin) -> str:
    """A line of JSON; what JSON has not, in the description of a machine of a plug-in, as it prints."""
    return json.dumps(plain(origin), ensure_ascii=False, default=repr)


def origin_of(found: Mapping[str, Any]) -> Origin:
    """What `plain` was made of.

    Raises ValueError, in words, where it is none.
    """
    made = KINDS.get(str(found.get("kind")))
    if made is None:
        raise ValueError(f"its kind is {found.get('kind')!r}, none of {', '.join(KINDS)}")
    names = {one.name for one in fields(made)}
    given = {name: value for name, value in found.items() if name != "kind"}
    if set(given) != names:
        missing, odd = sorted(names - set(given)), sorted(set(given) - names)
        said = f"it lacks {', '.join(missing)}" if missing else f"it has {', '.join(odd)}"
        raise ValueError(said)
    try:
        return made(**given)
    except (OffcutError, TypeError) as refused:
        raise ValueError(
            refused.because if isinstance(refused, OffcutError) else str(refused)
        ) from None


def _check(origin: Origin, **holds: Any) -> None:
    for name, is_one in holds.items():
        value = getattr(origin, name)
        if not is_one(value):
            because = f"{name} is {value!r}"
            raise OffcutError(
                "record", f"cannot keep this {type(origin).__name__}", because=because
            )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_names(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, (*value, *value.values())))
