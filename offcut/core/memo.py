"""Answers that are computed once: of an object, as long as it lives, and of a function, while one program is planned, cut, scheduled or
compared.

Kept longer, the latter would fill the memory of a process that compiles thousands of programs: an expression of one is hardly ever one of
the next. And an answer of isl that is remembered takes it no operations: what a program becomes would depend on
what the process compiled before, or found in the cache of kernels. No lock is held, which would stay held in a child that is forked meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

T = TypeVar("T")
_Method = TypeVar("_Method", bound=Callable[..., Any])

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


class lazy_property(Generic[T]):  # named as a decorator is
    """A property that is computed when it is first asked for, and kept. That of functools, ``cached_property``, holds one lock for
    all objects up to Python 3.11.

    Threads that ask at once may compute it twice, and get one and the same value.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy_property[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self._name, self._make(instance))


def memoize_method(method: _Method) -> _Method:
    """A method of what does not change, which is asked once for each of its arguments: they are hashed, and given by place.

    ``functools.cache`` would keep the object alive, and hash all of it for each call; here values are attributes of the object,
    which neither ``==`` nor ``replace`` of a dataclass sees.
    """
    place = f"_memo_{method.__name__}"

    @wraps(method)
    def once(self: Any, *args: Any) -> Any:
        known = self.__dict__.get(place)
        if known is None:
            known = self.__dict__[place] = {}
        if args not in known:
            known[args] = method(self, *args)
        return known[args]

    return once  # type: ignore[return-value]
