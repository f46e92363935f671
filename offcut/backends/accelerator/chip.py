"""A lowered program as what a call runs: arrays packed, streams emitted for the sizes and kept, results unpacked.

A nest may be there in several ways: as options of a choice, and each with its virtual threads in turns or one after the
other. Options that cost the same are told apart by what a call counts of them; the fastest way is issued.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from offcut.backends.accelerator.lowering.words import Lanes
from offcut.backends.accelerator.simulator import Run, simulate
from offcut.backends.accelerator.spec import Spec
from offcut.core.accesses import read, stored
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Expr, real
from offcut.core.interpret.values import evaluate
from offcut.core.program import Choose, Kind, Program, Stmt, Store
from offcut.core.program import walk as statements

_KEPT = 64
"""Sizes whose streams a kernel keeps."""


@dataclass
class Chip:
    """A program on the chip: in turns, nests that are streams and arrays that the host fills.

    constants  arrays that are known, by name
    told       whether instructions are told whom to wait for; where they are only counted, they need not be
    """

    program: Program
    spec: Spec
    constants: Mapping[str, Array] = field(default_factory=dict)
    told: bool = True

    def __post_init__(self) -> None:
        self._streams: dict[tuple[int, tuple[int, ...]], Emitted] = {}
        self._apart: dict[tuple[int, int], Lowered] = {}
        self._packed: dict[tuple[Place, Lanes, str], Array] = {}

    @cached_property
    def in_turn(self) -> list[tuple[bool, tuple[Stmt, ...]]]:
        """Its statements in phases, and whether the host runs them."""
        return in_turn(self.program)

    @cached_property
    def phases(self) -> tuple[Stmt | tuple[Lowered, ...], ...]:
        """What runs, one after the other: statements of the host, and nests, each by its options.

        Raises TargetError for a statement that neither an instruction nor the host runs.
        """
        found: list[Stmt | tuple[Lowered, ...]] = []
        for host, stmts in self.in_turn:
            if host:
                check_copy(self.program, stmts[0], self.spec)
                found.append(stmts[0])
                continue
            bodies = (body for _, _, body in options_of(stmts))
            found.append(tuple(map(self.lowered, bodies)))
        return tuple(found)

    def lowered(self, body: Sequence[Stmt], turns: bool = True) -> Lowered:
        """A nest, read."""
        return lowered(self.program, body, self.spec, turns, self.told)

    def nests(self) -> Iterator[int]:
        """The phases that are nests."""
        return (at for at, phase in enumerate(self.phases) if isinstance(phase, tuple))

    def options(self, at: int, sizes: Values | None = None) -> list[tuple[Lowered, ...]]:
        """The nest of a phase, by option those of its ways that are there: its virtual threads in turns, and one after the
        other; as it is where it has none.

        sizes  of a call: those options alone that cost least; None: all
        """
        nests = self.phases[at]
        assert isinstance(nests, tuple)
        _, stmts = self.in_turn[at]
        found: list[tuple[Lowered, ...]] = []
        options = options_of(stmts)
        costs = [0.0 if sizes is None else evaluate(cost, sizes) for _, cost, _ in options]
        for number, nest in enumerate(nests):
            if costs[number] > min(costs):
                continue
            if nest.dealt and (at, number) not in self._apart:
                *_, body = options[number]
                self._apart[at, number] = self.lowered(body, turns=False)
            found.append((nest, self._apart[at, number]) if nest.dealt else (nest,))
        return found

    def labels(self, at: int) -> list[str]:
        """What the options of a nest are called."""
        _, stmts = self.in_turn[at]
        return [label for label, _, _ in options_of(stmts)]

    def costs(self, at: int) -> list[Expr]:
        """What the program says that the options of a nest cost."""
        _, stmts = self.in_turn[at]
        return [cost for _, cost, _ in options_of(stmts)]

    def taken(self, at: int, sizes: Values) -> Lowered:
        """The way of a nest that takes the fewest cycles at these sizes."""
        options = self.options(at, sizes)
        first, *others = (way for ways in options for way in ways)
        return fastest(options, sizes).nest if others else first

    def labels_taken(self, sizes: Values) -> dict[str, str]:
        """By nest that is had in several ways, what the one that is taken at these sizes is called."""
        found: dict[str, str] = {}
        for at in self.nests():
            options, labels = self.options(at), self.labels(at)
            if len(options) > 1:
                nest = self.taken(at, sizes)
                number = next(k for k, ways in enumerate(options) if nest in ways)
                found[nest.stage] = labels[number]
        return found

    def streams(self, sizes: Values) -> list[Stream]:
        """The streams of a call, in order."""
        return [stream for stream, _ in self.named(sizes)]

    def named(self, sizes: Values) -> list[tuple[Stream, Names]]:
        """The streams of a call, in order, with the names of their arrays in main memory."""
        found: list[tuple[Stream, Names]] = []
        for at in self.nests():
            made = self.stream(at, sizes)
            names: dict[Place, dict[int, str]] = {}
            for name, image in made.images.items():
                names.setdefault(image.place, {})[image.base] = made.nest.images[name].buffer
            found.append((made.stream, names))
        return found

    def stream(self, at: int, sizes: Values) -> Emitted:
        """The stream of one nest, which is kept."""
        key = at, tuple(sizes.values())
        found = self._streams.get(key)
        if found is None:
            nest = self.taken(at, sizes)
            found = Emitted(nest, *emitted(nest, sizes))
            if len(self._streams) >= _KEPT:
                self._streams.clear()
            self._streams[key] = found
        return found

    def run(self, arrays: Mapping[str, Array], sizes: Values) -> dict[str, Array]:
        """All arrays in main memory after a call."""
        known = {**self.constants, **arrays}
        for at, phase in enumerate(self.phases):
            if not isinstance(phase, tuple):
                known |= self.filled(phase, known, sizes)
                continue
            made = self.stream(at, sizes)
            for stmt in made.nest.before:
                known |= self.filled(stmt, known, sizes)
            known |= self.ran(made, known, sizes)
        return known

    def filled(self, stmt: Stmt, known: Mapping[str, Array], sizes: Values) -> dict[str, Array]:
        """The array that a statement of the host fills."""
        name = _stored(stmt)
        return {name: filled(stmt, known, self.before(name, known, sizes), sizes)}

    def before(self, name: str, known: Mapping[str, Array], sizes: Values) -> Array:
        """What was in an array before the host fills it."""
        if name in known:
            return np.array(known[name])
        dtype = numpy_dtype(self.program.buffer(name).dtype)
        return np.zeros(self.shape(name, sizes), dtype)

    def ran(self, made: Emitted, known: Mapping[str, Array], sizes: Values) -> dict[str, Array]:
        """The results of one stream."""
        dram = self.main_memory(made.images)
        for name, image in made.images.items():
            of = made.nest.images[name]
            if image.place is not Place.OUTPUTS or of.buffer in known:
                words = self.words(of, known)
                dram[image.place][image.base : image.base + image.words] = words
        simulate(made.stream, dram, self.spec)
        found: dict[str, Array] = {}
        for name, image in made.images.items():
            of = made.nest.images[name]
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

    def words(self, of: ImageOf, known: Mapping[str, Array]) -> Array:
        """An array as words; those of constants are kept."""
        key = of.place, of.lanes, of.buffer
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


@dataclass(frozen=True, slots=True)
class Emitted:
    """The stream of a nest at the sizes of a call.

    images  its arrays in main memory, by the names of the nest
    """

    nest: Lowered
    stream: Stream
    images: Mapping[str, Image]


def options_of(stmts: Sequence[Stmt]) -> list[tuple[str, Expr, tuple[Stmt, ...]]]:
    """The options of a nest that is had in several ways, with labels and costs; else the nest itself."""
    match stmts:
        case (Choose(options),):
            return [(option.label, option.cost, option.body) for option in options]
    return [("", real(0.0), tuple(stmts))]


def in_turn(program: Program) -> list[tuple[bool, tuple[Stmt, ...]]]:
    """The statements of a program in phases: one that the host runs, a choice, or several that are one stream, none of
    which reads in main memory what another one of them has stored there.
    """
    found: list[tuple[bool, tuple[Stmt, ...]]] = []
    main = {buffer.name for buffer in program.buffers if buffer.scope is None}
    for stmt in program.body:
        host = is_host(program, stmt)
        last_host, last = found[-1] if found else (True, ())
        choice = isinstance(stmt, Choose) or isinstance(next(iter(last), None), Choose)
        if host or last_host or choice or _reads((stmt,)) & stored(last) & main:
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
