"""Answers that are remembered while one program is planned, cut, scheduled or compared, and no longer.

Kept longer, they would fill the memory of a process that compiles thousands of programs: an expression of one is hardly ever one of
the next. And an answer of isl that is remembered takes it no operations: what a program becomes would depend on
what the process compiled before, or found in the cache of kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

T = TypeVar("T")

_CLEAR: list[Callable[[], None]] = []


def memo(maxsize: int) -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """Return a decorator that remembers the results of a function by its arguments, until `forget` is called.

    maxsize  results that are remembered at once
    """

    def remembering(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
        cached = lru_cache(maxsize)(function)
        _CLEAR.append(cached.cache_clear)
        return cached

    return remembering


def forget() -> None:
    """Forget all results, before a program is planned, cut, scheduled or compared: isl's budget of operations for it does not depend
    on others.
    """
    for clear in _CLEAR:
        clear()
