"""Microkernels as data: what one computes, on which extents and layouts, and what it costs.

    conv_rows   C[x, o] = sum over r, p of A[x + r, p] * B[r, p, o]      x 1..14, o 16, r 3, p any
    load_inp    C[i, p] = A[i, p]                                        A in main memory, C in inputs

Any number of axes may be reduced; a copy is a microkernel too. The judge of covers
(`offcut.partition.judge`) compares a tile with this record and with nothing else: names of axes and
of arrays say nothing to it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from math import inf
from typing import Any, TypeVar

from offcut.core.dtypes import INTEGERS, finite_range, in_range
from offcut.core.expr import Expr, Load, Reduce, Var, loads, variables
from offcut.core.layout import Layout
from offcut.core.memo import lazy_property, memoize_method
from offcut.core.names import RenamedAttribute
from offcut.core.program import MAX_SIZE
from offcut.describe.tensor import Compute, Tensor
from offcut.describe.tile_shapes import Bound, Extents, Place, TileShape, _extents_of
from offcut.describe.value import Axis
from offcut.errors import DescribeError

CORE = "core"
"""The unit of a microkernel that is a function: what runs the loops around calls it."""
LOOP_UNITS = ("cluster", "block", "warpgroup", "warp", "lane", "thread")
"""Units that run the iterations of a loop, the largest first. What one of them runs together stands in a
loop that is bound to it; any other unit takes its tiles from a queue."""
_FORMS = ("plain", "fragment", "descriptor", "immediate")
_WORDS: Mapping[str, tuple[str | None, ...]] = {
    "accumulate": ("fresh", "adds", "both"),
    "issue": ("sync", "async"),
    "wait": (None, "group", "token"),
}

_LOOPS_AROUND_TERMS = 2
"""Loops around the terms that a function of the CPU runs as well, where it repeats them."""
_UNPACKED_COLUMNS = 16
"""What cuts of columns are a multiple of, at most, where nothing is packed by columns."""

_Value = TypeVar("_Value")


class _Fields(dict[str, _Value]):
    """A mapping that is never changed, so that a record of it can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


_ANYWHERE = Place()


