"""A call of a model: what depends on the sizes alone is found once for each, and a call fills in addresses.

A *frame* holds, for one set of sizes, the pointers, sizes and strides of every kernel's call, laid out as kernels read them.
A pointer is an offset from a base: the arena, or the memory of an input, a result or a constant. A call adds the bases, and
runs the kernels one after the other. Frames and arenas in use belong to one call, so that calls may run in several threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from offcut.backends.host import arrays as host
from offcut.backends.host.in_turn import WORKSPACE, Batch, check_status
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.core.expr import Expr
from offcut.describe.request import Array
from offcut.errors import CallError
from offcut.graph.models.arena import Arena
from offcut.graph.models.layout import Layout
from offcut.graph.models.microbatches import MicroBatches, Part
from offcut.graph.models.step import Operand, Step
from offcut.graph.placing.places import ZERO, Place
from offcut.graph.sizes.extents import Numbers, Valued

_WORD = 8  # bytes


NOWHERE, ARENA = 0, 1
"""The numbers of bases: of what is no address, and of the arena; the others are of the memory of values."""


class Shared(NamedTuple):
    """What all frames of a model have.

    name       of the graph
    bases      the numbers of the bases of values that are not in the arena
    addresses  of the last of these: constants; what is measured has an element in each frame
    lengths    elements of the memory of each value
    batches    of what kernels may run a part at a time; None: of nothing
    valued     the values of extents at any sizes
    """

    name: str
    steps: Sequence[Step]
    arena: Arena
    bases: Mapping[str, int]
    addresses: Sequence[int]
    lengths: Mapping[str, Expr]
    batches: MicroBatches | None
    valued: Valued

    def parts(self, number: Numbers, sizes: Mapping[str, int]) -> list[Part]:
        """The steps that run for a part of the batch at a time.

        number  the values of extents at the sizes
        """
        return [] if self.batches is None else self.batches.parts(number, sizes, self.valued)


@dataclass(frozen=True, slots=True)
class _Call:
    """A kernel's call at known sizes.

    places  the number of the base of each array, and its offset from it in bytes
    """

    step: Step
    places: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class Frame:
    """The calls of all kernels at one set of sizes.

    bases        the addresses of bases by their numbers; behind those of `Shared`, of arrays that move on from part to part
    arena_bytes  that a run needs, with scratch
    """

    def __init__(self, shared: Shared, number: Numbers, sizes: Mapping[str, int]) -> None:
        """The calls.

        number  the values of extents at the sizes

        Raises CallError for sizes at which an array reaches outside of another, or that a kernel was not compiled for.
        """
        self._shared, self._number, self._sizes = shared, number, sizes
        parts = shared.parts(number, sizes)
        self._layout = Layout(shared.arena, number, parts)
        self.arena_bytes = self._scratch_at = self._layout.bytes
        self._moving = dict[tuple[int, int], int]()
        runs, at = list[Callable[[int, int], int]](), 0
        for part, inner in zip(parts, self._layout.inner, strict=True):
            runs += self._at_once(shared.steps[at : part.first])
            runs.append(self._in_parts(part, inner))
            at = part.end
        self._runs = (*runs, *self._at_once(shared.steps[at:]))
        known = ARENA + 1 + len(shared.bases) - len(shared.addresses)
        every = (*(0 for _ in range(known)), *shared.addresses, *(0 for _ in self._moving))
        self.bases = (ctypes.c_int64 * len(every))(*every)
        self._measured = list[tuple[Array, Array]]()
        for dtype, limits in limits_of(shared.steps).items():
            found = np.zeros(len(limits), numpy_dtype(dtype))
            self._measured.append((found, np.array([*limits.values()])))
            for address, root in zip(_addresses(found), limits, strict=True):
                self.bases[shared.bases[root]] = address
        self._given = ctypes.addressof(self.bases)

    def run(self) -> None:
        """Run every kernel; addresses stand in `bases` by their numbers.

        Raises CallError where an index that depends on data leads out of an array.
        """
        scratch = self.bases[ARENA] + self._scratch_at
        for run in self._runs:
            status = run(self._given, scratch)
            if status:
                check_status(self._shared.name, status)

    @property
    def within(self) -> bool:
        """Whether what the last run measured is within its limits."""
        return all((found <= limits).all() for found, limits in self._measured)

    def place(self, root: str) -> tuple[int, int]:
        """The number of the base of a value's memory, and where it begins behind that, in bytes."""
        base = self._shared.bases.get(root, ARENA)
        return base, self._layout.starts[root] if base == ARENA else 0

    def _at_once(self, steps: Sequence[Step]) -> Iterator[Callable[[int, int], int]]:
        """Runs of steps for all of a batch."""
        for native, group in groupby(steps, lambda one: one.entry is not None):
            calls = [self._call(step) for step in group]
            if native:
                yield self._batch(calls)
            else:
                yield from (partial(self._called, one) for one in calls)

    def _in_parts(self, part: Part, inner: Collection[str]) -> Callable[[int, int], int]:
        """A run of steps for a part of the batch after the other.

        inner  values that lie in memory of one part
        """
        steps = self._shared.steps[part.first : part.end]
        batches = [
            self._batch([self._call(step, part.size, number, inner) for step in steps])
            for number in part.numbers
        ]
        moving = [(at, *key) for key, at in self._moving.items()]

        def run(given: int, scratch: int) -> int:
            for start in range(0, part.total, part.count):
                for at, base, each in moving:
                    self.bases[at] = self.bases[base] + start * each
                status = batches[start + part.count > part.total](given, scratch)
                if status:
                    return status
            return 0

        return run

    def _call(
        self,
        step: Step,
        size: str | None = None,
        part: Numbers | None = None,
        inner: Collection[str] = (),
    ) -> _Call:
        """The call of a step.

        size   of which it runs for a part; part: the values of extents for that
        inner  values that lie in memory of one part
        """
        shared, number = self._shared, part or self._number
        refused = step.refuses(number)
        if refused:
            at = ", ".join(f"{name} = {value}" for name, value in self._sizes.items())
            raise CallError(shared.name, f"cannot run at {at}", at=step.name, because=refused)
        moves = step.moves[size] if size else (ZERO,) * len(step.arrays)
        places, strides = list[tuple[int, int]](), list[int]()
        for one, move in zip(step.arrays, moves, strict=True):
            own = number if one.root in inner else self._number
            base, start = self.place(one.root)
            offset = checked(shared.name, one.value, one, own, self._sizes, shared.lengths)
            start += offset * ITEM_BYTES[one.dtype]
            each = 0 if one.root in inner else own(move) * ITEM_BYTES[one.dtype]
            if each:
                first = ARENA + 1 + len(shared.bases)
                base = self._moving.setdefault((base, each), first + len(self._moving))
            places.append((base, start))
            strides += map(own, one.strides)
        sizes = tuple(number(extent) for _, extent in step.sizes)
        return _Call(step, tuple(places), sizes, tuple(strides))

    def _batch(self, calls: Sequence[_Call]) -> Batch:
        """Calls of machine code."""
        words, moved, starts = list[int](), list[tuple[int, int, int]](), list[list[int]]()
        for call in calls:
            assert call.step.entry is not None
            first = len(words)
            moved += [(first + n, *place) for n, place in enumerate(call.places)]
            words += [0] * len(call.places)
            words += call.step.entry.constants
            starts.append([first, len(words), len(words) + len(call.sizes)])
            words += (*call.sizes, *call.strides)
        held = (ctypes.c_int64 * max(len(words), 1))(*words)
        at = ctypes.addressof(held)
        made = list[tuple[int, int, int, int, bool]]()
        for call, places in zip(calls, starts, strict=True):
            entry = call.step.entry
            assert entry is not None
            pointers, extents, strides = (at + start * _WORD for start in places)
            need = int(WORKSPACE(entry.workspace)(extents))
            self.arena_bytes = max(self.arena_bytes, self._scratch_at + need)
            made.append((entry.address, pointers, extents, strides, need > 0))
        pointers_at = [(at + word * _WORD, base, offset) for word, base, offset in moved]
        assert entry is not None
        return Batch(entry.in_turn, pointers_at, made, held)

    def _called(self, call: _Call, bases: int, workspace: int) -> int:
        """Run a kernel that has no machine code."""
        step, number = call.step, self._number
        views = [
            host.window(
                host.View(
                    self.bases[base] + offset,
                    tuple(map(number, one.shape)),
                    tuple(map(number, one.strides)),
                    one.dtype,
                    True,
                    None,
                    "memory",
                    True,
                )
            )
            for (base, offset), one in zip(call.places, step.arrays, strict=True)
        ]
        inputs, outs = views[: len(step.inputs)], tuple(views[len(step.inputs) :])
        known = {name: number(size) for name, size in step.sizes}
        step.kernel(*inputs, out=outs if len(outs) > 1 else outs[0], **known)
        return 0


