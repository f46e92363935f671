"""A call of a model: what depends on the sizes alone is found once for each, and a call fills in addresses.

A *frame* holds, for one set of sizes, the pointers, sizes and strides of every kernel's call, laid out as kernels read them.
A pointer is an offset from a base: the arena, or the memory of an input, a result or a constant. A call adds the bases, and
runs the kernels one after the other. Frames and arenas in use belong to one call, so that calls may run in several threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from offcut.backends.abi import DeviceEntry
from offcut.backends.host import arrays as host
from offcut.backends.host.call_sequence import CallSequence, check_status
from offcut.backends.memory import Memory
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Expr
from offcut.describe.request import Array
from offcut.errors import CallError, InternalError, OffcutError
from offcut.graph.layout.placement import ONE, ZERO
from offcut.graph.models.batches.arena_plan import ArenaPlan
from offcut.graph.models.batches.microbatches import MicroBatches, Run
from offcut.graph.models.compiling.kernels import of_node
from offcut.graph.models.kernel_step import Observer, Step
from offcut.graph.models.memory.arena import Arena
from offcut.graph.models.memory.calls import Calls, Laid, Values
from offcut.graph.sizes.extent_values import Numbers, Valued

MOST = 2**62
"""Elements and bytes that a call counts."""
ARENA = 1
"""The number of the base that is the arena; 0 is that of what is no address, the others are of the memory of values."""


class Prepared(NamedTuple):
    """What all frames of a model have.

    name       of the graph
    memory     that values lie in
    bases      the numbers of the bases of values that are not in the arena
    addresses  of the last of these: constants; what is measured has an element in each frame
    calls      what no size changes of the calls; numbers: of the base of each array of these
    batches    what runs for a part of a size at a time
    valued     the values of extents at any sizes
    """

    name: str
    memory: Memory
    steps: Sequence[Step]
    arena: Arena
    bases: Mapping[str, int]
    addresses: Sequence[int]
    calls: Calls
    numbers: Array
    batches: MicroBatches
    valued: Valued

    def runs(self, number: Numbers, sizes: Mapping[str, int]) -> tuple[list[Run], list[str]]:
        """The steps that run for a part of the batch at a time; and which do not as asked for, and why.

        number  the values of extents at the sizes
        """
        if max(number.values, default=0) > MOST:
            return [], []
        return self.batches.runs(number, sizes, self.valued, self.calls)


class Frame:
    """The calls of all kernels at one set of sizes.

    bases        addresses: 0, the arena, values, constants, by the numbers of `Prepared`; then one for each array that is a part of the
                 batch, of another base and another stride each: where that of the part that runs begins
    arena_bytes  that a run needs, with scratch
    stream       of a device, on which it runs
    observer     of the run in progress, of a frame whose kernels run one by one
    """

    observer: Observer

    def __init__(
        self,
        shared: Prepared,
        number: Numbers,
        sizes: Mapping[str, int],
        one_by_one: bool = False,
    ) -> None:
        """Lay out all calls.

        number  the values of extents at the sizes
        one_by_one  whether an observer is told of each kernel

        Raises CallError for sizes at which an array reaches outside of another, or that a kernel was not compiled for.
        """
        self._shared, self._number, self._sizes, self.stream = shared, number, sizes, 0
        self._one_by_one = one_by_one
        operands = shared.calls.operands
        if max(number.values, default=0) > MOST:
            raise refusal(shared.name, sizes, "", f"an extent is more than {MOST:,}")
        in_parts, _ = shared.runs(number, sizes)
        self._plan = ArenaPlan(shared.arena, number, in_parts)
        self.arena_bytes = self._scratch_at = self._plan.bytes
        self._starts = np.array([self._plan.starts.get(r, 0) for r in operands.roots], np.int64)
        inner = frozenset[str]().union(*self._plan.inner)
        self._inner = np.array([root in inner for root in operands.roots], np.bool_)
        self._laid, self._refused = dict[int, Laid](), shared.calls.refusals(number)
        self._check_calls(number, slice(operands.first[-1], len(operands.arrays)))
        self._moving, self._known = dict[tuple[int, int], int](), ARENA + 1 + len(shared.bases)
        runs, at = list[Callable[[int, int], int]](), 0
        for one in in_parts:
            runs += self._at_once(at, one.first)
            runs.append(self._in_parts(one))
            at = one.end
        self._runs = (*runs, *self._at_once(at, len(shared.steps)))
        self._laid.clear()
        known = self._known - len(shared.addresses)
        bases = (*(0 for _ in range(known)), *shared.addresses, *(0 for _ in self._moving))
        self.bases = (ctypes.c_int64 * len(bases))(*bases)
        self._measured = list[tuple[Array, Array]]()
        for dtype, limits in limits_of(shared.steps).items():
            maxima = np.zeros(len(limits), numpy_dtype(dtype))
            self._measured.append((maxima, np.array([*limits.values()])))
            for address, root in zip(_addresses(maxima), limits, strict=True):
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
        if not self._measured:
            return True
        return all((values <= limits).all() for values, limits in self._measured)

    def record_words(self) -> dict[str, int] | None:
        """Return the words of a record by which `SizedCalls` runs the frame; None unless it is a single sequence of machine code.

        They point to memory of the frame. The word ``unlocked`` is left to the caller.
        """
        first, *others = self._runs or (None,)
        if others or not isinstance(first, CallSequence):
            return None
        pointers, pointer_count, calls, call_count = first.given
        rows = [
            (address, value.itemsize == 8, int(limit.view(np.int64)))
            for value, limits in self._measured
            for address, limit in zip(_addresses(value), limits, strict=True)
        ]
        self._limits = np.array(rows, np.int64)
        return {
            "arena_bytes": self.arena_bytes,
            "scratch": self._scratch_at,
            "bases": self._given,
            "pointers": pointers,
            "pointer_count": pointer_count,
            "calls": calls,
            "call_count": call_count,
            "limits": self._limits.__array_interface__["data"][0],
            "limit_count": len(rows),
        }

    def place(self, root: str) -> tuple[int, int]:
        """The number of the base of a value's memory, and where it begins behind that, in bytes."""
        base = self._shared.bases.get(root, ARENA)
        return base, self._plan.starts[root] if base == ARENA else 0

    def _at_once(self, first: int, end: int) -> Iterator[Callable[[int, int], int]]:
        """Runs of steps from `first` to before `end` for all of a batch."""
        shared, arrays = self._shared, self._shared.calls.operands.first
        steps = shared.steps
        for native, group in groupby(range(first, end), lambda n: steps[n].entry is not None):
            at, *others = group
            behind = at + 1 + len(others)
            for n, because in self._refused:
                if at <= n < behind:
                    raise refusal(shared.name, self._sizes, steps[n].name, because)
            layout = self._check_calls(self._number, slice(arrays[at], arrays[behind]))
            if native:
                yield self._batch(at, behind, layout)
                continue
            for n in range(at, behind):
                places = layout.pointers[arrays[n] : arrays[n + 1], 1:].tolist()
                run = self._call(steps[n], places)
                yield self._with_observer(steps[n], run) if self._one_by_one else run

    def _in_parts(self, steps: Run) -> Callable[[int, int], int]:
        """A run of steps for a part of the batch after the other."""
        calls, first = list[Callable[[int, int], int]](), self._shared.calls.operands.first
        arrays = slice(first[steps.first], first[steps.end])
        operands, every = self._shared.calls.operands, np.zeros(len(self._inner), np.int64)
        moves = every[arrays] = self._moves(steps.part.size)[arrays]
        for number in steps.numbers:  # their kernels run there, as was asked when they were chosen
            layout = self._check_calls(number, arrays)
            bases = layout.pointers[arrays, 1]
            for n in np.flatnonzero(moves).tolist():
                key = int(bases[n]), int(moves[n])
                bases[n] = self._moving.setdefault(key, self._known + len(self._moving))
            calls.append(self._batch(steps.first, steps.end, layout))
            last_start = (steps.total - 1) // steps.part.count * steps.part.count
            if number is steps.numbers[0] and len(steps.numbers) > 1:
                last_start -= steps.part.count
            escapes = operands.moved_outside(
                self._values(number), every // operands.item * last_start
            )
            self._check_kernels(escapes.tolist(), arrays)
        whole, last = calls[0], calls[-1]
        moving = [(at, *key) for key, at in self._moving.items()]  # those of parts before it, too
        total, count = steps.total, steps.part.count

        def run(bases: int, scratch: int) -> int:
            for start in range(0, total, count):
                for at, base, each in moving:
                    self.bases[at] = self.bases[base] + start * each
                run_part = whole if start + count <= total else last
                status = run_part(bases, scratch)
                if status:
                    return status
            return 0

        return run

    def _moves(self, size: str) -> Array:
        """Bytes that each array moves on by for one more of a size; 0 of those in memory of one part."""
        each = self._number.array[self._shared.batches.strides(size)]
        each *= self._shared.calls.operands.item[: len(each)]
        each[self._inner[: len(each)]] = 0
        return each

    def _check_calls(self, number: Numbers, arrays: slice) -> Laid:
        """All calls where extents have some values, found once for each of these.

        number  the values
        arrays  that are to run so

        Raises CallError where one reaches outside of its memory, InternalError where it is not what its kernel takes.
        """
        shared, operands = self._shared, self._shared.calls.operands
        records = self._laid.get(id(number))
        if records is None:
            records = shared.calls.calls_at(self._values(number), shared.numbers, self._starts)
            self._laid[id(number)] = records
        for n in records.outside.tolist():
            if arrays.start <= n < arrays.stop:
                one = operands.arrays[n]
                shape = tuple(map(number, one.shape))
                because = f"an array of shape {shape} reaches outside of {one.root}"
                raise refusal(shared.name, self._sizes, one.value, because)
        in_arena = shared.numbers[arrays] == ARENA
        beyond = np.flatnonzero(in_arena & (records.ends[arrays] > self._plan.bytes)) + arrays.start
        self._check_kernels([*records.unlike.tolist(), *beyond.tolist()], arrays)
        return records

    def _values(self, number: Numbers) -> Values:
        return Values(number.array, self._number.array, self._inner)

    def _check_kernels(self, wrong: Iterable[int], arrays: slice) -> None:
        """Check that no array of a kernel that runs is among those whose memory is not what the kernel takes."""
        for n in wrong:
            if arrays.start <= n < arrays.stop:
                one, number = self._shared.calls.operands.arrays[n], self._number
                shape, strides = (tuple(map(number, each)) for each in (one.shape, one.strides))
                raise InternalError(
                    f"{self._shared.name}: {one.value}, of shape {shape} with strides {strides}, is not what its kernel takes"
                )

    def _batch(self, first: int, end: int, layout: Laid) -> Callable[[int, int], int]:
        """Return calls of machine code."""
        if not self._one_by_one:
            return self._sequence(first, end, layout)
        steps = self._shared.steps
        calls = [
            self._with_observer(steps[n], self._sequence(n, n + 1, layout))
            for n in range(first, end)
        ]

        def run(bases: int, scratch: int) -> int:
            return next((status for call in calls if (status := call(bases, scratch))), 0)

        return run

    def _with_observer(
        self, step: Step, run: Callable[[int, int], int]
    ) -> Callable[[int, int], int]:
        """Return a run of one kernel that the observer of the frame is told of."""
        memory = self._shared.memory

        def observed(bases: int, scratch: int) -> int:
            with self.observer.kernel(step):
                status = run(bases, scratch)
                if not memory.is_host:
                    memory.wait(self.stream)
            return status

        return observed

    def _sequence(self, first: int, end: int, layout: Laid) -> CallSequence:
        batch, need = self._shared.calls.batch(first, end, layout)
        self.arena_bytes = max(self.arena_bytes, self._scratch_at + need)
        return batch

    def _call(self, step: Step, places: Sequence[tuple[int, int]]) -> Callable[[int, int], int]:
        """Return what runs a kernel that has no machine code.

        places  of its arrays: base, and bytes behind it
        """
        memory, number = self._shared.memory, self._number
        sizes = [number(size) for _, size in step.sizes]
        if step.device is not None:
            need = step.device.workspace(sizes)
            self.arena_bytes = max(self.arena_bytes, self._scratch_at + need)
            return partial(self._on_device, step, step.device, places, sizes)
        if memory.is_host:
            return partial(self._call_kernel, step, places)
        staged = [
            np.empty(tuple(map(number, one.shape)), numpy_dtype(one.dtype)) for one in step.arrays
        ]
        return partial(self._on_host, step, places, staged)

    def _on_device(
        self,
        step: Step,
        entry: DeviceEntry,
        places: Sequence[tuple[int, int]],
        sizes: Sequence[int],
        bases: int,
        workspace: int,
    ) -> int:
        """Call a kernel of a device."""
        with self._naming_node(step):
            pointers = [self.bases[base] + behind for base, behind in places]
            entry(pointers, sizes, workspace, self.stream)
        return 0

    def _on_host(
        self,
        step: Step,
        places: Sequence[tuple[int, int]],
        staged: Sequence[Array],
        bases: int,
        workspace: int,
    ) -> int:
        """Run a kernel of the process on copies of what lies on a device."""
        memory, count = self._shared.memory, len(step.inputs)
        copies = [
            (self.bases[base] + behind, array.__array_interface__["data"][0], array.nbytes)
            for (base, behind), array in zip(places, staged, strict=True)
        ]
        for address, target, bytes_ in copies[:count]:
            memory.read(target, address, bytes_, self.stream)
        memory.wait(self.stream)
        self._run_kernel(step, staged)
        for address, source, bytes_ in copies[count:]:
            memory.write(address, source, bytes_, self.stream)
        return 0

    def _call_kernel(
        self, step: Step, places: Sequence[tuple[int, int]], bases: int, workspace: int
    ) -> int:
        """Run a kernel that has no machine code, where its arrays are."""
        number = self._number
        views = [
            host.window(
                host.ArrayView(
                    self.bases[base] + int(offset),
                    tuple(map(number, one.shape)),
                    tuple(map(number, one.strides)),
                    one.dtype,
                    True,
                    None,
                    "memory",
                    True,
                )
            )
            for (base, offset), one in zip(places, step.arrays, strict=True)
        ]
        self._run_kernel(step, views)
        return 0

    def _run_kernel(self, step: Step, arrays: Sequence[Array]) -> None:
        inputs, outs = arrays[: len(step.inputs)], tuple(arrays[len(step.inputs) :])
        known = {name: self._number(size) for name, size in step.sizes}
        with self._naming_node(step):
            step.kernel(*inputs, out=outs if len(outs) > 1 else outs[0], **known)

    @contextmanager
    def _naming_node(self, step: Step) -> Iterator[None]:
        """Let errors of a kernel name the node of the model."""
        try:
            yield
        except OffcutError as refused:
            raise of_node(refused, step.name, step.nodes) from refused


