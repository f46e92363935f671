"""The calls of a model at sizes that it had before, which machine code makes by itself: Python takes part in the first at each set of sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import chain
from typing import Any, NamedTuple

from offcut.backends.host.array_ir import dlpack_code
from offcut.backends.host.arrays import c_strides
from offcut.backends.host.builtin_function import (
    builtin_callable,
    fast_call_words,
    field_words,
    layout_holds,
    no_results,
    numpy_function,
)
from offcut.backends.host.by_name import call_by_name
from offcut.backends.host.sized_call_ir import HEAD, RECORD
from offcut.backends.memory import Block
from offcut.core.dtypes import ITEM_BYTES, numpy_dtype
from offcut.graph.graph import Graph
from offcut.graph.layout.placement import Place
from offcut.graph.models.frames import Frame
from offcut.graph.models.kernel_step import OBSERVER, Step

LOCKED_SECONDS = 20e-6
"""A run that took no longer keeps the interpreter's lock: other threads of Python would take longer to give it back."""


_FIRST, _NEXT = HEAD.index("first"), RECORD.index("next")
_ARENA, _ARENA_BYTES, _BUSY = (HEAD.index(name) for name in ("arena", "arena_bytes", "busy"))


class TypedArray(NamedTuple):
    """An input or an output of calls: its name, its element type, and how many axes it has."""

    name: str
    dtype: str
    rank: int


class _Record:
    """The words of a record, and the owner of the memory that they point to."""

    def __init__(self, words: Sequence[int], owner: object) -> None:
        self.words, self.owner = (ctypes.c_int64 * len(words))(*words), owner
        self.words[RECORD.index("owner")] = id(self)
        self.address = ctypes.addressof(self.words)


class SizedCalls:
    """The calls of a model at the sets of sizes that were added, as one function.

    call  takes arrays in order, and returns a tuple of new ones of the kind of the first; None for a call that it does not make: of sizes
          that were not added, of arrays that do not lie row by row, beside one of another thread, while it is observed, or where what
          runs fails
    """

    call: Callable[..., tuple[Any, ...] | None]

    def __init__(
        self,
        name: str,
        address: int,
        inputs: Sequence[TypedArray],
        outputs: Sequence[TypedArray],
        observer: ContextVar[Any],
    ) -> None:
        """Take the address of the function of `sized_call_ir`; 0 where there is none: then no call is made.

        observer  while it is not None, no call is made
        """
        arguments = (*inputs, *outputs)
        dtypes = [numpy_dtype(one.dtype) for one in arguments]
        counts = {"inputs": len(inputs), "outputs": len(outputs)}
        counts |= {"axes": sum(i.rank for i in inputs), "result_axes": sum(o.rank for o in outputs)}
        state = dict.fromkeys(("first", "arena", "arena_bytes", "busy"), 0)
        objects = {"observer": id(observer), "none": id(None)}
        objects["PyArray_NewFromDescr"] = numpy_function("PyArray_NewFromDescr")
        words = field_words(HEAD, {**state, **counts, **objects})
        for one, dtype in zip(arguments, dtypes, strict=True):
            shift = ITEM_BYTES[one.dtype].bit_length() - 1
            words += (id(dtype), one.rank, shift, dlpack_code(one.dtype))
        self._head = (ctypes.c_int64 * len(words))(*words)
        self._records: dict[object, _Record] = {}
        self._blocks = list[Block]()
        self.is_native = bool(address) and layout_holds()
        self.call = no_results
        if self.is_native:
            table = [*fast_call_words(no_results), ctypes.addressof(self._head)]
            owners = (self._head, dtypes, observer)
            self.call = builtin_callable(name, [a.name for a in inputs], address, table, owners)

    def add(
        self,
        key: object,
        shapes: Sequence[tuple[int, ...]],
        strides: Sequence[tuple[int, ...]],
        words: Mapping[str, int],
        owner: object,
    ) -> None:
        """Add a record, so that calls at its set of sizes are made from now on.

        key     of the set, to remove it by; one that is there stays
        shapes  of the inputs, then of the outputs; strides  of the outputs, whose elements lie side by side, in elements
        words   of the record, by the names of `RECORD`; one that is left out is 0
        owner   keeps the memory that the words point to
        """
        if key in self._records:
            return
        fields = (words.get(name, 0) for name in RECORD)
        record = _Record([*fields, *chain.from_iterable((*shapes, *strides))], owner)
        record.words[_NEXT] = self._head[_FIRST]
        self._records[key] = record
        self._head[_FIRST] = record.address

    def remove(self, key: object) -> None:
        """Remove the record of a set of sizes; nothing happens if there is none."""
        removed = self._records.pop(key, None)
        if removed is None:
            return
        following = removed.words[_NEXT]
        if self._head[_FIRST] == removed.address:
            self._head[_FIRST] = following
        for record in self._records.values():
            if record.words[_NEXT] == removed.address:
                record.words[_NEXT] = following

    def lend(self, block: Block) -> Block | None:
        """Lend a block to the calls as their arena if it is larger than the present one.

        Returns the block that others may have: the given one, or the one before; None where a call of another thread may be in that.
        """
        if block.bytes <= self._head[_ARENA_BYTES] or self._head[_BUSY]:
            return block
        self._blocks.append(block)
        self._head[_ARENA] = block.address
        self._head[_ARENA_BYTES] = (
            block.bytes
        )  # behind the address: a call may begin between the two
        if len(self._blocks) == 1 or self._head[_BUSY]:
            return None
        return self._blocks.pop(-2)


