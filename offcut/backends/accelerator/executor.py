"""A lowered program as what a call runs: arrays packed, streams emitted for the sizes and kept, results unpacked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from offcut.backends.accelerator.host_device_split import HostDeviceProgram, NestPhase
from offcut.backends.accelerator.isa import MemorySpace, Stream
from offcut.backends.accelerator.isa.listing import Names
from offcut.backends.accelerator.lowering.emit import Image, emit_stream
from offcut.backends.accelerator.lowering.nest import LoweredNest, WordImage
from offcut.backends.accelerator.lowering.python_codegen import Values, run_host_copies
from offcut.backends.accelerator.lowering.word_layout import LaneLayout, from_words, to_words
from offcut.backends.accelerator.simulator import SimulationResult, simulate
from offcut.backends.accelerator.simulator.run_result import concatenate
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.analysis import stored_arrays
from offcut.core.dtypes import numpy_dtype
from offcut.core.interpret.values import Array, evaluate
from offcut.core.program import Kind, Program, Stmt

_KEPT = 64
"""Sizes whose streams a kernel keeps."""


@dataclass
class AcceleratorExecutor:
    """A program on the chip: in turns, nests that are streams and arrays that the host fills.

    constants  arrays that are known, by name
    """

    program: Program
    spec: AcceleratorSpec
    constants: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.phases = HostDeviceProgram(self.program, self.spec)
        self._streams: dict[tuple[int, tuple[int, ...]], EmittedStream] = {}
        self._packed: dict[tuple[MemorySpace, LaneLayout, str], Array] = {}

    def streams(self, sizes: Values) -> list[Stream]:
        """The streams of a call, in order."""
        return [stream for stream, _ in self.named_streams(sizes)]

    def named_streams(self, sizes: Values) -> list[tuple[Stream, Names]]:
        """Return the streams of a call, in order, with the names of their arrays in main memory."""
        named_streams: list[tuple[Stream, Names]] = []
        for at, phase in enumerate(self.phases.each):
            if not isinstance(phase, NestPhase):
                continue
            stream = self.stream(at, phase, sizes)
            names: dict[MemorySpace, dict[int, str]] = {}
            for name, image in stream.images.items():
                names.setdefault(image.place, {})[image.base] = stream.nest.images[name].buffer
            named_streams.append((stream.stream, names))
        return named_streams

    def orders(self, sizes: Values) -> list[Program]:
        """What units run of each nest of a call, with their tokens."""
        nests = (phase.cheapest_nest(sizes) for phase in self.phases.nests)
        return [nest.order for nest in nests if nest.order is not None]

    def stream(self, at: int, phase: NestPhase, sizes: Values) -> EmittedStream:
        """Return the stream of the nest that is a phase, by its position; it is stored."""
        key = at, tuple(sizes.values())
        stream = self._streams.get(key)
        if stream is None:
            nest = phase.cheapest_nest(sizes)
            stream = EmittedStream(nest, *emit_stream(nest, sizes))
            if len(self._streams) >= _KEPT:
                self._streams.clear()
            self._streams[key] = stream
        return stream

    def run(self, arrays: Mapping[str, Array], sizes: Values) -> dict[str, Array]:
        """All arrays in main memory after a call."""
        known, sizes = {**self.constants, **arrays}, self.phases.derived_sizes.complete(sizes)
        for at, phase in enumerate(self.phases.each):
            if not isinstance(phase, NestPhase):
                known |= self.run_host(phase, known, sizes)
                continue
            stream = self.stream(at, phase, sizes)
            for stmt in stream.nest.before:
                known |= self.run_host(stmt, known, sizes)
            known |= self.run_stream(stream, known, sizes)
        return known

    def run_host(self, stmt: Stmt, known: Mapping[str, Array], sizes: Values) -> dict[str, Array]:
        """Return the array that a statement of the host fills."""
        (name,) = stored_arrays((stmt,))
        if name in known:
            before = np.array(known[name])
        else:
            dtype = numpy_dtype(self.program.buffer(name).dtype)
            before = np.zeros(self.shape(name, sizes), dtype)
        return {name: run_host_copies(self.program, stmt, {**known, name: before}, sizes)}

    def run_stream(
        self, emitted: EmittedStream, known: Mapping[str, Array], sizes: Values
    ) -> dict[str, Array]:
        """Return the results of one stream."""
        dram = self.main_memory(emitted.images)
        for name, image in emitted.images.items():
            of = emitted.nest.images[name]
            if image.place is not MemorySpace.OUTPUTS or of.buffer in known:
                words = self.words(of, known)
                dram[image.place][image.base : image.base + image.words] = words
        simulate(emitted.stream, dram, self.spec)
        arrays: dict[str, Array] = {}
        for name, image in emitted.images.items():
            of = emitted.nest.images[name]
            if image.place is MemorySpace.OUTPUTS:
                words = dram[image.place][image.base : image.base + image.words]
                array = from_words(words, of.lanes, self.shape(of.buffer, sizes))
                arrays[of.buffer] = array.view(numpy_dtype(self.program.buffer(of.buffer).dtype))
        return arrays

    def main_memory(self, images: Mapping[str, Image]) -> dict[MemorySpace, Array]:
        """Room for the words of all places."""
        ends: dict[MemorySpace, int] = {
            place: 0 for place in MemorySpace if place is not MemorySpace.MICRO_OPS
        }
        for image in images.values():
            ends[image.place] = max(ends[image.place], image.base + image.words)
        return {
            place: np.zeros((end, *self.spec.words[place].shape), self.spec.words[place].dtype)
            for place, end in ends.items()
        }

    def words(self, of: WordImage, known: Mapping[str, Array]) -> Array:
        """An array as words; those of constants are kept."""
        key = of.place, of.lanes, of.buffer
        if key in self._packed:
            return self._packed[key]
        spread = of.place is MemorySpace.ACCUMULATORS
        words_of_image = to_words(
            known[of.buffer], of.lanes, self.spec.words[of.place].dtype, spread
        )
        if self.program.buffer(of.buffer).kind is Kind.CONSTANT:
            self._packed[key] = words_of_image
        return words_of_image

    def shape(self, name: str, sizes: Values) -> tuple[int, ...]:
        """The shape of an array at these sizes."""
        return tuple(int(evaluate(extent, sizes)) for extent in self.program.buffer(name).shape)

    def timeline(self, sizes: Values) -> SimulationResult:
        """How a call runs in time, its streams one after the other."""
        runs = [simulate(stream, None, self.spec) for stream in self.streams(sizes)]
        return runs[0] if len(runs) == 1 else concatenate(runs, self.spec)


@dataclass(frozen=True, slots=True)
class EmittedStream:
    """The stream of a nest at the sizes of a call.

    images  its arrays in main memory, by the names of the nest
    """

    nest: LoweredNest
    stream: Stream
    images: Mapping[str, Image]
