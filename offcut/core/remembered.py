"""Methods whose values are computed once for each argument, and kept with their object: without a lock, which would stay held in a
child that is forked meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, TypeVar, overload

_Method = TypeVar("_Method", bound=Callable[..., Any])
_T = TypeVar("_T")


class kept_property(Generic[_T]):  # named as a decorator is
    """A property that is computed when it is first asked for, and kept. That of functools, ``cached_property``, holds one lock for
    all objects up to Python 3.11.

    Threads that ask at once may compute it twice, and get one and the same value.
    """

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> kept_property[_T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self._name, self._make(instance))


def remembered(method: _Method) -> _Method:
    """A method of what does not change, which is asked once for each of its arguments: they are hashed, and given by place.

    ``functools.cache`` would keep the object alive, and hash all of it for each call; here values are attributes of the object,
    which neither ``==`` nor ``replace`` of a dataclass sees.
    """
    place = f"_remembered_{method.__name__}"

    @wraps(method)
    def once(self: Any, *args: Any) -> Any:
        known = self.__dict__.get(place)
        if known is None:
            known = self.__dict__[place] = {}
        if args not in known:
            known[args] = method(self, *args)
        return known[args]

    return once  # type: ignore[return-value]
