"""Which instruction runs a leaf, on which words: found by access relations, never by names.

The last axes of a tile of results are rows and columns, and the last loop of its sum the terms, where each of
these is an index of its own in the operands that it moves. So operands get their lanes; a copy of an operand
from main memory has those of what reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

from offcut.backends.accelerator.isa import Place, Unit
from offcut.backends.accelerator.lowering.arithmetic import Recipe, recipe, undivided
from offcut.backends.accelerator.lowering.division import reach
from offcut.backends.accelerator.lowering.ranges import Ranges
from offcut.backends.accelerator.lowering.tree import Leaf
from offcut.backends.accelerator.lowering.words import Lanes, sides
from offcut.backends.accelerator.microkernels import instructions_of, name_of, product_name
from offcut.backends.accelerator.spec import Spec
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
    dtype_of,
    variables,
)
from offcut.core.program import Buffer, Cover, For, Program, Stmt, Tile, TileAxis
from offcut.core.text.printer import format_stmt
from offcut.describe.microkernel import Microkernel
from offcut.errors import TargetError
from offcut.partition import Coverage, Question, Refusal, Surroundings, cover


@dataclass(frozen=True, slots=True)
class Copy:
    """Elements of main memory to the chip.

    bounds  (axis of the leaf, side, end) outside of which `fill` is there; side: "lo", at least; "hi", less than
    """

    place: Place
    source: Load
    bounds: tuple[tuple[str, str, Expr], ...]
    fill: int


@dataclass(frozen=True, slots=True)
class Result:
    """Accumulators to main memory."""

    source: Load


@dataclass(frozen=True, slots=True)
class Product:
    """Products of words, added to accumulators."""

    inputs: Load
    weights: Load
    cover: Cover


@dataclass(frozen=True, slots=True)
class Operation:
    """Operations on accumulators."""

    recipe: Recipe


Does: TypeAlias = Copy | Result | Product | Operation


@dataclass
class Covers:
    """How the leaves of a program run.

    lanes   of the buffers on the chip, and of arrays in main memory as each leaf reads or writes them
    places  of the buffers on the chip
    """

    program: Program
    spec: Spec
    lanes: dict[str, Lanes] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    does: dict[int, Does] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memories: dict[str, list[Place]] = {}
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

    def unit(self, leaf: Leaf) -> Unit:
        """The unit that runs a leaf."""
        target = self.scoped.get(leaf.store.buffer)
        if target is None:
            return Unit.STORE
        if self.element(leaf) is not None:
            place = self.memories[target.scope or ""][0]
            if self.holds_accumulators(target.name):
                place = Place.ACCUMULATORS
            return self.spec.loads[place]
        return Unit.COMPUTE

    def holds_accumulators(self, buffer: str) -> bool:
        """Whether a buffer lies where operations find it."""
        return Place.ACCUMULATORS in self.memories[self.scoped[buffer].scope or ""]

    def element(self, leaf: Leaf) -> Load | None:
        """The element of main memory that a leaf copies to the chip."""
        value = leaf.store.value
        match value:
            case Select(_, Load() as load, Const()) | (Load() as load):
                found = leaf.store.reduce is None and load.buffer not in self.scoped
                return load if found else None
        return None

    def of(self, leaves: Sequence[Leaf], ranges: Ranges) -> None:
        """Find what each leaf does, and the lanes of all buffers.

        ranges  of the values of the buffers on the chip
        """
        self.ranges = ranges
        for leaf in leaves:
            if self.is_product(leaf):
                self.does[leaf.number] = self.product(leaf)
        for leaf in leaves:
            computes = self.unit(leaf) is Unit.COMPUTE and self.element(leaf) is None
            if leaf.number not in self.does and computes:
                self.does[leaf.number] = self.operation(leaf)
        for leaf in leaves:
            if leaf.number not in self.does and self.element(leaf) is None:
                self.does[leaf.number] = self.result(leaf)
        for leaf in leaves:
            if leaf.number not in self.does:
                self.does[leaf.number] = self.copy(leaf)

    def refuse(self, leaf: Leaf, because: str, *help: str) -> TargetError:
        """The refusal of one leaf."""
        return TargetError(
            "compile",
            f"cannot run a statement on {self.spec.name}",
            at=format_stmt(leaf.store),
            because=because,
            help=help,
        )

    def is_product(self, leaf: Leaf) -> bool:
        """Whether a leaf adds products."""
        return name_of(leaf.store, self.spec) == product_name(self.spec)

    def product(self, leaf: Leaf) -> Product:
        """A sum of products by the matrix unit, whose lanes are those of its cover."""
        spec, own = self.spec, product_name(self.spec)
        stated_cover = None if leaf.microkernel != own or leaf.tile is None else leaf.tile.cover
        verdict = judged(self.program, leaf, instructions_of(leaf.store, spec), stated_cover)
        if isinstance(verdict, Refusal):
            if stated_cover is not None and stated_cover.axes + stated_cover.operands:
                raise not_covered(leaf, own, str(verdict), f"@cover({own})")
            memories = spec.words[Place.INPUTS].memory, spec.words[Place.WEIGHTS].memory
            helps = [f'cache_read(…, "{memory}")' for memory in dict.fromkeys(memories)]
            raise self.refuse(leaf, f"it is not {own} of {spec.name}: {verdict}", *helps)
        (match,) = (one.match for one in verdict.covered)
        inputs, weights = match.operand("A"), match.operand("B")
        row, column, depth = map(match.axis, "ijp")
        row = row if spec.rows > 1 else None
        self.put(leaf, leaf.store.buffer, leaf.store.index, Place.ACCUMULATORS, (row, column))
        self.put(leaf, inputs.buffer, inputs.index, Place.INPUTS, (row, depth))
        self.put(leaf, weights.buffer, weights.index, Place.WEIGHTS, (column, depth))
        return Product(inputs, weights, verdict.cover)

    def operation(self, leaf: Leaf) -> Operation:
        """Operations by the vector unit."""
        store = leaf.store
        buffer = self.scoped[store.buffer]
        values, held = self.ranges.of, self.holds_accumulators(buffer.name)
        found = recipe(store, buffer.dtype, values) if held else None
        if held and (division := undivided(store, values)) is not None:
            raise self.inexact(leaf, *division)
        reads = () if found is None else found.reads
        for load in reads:
            if load.buffer not in self.scoped or not self.holds_accumulators(load.buffer):
                found = None
        if found is None:
            raise self.refuse(leaf, "no instruction computes it from accumulators")
        missing = sorted({op.value for op, _ in found.steps} - self.spec.alu)
        if missing:
            raise self.refuse(leaf, f"its vector unit lacks {', '.join(missing)}")
        names = [name for name, _, _ in leaf.axes]
        rows, columns = self.lanes_of(store.buffer, store.index, names, reads)
        self.put(leaf, store.buffer, store.index, Place.ACCUMULATORS, (rows, columns))
        for load in reads:
            self.put(leaf, load.buffer, load.index, Place.ACCUMULATORS, (rows, columns))
        return Operation(found)

    def inexact(self, leaf: Leaf, load: Load, divisor: int) -> TargetError:
        """The refusal of a quotient."""
        low, high = self.ranges.of(load)
        most = reach(divisor)
        return self.refuse(
            leaf,
            f"{load.buffer} is from {low} to {high}, and a product in int32 and a shift divide by {divisor} "
            f"from {-most} to {most}",
            f"minimum and maximum of {load.buffer} before",
            "a power of two",
        )

    def lanes_of(
        self, buffer: str, index: Sequence[Expr], names: Sequence[str], reads: Sequence[Load]
    ) -> tuple[str | None, str | None]:
        """The axes of a leaf that run along rows and columns: those of a result or an operand that has its lanes
        already, else the last ones that may.
        """
        for name, at in ((buffer, index), *((load.buffer, load.index) for load in reads)):
            if name in self.lanes and len(self.lanes[name].order) == len(index):
                found = [None if a is None else at[a] for a in self.lanes[name].axes]
                row, column = (part.name if isinstance(part, Var) else None for part in found)
                return row, column
        own = [
            name
            for name in names
            if _is_lone(index, name)
            and all(_is_lone(o.index, name) or not _moves(o.index, name) for o in reads)
        ]
        return sides(own, self.spec.rows, self.spec.columns)

    def put(
        self,
        leaf: Leaf,
        buffer: str,
        index: Sequence[Expr],
        place: Place,
        lanes: tuple[str | None, str | None],
    ) -> None:
        """Note the lanes of a buffer on the chip, or refuse others than it has."""
        shape = self.spec.words[place].shape
        axes = tuple(
            next((at for at, part in enumerate(index) if name in variables(part)), None)
            for name in lanes
        )
        order = _order(leaf, self.scoped[buffer])
        made = Lanes(axes, shape, order)
        known = self.lanes.setdefault(buffer, made)
        if known.axes != axes or self.places.setdefault(buffer, place) is not place:
            raise self.refuse(
                leaf, f"it has other elements of {buffer} in a word than another statement"
            )

    def copy(self, leaf: Leaf) -> Copy:
        """A copy to the chip."""
        load, store = self.element(leaf), leaf.store
        assert load is not None
        if store.buffer not in self.places:
            raise self.refuse(leaf, f"nothing reads {store.buffer}")
        names = {name for name, _, _ in leaf.axes}
        bounds: list[tuple[str, str, Expr]] = []
        fill = 0
        if isinstance(store.value, Select):
            assert isinstance(store.value.other, Const)
            fill = int(store.value.other.value)
            for one in conjuncts(store.value.condition):
                bound = _bound(one, names)
                if bound is None:
                    raise self.refuse(leaf, "a load has zeros around a rectangle alone")
                bounds.append(bound)
        place = self.places[store.buffer]
        unit = self.spec.loads[place]
        if fill and self.spec.tokens and unit is not Unit.COMPUTE:
            raise self.refuse(
                leaf,
                f"compute fills what lies around it with {fill}, and {unit.value}, which brings {place.value}, "
                "has no token of that",
            )
        return Copy(place, load, tuple(bounds), fill)

    def result(self, leaf: Leaf) -> Result:
        """A copy of results to main memory."""
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
        if not self.holds_accumulators(source.buffer):
            raise self.refuse(leaf, f"{source.buffer} does not lie in accumulators")
        if source.buffer not in self.lanes:  # what was copied there is stored as it is
            names = [name for name, _, _ in leaf.axes]
            own = Load(store.buffer, store.index, dtype)
            lanes = self.lanes_of(source.buffer, source.index, names, (own,))
            self.put(leaf, source.buffer, source.index, Place.ACCUMULATORS, lanes)
        return Result(source)


def judged(
    program: Program,
    leaf: Leaf,
    instructions: Sequence[Microkernel],
    wanted: Cover | None = None,
) -> Coverage | Refusal:
    """Return the cover of a leaf by one issue of the first of its instructions that runs it; or why the first does not.

    wanted  the axes and the operands that the text says
    """
    stored = {name for part in leaf.store.index for name in variables(part)}
    body: tuple[Stmt, ...] = (leaf.store,)
    for name, first, count in reversed(leaf.axes):
        if name not in stored:
            body = (For(name, first, ix.add(first, count), body),)
    axes = (TileAxis(*axis) for axis in leaf.axes if axis[0] in stored)
    tile, refusal = Tile(tuple(axes), body), None
    for instruction in instructions:
        verdict = cover(tile, program, instruction, wanted, at=_ANYWHERE, undecided=_DECIDED)
        if isinstance(verdict, Coverage):
            return verdict
        refusal = refusal or verdict
    assert refusal is not None
    return refusal


_ANYWHERE = Surroundings((), lambda expr: (-inf, inf))
_DECIDED = frozenset({Question.BOUNDS, Question.EXTENTS, Question.UNIT})
"""What is so of every leaf: its bounds are alike for all instances, words repeat as often as wanted, compute runs it."""


def not_covered(leaf: Leaf, microkernel: str, because: str, *help: str) -> TargetError:
    """The refusal of a cover that the text of a tile says."""
    return TargetError(
        "compile",
        f"cannot cover a tile by {microkernel}",
        at=format_stmt(leaf.store),
        because=because,
        help=help,
    )


def main_lanes(chip: Lanes, inside: Sequence[Expr], outside: Sequence[Expr]) -> Lanes:
    """The lanes of an array in main memory whose element `outside` is the chip's element `inside`."""
    axis_of: dict[int, int] = {}
    for at, part in enumerate(inside):
        for other, found in enumerate(outside):
            if isinstance(part, Var) and part.name in variables(found):
                axis_of[at] = other
    axes = tuple(None if axis is None else axis_of.get(axis) for axis in chip.axes)
    order = [axis_of[axis] for axis in chip.order if axis in axis_of]
    fixed = [axis for axis in range(len(outside)) if axis not in order]
    return replace(chip, axes=axes, order=(*fixed, *order))


