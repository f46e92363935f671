"""Lowers a nest: leaves to operations, arrays to words in main memory, windows to regions on the chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

from offcut.backends.accelerator.isa import MemorySpace, Tokens, Unit
from offcut.backends.accelerator.lowering.arithmetic import ValueRanges
from offcut.backends.accelerator.lowering.capacity import WindowPlace, check_fits, slots_of
from offcut.backends.accelerator.lowering.instruction_selection import (
    Copy,
    Does,
    InstructionSelection,
    Operation,
    Product,
    Result,
    main_lanes,
)
from offcut.backends.accelerator.lowering.issue_tree import (
    Leaf,
    Node,
    Window,
    bounds_of,
    build_issue_tree,
    leaves,
)
from offcut.backends.accelerator.lowering.python_codegen import (
    Issue,
    Values,
    check_copy,
    compile_walker,
    is_host,
)
from offcut.backends.accelerator.lowering.queues import SILENT, Conditions, Touch, token_conditions
from offcut.backends.accelerator.lowering.word_blocks import lanes_per_word
from offcut.backends.accelerator.lowering.word_layout import (
    LaneLayout,
    OperandAddress,
    operand_address,
)
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Const, Expr, Load, Var
from offcut.core.program import Alloc, Program, Stmt
from offcut.core.text.printer import format_head
from offcut.errors import TargetError
from offcut.polyhedral.derived_sizes import DerivedSizes

_NO_TOKENS = Tokens()


@dataclass(frozen=True, slots=True)
class WordImage:
    """An array in main memory, as words of a memory space of the chip."""

    buffer: str
    place: MemorySpace
    lanes: LaneLayout
    shape: tuple[Expr, ...]


@dataclass(frozen=True)
class LoweredLeaf:
    """A leaf, ready to be issued. Numbers are positions in `asked`, the expressions whose values each instance needs.

    does    its operation
    sides   its operands, each with the position of its first value: the chip's first for a copy, else the result first
    counts  of each axis, the position of its number of iterations, and the iterations in a word
    bounds  of each axis of a copy, the positions of its lower and of its upper ends, which count from the first iteration
    places  by buffer on the chip, the place of its window
    slots   by buffer whose windows take turns, the position of the slot
    image   of a copy, the name of its array in `Lowered.images`
    unit    the unit that runs it
    tokens  the position of the first of four conditions on tokens
    """

    leaf: Leaf
    does: Does
    sides: tuple[tuple[OperandAddress, int], ...]
    counts: tuple[tuple[int, int], ...]
    bounds: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    places: Mapping[str, WindowPlace]
    slots: Mapping[str, int]
    image: str
    unit: Unit
    tokens: int
    asked: tuple[Expr, ...]

    @property
    def moves(self) -> bool:
        """Return whether it moves words between memories."""
        return isinstance(self.does, Copy | Result)

    @property
    def chip(self) -> tuple[tuple[OperandAddress, int], ...]:
        """Its operands on the chip, each with the position of its first value."""
        return self.sides[:1] if self.moves else self.sides

    @property
    def operands(self) -> list[tuple[OperandAddress, WindowPlace]]:
        """Its operands on the chip, each with the place of its window."""
        return [(side_, self.places[side_.buffer]) for side_, _ in self.chip]

    @property
    def touches(self) -> list[Touch]:
        """Return the regions on the chip that it accesses, the one that it writes first."""
        writes = not isinstance(self.does, Result)
        return [
            Touch(place.region, place.slots, place.slot, writes and at == 0)
            for at, (_, place) in enumerate(self.operands)
        ]

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Return the expressions by which instances run differently: extents, the part of them in main memory, slots,
        the place in the windows, and tokens. Instances with equal values differ in the words of main memory alone.
        """
        exprs = [self.asked[at] for at, _ in self.counts]
        for (low, high), (at, _) in zip(self.bounds, self.counts, strict=True):
            exprs += [ix.maximum(self.asked[end], 0) for end in low]
            exprs += [ix.minimum(self.asked[end], self.asked[at]) for end in high]
        exprs += [self.asked[at] for at in self.slots.values()]
        for one, _ in self.chip:
            rank = len(one.lanes.order)
            first, rest = one.asked[:rank], one.asked[rank:]
            exprs += map(ix.sub, first, rest[::2]) if one.window else first
            exprs += one.extents
        exprs += self.asked[self.tokens :]
        return tuple(dict.fromkeys(expr for expr in exprs if not isinstance(expr, Const)))

    def counts_of(self, values: Sequence[int]) -> list[int]:
        """Return the trip count of each axis, in words if it runs along lanes; `values` are those of `asked`."""
        return [-(-values[at] // lanes) if values[at] > 0 else 0 for at, lanes in self.counts]

    def place_of(self, buffer: str, values: Sequence[int]) -> tuple[str, int]:
        """Return the region of a buffer's window, and the slot."""
        at = self.slots.get(buffer)
        return self.places[buffer].region, 0 if at is None else values[at]

    def tokens_of(self, values: Sequence[int]) -> Tokens:
        """Return the tokens of an instance."""
        pops_and_pushes = values[self.tokens : self.tokens + 4]
        return Tokens(*map(bool, pops_and_pushes)) if any(pops_and_pushes) else _NO_TOKENS

    def bounds_of(self, values: Sequence[int], counts: Sequence[int]) -> list[tuple[int, int]]:
        """Return the part of each axis that main memory has, in iterations from the first one on, half open."""
        return [
            (
                max((values[at] for at in low), default=0),
                min((values[at] for at in high), default=count),
            )
            for (low, high), count in zip(self.bounds, counts, strict=True)
        ]


@dataclass(eq=False)  # nests are compared by identity
class LoweredNest:
    """A nest that is ready to be issued at any size.

    place_of  the memory space of each region
    slots     the number of windows in each region
    stored    the regions that stores read
    images    the arrays in main memory, by name
    end       the conditions under which the end of the stream pops and pushes
    derived   the sizes that the host derives from those of a call
    before    the statements that the host runs first, for this variant of the nest alone
    order     the program of its units, with the tokens that keep the order; None: they need none
    """

    name: str
    program: Program
    spec: AcceleratorSpec
    nodes: tuple[Node, ...]
    work: tuple[LoweredLeaf, ...]
    place_of: Mapping[str, MemorySpace]
    slots: Mapping[str, int]
    stored: frozenset[str]
    images: Mapping[str, WordImage]
    end: Conditions
    derived: DerivedSizes
    before: tuple[Stmt, ...] = ()
    order: Program | None = None

    def __post_init__(self) -> None:
        shapes = {work.leaf.number: work.shape for work in self.work}
        asked = {work.leaf.number: work.asked for work in self.work}
        self._walk = compile_walker(self.program, self.nodes, shapes, asked)
        exprs = [*bounds_of(self.nodes), *(one for work in self.work for one in work.asked)]
        self.used = self.derived.used_in(exprs)

    @property
    def stage(self) -> str:
        """Return the buffer that it stores last."""
        return self.work[-1].leaf.store.buffer

    def walk(self, issue: Issue, sizes: Values) -> None:
        """Call `issue` for each instance of a leaf, in order."""
        self._walk(issue, sizes)


def lower_nest(
    program: Program,
    body: Sequence[Stmt],
    spec: AcceleratorSpec,
    has_tokens: bool = True,
    derived: DerivedSizes | None = None,
) -> LoweredNest:
    """Return a nest of `program`, lowered.

    body     its statements, after those that the host runs for it
    has_tokens  whether leaves have tokens; a nest whose instructions are only counted needs none
    derived  those of its sizes that are derived from others; None: there is none

    Raises TargetError for a statement that no instruction runs, TokensError if units could come to a standstill.
    """
    before = tuple(takewhile(partial(is_host, program), body))
    for stmt in before:
        check_copy(program, stmt, spec)
    covers = InstructionSelection(program, spec)
    nodes = build_issue_tree(body[len(before) :])
    in_text_order = leaves(nodes)
    covers.of(in_text_order, ValueRanges(program, nodes))
    images: dict[str, WordImage] = {}
    work = [_work(program, covers, leaf, images) for leaf in in_text_order]
    constants = (one for leaf in work for one in leaf.does.constants)
    constant = next((one for one in constants if not spec.is_immediate(one)), None)
    work = _with_regions(program, spec, nodes, work, covers.places, constant)
    tokens, order = dict.fromkeys(range(len(work) + 1), SILENT), None
    if spec.tokens and has_tokens:
        tokens, order = token_conditions(
            program, nodes, covers.unit, lambda leaf: work[leaf.number].touches, spec
        )
    work = [
        replace(one, tokens=len(one.asked), asked=(*one.asked, *tokens[at].fields))
        for at, one in enumerate(work)
    ]
    return LoweredNest(
        name=program.name,
        program=program,
        spec=spec,
        nodes=nodes,
        work=tuple(work),
        place_of=_places_of(work, covers.places),
        slots=slots_of(one.operands for one in work),
        stored=_stored_regions(work),
        images=images,
        end=tokens[len(work)],
        derived=derived or DerivedSizes(),
        before=before,
        order=order,
    )


def _sides(
    program: Program, covers: InstructionSelection, leaf: Leaf, images: dict[str, WordImage]
) -> tuple[list[OperandAddress], str]:
    """Return the operands of a leaf, and the image of a copy, "" for another leaf; a new image is added to `images`."""
    does, store = covers.does[leaf.number], leaf.store
    shapes = {buffer.name: buffer.shape for buffer in program.buffers}

    def chip(load: Load | None = None) -> OperandAddress:
        name, index = (store.buffer, store.index) if load is None else (load.buffer, load.index)
        return operand_address(leaf, name, index, covers.lanes[name], shapes[name])

    match does:
        case Copy(place, source):
            lanes = main_lanes(covers.lanes[store.buffer], store.index, source.index)
            image, lanes = _image(images, source.buffer, place, lanes, shapes[source.buffer])
            main = operand_address(leaf, source.buffer, source.index, lanes, shapes[source.buffer])
            return [chip(), main], image
        case Result(source):
            lanes = main_lanes(covers.lanes[source.buffer], source.index, store.index)
            image, lanes = _image(
                images, store.buffer, MemorySpace.OUTPUTS, lanes, shapes[store.buffer]
            )
            if sum(one.buffer == store.buffer for one in images.values()) > 1:
                raise covers.refuse(leaf, f"another statement stores {store.buffer} in other words")
            main = operand_address(leaf, store.buffer, store.index, lanes, shapes[store.buffer])
            return [chip(source), main], image
        case Product(inputs, weights):
            return [chip(), chip(inputs), chip(weights)], ""
        case Operation(recipe):
            return [chip(), *(chip(load) for load in recipe.reads)], ""


def _work(
    program: Program, covers: InstructionSelection, leaf: Leaf, images: dict[str, WordImage]
) -> LoweredLeaf:
    """Return a leaf with the expressions whose values it needs; without regions and tokens."""
    does = covers.does[leaf.number]
    sides, image = _sides(program, covers, leaf, images)
    asked: list[Expr] = []
    operands: list[tuple[OperandAddress, int]] = []
    for one in sides:
        operands.append((one, len(asked)))
        asked += one.asked
    counts: list[tuple[int, int]] = []
    for at, (_, _, count) in enumerate(leaf.axes):
        counts.append((len(asked), lanes_per_word(covers, leaf, does, at, sides)))
        asked.append(count)
    bounds: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for name, first, _ in leaf.axes:
        ends: dict[str, list[int]] = {">=": [], "<": []}
        for bound in does.bounds if isinstance(does, Copy) else ():
            if bound.a == Var(name):
                ends[bound.op].append(len(asked))
                asked.append(ix.sub(bound.b, first))
        bounds.append((tuple(ends[">="]), tuple(ends["<"])))
    return LoweredLeaf(
        leaf=leaf,
        does=does,
        sides=tuple(operands),
        counts=tuple(counts),
        bounds=tuple(bounds),
        places={},
        slots={},
        image=image,
        unit=covers.unit(leaf),
        tokens=len(asked),
        asked=tuple(asked),
    )


def _image(
    images: dict[str, WordImage],
    buffer: str,
    place: MemorySpace,
    lanes: LaneLayout,
    shape: tuple[Expr, ...],
) -> tuple[str, LaneLayout]:
    """Return the name of an array as these words, and its lanes: words follow one another as the first leaf has them."""
    for name, one in images.items():
        if (one.buffer, one.place, one.lanes.axes) == (buffer, place, lanes.axes):
            return name, one.lanes
    name = f"{buffer}.{sum(one.buffer == buffer for one in images.values())}"
    images[name] = WordImage(buffer, place, lanes, shape)
    return name, lanes


def _with_regions(
    program: Program,
    spec: AcceleratorSpec,
    nodes: Sequence[Node],
    works: Sequence[LoweredLeaf],
    places: Mapping[str, MemorySpace],
    constant: int | None,
) -> list[LoweredLeaf]:
    """Return the leaves with the region of each operand on the chip.

    Each window has a region, unless it can lie over the window of its first operand (`inplace`). If the regions of all
    windows do not fit at once, windows of one buffer, of which no two exist at once, take turns in one region.

    Raises TargetError if they do not fit even so.
    """
    windows = {_key(one, side_.buffer) for one in works for side_, _ in one.chip}
    several = len(windows) > len({buffer for buffer, _ in windows})
    for apart in (True, False) if several else (False,):
        placed = _regions(works, apart)
        place_of, stored = _places_of(placed, places), _stored_regions(placed)
        operands = [one.operands for one in placed]
        try:
            check_fits(program, spec, nodes, operands, place_of, stored, constant)
        except TargetError:
            if not apart:
                raise
        else:
            break
    return placed


def _regions(works: Sequence[LoweredLeaf], apart: bool) -> list[LoweredLeaf]:
    """Return the leaves with the region of each operand on the chip: one for each window if `apart`, else for each buffer.

    The window of a result lies over that of its first operand if nothing reads that later.

    Raises TargetError for an `inplace` window that cannot.
    """
    uses: dict[_Key, list[LoweredLeaf]] = {}
    for one in works:
        for side_, _ in one.chip:
            uses.setdefault(_key(one, side_.buffer), []).append(one)
    places: dict[_Key, WindowPlace] = {}
    names: set[str] = set()
    below: dict[_Key, str] = {}
    for key, users in uses.items():
        name = f"{key[0]}.{key[1]}" if apart and key[0] in names else key[0]
        names.add(name)
        places[key] = _own_place(name, users[0].leaf.windows.get(key[0]))
    for one in works:
        base = _dying_operand(one)
        if base is None:
            continue
        under, over = _key(one, base), _key(one, one.leaf.store.buffer)
        # In a region for each buffer, a window that outlived the one below it would lie where the next window of that buffer does.
        inside = apart or (under[1] or 0) < (over[1] or 0)
        if inside and uses[under][-1] is one and uses[over][0] is one:
            places[over] = places[under]
            below[over] = base
    for one in works:
        for window in one.leaf.windows.values():
            alloc = window.alloc
            if alloc.inplace not in (None, below.get((alloc.buffer, window.number))):
                raise _not_inplace(alloc, one.leaf.windows.get(alloc.inplace))
    return [
        _place_leaf(one, {s.buffer: places[_key(one, s.buffer)] for s, _ in one.chip})
        for one in works
    ]


def _own_place(region: str, window: Window | None) -> WindowPlace:
    """Return the place of a window in a region of its own; None: of a whole array."""
    if window is None:
        return WindowPlace(region, 1, ix.const(0), None)
    return WindowPlace(region, window.slots, window.slot, window.alloc)


def _place_leaf(work: LoweredLeaf, places: Mapping[str, WindowPlace]) -> LoweredLeaf:
    """Return a leaf whose operands have places, and which asks for their slots."""
    slot_of = {buffer: place.slot for buffer, place in places.items() if place.slots > 1}
    asked = (*work.asked, *dict.fromkeys(slot_of.values()))
    slots = {buffer: asked.index(slot, len(work.asked)) for buffer, slot in slot_of.items()}
    return replace(work, places=places, slots=slots, asked=asked)


def _not_inplace(alloc: Alloc, base: Window | None) -> TargetError:
    result, operand = alloc.buffer, alloc.inplace
    because = f"no statement computes {result} first and reads {operand} last, element by element, in windows alike of one iteration"
    if base is not None and alloc.depth not in (1, base.alloc.depth):
        because = f"the depth of {operand} is {base.alloc.depth}, that of {result} {alloc.depth}"
    return TargetError(
        "compile",
        f"cannot lay {result} over {operand}",
        at=format_head(alloc),
        because=because,
        help=(f"alloc {result} without inplace {operand}",),
    )


def _places_of(
    works: Sequence[LoweredLeaf], places: Mapping[str, MemorySpace]
) -> dict[str, MemorySpace]:
    """Return the memory space of each region."""
    return {place.region: places[name] for one in works for name, place in one.places.items()}


def _stored_regions(works: Sequence[LoweredLeaf]) -> frozenset[str]:
    """Return the regions that stores read."""
    results = (one for one in works if isinstance(one.does, Result))
    return frozenset(place.region for one in results for place in one.places.values())


_Key = tuple[str, int | None]
"""A buffer and the number of its window; None for a whole array."""


def _key(work: LoweredLeaf, buffer: str) -> _Key:
    window = work.leaf.windows.get(buffer)
    return buffer, None if window is None else window.number


def _dying_operand(work: LoweredLeaf) -> str | None:
    """Return the operand that the result of an operation may lie over if nothing reads it later; None if there is none.

    It is read element by element as the result is stored, and both are in windows alike, in the same words, one for each
    iteration of the loops around the leaf.
    """
    if not isinstance(work.does, Operation):
        return None
    recipe, store = work.does.recipe, work.leaf.store
    base = recipe.base
    if base is None or recipe.copied or recipe.update or base.index != store.index:
        return None
    if sum(load == base for load in recipe.reads) > 1 or base.buffer == store.buffer:
        return None
    under, over = (work.leaf.windows.get(name) for name in (base.buffer, store.buffer))
    if under is None or over is None:
        return None
    alike = under.axes == over.axes and under.level == over.level == len(work.leaf.around)
    lanes = {side_.buffer: side_.lanes for side_, _ in work.chip}
    alike = alike and lanes[base.buffer] == lanes[store.buffer]
    return base.buffer if alike and over.slots in (1, under.slots) else None
