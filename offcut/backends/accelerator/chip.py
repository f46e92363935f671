"""A lowered program as what a call runs: arrays packed, streams emitted for the sizes and kept, results unpacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from offcut.backends.accelerator.instances.visited import fastest
from offcut.backends.accelerator.isa import Place, Stream
from offcut.backends.accelerator.isa.listing import Names
from offcut.backends.accelerator.lowering.emit import Image, emitted
from offcut.backends.accelerator.lowering.host import Array, check_copy, filled, is_host
from offcut.backends.accelerator.lowering.images import packed, unpacked
from offcut.backends.accelerator.lowering.nest import ImageOf, Lowered, lowered
from offcut.backends.accelerator.lowering.python import Values, evaluated
from offcut.backends.accelerator.simulator import Run, simulate
from offcut.backends.accelerator.spec import Spec
from offcut.core.accesses import read, stored
from offcut.core.dtypes import numpy_dtype
from offcut.core.program import Kind, Program, Stmt, Store
from offcut.core.program import walk as statements

_KEPT = 64
"""Sizes whose streams a kernel keeps."""


@dataclass
class Chip:
    """A program on the chip: in turns, nests that are streams and arrays that the host fills.

    constants  arrays that are known, by name
    """

    program: Program
    spec: Spec
    constants: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._streams: dict[tuple[int, tuple[int, ...]], tuple[Stream, dict[str, Image]]] = {}
        self._apart: dict[int, Lowered] = {}
        self._packed: dict[tuple[int, str], Array] = {}

    @cached_property
    def phases(self) -> tuple[Stmt | Lowered, ...]:
        """What runs, one after the other.

        Raises TargetError for a statement that neither an instruction nor the host runs.
        """
        found: list[Stmt | Lowered] = []
        for host, stmts in in_turn(self.program):
            if host:
                check_copy(self.program, stmts[0], self.spec)
            found.append(stmts[0] if host else lowered(self.program, stmts, self.spec))
        return tuple(found)

    def ways(self, at: int) -> tuple[Lowered, ...]:
        """The nest of a phase: its virtual threads in turns, and one after the other; as it is where it has none."""
        nest = self.phases[at]
        assert isinstance(nest, Lowered)
        if not nest.dealt:
            return (nest,)
        if at not in self._apart:
            _, stmts = in_turn(self.program)[at]
            self._apart[at] = lowered(self.program, stmts, self.spec, turns=False)
        return nest, self._apart[at]

    def taken(self, at: int, sizes: Values) -> Lowered:
        """The way of a nest that takes the fewest cycles at these sizes."""
        ways = self.ways(at)
        return ways[0] if len(ways) == 1 else fastest(ways, sizes).nest

    def streams(self, sizes: Values) -> list[Stream]:
        """The streams of a call, in order."""
        return [stream for stream, _ in self.named(sizes)]

    def named(self, sizes: Values) -> list[tuple[Stream, Names]]:
        """The streams of a call, in order, with the names of their arrays in main memory."""
        found: list[tuple[Stream, Names]] = []
        for at, nest in enumerate(self.phases):
            if not isinstance(nest, Lowered):
                continue
            stream, images = self.stream(at, sizes)
            names: dict[Place, dict[int, str]] = {}
            for name, image in images.items():
                names.setdefault(image.place, {})[image.base] = nest.images[name].buffer
            found.append((stream, names))
        return found

    def stream(self, at: int, sizes: Values) -> tuple[Stream, dict[str, Image]]:
        """The stream of one nest, which is kept."""
        key = at, tuple(sizes.values())
        found = self._streams.get(key)
        if found is None:
            found = emitted(self.taken(at, sizes), sizes)
            if len(self._streams) >= _KEPT:
                self._streams.clear()
            self._streams[key] = found
        return found

    def run(self, arrays: Mapping[str, Array], sizes: Values) -> dict[str, Array]:
        """All arrays in main memory after a call."""
        known = {**self.constants, **arrays}
        for at, phase in enumerate(self.phases):
            if isinstance(phase, Lowered):
                known |= self.ran(at, phase, known, sizes)
                continue
            name = _stored(phase)
            known[name] = filled(phase, known, self.before(name, known, sizes), sizes)
        return known

    def before(self, name: str, known: Mapping[str, Array], sizes: Values) -> Array:
        """What was in an array before the host fills it."""
        if name in known:
            return np.array(known[name])
        dtype = numpy_dtype(self.program.buffer(name).dtype)
        return np.zeros(self.shape(name, sizes), dtype)

    def ran(
        self, at: int, nest: Lowered, known: Mapping[str, Array], sizes: Values
    ) -> dict[str, Array]:
        """The results of one stream."""
        stream, images = self.stream(at, sizes)
        dram = self.main_memory(images)
        for name, image in images.items():
            of = nest.images[name]
            if image.place is not Place.OUTPUTS or of.buffer in known:
                words = self.words(at, name, of, known)
                dram[image.place][image.base : image.base + image.words] = words
        simulate(stream, dram, self.spec)
        found: dict[str, Array] = {}
        for name, image in images.items():
            of = nest.images[name]
            if image.place is Place.OUTPUTS:
                words = dram[image.place][image.base : image.base + image.words]
                array = unpacked(words, of.lanes, self.shape(of.buffer, sizes))
                found[of.buffer] = array.view(numpy_dtype(self.program.buffer(of.buffer).dtype))
        return found

    def main_memory(self, images: Mapping[str, Image]) -> dict[Place, Array]:
        """Room for the words of all places."""
        ends: dict[Place, int] = {place: 0 for place in Place if place is not Place.MICRO_OPS}
        for image in images.values():
            ends[image.place] = max(ends[image.place], image.base + image.words)
        return {
            place: np.zeros((end, *self.spec.words[place].shape), self.spec.words[place].dtype)
            for place, end in ends.items()
        }

    def words(self, at: int, name: str, of: ImageOf, known: Mapping[str, Array]) -> Array:
        """An array as words; those of constants are kept."""
        key = at, name
        if key in self._packed:
            return self._packed[key]
        spread = of.place is Place.ACCUMULATORS
        made = packed(known[of.buffer], of.lanes, self.spec.words[of.place].dtype, spread)
        if self.program.buffer(of.buffer).kind is Kind.CONSTANT:
            self._packed[key] = made
        return made

    def shape(self, name: str, sizes: Values) -> tuple[int, ...]:
        """The shape of an array at these sizes."""
        return tuple(evaluated(extent, sizes) for extent in self.program.buffer(name).shape)

    def timeline(self, sizes: Values) -> Run:
        """How a call runs in time, its streams one after the other."""
        runs = [simulate(stream, None, self.spec) for stream in self.streams(sizes)]
        return runs[0] if len(runs) == 1 else joined(runs, self.spec)


def in_turn(program: Program) -> list[tuple[bool, tuple[Stmt, ...]]]:
    """The statements of a program in phases: one that the host runs, or several that are one stream, none of which
    reads in main memory what another one of them has stored there.
    """
    found: list[tuple[bool, tuple[Stmt, ...]]] = []
    main = {buffer.name for buffer in program.buffers if buffer.scope is None}
    for stmt in program.body:
        host = is_host(program, stmt)
        last_host, last = found[-1] if found else (True, ())
        if host or last_host or _reads((stmt,)) & stored(last) & main:
            found.append((host, (stmt,)))
        else:
            found[-1] = False, (*last, stmt)
    return found


def _reads(body: tuple[Stmt, ...]) -> set[str]:
    stores = (stmt for stmt in statements(body) if isinstance(stmt, Store))
    return set().union(*(read((store.value,)) for store in stores))


def joined(runs: Sequence[Run], spec: Spec) -> Run:
    """Runs one after the other."""
    cycles, first = 0.0, 0
    made = Run(spec, (), 0.0, (), (), (), {})
    for run in runs:
        events = tuple(
            replace(e, position=e.position + first, start=e.start + cycles, end=e.end + cycles)
            for e in run.events
        )
        races = tuple(
            replace(race, earlier=race.earlier + first, later=race.later + first)
            for race in run.races
        )
        unwritten = tuple((at + first, place, word) for at, place, word in run.unwritten)
        left = {
            pair: run.left.get(pair, 0) + made.left.get(pair, 0) for pair in (*run.left, *made.left)
        }
        made = Run(
            spec,
            (*made.instructions, *run.instructions),
            made.cycles + run.cycles,
            (*made.events, *events),
            (*made.races, *races),
            (*made.unwritten, *unwritten),
            left,
        )
        cycles, first = made.cycles, len(made.instructions)
    return made


def _stored(stmt: Stmt) -> str:
    (name,) = stored((stmt,))
    return name
