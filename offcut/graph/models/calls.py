"""The calls of a model's kernels, laid out as kernels read them but for numbers that depend on sizes: these are picked, all at
once, from the values of extents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from offcut.backends.base import Entry
from offcut.backends.host.in_turn import WORKSPACE, Batch
from offcut.describe.request import Array
from offcut.graph.models.operands import Operands, Values
from offcut.graph.sizes.extents import Numbers, Valued

_WORD = 8  # bytes


class _Call(NamedTuple):
    """The machine code of a step, and which word its pointers, sizes and strides begin at."""

    entry: Entry
    workspace: Callable[[int], int]
    pointers: int
    sizes: int
    strides: int


class Calls:
    """What no size changes of all calls: pointers to arrays, then to constants of the code, sizes, strides, word by word."""

    def __init__(self, operands: Operands, valued: Valued) -> None:
        self.operands = operands
        self._calls, self._related = list[_Call | None](), list[int]()
        words, pointers = list[int](), list[int]()
        sizes, strides = list[tuple[int, ...]](), list[tuple[int, ...]]()
        self._first_word, self._first_size, self._first_stride = [0], [0], [0]
        for number, step in enumerate(operands.steps):
            entry, at = step.entry, [len(words)]
            pointers += range(len(words), len(words) + len(step.arrays))
            words += (*[0] * len(step.arrays), *(entry.constants if entry else ()))
            at.append(len(words))
            for (_, extent), one in zip(step.sizes, step.kernel.signature.sizes, strict=True):
                sizes.append((len(words), valued.place(extent), one.min, one.max, one.multiple_of))
                words.append(0)
            at.append(len(words))
            for array, operand in enumerate(step.arrays, operands.first[number]):
                for stride in operand.strides:
                    strides.append((len(words), valued.place(stride), array))
                    words.append(0)
            self._calls.append(_Call(entry, WORKSPACE(entry.workspace), *at) if entry else None)
            if step.kernel.signature.relations:
                self._related.append(number)
            self._first_word.append(len(words))
            self._first_size.append(len(sizes))
            self._first_stride.append(len(strides))
        self._words, self._pointers = np.array(words, np.int64), np.array(pointers, np.int64)
        self._sizes = np.array(sizes, np.int64).reshape(-1, 5).T
        self._strides = np.array(strides, np.int64).reshape(-1, 3).T

    def refusing(self, first: int, end: int, values: Array) -> list[int]:
        """Steps from `first` to before `end` whose kernels may not take the sizes: `Step.refuses` says of each whether, and why."""
        at = slice(self._first_size[first], self._first_size[end])
        _, places, least, most, multiple = self._sizes[:, at]
        found = values[places]
        wrong = np.flatnonzero((found < least) | (found > most) | (found % multiple != 0))
        starts = self._first_size[first : end + 1]
        steps = np.searchsorted(starts, wrong + at.start, side="right") - 1 + first
        return [*map(int, steps), *(n for n in self._related if first <= n < end)]

    def refusal(self, first: int, end: int, number: Numbers) -> str:
        """The first of some steps whose kernel does not run at sizes, and why; "" where all do.

        number  the values of extents there
        """
        for n in self.refusing(first, end, number.array):
            because = self.operands.steps[n].refuses(number)
            if because:
                return f"{self.operands.steps[n].name}: {because}"
        return ""

    def batch(
        self, first: int, end: int, values: Values, bases: Array, offsets: Array
    ) -> tuple[Batch, int]:
        """The calls from `first` to before `end`, all of machine code; and bytes of scratch of the greediest.

        bases, offsets  of each array: the number of its base, and how many bytes behind that it begins
        """
        start, stop = self._first_word[first], self._first_word[end]
        words = self._words[start:stop].copy()
        words_at, places = self._sizes[:2, self._first_size[first] : self._first_size[end]]
        words[words_at - start] = values.now[places]
        at = slice(self._first_stride[first], self._first_stride[end])
        words_at, places, arrays = self._strides[:, at]
        words[words_at - start] = values.of(places, arrays)
        address = words.ctypes.data - start * _WORD
        arrays_at = slice(self.operands.first[first], self.operands.first[end])
        pointers = np.stack((address + self._pointers[arrays_at] * _WORD, bases, offsets), axis=1)
        made, most = list[tuple[int, ...]](), 0
        for call in self._calls[first:end]:
            assert call is not None
            own = [address + word * _WORD for word in (call.pointers, call.sizes, call.strides)]
            need = call.workspace(own[1])
            most = max(most, need)
            made.append((call.entry.address, *own, need > 0))
            in_turn = call.entry.in_turn
        return Batch(in_turn, pointers, made, words), most
