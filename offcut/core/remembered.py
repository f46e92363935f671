"""Methods whose values are computed once for each argument, and kept with their object."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])


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
