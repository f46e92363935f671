"""Constants that are not held as arrays: what reads them has the one copy, of which the array is made when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

from offcut.describe.request import Array


class Recalled(Mapping[str, Array]):
    """Arrays by name, some of which are made when they are asked for, and live as long as whoever asked holds them.

    held   those that are there
    again  what makes the others, each as it was, bit for bit
    """

    def __init__(
        self, arrays: Mapping[str, Array], again: Mapping[str, Callable[[], Array]]
    ) -> None:
        self._held, self._again = dict(arrays), dict(again)
        self._seen: WeakValueDictionary[str, Array] = WeakValueDictionary()

    def __getitem__(self, name: str) -> Array:
        if name in self._held:
            return self._held[name]
        array = self._seen.get(name)
        if array is None:
            array = self._seen[name] = self._again[name]()
        return array

    def __iter__(self) -> Iterator[str]:
        yield from self._held
        yield from self._again

    def __len__(self) -> int:
        return len(self._held) + len(self._again)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
