"""The calls of a model at sizes that it had before, which machine code makes by itself: Python takes part in the first at each set of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from offcut.backends.host.arrays import c_strides
from offcut.backends.host.by_name import call_by_name
from offcut.backends.host.sized_calls import SizedCalls, TypedArray
from offcut.graph.graph import Graph
from offcut.graph.models.observing import OBSERVER
from offcut.graph.models.running import Frame
from offcut.graph.models.step import Step
from offcut.graph.placing.places import Place

LOCKED_SECONDS = 20e-6
"""A run that took no longer keeps the interpreter's lock: other threads of Python would take longer to give it back."""


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

    def named(
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


__all__ = ["KnownCalls"]