def _order(leaf: Leaf, buffer: Buffer) -> tuple[int, ...]:
    """How words follow one another: axes of which a window has a part, then those it has all of, so that what
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


def _moves(index: Sequence[Expr], name: str) -> bool:
    return any(name in variables(part) for part in index)


def _is_lone(index: Sequence[Expr], name: str) -> bool:
    return [part for part in index if name in variables(part)] == [Var(name)]


def _bound(condition: Expr, names: set[str]) -> tuple[str, str, Expr] | None:
    """A comparison as a bound of one axis."""
    if not isinstance(condition, Compare) or dtype_of(condition.a) != "index":
        return None
    form = ix.to_linear(ix.sub(condition.a, condition.b))
    moving = [(a.name, k) for a, k in form.terms if isinstance(a, Var) and a.name in names]
    if len(moving) != 1 or abs(moving[0][1]) != 1 or condition.op not in _OPPOSITE:
        return None
    ((name, factor),) = moving
    rest = ix.sub(form.expr(), ix.mul(factor, Var(name)))
    op = condition.op if factor == 1 else _OPPOSITE[condition.op]
    end = ix.mul(-factor, rest)  # name op end
    match op:
        case ">=":
            return name, "lo", end
        case ">":
            return name, "lo", ix.add(end, 1)
        case "<":
            return name, "hi", end
        case _:
            return name, "hi", ix.add(end, 1)


_OPPOSITE = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