def limits_of(steps: Sequence[Step]) -> dict[str, dict[str, float]]:
    """Of each element type, the values that are measured, and how large each may be."""
    found: dict[str, dict[str, float]] = {}
    for step in steps:
        for one, limit in zip(step.outputs, step.limits, strict=False):
            found.setdefault(one.dtype, {})[one.root] = limit
    return found


def _addresses(array: Array) -> range:
    start: int = array.__array_interface__["data"][0]
    return range(start, start + array.nbytes, array.itemsize)


def extents_of(steps: Sequence[Step], arena: Arena) -> Iterator[Expr]:
    """What frames ask the values of."""
    for step in steps:
        yield from (extent for _, extent in step.sizes)
        for one in step.arrays:
            yield from (one.offset, *one.shape, *one.strides)
        for moves in step.moves.values():
            yield from moves
    yield from arena.needs.values()


def checked(
    name: str,
    value: str,
    one: Operand | Place,
    number: Numbers,
    sizes: Mapping[str, int],
    lengths: Mapping[str, Expr],
) -> int:
    """The offset of a value, in elements, all of which lie in its root.

    name     of the graph
    lengths  elements of each root

    Raises CallError where one lies outside.
    """
    shape, strides, offset = (
        [*map(number, one.shape)],
        [*map(number, one.strides)],
        number(one.offset),
    )
    low = high = offset
    for extent, stride in zip(shape, strides, strict=True):
        low += min((extent - 1) * stride, 0)
        high += max((extent - 1) * stride, 0)
    if min(shape, default=1) == 0:
        return 0
    if min(shape, default=1) < 0 or low < 0 or high >= number(lengths[one.root]):
        raise CallError(
            name,
            f"cannot run at {', '.join(f'{n} = {v}' for n, v in sizes.items())}",
            at=value,
            because=f"an array of shape {tuple(shape)} reaches outside of {one.root}",
        )
    return offset
