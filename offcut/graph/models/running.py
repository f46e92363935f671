"""A call of a model: what depends on the sizes alone is found once for each, and a call fills in addresses.

A *frame* holds, for one set of sizes, the pointers, sizes and strides of every kernel's call, laid out as kernels read them.
A pointer is an offset from a base: the arena, or the memory of an input, a result or a constant. A call adds the bases, and
runs the kernels one after the other. Frames and arenas in use belong to one call, so that calls may run in several threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np

from offcut.backends.base import Relation
from offcut.backends.host import arrays as host
from offcut.backends.host.in_turn import WORKSPACE, Batch, check_status
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.core.expr import Expr
from offcut.describe.request import Array
from offcut.errors import CallError
from offcut.graph.models.arena import ALIGNMENT, Arena
from offcut.graph.models.step import Operand, Step
from offcut.graph.placing.places import Place
from offcut.graph.sizes.extents import Numbers

_WORD = 8  # bytes


NOWHERE, ARENA = 0, 1
"""The numbers of bases: of what is no address, and of the arena; the others are of the memory of values."""


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

    bases      the numbers of the bases of values that are not in the arena
    addresses  of the last of these: constants; what is measured has an element here
    number     the values of extents at the sizes
    lengths    elements of the memory of each value that has its own

    Raises CallError for sizes at which an array reaches outside of another, or that a kernel was not compiled for.
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[Step],
        arena: Arena,
        bases: Mapping[str, int],
        addresses: Sequence[int],
        number: Numbers,
        sizes: Mapping[str, int],
        lengths: Mapping[str, Expr],
    ) -> None:
        self.name, self.number = name, number
        self.starts, total = list[int](), 0
        for slot in arena.slots:
            self.starts.append(total)
            total += _rounded(max(map(number, slot.bytes)))
        self.arena_bytes = self.scratch_at = total
        known = [0] * (ARENA + 1 + len(bases) - len(addresses))
        self.bases = (ctypes.c_int64 * (len(known) + len(addresses)))(*known, *addresses)
        self._measured = list[tuple[Array, Array]]()
        for dtype, limits in limits_of(steps).items():
            found = np.zeros(len(limits), numpy_dtype(dtype))
            self._measured.append((found, np.array([*limits.values()])))
            for at, root in zip(_addresses(found), limits, strict=True):
                self.bases[bases[root]] = at

        def place(one: Operand) -> tuple[int, int]:
            base = bases.get(one.root, ARENA)
            start = self.starts[arena.of[one.root]] if base == ARENA else 0
            offset = checked(name, one.value, one, number, sizes, lengths)
            return base, start + offset * ITEM_BYTES[one.dtype]

        calls = list[_Call]()
        for step in steps:
            arrays = (*step.inputs, *step.outputs)
            strides = tuple(number(stride) for one in arrays for stride in one.strides)
            given = tuple(_sizes(name, step, number, sizes))
            calls.append(_Call(step, tuple(map(place, arrays)), given, strides))
        self.runs = list[Callable[[int, int], int]]()
        for native, group in groupby(calls, lambda one: one.step.entry is not None):
            if native:
                self.runs.append(self._batch([*group]))
            else:
                self.runs += [partial(self._called, one) for one in group]
        self._given = ctypes.addressof(self.bases)

    def run(self) -> None:
        """Run every kernel; addresses stand in `bases` by their numbers.

        Raises CallError where an index that depends on data leads out of an array.
        """
        scratch = self.bases[ARENA] + self.scratch_at
        for run in self.runs:
            status = run(self._given, scratch)
            if status:
                check_status(self.name, status)

    @property
    def within(self) -> bool:
        """Whether what the last run measured is within its limits."""
        return all((found <= limits).all() for found, limits in self._measured)

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
            self.arena_bytes = max(self.arena_bytes, self.scratch_at + need)
            made.append((entry.address, pointers, extents, strides, need > 0))
        pointers_at = [(at + word * _WORD, base, offset) for word, base, offset in moved]
        assert entry is not None
        return Batch(entry.in_turn, pointers_at, made, held)

    def _called(self, call: _Call, bases: int, workspace: int) -> int:
        """Run a kernel that has no machine code."""
        step, number = call.step, self.number
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
            for (base, offset), one in zip(call.places, (*step.inputs, *step.outputs), strict=True)
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
        for one in (*step.inputs, *step.outputs):
            yield from (one.offset, *one.shape, *one.strides)
    for slot in arena.slots:
        yield from slot.bytes


def _rounded(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT


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


def _sizes(name: str, step: Step, number: Numbers, sizes: Mapping[str, int]) -> list[int]:
    """The kernel's sizes, checked against what it was compiled for."""
    found = {facts: number(expr) for facts, expr in step.sizes}
    for facts in step.kernel.signature.sizes:
        value = found[facts.name]
        if not facts.min <= value <= facts.max or value % facts.multiple_of:
            raise CallError(
                name,
                f"cannot run at {', '.join(f'{n} = {v}' for n, v in sizes.items())}",
                at=step.name,
                because=f"an extent is {value}, and its kernel takes {facts.min}…{facts.max}",
            )
    for relation in step.kernel.signature.relations:
        if not _holds(relation, found):
            raise CallError(name, f"cannot run {step.name}", because=f"it assumes {relation.text}")
    return [found[facts.name] for facts in step.kernel.signature.sizes]


def _holds(relation: Relation, sizes: Mapping[str, int]) -> bool:
    total = relation.const + sum(factor * sizes[name] for name, factor in relation.terms)
    if relation.kind == ">=":
        return total >= 0
    return (total % relation.modulus if relation.kind == "mod" else total) == 0
