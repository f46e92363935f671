"""Values that are keys of what is kept about them: their hash is computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar


@cache
def _fields_of(kind: Any) -> Callable[[object], object]:
    """The fields of a value of this kind, all at once."""
    return attrgetter(*kind.__match_args__)


class CachedHash:
    """The base of a frozen dataclass with slots, which says ``__hash__ = Hashed.__hash__``."""

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