class KnownCalls(SizedCalls):
    """The calls of a model at sizes of earlier calls, whose frames they use.

    call  as `SizedCalls` says: from arrays in the order of the graph's inputs to a tuple of its outputs, while nobody observes them
    """

    def __init__(
        self, graph: Graph, steps: Sequence[Step], places: Mapping[str, Place], is_native: bool
    ) -> None:
        """Make no call yet.

        places     of the outputs
        is_native  whether calls allocate each output, and lay all in the memory of the process
        """
        self._name, self._inputs = graph.name, [one.name for one in graph.inputs]
        self._outputs, entries = graph.outputs, [step.entry for step in steps]
        is_native = is_native and bool(entries and graph.outputs) and None not in entries
        self._entry = entries[0] if is_native else None
        dtypes = {name: graph.values[name].dtype for name in graph.outputs}
        super().__init__(
            graph.name,
            self._entry.sized_call if self._entry else 0,
            [TypedArray(one.name, one.dtype, len(one.shape)) for one in graph.inputs],
            [TypedArray(n, dtypes[n], len(places[n].shape)) for n in graph.outputs],
            OBSERVER,
        )

    def function_of_calls(
        self, inputs: Mapping[str, str], outputs: Mapping[str, str], is_mapping: bool = False
    ) -> Callable[..., Any]:
        """Return a function that makes these calls: of a dict of arrays, which gives a dict, or of arrays in order; None for any other call.

        inputs, outputs  the names of each in dicts, with those of the graph
        is_mapping       whether arrays in order give a dict, too
        """
        return call_by_name(
            self._name,
            self._entry.by_name if self._entry else 0,
            self.call,
            {name: self._inputs.index(own) for name, own in inputs.items()},
            {name: self._outputs.index(own) for name, own in outputs.items()},
            is_mapping=is_mapping,
            owner=self._entry,
        )

    def keep(
        self,
        key: object,
        frame: Frame,
        shapes: Sequence[tuple[int, ...]],
        results: Sequence[tuple[tuple[int, ...], tuple[int, ...] | None, str]],
        seconds: float,
    ) -> bool:
        """Add the sizes of a frame, so that machine code makes calls at them; return whether it does. If so, the frame is theirs.

        key      to remove them by
        shapes   of the inputs; results  shape, strides in elements, None: row by row, and element type of each output
        seconds  that the frame took to run
        """
        words = frame.record_words() if self.is_native else None
        if words is None:
            return False
        words["unlocked"] = seconds > LOCKED_SECONDS
        every = [*shapes, *(shape for shape, _, _ in results)]
        steps = [strides or c_strides(shape) for shape, strides, _ in results]
        self.add(key, every, steps, words, frame)
        return True
