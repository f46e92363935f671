"""Answers of isl that are kept for as long as one program is planned, cut, scheduled or compared.

An answer that is kept takes isl no operations. Kept from one program to the next it would let through a bound
what is refused elsewhere: what a program becomes would depend on what the process was asked before, or found
in the cache of kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

T = TypeVar("T")

_FORGETTING: list[Callable[[], None]] = []


def kept(most: int) -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """A decorator of what asks isl: it is asked once for the same arguments, until all is forgotten.

    most  answers
    """

    def keeping(question: Callable[..., T]) -> _lru_cache_wrapper[T]:
        found = lru_cache(most)(question)
        _FORGETTING.append(found.cache_clear)
        return found

    return keeping


def forget() -> None:
    """Forget all that is kept, before a program is planned, cut, scheduled or compared: each has a bound of its own, and takes of
    it what it takes alone.
    """
    for one in _FORGETTING:
        one()
