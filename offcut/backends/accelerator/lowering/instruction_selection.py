"""Which microkernel runs a leaf, on which words: the judge of covers says it, and so along which axes words lie.

What computes says how its operands lie; a load and a store of a buffer have the words of what computes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar, TypeAlias

from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.lowering.arithmetic import (
    Recipe,
    ValueRanges,
    exact_range,
    literal,
    recipe,
)
from offcut.backends.accelerator.lowering.issue_tree import Leaf
from offcut.backends.accelerator.lowering.word_layout import LaneLayout, layout_of, word_order
from offcut.backends.accelerator.microkernels import (
    STORE_NAME,
    instructions_of,
    load_of,
    microkernel_name,
    product_name,
    store_of,
)
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import (
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Select,
    Var,
    loads,
    variables,
)
from offcut.core.program import Buffer, Cover, For, Program, Stmt, Store, Tile, TileAxis
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_stmt
from offcut.describe.intrinsic import find_instruction
from offcut.describe.microkernel import Microkernel
from offcut.errors import TargetError
from offcut.partition import Question, Refusal, Surroundings, cover
from offcut.partition.judge import MAIN, Match
from offcut.proof.normal_forms.condition_hoisting import bound


@dataclass(frozen=True, slots=True)
class Copy:
    """Elements of main memory to the chip.

    bounds  ``axis >= lo`` or ``axis < hi`` of axes of the leaf, outside of which `fill` is there
    """

    place: MemorySpace
    source: Load
    bounds: tuple[Compare, ...]
    fill: int
    cover: Cover

    @property
    def constants(self) -> tuple[int, ...]:
        """Return the constants that its instructions need: it fills accumulators by operations."""
        return (self.fill,) if self.place is MemorySpace.ACCUMULATORS else ()


@dataclass(frozen=True, slots=True)
class Result:
    """Accumulators to main memory."""

    constants: ClassVar[tuple[int, ...]] = ()

    source: Load
    cover: Cover


@dataclass(frozen=True, slots=True)
class Product:
    """Products of words, added to accumulators."""

    constants: ClassVar[tuple[int, ...]] = ()

    inputs: Load
    weights: Load
    cover: Cover


@dataclass(frozen=True, slots=True)
class Operation:
    """Operations on accumulators."""

    recipe: Recipe
    cover: Cover

    @property
    def constants(self) -> tuple[int, ...]:
        """Return the constants that its instructions need."""
        return tuple(other for _, other in self.recipe.steps if isinstance(other, int))


Does: TypeAlias = Copy | Result | Product | Operation


@dataclass
class InstructionSelection:
    """How the leaves of a program run.

    lanes   of the buffers on the chip
    places  of the buffers on the chip
    first   by buffer, the leaf that says first how it lies
    """

    program: Program
    spec: AcceleratorSpec
    lanes: dict[str, LaneLayout] = field(default_factory=dict)
    places: dict[str, MemorySpace] = field(default_factory=dict)
    first: dict[str, Leaf] = field(default_factory=dict)
    does: dict[int, Does] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memories: dict[str, list[MemorySpace]] = {}
        for place, words in self.spec.words.items():
            self.memories.setdefault(words.memory, []).append(place)
        self.scoped: dict[str, Buffer] = {}
        for buffer in self.program.buffers:
            if buffer.scope is None:
                continue
            if buffer.scope not in self.memories:
                raise TargetError(
                    "compile",
                    f"cannot keep {buffer.name} in {buffer.scope}",
                    at=f"buffer {buffer.name}",
                    because=f"{self.spec.name} has no memory of that name",
                    help=(", ".join(self.memories),),
                )
            self.scoped[buffer.name] = buffer
        # the judge looks at one word, `put` at the whole array
        plain = tuple(
            replace(b, layout=None) if b.name in self.scoped else b for b in self.program.buffers
        )
        self.program = replace(self.program, buffers=plain)

    def unit(self, leaf: Leaf) -> Unit:
        """Return the unit that runs a leaf."""
        kind = self.kind(leaf)
        if kind != self.copy:
            return Unit.STORE if kind == self.result else Unit.COMPUTE
        place = self.memories[self.scoped[leaf.store.buffer].scope or ""][0]
        return self.spec.loads[
            MemorySpace.ACCUMULATORS if self.holds_accumulators(leaf.store.buffer) else place
        ]

    def holds_accumulators(self, buffer: str) -> bool:
        """Return whether a buffer lies where operations find it."""
        return MemorySpace.ACCUMULATORS in self.memories[self.scoped[buffer].scope or ""]

    def element(self, leaf: Leaf) -> Load | None:
        """Return the element of main memory that a leaf copies to the chip."""
        value = leaf.store.value
        match value:
            case Select(_, Load() as load, Const()) | (Load() as load):
                is_input = leaf.store.reduce is None and load.buffer not in self.scoped
                return load if is_input else None
        return None

    def of(self, leaves: Sequence[Leaf], ranges: ValueRanges) -> None:
        """Note what each leaf does, and the lanes of all buffers: what computes says how operands lie, before what moves them.

        ranges  of the values of the buffers on the chip
        """
        self.ranges = ranges
        for leaf in leaves:
            self.check_started(leaf, leaves)
        for kind in (self.product, self.operation, self.result, self.copy):
            for leaf in leaves:
                if self.kind(leaf) == kind:
                    self.does[leaf.number] = kind(leaf)

    def kind(self, leaf: Leaf) -> Callable[[Leaf], Does]:
        """What says how a leaf runs."""
        if microkernel_name(leaf.store, self.spec) == product_name(self.spec):
            return self.product
        if leaf.store.buffer not in self.scoped:
            return self.result
        return self.operation if self.element(leaf) is None else self.copy

    def refuse(self, leaf: Leaf, because: str, *help: str, cover: str = "") -> TargetError:
        """Return the refusal of one leaf, or of the microkernel `cover` that its tile names."""
        run = f"run a statement on {self.spec.name}"
        return TargetError(
            "compile",
            f"cannot {f'cover a tile by {cover}' if cover else run}",
            at=format_stmt(leaf.store),
            because=because,
            help=help,
        )

    def refuse_words(self, leaf: Leaf, buffer: str, *help: str, cover: str = "") -> TargetError:
        """Return the error of a leaf by which `buffer` has other elements in a word than by the first leaf that says so.

        If the tile of only one of the two names no microkernel, the error has that one's stage, and the microkernel to cover it by.
        """
        because = f"it has other elements of {buffer} in a word than another statement"
        refused = self.refuse(leaf, because, *help, cover=cover)
        bare = [one for one in (leaf, self.first[buffer]) if one.microkernel is None]
        if len(bare) == 1:
            (one,) = bare
            is_result = one.store.buffer not in self.scoped
            refused.stage = one.store.buffer
            refused.uncovered = STORE_NAME if is_result else microkernel_name(one.store, self.spec)
        return refused

    def check_started(self, leaf: Leaf, leaves: Sequence[Leaf]) -> None:
        """Check that something stores in a window before a leaf reads it; what a loop inside of the window stores may be read later."""
        store = leaf.store
        read = {load.buffer for load, _ in loads(store.value)} & self.scoped.keys()
        for name in sorted(read if store.reduce is None else {*read, store.buffer}):
            window = leaf.windows.get(name)
            if window is None or len(leaf.around) > window.level:
                before = [one for one in leaves if one is not leaf]
            else:
                before = [one for one in leaves if one.number < leaf.number]
            if not any(
                (one.store.buffer, one.store.reduce, one.windows.get(name)) == (name, None, window)
                for one in before
            ):
                sums = f"the start of {name} is lost: " if name == store.buffer else ""
                raise self.refuse(
                    leaf,
                    f"{sums}nothing stores in {name} before",
                    f"a tile before that stores in {name}",
                )

    def product(self, leaf: Leaf) -> Product:
        """Return a sum of products by the matrix unit."""
        judgement, match = self.cover_of_leaf(leaf, leaf.store, product_name(self.spec))
        inputs, weights = match.operand("A"), match.operand("B")
        (row, column), depth = self.lanes_of(match), match.axis("p")
        self.put(leaf, leaf.store, MemorySpace.ACCUMULATORS, (row, column))
        self.put(leaf, inputs, MemorySpace.INPUTS, (row, depth))
        self.put(leaf, weights, MemorySpace.WEIGHTS, (column, depth))
        return Product(inputs, weights, judgement)

    def operation(self, leaf: Leaf) -> Operation:
        """Return an operation of the vector unit."""
        store, own = leaf.store, microkernel_name(leaf.store, self.spec)
        read = [load for load, _ in loads(store.value) if load.buffer in self.scoped]
        every: tuple[Load | Store, ...] = (store, *read)
        bound = [one for one in every if self.holds_accumulators(one.buffer)]
        judgement, match = self.cover_of_leaf(leaf, store, own, bound)
        dtype = self.program.buffer(store.buffer).dtype
        selected = recipe(
            match.microkernel.name, dict(match.operands), store, dtype, self.ranges.of
        )
        if selected is None:
            raise self.inexact(leaf, match)
        missing = sorted({op.value for op, _ in selected.steps} - self.spec.alu)
        if missing:
            raise self.refuse(leaf, f"its vector unit lacks {', '.join(missing)}")
        every = (store, *selected.reads)
        for element in every:
            self.put(leaf, element, MemorySpace.ACCUMULATORS, self.lanes_of(match))
        return Operation(selected, judgement)

    def cover_of_leaf(
        self,
        leaf: Leaf,
        store: Store,
        own: str,
        bound: Sequence[Load | Store] = (),
        own_kernels: Sequence[Microkernel] = (),
    ) -> tuple[Cover, Match]:
        """Return the cover of a leaf by one issue of the microkernel that its tile names, and how that lies over its statement.

        store  the statement as one instruction runs it
        own    the microkernel of a tile that names none, or one of another machine
        bound  elements along whose lanes it has to lie
        own_kernels   the instructions of `own`; none: those of its statement
        """
        requested = None if leaf.tile is None else leaf.tile.cover
        name = own if requested is None else requested.microkernel
        dtype = self.program.buffer(store.buffer).dtype
        kernels = (
            own_kernels
            if own_kernels and name == own
            else instructions_of(store, name, dtype, self.spec)
        )
        if requested is not None and not kernels and name != own and find_instruction(name):
            return requested, self.cover_of_leaf(
                replace(leaf, source=leaf.store), store, own, bound, own_kernels
            )[1]
        buffer, lanes = self.bound_lanes(bound)
        named_axes = (
            () if requested is None or not kernels else _in_words(kernels[0], requested.axes)
        )
        if named_axes and lanes is not None and {*named_axes} != {*lanes}:
            raise self.refuse_words(leaf, buffer, f"@cover({own})", cover=name)
        lanes = named_axes or lanes
        wanted = Cover(name, lanes or (), () if requested is None else requested.operands)
        tile, refusals = _tile_of(leaf, store, lanes), list[Refusal]()
        for kernel in kernels:
            coverage = cover(tile, self.program, kernel, wanted, at=_ANYWHERE, undecided=_DECIDED)
            if isinstance(coverage, Refusal):
                refusals.append(coverage)
            elif coverage.cover.microkernel == name:  # the start of a sum is not what adds to it
                (covered,) = coverage.instances
                axes = _in_words(kernel, coverage.cover.axes)
                return replace(coverage.cover, axes=axes), covered.match
        refusal = max(refusals, key=lambda one: _QUESTIONS.index(one.question), default=None)
        if requested is not None and (name != own or requested.axes or requested.operands):
            runs = f"{own} of {self.spec.name} runs it"
            raise self.refuse(leaf, str(refusal or runs), f"@cover({own})", cover=name)
        if refusal is None:
            raise self.refuse(leaf, "no instruction computes it from accumulators")
        memories = dict.fromkeys(
            memory
            for place in kernels[0].operands.values()
            for memory in place.memories
            if refusal.question is Question.MEMORY and memory != MAIN
        )
        helps = [f'cache_read(…, "{memory}")' for memory in memories]
        raise self.refuse(leaf, f"it is not {own} of {self.spec.name}: {refusal}", *helps)

    def bound_lanes(
        self, elements: Sequence[Load | Store]
    ) -> tuple[str, tuple[tuple[str, str], ...] | None]:
        """Return the first buffer of these elements that lies in words already, and the axes of a microkernel by those of a leaf along
        them; None where no buffer does yet.
        """
        for element in elements:
            if element.buffer in self.lanes:
                parts = zip("ij", self.lanes[element.buffer].axes, strict=True)
                index = [(name, element.index[at]) for name, at in parts if at is not None]
                if all(isinstance(part, Var) for _, part in index):
                    lanes = ((name, part.name) for name, part in index if isinstance(part, Var))
                    return element.buffer, tuple(lanes)
        return "", None

    def lanes_of(self, match: Match) -> tuple[str | None, str | None]:
        """Return the axes of a leaf along the rows and the columns of its words of accumulators."""
        return match.axis("i") if self.spec.rows > 1 else None, match.axis("j")

    def inexact(self, leaf: Leaf, match: Match) -> TargetError:
        """Return the refusal of a quotient, or of a shift by the words of an array."""
        if match.microkernel.name == "alu_shr":
            load = match.operand("B")
            low, high = self.ranges.of(load)
            return self.refuse(
                leaf,
                f"{load.buffer} is from {low} to {high}, and by less than 0 its vector unit shifts to the left",
                f"maximum of {load.buffer} and 0 before",
            )
        load = match.operand("A")
        (low, high), divisor = self.ranges.of(load), literal(leaf.store.value)
        most = exact_range(divisor)
        return self.refuse(
            leaf,
            f"{load.buffer} is from {low} to {high}, and a product in int32 and a shift divide by {divisor} "
            f"from {-most} to {most}",
            f"minimum and maximum of {load.buffer} before",
            "a power of two",
        )

    def put(
        self,
        leaf: Leaf,
        element: Load | Store,
        place: MemorySpace,
        lanes: Sequence[str | None],
    ) -> None:
        """Note the lanes of a buffer on the chip, or refuse others than it has."""
        buffer, index = element.buffer, element.index
        shape = self.spec.words[place].shape
        axes = tuple(
            next((at for at, part in enumerate(index) if name in variables(part)), None)
            for name in lanes
        )
        window, rank = leaf.windows.get(buffer), len(index)
        own = None if window is None else window.alloc.layout
        layout = own or self.scoped[buffer].layout
        order = _order(leaf, self.scoped[buffer]) if layout is None else word_order(layout, rank)
        laid = LaneLayout(axes, shape, order)
        if layout is not None and layout_of(laid).canonical() != layout.canonical():
            raise TargetError(
                "compile",
                f"cannot lay {buffer} out in {format_layout(layout)}",
                at=f"buffer {buffer}",
                because=f"what computes with it has words of {format_layout(layout_of(laid))}",
                help=("without a layout", "another axis along the lanes, in the cover"),
            )
        known = self.lanes.setdefault(buffer, laid)
        self.first.setdefault(buffer, leaf)
        if layout is not None and known.axes == axes and known.order != order:
            raise TargetError(
                "compile",
                f"cannot lay {buffer} out in {format_layout(layout)}",
                at=f"buffer {buffer}",
                because=f"another window of it has words of {format_layout(layout_of(known))}",
                help=("one layout for all windows of an array",),
            )
        if known.axes != axes or self.places.setdefault(buffer, place) is not place:
            raise self.refuse_words(leaf, buffer)

    def copy(self, leaf: Leaf) -> Copy:
        """Return a copy to the chip."""
        load, store = self.element(leaf), leaf.store
        assert load is not None
        if store.buffer not in self.places:
            raise self.refuse(leaf, f"nothing reads {store.buffer}")
        names = {name for name, _, _ in leaf.axes}
        bounds: list[Compare] = []
        fill = 0
        if isinstance(store.value, Select):
            assert isinstance(store.value.other, Const)
            fill = int(store.value.other.value)
            for one in conjuncts(store.value.condition):
                moving = tuple(variables(one) & names)
                side = bound(one, moving[0]) if len(moving) == 1 else None
                if side is None or variables(side.b) & names:
                    raise self.refuse(leaf, "a load has zeros around a rectangle alone")
                bounds.append(side)
        place = self.places[store.buffer]
        unit = self.spec.loads[place]
        if fill and self.spec.tokens and unit is not Unit.COMPUTE:
            raise self.refuse(
                leaf,
                f"compute fills what lies around it with {fill}, and {unit.value}, which brings {place.value}, "
                "has no token of that",
            )
        own = load_of(place, load.dtype, self.spec)
        judgement, _ = self.cover_of_leaf(
            leaf, replace(store, value=load), own.name, (store,), (own,)
        )
        return Copy(place, load, tuple(bounds), fill, judgement)

    def result(self, leaf: Leaf) -> Result:
        """Return a copy of results to main memory."""
        source = leaf.store.value
        while isinstance(source, Cast):  # of integers: the lowest 8 bits stay
            source = source.a
        store = leaf.store
        dtype = self.program.buffer(store.buffer).dtype
        known = isinstance(source, Load) and source.buffer in self.scoped
        if not known or store.reduce is not None or dtype not in ("int8", "uint8"):
            raise self.refuse(
                leaf, "a store cuts accumulators to their lowest 8 bits, and does no more"
            )
        assert isinstance(source, Load)
        value = source if source.dtype == dtype else Cast(source, dtype)
        own = store_of(source.dtype, dtype, self.spec)
        judgement, match = self.cover_of_leaf(
            leaf, replace(store, value=value), own.name, (source,), (own,)
        )
        self.put(leaf, source, MemorySpace.ACCUMULATORS, self.lanes_of(match))
        return Result(source, judgement)


def _in_words(kernel: Microkernel, axes: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Axes of a microkernel, each with that of a leaf, but for those along which a word has one element."""
    alone = {name for name, n in zip(kernel.axes, kernel.tiles[0].extents, strict=True) if n == 1}
    return tuple(pair for pair in axes if pair[0] not in alone)


