"""The calls of a model's kernels, laid out as kernels read them but for numbers that depend on sizes: these are picked, all at
once, from the values of extents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from offcut.backends.host.call_sequence import WORKSPACE, CallSequence
from offcut.describe.request import Array
from offcut.graph.models.memory.operands import Operands, Values
from offcut.graph.sizes.extent_values import Numbers, Valued

_WORD = 8  # bytes


class Laid(NamedTuple):
    """Calls where extents have some values; whoever runs steps of them runs these alone.

    words     that kernels read
    pointers  of each array: the address that it is written to, the number of its base, and how many bytes behind that it begins
    calls     as `CallSequence` has them, each knowing the place of its words
    outside   the numbers of arrays of which an element lies outside of their memory; unlike: of those that are unlike what their
              kernels take
    ends      of each array: how many bytes behind the base its memory ends
    """

    words: Array
    pointers: Array
    calls: Array
    outside: Array
    unlike: Array
    ends: Array


class Calls:
    """What no size changes of all calls: pointers to arrays, then to constants of the code, sizes, strides, word by word."""

    def __init__(self, operands: Operands, valued: Valued) -> None:
        self.operands = operands
        self._in_turn, self._workspaces = 0, list[Callable[[int], int]]()
        self._related, calls = list[int](), list[tuple[int, ...]]()
        words, pointers = list[int](), list[int]()
        sizes, strides = list[tuple[int, ...]](), list[tuple[int, ...]]()
        self._first_size = [0]
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
            if entry:
                self._in_turn = entry.in_turn
            self._workspaces.append(WORKSPACE(entry.workspace) if entry else int)
            calls.append((entry.address if entry else 0, *at, 0))
            if step.kernel.signature.relations:
                self._related.append(number)
            self._first_size.append(len(sizes))
        self._calls = np.array(calls, np.int64).reshape(-1, 5)
        self._calls[:, 1:4] *= _WORD
        self._words, self._pointers = (
            np.array(words, np.int64),
            np.array(pointers, np.int64) * _WORD,
        )
        self._sizes = np.array(sizes, np.int64).reshape(-1, 5).T
        self._strides = np.array(strides, np.int64).reshape(-1, 3).T

    def refused(self, number: Numbers) -> list[tuple[int, str]]:
        """The steps whose kernels do not run at sizes, and why.

        number  the values of extents there
        """
        _, places, least, most, multiple = self._sizes
        extents = number.array[places]
        wrong = np.flatnonzero((extents < least) | (extents > most) | (extents % multiple != 0))
        steps = np.searchsorted(self._first_size, wrong, side="right") - 1
        doubtful = sorted({*steps.tolist(), *self._related})
        because = ((n, self.operands.steps[n].refuses(number)) for n in doubtful)
        return [(n, words) for n, words in because if words]

    def laid(self, values: Values, numbers: Array, starts: Array) -> Laid:
        """All calls where extents have some values.

        numbers, starts  of each array: the number of the base of its memory, and how many bytes behind that this begins
        """
        words = self._words.copy()
        at, places = self._sizes[:2]
        words[at] = values.now[places]
        at, places, arrays = self._strides
        words[at] = values.of(places, arrays)
        address: int = words.__array_interface__["data"][0]
        offsets, outside = self.operands.offsets(values)
        behind = starts + offsets * self.operands.item
        count = len(self._pointers)
        pointers = np.stack((self._pointers + address, numbers[:count], behind[:count]), axis=1)
        calls = self._calls.copy()
        calls[:, 1:4] += address
        unlike = self.operands.unlike_kernels(values)
        ends = starts + values.of(self.operands.length) * self.operands.item
        return Laid(words, pointers, calls, outside, unlike, ends)

    def batch(self, first: int, end: int, laid: Laid) -> tuple[CallSequence, int]:
        """The calls from `first` to before `end`, all of machine code; and bytes of scratch of the greediest."""
        calls = laid.calls[first:end]
        at = calls[:, 2].tolist()  # of their sizes
        scratch = [need(own) for need, own in zip(self._workspaces[first:end], at, strict=True)]
        calls[:, 4] = [need > 0 for need in scratch]
        pointers = laid.pointers[self.operands.first[first] : self.operands.first[end]]
        return CallSequence(self._in_turn, pointers, calls, laid.words), max(scratch, default=0)