@dataclass(frozen=True)
class Microkernel:
    """A fixed-shape inner kernel: an instruction, or a function, on tiles.

    computes    a tensor expression of any number of axes; a tile is compared with its accesses
    tiles       the tiles there are: `TileShape`, or (extents, cycles, startup)
    bounds      the extents of each axis, of reductions too: a literal, (least, most), or `multiples`; of
                an axis that is not named, those of the tiles, or of `computes`
    predicates  axes along which an instance may be off: it reads nothing and writes nothing
    repeats     axes along which one issue takes several of its tiles, or of its terms, one after the other
    operands    where operands, and the result, lie, by name; the others lie anywhere, at any strides
    accumulate  "fresh": it starts its reduction itself; "adds": it adds to what is there; "both"
    reset       the instruction that starts its reduction, where that is one of its own
    update      the one that adds to what was started, where that is one of its own
    unit        what runs it: a core of the CPU, a warp, the queue of a matrix unit
    features    what the hardware must have
    issue       "sync": it has ended when the next statement begins; "async": where it is waited for
    wait        how its end is waited for: "group", "token"; None: it is not
    ascending   whether an element is what adding its terms one after the other gives
    lowering    how a function that is not the back end's is called; None: the back end knows

    Raises DescribeError for what is no declaration.
    """

    name: str
    computes: Tensor
    tiles: tuple[TileShape, ...]
    _: KW_ONLY
    bounds: Mapping[str, Bound] = field(default_factory=_Fields)
    predicates: frozenset[str] = frozenset()
    repeats: frozenset[str] = frozenset()
    operands: Mapping[str, Place] = field(default_factory=_Fields)
    accumulate: str = "both"
    reset: str | None = None
    update: str | None = None
    unit: str = CORE
    features: frozenset[str] = frozenset()
    issue: str = "sync"
    wait: str | None = None
    ascending: bool = True
    lowering: Any = None

    def __post_init__(self) -> None:
        definition = self.computes.definition if isinstance(self.computes, Tensor) else None
        if definition is None:
            because = f"it computes {self.computes!r}, and no tensor that compute defines"
            raise self._refusal(because)
        axes = [axis.name for axis in (*definition.axes, *definition.reduce_axes)]
        tensors = {tensor.name: tensor for tensor in (*definition.reads, self.computes)}
        for what, known in (
            ("predicates", axes),
            ("repeats", axes),
            ("bounds", axes),
            ("operands", list(tensors)),
        ):
            given = getattr(self, what)
            if isinstance(given, str) or not isinstance(given, Collection):
                raise self._refusal(f"its {what} are {given!r}", f"it has {', '.join(known)}")
            if unknown := sorted(map(str, set(given) - set(known))):
                kind = "operand" if what == "operands" else "axis"
                because = f"its {what} have {', '.join(unknown)}, which is not an {kind} of it"
                raise self._refusal(because, f"it has {', '.join(known)}")
        for what, words in _WORDS.items():
            if getattr(self, what) not in words:
                because = f"{what} is {getattr(self, what)!r}"
                raise self._refusal(because, *(f"{what}={word!r}" for word in words))
        for operand, place in self.operands.items():
            self._check_place(tensors[operand], place, axes)
        if not isinstance(self.name, str) or not re.fullmatch(r"[\w.\-]+", self.name):
            raise self._refusal(f"its name is {self.name!r}", "letters, digits, `_`, `.` and `-`")
        tiles = tuple(self._tile(tile, len(definition.axes)) for tile in self.tiles)
        if not tiles:
            raise self._refusal("it has no tiles")
        ends = zip(*(tile.extents for tile in tiles), strict=True)
        own = dict(zip(axes, (Extents(min(e), max(e)) for e in ends), strict=False))
        bounds = {
            axis.name: self._extents(axis, self.bounds.get(axis.name, own.get(axis.name)))
            for axis in (*definition.axes, *definition.reduce_axes)
        }
        self._check_extents(definition, tiles, bounds)
        self._check_start(isinstance(definition.body, Reduce))
        for what, value in (
            ("tiles", tiles),
            ("bounds", _Fields(bounds)),
            ("predicates", frozenset(self.predicates)),
            ("repeats", frozenset(self.repeats)),
            ("operands", _Fields(self.operands)),
        ):
            object.__setattr__(self, what, value)

    def __hash__(self) -> int:
        return hash(self.name)

    def _refusal(self, because: str, *help_: str) -> DescribeError:
        what = f"cannot declare {self.name or 'one'}"
        return DescribeError("microkernel", what, because=because, help=help_)

    def _check_place(self, tensor: Tensor, place: Place, axes: Collection[str]) -> None:
        operand, rank = tensor.name, len(tensor.shape)
        if not isinstance(place, Place):
            raise self._refusal(
                f"{operand} lies in {place!r}", f"operands={{{operand!r}: Place()}}"
            )
        if place.by not in _FORMS:
            forms = (f"by={form!r}" for form in _FORMS)
            raise self._refusal(f"{operand} is handed over by {place.by!r}", *forms)
        if isinstance(place.memories, str):
            named = f"memories=({place.memories!r},)"
            raise self._refusal(f"the memories of {operand} are {place.memories!r}", named)
        if place.beside and place.beside not in axes:
            because = (
                f"{operand} lies side by side along {place.beside}, which is not an axis of it"
            )
            raise self._refusal(because)
        if unknown := sorted({*place.repeated} - {*axes}):
            because = (
                f"{operand} is repeated along {', '.join(unknown)}, which is not an axis of it"
            )
            raise self._refusal(because, f"it has {', '.join(axes)}")
        narrow = [one for one in place.types if not _is_within(one, tensor.dtype)]
        if isinstance(place.types, str) or narrow:
            because = f"{operand} is {tensor.dtype}, and its types are {place.types!r}"
            raise self._refusal(because, 'types=("int8",) of an operand of int32')
        if place.layout is not None and not isinstance(place.layout, Layout):
            raise self._refusal(
                f"the layout of {operand} is {place.layout!r}", "layout=panels(16)", "layout=None"
            )
        if place.layout is not None and len(place.layout.multiple) not in (0, rank):
            has = len(place.layout.multiple)
            raise self._refusal(f"{operand} has {rank} axes, and its layout {has}")
        if place.by == "immediate" and rank:
            because = f"{operand} has {rank} axes, and is a constant of the instruction"
            raise self._refusal(because)

    def _tile(self, given: Any, rank: int) -> TileShape:
        tile = TileShape(*given) if isinstance(given, tuple) and len(given) == 3 else given
        if not isinstance(tile, TileShape) or not isinstance(tile.extents, tuple):
            help_ = "TileShape((4, 8), cycles=4.0, startup=4.0)"
            raise self._refusal(f"{given!r} is not a tile", help_)
        if len(tile.extents) != rank:
            because = f"{tile} has {len(tile.extents)} extents, and its result {rank} axes"
            raise self._refusal(because)
        whole = all(type(extent) is int and extent >= 1 for extent in tile.extents)
        if not (whole and 0 <= tile.cycles < inf and 0 <= tile.startup < inf):
            raise self._refusal(f"{tile} has no instances, or takes no time that there is")
        return tile

    def _extents(self, axis: Axis, bound: Bound | None) -> Extents:
        match bound:
            case None:
                extents = _extents_of(axis.extent)
            case Extents():
                extents = bound
            case int() if not isinstance(bound, bool):
                extents = Extents(bound, bound)
            case (int(least), int(most)):
                extents = Extents(least, most)
            case _:
                raise self._refusal(
                    f"the extents of {axis.name} are {bound!r}",
                    f"bounds={{{axis.name!r}: (1, 14)}}",
                    f"bounds={{{axis.name!r}: multiples(16)}}",
                )
        if not (
            0 <= extents.least <= extents.most and extents.most >= 1 and extents.multiple_of >= 1
        ):
            raise self._refusal(f"no extent of {axis.name} is {extents}")
        return extents

    def _check_extents(
        self, definition: Compute, tiles: Sequence[TileShape], bounds: dict[str, Extents]
    ) -> None:
        """Check that tiles and bounds have extents that the computation has; bounds without an end end where it does.

        Along an axis that it repeats, tiles do, and bounds count several of them.
        """
        for place, axis in enumerate((*definition.axes, *definition.reduce_axes)):
            name, found = axis.name, bounds[axis.name]
            allowed = _extents_of(axis.extent)
            longest = allowed.most
            if place < len(definition.axes):
                longest = max(tile.extents[place] for tile in tiles)
                for tile in tiles:
                    extent = tile.extents[place]
                    if extent > allowed.most or extent % allowed.multiple_of:
                        because = f"{tile} has {extent} along {name}, and it computes {allowed}"
                        raise self._refusal(because, f"TileShape of {allowed} along {name}")
            if name in self.repeats:
                continue
            if longest < found.most < MAX_SIZE or found.least > longest:
                what = "its longest tile has" if place < len(definition.axes) else "it computes"
                because = f"its bounds have {found} along {name}, and {what} {longest}"
                help_ = f"bounds={{{name!r}: ({min(found.least, longest)}, {longest})}}"
                raise self._refusal(because, help_, f"repeats={{{name!r}}}")
            bounds[name] = replace(found, most=min(found.most, longest))

    def _check_start(self, reduces: bool) -> None:
        """Check that instructions of its own which start a reduction, and add to one, have one to start, and can be told apart."""
        for what, name in (("reset", self.reset), ("update", self.update)):
            if name is None:
                continue
            if not isinstance(name, str) or not re.fullmatch(r"[\w.\-]+", name):
                raise self._refusal(f"its {what} is {name!r}", "letters, digits, `_`, `.` and `-`")
            if not reduces:
                because = f"its {what} is {name}, and it reduces nothing"
                raise self._refusal(because, f"{what}=None")
        if self.reset is not None and self.reset in (self.name, self.update):
            raise self._refusal(f"its reset and what it starts have one name, {self.reset}")
        if self.update is not None and self.accumulate == "fresh":
            because = f"its update is {self.update}, and accumulate is 'fresh': it never adds"
            raise self._refusal(because, "accumulate='both'", "update=None")

    def extents_of(self, axis: str) -> Extents:
        """Return the extents that an axis may have."""
        extents = self.bounds[axis]
        assert isinstance(extents, Extents)
        return extents

    @lazy_property
    def definition(self) -> Compute:
        """What it computes, as an expression of its axes."""
        definition = self.computes.definition
        assert definition is not None
        return definition

    @lazy_property
    def axes(self) -> tuple[str, ...]:
        """Return the axes of its result."""
        return tuple(axis.name for axis in self.definition.axes)

    @lazy_property
    def reduce_axes(self) -> tuple[str, ...]:
        """Return the axes that it reduces along, outermost first."""
        return tuple(axis.name for axis in self.definition.reduce_axes)

    @lazy_property
    def reducer(self) -> str | None:
        """Return how it reduces: "sum", "max", "min"; None where it computes element by element."""
        body = self.definition.body
        return body.op if isinstance(body, Reduce) else None

    def place_of(self, operand: str) -> Place:
        """Where an operand, or the result, lies."""
        return self.operands.get(operand, _ANYWHERE)

    repeated = RenamedAttribute("repeated_axes")

    def repeated_axes(self, read: Expr) -> frozenset[str]:
        """Return the axes along which what it reads may stand still."""
        return self.place_of(read.buffer).repeated if isinstance(read, Load) else frozenset()

    def layout_of(self, operand: str) -> Layout | None:
        """Where the elements of an operand, or of the result, lie; None where as an array's do."""
        return self.place_of(operand).layout

    def index_of(self, operand: str) -> tuple[Expr, ...]:
        """Return the index of the first element that it reads of an operand, or that it writes of the result."""
        read = (one.index for one, _ in loads(self.definition.body) if one.buffer == operand)
        return next(read, tuple(Var(axis) for axis in self.axes))

    def operand_along(self, axis: str) -> str:
        """Return the first operand that moves along an axis; "" where none does."""
        moving = (load.buffer for load, _ in loads(self.definition.body) if _moves(load, axis))
        return next(moving, "")

    # What planners of the CPU ask of a product of rows and columns, read off axes and layouts.

    @lazy_property
    def rows(self) -> str:
        """Return the axis of its result before the last one; "" where there is none."""
        return self.axes[-2] if len(self.axes) > 1 else ""

    @lazy_property
    def columns(self) -> str:
        """Return the last axis of its result; "" where there is none."""
        return self.axes[-1] if self.axes else ""

    @lazy_property
    def depth(self) -> str:
        """Return the innermost axis that it reduces along; "" where there is none."""
        return self.reduce_axes[-1] if self.reduce_axes else ""

    @lazy_property
    def any_columns(self) -> bool:
        """Return whether one call takes more columns than a tile has, as tiles side by side."""
        return self.columns in self.repeats

    @lazy_property
    def turns(self) -> int:
        """Loops around the terms of a sum that one call runs as well, at most."""
        return _LOOPS_AROUND_TERMS if self.depth in self.repeats and self.unit == CORE else 0

    @lazy_property
    def packed(self) -> str:
        """Return the operand of columns and terms that may be packed, zero past its extents; "" where none may."""
        name = self.operand_along(self.columns)
        sums = any(self.depth in variables(part) for part in self.index_of(name))
        return name if sums and self.layout_of(name) is not None else ""

    @memoize_method
    def layout_on(self, rows: int, columns: int) -> Layout | None:
        """Return the layout of an array that it reads as the packed operand, None where it packs none.

        rows, columns  axes of the array that its terms and its columns run along
        """
        layout = self.layout_of(self.packed)
        if layout is None or len(layout.multiple) != 2:
            return None
        return layout.on(*((rows, columns) if self._depth == 0 else (columns, rows)))

    @lazy_property
    def panel(self) -> int:
        """What cuts of the columns are a multiple of, in columns."""
        layout = self.layout_of(self.packed)
        if layout is not None and self.unit == CORE:
            return layout.multiple[-1]
        widest = max(tile.columns for tile in self.tiles)
        return min(_UNPACKED_COLUMNS, widest) if self.columns in self.predicates else widest

    @lazy_property
    def interleave(self) -> int:
        """Terms that are added up at once: so many lie side by side in the packed operand, which is
        then read only so, and those of the other operand lie side by side.
        """
        layout = self.layout_of(self.packed)
        return 1 if layout is None else layout.beside(self._depth)

    @lazy_property
    def multiple(self) -> int:
        """What the terms of the packed operand are rounded up to."""
        layout = self.layout_of(self.packed)
        return 1 if layout is None else layout.multiple[self._depth]

    @lazy_property
    def per_byte(self) -> int:
        """Return the number of elements of the packed operand that share a byte."""
        layout = self.layout_of(self.packed)
        return 1 if layout is None else layout.per_byte

    @lazy_property
    def _depth(self) -> int:
        """Return the axis of the packed operand along which it is reduced."""
        load = next(load for load, _ in loads(self.definition.body) if load.buffer == self.packed)
        return next(at for at, part in enumerate(load.index) if self.depth in variables(part))

    @lazy_property
    def at_once(self) -> int:
        """Terms of a sum that one issue takes, all or none; 1 where it takes as many as there are."""
        if not self.depth or self.depth in self.predicates:
            return 1
        return self.extents_of(self.depth).only or 1

    @lazy_property
    def cycles(self) -> float:
        """Predicted cycles of a multiply–add in the best tile: by which microkernels compete."""
        return min(tile.cycles / tile.elements for tile in self.tiles)

    @lazy_property
    def max_rows(self) -> int:
        """Return the tallest tile, in rows."""
        return max(tile.rows for tile in self.tiles)

    def columns_for(self, rows: int) -> int:
        """Return the widest tile of that many rows, in columns; 0 where there is none."""
        return max((tile.columns for tile in self.tiles if tile.rows == rows), default=0)

    def tile(self, rows: int, columns: int) -> TileShape:
        """Return the smallest tile of that many rows that holds `columns` columns."""
        fitting = [t for t in self.tiles if t.rows == rows and t.columns >= columns]
        return min(fitting, key=lambda t: t.columns)


def _is_within(dtype: str, of: str) -> bool:
    """Return whether each value of an integer type is one of another."""
    return {dtype, of} <= {*INTEGERS} and all(in_range(end, of) for end in finite_range(dtype))


def _moves(load: Load, axis: str) -> bool:
    return any(axis in variables(part) for part in load.index)
