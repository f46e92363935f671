"""The calls of a model's kernels, laid out as kernels read them but for numbers that depend on sizes: these are picked, all at
once, from the values of extents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from offcut.backends.host.call_sequence import WORKSPACE, CallSequence
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr
from offcut.describe.request import Array
from offcut.graph.layout.placement import ONE, ZERO
from offcut.graph.models.kernel_step import Operand, Step
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

    def refusals(self, number: Numbers) -> list[tuple[int, str]]:
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

    def calls_at(self, values: Values, numbers: Array, starts: Array) -> Laid:
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

    def batch(self, first: int, end: int, layout: Laid) -> tuple[CallSequence, int]:
        """The calls from `first` to before `end`, all of machine code; and bytes of scratch of the greediest."""
        calls = layout.calls[first:end]
        at = calls[:, 2].tolist()  # of their sizes
        scratch = [need(own) for need, own in zip(self._workspaces[first:end], at, strict=True)]
        calls[:, 4] = [need > 0 for need in scratch]
        pointers = layout.pointers[self.operands.first[first] : self.operands.first[end]]
        return CallSequence(self._in_turn, pointers, calls, layout.words), max(scratch, default=0)


# The arrays of all calls of a model, and those that it gives, as columns of numbers: what they are at any sizes is picked from the
# values of its extents.


class Values(NamedTuple):
    """The values of extents that some steps run with.

    now    for a part of the batch, or for all of it; whole: for all of it
    inner  of each array of a model, whether it lies in memory of one part, and so as `now` says
    """

    now: Array
    whole: Array
    inner: Array

    def of(self, places: Array, arrays: Array | slice = slice(None)) -> Array:
        """Of extents that arrays have, one or a row for each of them."""
        if self.now is self.whole:
            values: Array = self.whole[places]
            return values
        own = self.inner[arrays].reshape(-1, *[1] * (places.ndim - 1))
        return np.where(own, self.now[places], self.whole[places])


class Operands:
    """The inputs and outputs of every step, one after the other, then the outputs of the graph; where a column is of extents, it has
    their places among the values of `Valued`.

    first    the number of each step's first array, and that of the graph's first output
    roots    whose memory each lies in
    item     bytes of an element
    offset, shape, strides  in elements; axes that an array has not are of one element
    length   elements of the memory
    kernel_shape  as the signatures of the kernels say it; of the graph's outputs, as `shape`
    """

    def __init__(
        self,
        steps: Sequence[Step],
        outputs: Sequence[Operand],
        lengths: Mapping[str, Expr],
        valued: Valued,
    ) -> None:
        arrays = [*(one for step in steps for one in step.arrays), *outputs]
        self.steps, self.arrays, self._place = tuple(steps), tuple(arrays), valued.place
        self.first = [0, *accumulate(len(step.arrays) for step in steps)]
        self.roots = tuple(one.root for one in arrays)
        self.item = np.array([ITEM_BYTES[one.dtype] for one in arrays], np.int64)
        self.offset = self._column(one.offset for one in arrays)
        self.length = self._column(lengths[root] for root in self.roots)
        rank = max((len(one.shape) for one in arrays), default=0)
        self.shape = self._table([one.shape for one in arrays], rank, ONE)
        self.strides = self._table([one.strides for one in arrays], rank, ZERO)
        self.kernel_shape = self._table(
            [*(shape for one in steps for shape in one.kernel_shapes), *(o.shape for o in outputs)],
            rank,
            ONE,
        )
        unequal = (self.kernel_shape != self.shape).any(axis=1)
        native = [step.entry is not None for step in steps for _ in step.arrays]
        lanes = [
            (one.shape[-1], one.strides[-1]) if one.shape and code else (ONE, ONE)
            for one, code in zip(arrays, (*native, *[False] * len(outputs)), strict=True)
        ]
        apart = [extent != ONE and stride != ONE for extent, stride in lanes]
        self._unproved = np.flatnonzero(unequal | np.array(apart, np.bool_))
        self._lanes = self._table([lanes[n] for n in self._unproved], 2, ONE)

    def offsets(self, values: Values) -> tuple[Array, Array]:
        """Where each array begins, in elements of its memory; and the numbers of those of which an element lies outside."""
        shape, offset = values.of(self.shape), values.of(self.offset)
        result: Array = np.where(shape.min(axis=1, initial=1) == 0, 0, offset)
        return result, self._outside(values, shape, offset)

    def moved_outside(self, values: Values, moves: Array) -> Array:
        """Return the numbers of the arrays of which a kernel's element lies outside of its memory, where each begins `moves` elements
        later.
        """
        return self._outside(values, values.now[self.kernel_shape], values.of(self.offset) + moves)

    def unlike_kernels(self, values: Values) -> Array:
        """Return the numbers of the arrays that are unlike what their kernels take: of another extent, or with a last axis whose elements
        do not lie side by side. Most are seen to be alike at all sizes.
        """
        own = self._unproved
        if not len(own):
            return own
        unequal = (values.now[self.kernel_shape[own]] != values.now[self.shape[own]]).any(axis=1)
        extent, stride = values.now[self._lanes].T
        unlike: Array = own[unequal | ((extent > 1) & (stride != 1))]
        return unlike

    def _outside(self, values: Values, shape: Array, offset: Array) -> Array:
        """Return the numbers of the arrays of which an element lies outside of their memory."""
        strides, length = values.of(self.strides), values.of(self.length)
        reach = (shape - 1) * strides
        low = offset + np.minimum(reach, 0).sum(axis=1)
        high = offset + np.maximum(reach, 0).sum(axis=1)
        least = shape.min(axis=1, initial=1)
        outside: Array = (least < 0) | ((least > 0) & ((low < 0) | (high >= length)))
        return np.flatnonzero(outside)

    def batch_strides(self, size: str) -> Array:
        """The stride of each array of a step along a size; 0 of those of kernels that do not run for a part of it."""
        strides_of_all = list[Expr]()
        for step in self.steps:
            strides = step.batch_strides.get(size, "")
            strides_of_all += (ZERO,) * len(step.arrays) if isinstance(strides, str) else strides
        return self._column(strides_of_all)

    def bytes(self, values: Array) -> Array:
        """Of each array of a step.

        values  of the extents
        """
        end = self.first[-1]
        sizes: Array = values[self.shape[:end]].prod(axis=1) * self.item[:end]
        return sizes

    def _column(self, extents: Iterable[Expr]) -> Array:
        return np.array([*map(self._place, extents)], np.int64)

    def _table(self, rows: Sequence[Sequence[Expr]], rank: int, none: Expr) -> Array:
        """A row for each array, filled up with `none`."""
        columns = [self._column((*row, *[none] * (rank - len(row)))) for row in rows]
        return np.array(columns, np.int64).reshape(len(rows), rank)