def _tile_of(leaf: Leaf, store: Store, lanes: Sequence[tuple[str, str]] | None) -> Tile:
    """Return a leaf as a tile along the axes of its words, and loops.

    lanes  the axes of a microkernel by those of the leaf; None: those of the result may be any of them
    """
    stored = {name for part in store.index for name in variables(part)}
    within = [name for _, name in lanes or ()]
    inside = stored if lanes is None else stored & {*within}
    loops = [axis for axis in leaf.axes if axis[0] not in inside]
    body: tuple[Stmt, ...] = (store,)
    for name, first, count in sorted(loops, key=lambda axis: axis[0] in within)[::-1]:
        body = (For(name, first, ix.add(first, count), body),)
    return Tile(tuple(TileAxis(*axis) for axis in leaf.axes if axis[0] in inside), body)


_QUESTIONS = list(Question)
_ANYWHERE = Surroundings((), lambda expr: (-inf, inf))
_DECIDED = frozenset({Question.BOUNDS, Question.EXTENTS, Question.UNIT})
"""What is so of every leaf: its bounds are alike for all instances, words repeat as often as wanted, compute runs it."""


def main_lanes(chip: LaneLayout, inside: Sequence[Expr], outside: Sequence[Expr]) -> LaneLayout:
    """Return the lanes of an array in main memory whose element `outside` is the chip's element `inside`."""
    axis_of: dict[int, int] = {}
    for at, part in enumerate(inside):
        for other, outer_part in enumerate(outside):
            if isinstance(part, Var) and part.name in variables(outer_part):
                axis_of[at] = other
    axes = tuple(None if axis is None else axis_of.get(axis) for axis in chip.axes)
    order = [axis_of[axis] for axis in chip.order if axis in axis_of]
    fixed = [axis for axis in range(len(outside)) if axis not in order]
    return replace(chip, axes=axes, order=(*fixed, *order))


def _order(leaf: Leaf, buffer: Buffer) -> tuple[int, ...]:
    """Return how words follow one another: axes of which a window has a part, then those it has all of, so that what
    is moved at once lies together.
    """
    window = leaf.windows.get(buffer.name)
    rank = range(len(buffer.shape))
    if window is None:
        return tuple(rank)

    def is_whole(axis: int) -> bool:
        start, count = window.axes[axis]
        return ix.literal_value(start) == 0 and count == buffer.shape[axis]

    return tuple(sorted(rank, key=lambda axis: (is_whole(axis), axis)))
