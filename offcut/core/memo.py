"""Results that are computed once, and the hashes of the values that are their keys.

Results of a function last while one program is planned, cut, scheduled or compared.

Results of functions do not live longer, for two reasons. They would fill the memory of a process that compiles thousands of programs, as an
expression of one is hardly ever one of the next. And a remembered result of isl costs no operations, so that the code of a program would
depend on what the process compiled before. No lock is used: in a child that is forked meanwhile it would stay locked.

Values that are keys of what is kept about them: their hash is computed once, and they are cheap to make.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache, lru_cache, wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

T = TypeVar("T")
_Method = TypeVar("_Method", bound=Callable[..., Any])

_CLEAR: list[Callable[[], None]] = []


def memo(maxsize: int) -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """Return a decorator that remembers the results of a function by its arguments, `maxsize` of them, until `forget` is called."""

    def remembering(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
        cached = lru_cache(maxsize)(function)
        _CLEAR.append(cached.cache_clear)
        return cached

    return remembering


def forget() -> None:
    """Forget the results of all functions, so that isl's operations for the next program do not depend on others."""
    for clear in _CLEAR:
        clear()


class lazy_property(Generic[T]):  # named as a decorator is
    """A property that is computed at its first use. Unlike functools' ``cached_property`` up to Python 3.11 it locks nothing: threads
    may compute it twice, and get one and the same value.
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
    """Return a method, of objects that do not change, that is computed once for its arguments; these are hashable and positional.

    ``functools.cache`` would keep the object alive, and hash all of it for each call; here results are in an attribute of the object,
    which neither ``==`` nor ``replace`` of a dataclass sees.
    """
    attribute = f"_memo_{method.__name__}"

    @wraps(method)
    def once(self: Any, *args: Any) -> Any:
        results = self.__dict__.setdefault(attribute, {})
        if args not in results:
            results[args] = method(self, *args)
        return results[args]

    return once  # type: ignore[return-value]


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
