"""A call of a model: what depends on the sizes alone is found once for each, and a call fills in addresses.

A *frame* holds, for one set of sizes, the pointers, sizes and strides of every kernel's call, laid out as kernels read them.
A pointer is an offset from a base: the arena, or the memory of an input, a result or a constant. A call adds the bases, and
runs the kernels one after the other. Frames and arenas in use belong to one call, so that calls may run in several threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from offcut.backends.base import LEFT_AN_ARRAY, Relation
from offcut.backends.host import arrays as host
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr
from offcut.describe.request import Array
from offcut.errors import CallError, InternalError
from offcut.graph.arena import ALIGNMENT, Arena
from offcut.graph.extents import Numbers
from offcut.graph.kernels import Operand, Step
from offcut.graph.places import Place

_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
_WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_WORD = 8  # bytes


NOWHERE, ARENA = 0, 1
"""The numbers of bases: of what is no address, and of the arena; the others are of the memory of values."""


class Frame:
    """The calls of all kernels at one set of sizes.

    bases    the numbers of the bases of values that are not in the arena
    number   the values of extents at the sizes
    lengths  elements of the memory of each value that has its own

    Raises CallError for sizes at which an array reaches outside of another, or that a kernel was not compiled for.
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[Step],
        arena: Arena,
        bases: Mapping[str, int],
        number: Numbers,
        sizes: Mapping[str, int],
        lengths: Mapping[str, Expr],
    ) -> None:
        self.name, self.steps = name, steps
        self.starts, total = list[int](), 0
        for slot in arena.slots:
            self.starts.append(total)
            total += _rounded(max(map(number, slot.bytes)))
        self.arena_bytes = total
        # Words of a call: pointers, then sizes, then strides; `whose` is the base of each word, 0 for what is no address.
        words, whose, places = list[int](), list[int](), list[tuple[int, int, int]]()
        for step in steps:
            first = len(words)
            for one in (*step.inputs, *step.outputs):
                base = bases.get(one.root, ARENA)
                start = self.starts[arena.of[one.root]] if base == ARENA else 0
                offset = checked(name, one.value, one, number, sizes, lengths)
                words.append(start + offset * ITEM_BYTES[one.dtype])
                whose.append(base)
            packed = () if step.entry is None else step.entry.constants
            words += packed
            whose += [NOWHERE] * len(packed)
            second = len(words)
            words += _sizes(name, step, number, sizes)
            third = len(words)
            words += [number(s) for one in (*step.inputs, *step.outputs) for s in one.strides]
            whose += [NOWHERE] * (len(words) - second)
            places.append((first, second, third))
        self.template = np.array(words, np.int64)
        self.words = np.array(words, np.int64)
        self.whose = np.array(whose, np.intp)
        start = self.words.ctypes.data
        self.calls: list[tuple[Callable[..., int], int, int, int, bool]] = []
        self.scratch_at = total
        for step, place in zip(steps, places, strict=True):
            pointers, extents, strides = (start + at * _WORD for at in place)
            if step.entry is None:
                run = partial(self._called, step, number, place[0])
                self.calls.append((run, pointers, extents, strides, False))
                continue
            need = int(_WORKSPACE(step.entry.workspace)(extents))
            self.arena_bytes = max(self.arena_bytes, total + need)
            entry = _ENTRY(step.entry.address)
            self.calls.append((entry, pointers, extents, strides, need > 0))

    def run(self, bases: Array) -> None:
        """Run every kernel.

        bases  addresses, by their numbers

        Raises CallError where an index that depends on data leads out of an array.
        """
        np.add(self.template, bases[self.whose], out=self.words)
        scratch = int(bases[ARENA]) + self.scratch_at
        for entry, pointers, extents, strides, scratches in self.calls:
            status = entry(pointers, extents, strides, scratch if scratches else None)
            if status:
                self._failed(status)

    def _failed(self, status: int) -> None:
        if status == LEFT_AN_ARRAY:
            raise CallError(
                self.name,
                "cannot run on these arrays",
                because="an index that is read from them leads outside of an array",
            )
        raise InternalError(f"{self.name}: the compiled code returned {status}")

    def _called(self, step: Step, number: Numbers, first: int, *_: object) -> int:
        """Run a kernel that has no machine code."""
        views = [
            host.window(
                host.View(
                    int(self.words[first + place]),
                    tuple(map(number, one.shape)),
                    tuple(map(number, one.strides)),
                    one.dtype,
                    True,
                    None,
                    "memory",
                    True,
                )
            )
            for place, one in enumerate((*step.inputs, *step.outputs))
        ]
        inputs, outs = views[: len(step.inputs)], tuple(views[len(step.inputs) :])
        known = {name: number(size) for name, size in step.sizes}
        step.kernel(*inputs, out=outs if len(outs) > 1 else outs[0], **known)
        return 0


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
