"""The stream of a nest for the sizes of a call.

The loops run twice: first for the words that windows take, which gives each buffer its place on the chip,
then for the instructions. Micro-ops come in one load before the first of them, as many as their memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from offcut.backends.accelerator.isa import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    MemorySpace,
    MicroOp,
    Store,
    Stream,
    Tokens,
)
from offcut.backends.accelerator.lowering.capacity import allocate_regions, first_free_word
from offcut.backends.accelerator.lowering.instruction_loops import (
    Limits,
    RowTransfer,
    Steps,
    TransferAxis,
    dma_instructions,
    split_into_instructions,
)
from offcut.backends.accelerator.lowering.instruction_selection import (
    Copy,
    Operation,
    Product,
    Result,
)
from offcut.backends.accelerator.lowering.nest import LoweredLeaf, LoweredNest
from offcut.backends.accelerator.lowering.python_codegen import Shape
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.interpret.values import evaluate

_NONE = Tokens()


@dataclass(frozen=True, slots=True)
class Image:
    """An array in main memory as words of a place: from word `base` on, `words` of them."""

    place: MemorySpace
    base: int
    words: int


def emit_stream(nest: LoweredNest, sizes: Mapping[str, int]) -> tuple[Stream, dict[str, Image]]:
    """Return the stream of a nest, and where its arrays lie, by what `Lowered.images` calls them."""
    return Emitter(nest, sizes).emit()


@dataclass
class Emitter:
    """Issues the instructions of a nest at some sizes."""

    nest: LoweredNest
    sizes: Mapping[str, int]
    stream: list[Instruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec: AcceleratorSpec = self.nest.spec
        self.sizes = self.nest.derived.complete(self.sizes, self.nest.used)
        self.room: dict[str, int] = {}
        self.measured: set[tuple[int, Shape]] = set()
        self.known: dict[tuple[int, Shape], tuple[int, list[Instruction]]] = {}
        self.images: dict[str, Image] = {}
        self.strides: dict[str, list[tuple[int, int]]] = {}
        self.zeros: dict[MemorySpace, int] = {}
        memory = self.spec.field_bits("memory")
        self.pad = (1 << memory["pad_top"]) - 1
        self.rows = (1 << memory["y"]) - 1
        self.ops = _MicroOps(min(self.spec.words[MemorySpace.MICRO_OPS].depth, self.rows))
        self.gemm_limits, self.alu_limits = self.limits("gemm"), self.limits("alu")

    def limits(self, form: str) -> Limits:
        """Return what the fields of a format hold; one without a field for an operand does not move it."""
        bits = self.spec.field_bits(form)
        dst, src, wgt = ((1 << bits.get(f"outer_{one}", 0)) - 1 for one in ("dst", "src", "wgt"))
        return Limits((1 << bits["outer"]) - 1, (dst, src, wgt), self.ops.depth)

    def emit(self) -> tuple[Stream, dict[str, Image]]:
        """Both passes; no instruction where there is no result."""
        self.lay_images()
        if self.idle:
            return Stream(()), self.images
        self.nest.walk(self.measure, self.sizes)
        self.allocate()
        self.nest.walk(self.issue, self.sizes)
        fills = (at for at, one in enumerate(self.stream) if brings_micro_ops(one))
        for fill, at in enumerate(fills):
            self.stream[at] = self.ops.load(fill)
        end = (bool(evaluate(one, self.sizes)) for one in self.nest.end.fields)
        self.stream.append(Finish(Tokens(*end)))
        return Stream(tuple(self.stream), tuple(self.ops.table)), self.images

    def lay_images(self) -> None:
        """Arrays one behind the other in the words of their places; each place ends in words of zeros."""
        ends: dict[MemorySpace, int] = {}
        for name, image in self.nest.images.items():
            word_extents = image.lanes.extents([int(evaluate(e, self.sizes)) for e in image.shape])
            words = prod(word_extents)
            self.images[name] = Image(image.place, ends.get(image.place, 0), words)
            self.strides[name] = [
                (image.lanes.lanes_of(axis), stride)
                for axis, stride in enumerate(image.lanes.strides(word_extents))
            ]
            ends[image.place] = ends.get(image.place, 0) + words
        self.zeros = {place: ends.get(place, 0) for place in MemorySpace}

    @property
    def idle(self) -> bool:
        """Return whether no result has a word."""
        results = [one for one in self.images.values() if one.place is MemorySpace.OUTPUTS]
        return all(one.words == 0 for one in results)

    def measure(self, number: int, shape: Shape, values: Callable[[], Sequence[int]]) -> None:
        """Note the words that the windows of a leaf take."""
        key = number, shape
        if key not in self.measured:
            self.measured.add(key)
            self.measure_as(number, values())

    def measure_as(self, number: int, values: Sequence[int]) -> None:
        """Note those of the first instance of its shape."""
        work = self.nest.work[number]
        for side, at in work.sides:
            if side.buffer in work.places:
                _, _, word_counts = side.words(
                    values[at : at + len(side.asked)], work.counts_of(values)
                )
                region = work.places[side.buffer].region
                self.room[region] = max(self.room.get(region, 0), prod(word_counts))

    def allocate(self) -> None:
        """Give each region its words: those of its largest window for each slot."""
        nest = self.nest
        room = {region: words * nest.slots[region] for region, words in self.room.items()}
        self.base, ends = allocate_regions(room, nest.place_of, nest.stored, self.spec)
        self.spare = first_free_word(ends, self.spec)

    @property
    def bytes_by_memory(self) -> dict[str, int]:
        """Bytes of each memory that windows take."""
        total: dict[str, int] = {}
        for region, words in self.room.items():
            of = self.spec.words[self.nest.place_of[region]]
            bytes_ = words * self.nest.slots[region] * of.bytes
            total[of.memory] = total.get(of.memory, 0) + bytes_
        return total

    def issue(self, number: int, shape: Shape, values: Callable[[], Sequence[int]]) -> None:
        """The instructions of one instance: those of another one of its shape, but for where main memory has its words."""
        work, key = self.nest.work[number], (number, shape)
        if key in self.known:
            source, emitted = self.known[key]
            more = self.source(work, values()) - source if work.moves else 0
            self.stream += [_shift_instruction(one, more) for one in emitted] if more else emitted
            return
        asked, first, fills = values(), len(self.stream), len(self.ops.starts)
        self.issue_as(number, asked)
        if len(self.ops.starts) > fills:
            self.known.clear()  # micro-ops that others use were thrown out
        else:
            source = self.source(work, asked) if work.moves else 0
            self.known[key] = source, self.stream[first:]

    def source(self, work: LoweredLeaf, values: Sequence[int]) -> int:
        """Return the first word of an instance in main memory, counted from its array."""
        _, at = work.sides[1]
        return sum(
            values[at + axis] // lanes * stride
            for axis, (lanes, stride) in enumerate(self.strides[work.image])
        )

    def issue_as(self, number: int, values: Sequence[int]) -> None:
        """The instructions of an instance: the first pops its tokens, the last pushes them."""
        work, first = self.nest.work[number], len(self.stream)
        match work.does:
            case Copy():
                self.load(work, values)
            case Result():
                self.store(work, values)
            case Product():
                self.product(work, values)
            case Operation():
                self.operation(work, values)
        tokens = work.tokens_of(values)
        if tokens == _NONE:
            return
        if len(self.stream) == first:
            self.stream.append(_idle(work))
        while brings_micro_ops(self.stream[first]):
            first += 1
        pops = Tokens(tokens.pop_prev, tokens.pop_next)
        self.stream[first] = replace(self.stream[first], tokens=pops)
        last = self.stream[-1].tokens
        pushes = Tokens(last.pop_prev, last.pop_next, tokens.push_prev, tokens.push_next)
        self.stream[-1] = replace(self.stream[-1], tokens=pushes)

    def put(self, instructions: Iterator[Instruction]) -> None:
        """Instructions of one instance."""
        self.stream.extend(instructions)

    def at(self, work: LoweredLeaf, buffer: str, values: Sequence[int]) -> int:
        """Return the first word of the window of a buffer."""
        region, slot = work.place_of(buffer, values)
        return self.base[region] + slot * self.room[region]

    def load(self, work: LoweredLeaf, values: Sequence[int]) -> None:
        """A copy to the chip."""
        assert isinstance(work.does, Copy)
        place, fill = work.does.place, work.does.fill
        instructions: list[Instruction] = []
        for rows in self.rows_of(work, values):
            top, bottom, left, right = rows.pad
            wide, high = left + rows.x + right, top + rows.y + bottom
            padded = any(rows.pad)
            if padded and (fill or max(rows.pad) > self.pad or not rows.x or not self.is_one(rows)):
                instructions += self.fill_words(place, rows.chip, high, wide, fill)
                for row in range(rows.y):
                    at = rows.chip + (top + row) * wide + left
                    there = rows.dram + row * rows.stride
                    instructions += self.row_loads(place, RowTransfer(at, there, 1, rows.x, rows.x))
                continue
            instructions += self.row_loads(place, rows)
        self.stream += instructions

    def is_one(self, rows: RowTransfer) -> bool:
        """Return whether the fields of one instruction hold how many rows there are, how long, how far apart."""
        return max(rows.stride, rows.y, rows.x) <= self.rows

    def row_loads(self, place: MemorySpace, rows: RowTransfer) -> Iterator[Load]:
        """Rows of one instruction, or, where these have no zeros around them, of one each."""
        if self.is_one(rows):
            yield Load(place, rows.chip, rows.dram, rows.y, rows.x, rows.stride, rows.pad)
            return
        for row in range(rows.y):
            for first in range(0, rows.x, self.rows):
                count = min(self.rows, rows.x - first)
                at = rows.dram + row * rows.stride + first
                yield Load(place, rows.chip + row * rows.x + first, at, 1, count, count)

    def fill_words(
        self, place: MemorySpace, chip: int, high: int, wide: int, fill: int
    ) -> Iterator[Instruction]:
        """Words of one value."""
        if not fill:
            for row in range(high):
                for first in range(0, wide, self.pad):
                    count = min(self.pad, wide - first)
                    yield Load(place, chip + row * wide + first, 0, 0, 0, 0, (1, 0, 0, count))
            return
        yield from self.on_words([(high * wide, (1, 0, 0))], (chip, 0, 0), None, reset=True)
        yield from self.constant(AluOp.ADD, fill, [(high * wide, (1, 0, 0))], (chip, 0, 0))

    def rows_of(self, work: LoweredLeaf, values: Sequence[int]) -> Iterator[RowTransfer]:
        """Yield the rows of a copy between memories, first the side on the chip."""
        counts = work.counts_of(values)
        (chip, at), (main, other) = work.sides
        base, steps, _ = chip.words(values[at : at + len(chip.asked)], counts)
        source, strides, _ = main.words(values[other : other + len(main.asked)], counts)
        bounds = work.bounds_of(values, counts)
        axes = [
            TransferAxis(count, step, stride, max(lo, 0), min(hi, count))
            for count, step, stride, (lo, hi) in zip(counts, steps, strides, bounds, strict=True)
        ]
        origin = self.at(work, chip.buffer, values) + base
        image = self.images[work.image]
        yield from dma_instructions(origin, image.base + source, axes)

    def store(self, work: LoweredLeaf, values: Sequence[int]) -> None:
        """Results to main memory."""
        for rows in self.rows_of(work, values):
            for one in self.row_loads(MemorySpace.OUTPUTS, rows):
                self.stream.append(Store(one.sram, one.dram, one.y, one.x, one.stride))

    def product(self, work: LoweredLeaf, values: Sequence[int]) -> None:
        """Products of words."""
        axes, base = self.axes_of(work, values)
        self.put(self.on_words(axes, base, None))

    def axes_of(
        self, work: LoweredLeaf, values: Sequence[int]
    ) -> tuple[list[Steps], tuple[int, int, int]]:
        """Return the loops of a leaf in words, and its first words: of dst, src and wgt."""
        counts = work.counts_of(values)
        bases, steps = [], []
        for side, at in work.sides:
            base, own, _ = side.words(values[at : at + len(side.asked)], counts)
            bases.append(self.at(work, side.buffer, values) + base)
            steps.append(own)
        while len(bases) < 3:
            bases.append(0)
            steps.append([0] * len(counts))
        axes: list[Steps] = [
            (count, (d, s, w))
            for count, d, s, w in zip(counts, steps[0], steps[1], steps[2], strict=True)
        ]
        return axes, (bases[0], bases[1], bases[2])

    def operation(self, work: LoweredLeaf, values: Sequence[int]) -> None:
        """Operations on accumulators."""
        does = work.does
        assert isinstance(does, Operation)
        counts = work.counts_of(values)
        words = []
        for side, at in work.sides:
            first, steps, _ = side.words(values[at : at + len(side.asked)], counts)
            words.append((self.at(work, side.buffer, values) + first, steps))
        (dst, moves), others = words[0], words[1:]
        alone: list[Steps] = [(n, (step, 0, 0)) for n, step in zip(counts, moves, strict=True)]
        whole = [axis for axis in alone if axis[1][0]]

        def of(number: int) -> tuple[list[Steps], tuple[int, int, int]]:
            base, steps = others[number]
            axes: list[Steps] = [
                (count, (d, s, 0)) for count, d, s in zip(counts, moves, steps, strict=True)
            ]
            return axes, (dst, base, 0)

        reads = iter(range(len(others)))
        if not does.recipe.update:
            own = None if does.recipe.base is None else next(reads)
            if own is None or others[own][0] != dst or does.recipe.copied:
                self.put(self.on_words(whole, (dst, 0, 0), None, reset=True))
                if own is not None:
                    self.put(self.on_words(*of(own), AluOp.ADD))
        for op, other in does.recipe.steps:
            if isinstance(other, int):
                self.put(self.constant(op, other, whole, (dst, 0, 0)))
            else:
                self.put(self.on_words(*of(next(reads)), op))

    def constant(
        self, op: AluOp, value: int, axes: Sequence[Steps], base: tuple[int, int, int]
    ) -> Iterator[Instruction]:
        """Yield an operation with a constant: an immediate, or a word that holds it where it is none."""
        if self.spec.is_immediate(value):
            yield from self.on_words(axes, base, op, immediate=value)
            return
        word = self.spare
        at: tuple[int, int, int] = (word, 0, 0)
        yield from self.on_words([], at, None, reset=True)
        bits = self.spec.field_bits("alu")["immediate"]
        for position, digit in enumerate(_digits(value, bits)):
            if position:
                yield from self.on_words([], at, AluOp.SHR, immediate=-bits)
            yield from self.on_words([], at, AluOp.ADD, immediate=digit)
        yield from self.on_words(axes, (base[0], word, 0), op)

    def on_words(
        self,
        axes: Sequence[Steps],
        base: tuple[int, int, int],
        op: AluOp | None,
        reset: bool = False,
        immediate: int | None = None,
    ) -> Iterator[Instruction]:
        """Instructions of the compute unit on words: products, where `op` is None."""
        limits = self.gemm_limits if op is None else self.alu_limits
        for part in split_into_instructions(base, axes, limits):
            begin, first = self.ops.micro_op_place(part.micro_ops)
            if first:
                yield Load(MemorySpace.MICRO_OPS, 0, 0, 0, 0, 0)  # as many as it is found to have
            end = begin + len(part.micro_ops)
            if op is None:
                yield Gemm(begin, end, part.outer, part.inner, reset)
            else:
                yield Alu(op, begin, end, part.outer, part.inner, immediate)


def _shift_instruction(one: Instruction, words: int) -> Instruction:
    """Return the instruction so many words of main memory further on, where it has any."""
    match one:
        case Load(place, sram, dram, y, x, stride, pad, tokens) if x:
            return Load(place, sram, dram + words, y, x, stride, pad, tokens)
        case Store(sram, dram, y, x, stride, tokens) if x:
            return Store(sram, dram + words, y, x, stride, tokens)
    return one


def _digits(value: int, bits: int) -> list[int]:
    """Return an int32 in signed digits of so many bits, the highest first; what is beyond 32 bits is left out."""
    digits: list[int] = []
    while len(digits) * bits < 32:
        low = (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        digits.insert(0, low)
        value = value - low >> bits
    return digits


def _idle(work: LoweredLeaf) -> Instruction:
    """Return an instruction that does nothing, by the unit of a leaf."""
    match work.does:
        case Copy(place):
            return Load(place, 0, 0, 0, 0, 0)
        case Result():
            return Store(0, 0, 0, 0, 0)
        case _:
            return Gemm(0, 0)


def brings_micro_ops(instruction: Instruction) -> bool:
    """Return whether an instruction is a load of micro-ops."""
    return isinstance(instruction, Load) and instruction.place is MemorySpace.MICRO_OPS


@dataclass
class _MicroOps:
    """The micro-ops of a stream in main memory, and which of them lie in their memory: what fits it lies there at once.

    depth   how many one load brings
    table   all, one fill of the memory behind the other
    starts  where each fill begins
    """

    depth: int
    table: list[MicroOp] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held: dict[tuple[MicroOp, ...], int] = {}

    def micro_op_place(self, ops: tuple[MicroOp, ...]) -> tuple[int, bool]:
        """Where a sequence begins, and whether it is the first of a fill."""
        if ops in self.held:
            return self.held[ops], False
        first = not self.starts or len(self.table) + len(ops) - self.starts[-1] > self.depth
        if first:
            self.starts.append(len(self.table))
            self.held = {}
        begin = self.held[ops] = len(self.table) - self.starts[-1]
        self.table += ops
        return begin, first

    def load(self, fill: int) -> Load:
        """What brings a fill, once all of it is known."""
        start, *rest = (*self.starts, len(self.table))[fill:]
        count = rest[0] - start
        return Load(MemorySpace.MICRO_OPS, 0, start, 1, count, count)
