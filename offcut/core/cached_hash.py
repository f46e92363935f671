"""Values that are keys of what is kept about them: their hash is computed once, and they are cheap to make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

_Kind = TypeVar("_Kind", bound=type)


@cache
def _fields_of(kind: Any) -> Callable[[object], object]:
    """The fields of a value of this kind, all at once."""
    return attrgetter(*kind.__match_args__)


class CachedHash:
    """The base of a frozen dataclass with slots, made a `node`."""

    __slots__ = ("_hash",)
    __match_args__: ClassVar[tuple[str, ...]]
    _hash: int

    def __hash__(self) -> int:
        try:
            known: int = self._hash
        except AttributeError:
            kind: Any = type(self)
            known = hash((kind, _fields_of(kind)(self)))
            object.__setattr__(self, "_hash", known)
        return known


def node(kind: _Kind) -> _Kind:
    """Return a frozen dataclass with slots and a cached hash with a constructor that takes two thirds of the time: it stores each field
    by its slot, where that of a frozen dataclass looks ``object.__setattr__`` up for each.

    Its fields have defaults that are values, or none.
    """
    assert issubclass(kind, CachedHash)
    own: Any = kind
    names = {f"_default_{one.name}": one.default for one in fields(own)}
    names |= {f"_set_{one.name}": getattr(own, one.name).__set__ for one in fields(own)}
    head = ", ".join(
        one.name if one.default is MISSING else f"{one.name}=_default_{one.name}"
        for one in fields(own)
    )
    lines = [f"_set_{one.name}(self, {one.name})" for one in fields(own)]
    if hasattr(own, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__(self, {head}): {'; '.join(lines)}", names)
    own.__init__ = names["__init__"]
    if own.__dataclass_params__.eq:
        own.__hash__ = CachedHash.__hash__
    return kind