def limits_of(steps: Sequence[Step]) -> dict[str, dict[str, float]]:
    """Of each element type, the values that are measured, and how large each may be."""
    limits_by_type: dict[str, dict[str, float]] = {}
    for step in steps:
        for one, limit in zip(step.outputs, step.limits, strict=False):
            limits_by_type.setdefault(one.dtype, {})[one.root] = limit
    return limits_by_type


def _addresses(array: Array) -> range:
    start: int = array.__array_interface__["data"][0]
    return range(start, start + array.nbytes, array.itemsize)


def extents_of(steps: Sequence[Step], arena: Arena) -> Iterator[Expr]:
    """What frames ask the values of."""
    yield from (ZERO, ONE)
    for step in steps:
        yield from (extent for _, extent in step.sizes)
        for one, shape in zip(step.arrays, step.kernel_shapes, strict=True):
            yield from (one.offset, *one.shape, *one.strides, *shape)
        for strides in step.batch_strides.values():
            if not isinstance(strides, str):
                yield from strides
    yield from arena.needs.values()


def refusal(name: str, sizes: Mapping[str, int], at: str, because: str) -> CallError:
    """Of a call at these sizes.

    at  a value or a kernel
    """
    where = ", ".join(f"{size} = {value}" for size, value in sizes.items())
    return CallError(name, f"cannot run at {where}", at=at, because=because)
