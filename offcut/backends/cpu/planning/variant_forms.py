"""The forms of a nest: by which microkernel, on which operands, in which loops; each is a product of choices.

A *form* is what covers a nest and how the columns' operand lies: as it is, packed at each call, or, where
it is a constant, laid in panels. Within a form a variant is one split for each axis that is cut, and one order of
the plain loops. Heights of tiles are what a microkernel has, or multiples and divisors of the tile that stands there; strategies are
those of the catalogue that leave its tiles to the microkernel; groups are what the memories hold. What the schedule that a space begins with says of a nest is among its variants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import lcm
from random import Random
from typing import Any

from offcut.backends.cpu.planning.tile_sizes import column_heights
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Var, variables
from offcut.core.layout import Layout
from offcut.core.memo import lazy_property, memoize_method
from offcut.core.panels import as_panels
from offcut.core.program import Form
from offcut.costmodel import Machine
from offcut.describe.computation import Computation, Stage
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import (
    LADDER,
    STRATEGIES,
    AxisCut,
    Match,
    Segment,
    Strategy,
    all_matches,
    segments,
)
from offcut.schedule import KernelAxes, LoopVariant, Nest, Pack, Staging, beside, pack_of
from offcut.search.schedule_space import AllOf, Decision, OneOf

_ANY = Var("extent")


@dataclass(frozen=True)
class AxisCuts(OneOf[AxisCut]):
    """The splits of one axis that there are, in ascending order of their tiles and groups."""

    def union(self, other: AxisCuts) -> AxisCuts:
        """Return those of both."""
        return _sorted_cuts((*self.options, *other.options), None)

    @memoize_method
    def neighbours(self, at: AxisCut) -> tuple[AxisCut, ...]:
        """Return those that differ from `at` in one thing: another strategy, the next tile, the next group."""
        near = [one for one in self.options if _differ(one, at) == (True, False, False)]
        for differs, size in (((False, True, False), _tile), ((False, False, True), _group)):
            alike = [one for one in self.options if _differ(one, at) == differs]
            below = [one for one in alike if size(one) < size(at)]
            above = [one for one in alike if size(one) > size(at)]
            near += [*below[-1:], *above[:1]]
        return tuple(near)

    @memoize_method
    def nearest(self, cut: AxisCut) -> AxisCut:
        """Return the one that is most like `cut`: of its strategy where there is one, then of the next tile and group."""
        tile, group = _tile(cut), _group(cut)
        return min(
            self.options,
            key=lambda one: (
                one.strategy != cut.strategy,
                abs(_tile(one) - tile),
                abs(_group(one) - group),
            ),
        )


def row_cuts(axis: str, kernel: Microkernel, own: AxisCut | None) -> AxisCuts:
    """The splits of a microkernel's rows: every height that it has, by every strategy that keeps to its tiles."""
    masks = kernel.rows in kernel.predicates
    heights = sorted({tile.rows for tile in kernel.tiles})
    cuts = (
        AxisCut(axis, strategy, tile)
        for strategy in _usable()
        for tile in heights
        if _keeps(strategy, tile, masks)
    )
    return _sorted_cuts(cuts, own)


def column_cuts(
    axis: str,
    kernel: Microkernel,
    rows: bool,
    extent: Expr,
    column_bytes: int,
    machine: Machine,
    own: AxisCut | None,
) -> AxisCuts:
    """The splits of a microkernel's columns: the widest tiles by height, in cache groups.

    rows          whether the sum has rows; else its tiles are one row high
    extent        of the axis: a group is no larger than what holds all of it
    column_bytes  of one column of the operand that is read again for each row
    """
    panel = kernel.panel
    whole = ix.literal_value(extent)
    room = max(memory.bytes for memory in machine.memory) // max(column_bytes, 1)
    most = min(room, -(-whole // panel) * panel) if whole else room
    if kernel.any_columns or (own is not None and not own.by_height and own.heights is None):
        tiles = _powers_up_to(panel, max(most, panel))
        return _sorted_cuts((AxisCut(axis, LADDER, tile) for tile in tiles), own)
    tallest = kernel.max_rows if rows else 1
    widest = {height: kernel.columns_for(height) // panel for height in range(1, tallest + 1)}
    cuts: list[AxisCut] = []
    for cap in sorted(set(widest.values()) - {0}):
        by_height = column_heights(
            {height: {min(cap, most), min(2, cap, most), 1} for height, most in widest.items()},
            panel,
        )
        unit = lcm(*(tile for _, _, heights in by_height for tile in heights))
        for group in _powers_up_to(unit, max(most, unit)):
            if rows:
                cuts.append(AxisCut(axis, LADDER, 0, None, by_height, group))
            else:
                _, tile, heights = by_height[0]
                cuts.append(AxisCut(axis, LADDER, tile, heights, group=group))
    return _sorted_cuts(cuts, own)


def plain_cuts(own: AxisCut, copies: int) -> AxisCuts:
    """The splits of an axis without a microkernel: tiles that are multiples and divisors of the one there.

    copies   of a statement, at most, that a strategy may make
    """
    if own.by_height or own.heights is not None:
        return AxisCuts((own,))
    tiles = {own.tile, own.tile * 2, own.tile * 4}
    tiles |= {own.tile // part for part in (2, 4) if own.tile % part == 0}
    cuts = (
        AxisCut(own.axis, strategy, tile, group=own.group)
        for strategy in _usable()
        for tile in tiles
        if own.group is None and len(_segments(strategy, tile)) in range(1, copies + 1)
    )
    return _sorted_cuts(cuts, own)


def tile_forms(cut: AxisCut) -> frozenset[Form]:
    """How the instances of its tiles are executed."""
    return frozenset(one.form for one in _segments(cut.strategy, cut.tile))


def _usable() -> Iterator[Strategy]:
    """The strategies of the catalogue for any extent, that are one."""
    return (one for one in STRATEGIES if not one.among and not one.divides)


def _keeps(strategy: Strategy, tile: int, masks: bool) -> bool:
    """Whether a microkernel computes all that `strategy` takes.

    masks  whether it has a predicate on the axis
    """
    tile_segments = _segments(strategy, tile)
    kinds = {Form.FULL, Form.SHIFT} | ({Form.MASK} if masks else set())
    return bool(tile_segments) and all(one.form in kinds for one in tile_segments)


def _segments(strategy: Strategy, tile: int) -> tuple[Segment, ...]:
    """What a strategy takes of an axis of any extent; nothing where it takes no such tile."""
    try:
        return segments(strategy, _ANY, tile)
    except PartitionError:
        return ()


def _powers_up_to(first: int, most: int) -> list[int]:
    """`first`, twice that, and so on, until one is `most` at least."""
    sizes = [first]
    while sizes[-1] < most:
        sizes.append(2 * sizes[-1])
    return sizes


def _sorted_cuts(made: Iterable[AxisCut], own: AxisCut | None) -> AxisCuts:
    every = dict.fromkeys(made if own is None else (own, *made))
    return AxisCuts(
        tuple(sorted(every, key=lambda one: (str(one.strategy), _tile(one), _group(one))))
    )


def _tile(cut: AxisCut) -> int:
    return max((tile for _, tile, _ in cut.by_height), default=cut.tile)


def _group(cut: AxisCut) -> int:
    return cut.group or 0


def _differ(one: AxisCut, other: AxisCut) -> tuple[bool, bool, bool]:
    """Whether strategy, tile and group differ."""
    tiles = (one.tile, one.heights, one.by_height) != (other.tile, other.heights, other.by_height)
    return one.strategy != other.strategy, tiles, one.group != other.group


Order = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class VariantForm(Decision[LoopVariant]):
    """What covers a nest, how its columns' operand lies, and the choices that are left.

    cuts    the splits to choose from, an entry for each axis that is cut, in loop order
    orders  the plain loops: around the cache groups, and inside them
    """

    cover: KernelAxes | None
    pack: Pack | None
    lay: Staging | None
    cuts: tuple[AxisCuts, ...]
    orders: tuple[Order, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """Return those that are cut, in loop order."""
        return tuple(cuts.options[0].axis for cuts in self.cuts)

    @lazy_property
    def _choices(self) -> AllOf:
        """Return the splits, then the order."""
        return AllOf((*self.cuts, OneOf(self.orders)))

    def union(self, other: VariantForm) -> VariantForm:
        """Return the choices of both, which cut the same axes."""
        cuts = tuple(mine.union(theirs) for mine, theirs in zip(self.cuts, other.cuts, strict=True))
        return replace(self, cuts=cuts, orders=tuple(dict.fromkeys((*self.orders, *other.orders))))

    @property
    def size(self) -> int:
        """Return how many variants it has."""
        return self._choices.size

    def alternatives(self) -> Iterator[LoopVariant]:
        """Yield all of them."""
        return map(self._variant, self._choices.alternatives())

    def neighbours(self, at: LoopVariant) -> Iterator[LoopVariant]:
        """Yield the variants of this form that differ from one of it in one choice."""
        near = self._choices.neighbours((*at.splits, self._order(at) or (at.loops, at.inner)))
        return (variant for variant in map(self._variant, near) if variant != at)

    def sample(self, rng: Random) -> LoopVariant:
        """Return one of its variants, each as likely as any other."""
        return self._variant(self._choices.sample(rng))

    def nearest(self, variant: LoopVariant) -> LoopVariant:
        """Return the variant of this form that is most like one of another."""
        cut_by_axis = {cut.axis: cut for cut in variant.splits}
        splits = (
            cuts.nearest(cut_by_axis[axis]) if axis in cut_by_axis else cuts.options[0]
            for axis, cuts in zip(self.axes, self.cuts, strict=True)
        )
        return self._variant((*splits, self._order(variant) or self.orders[0]))

    def has(self, variant: LoopVariant) -> bool:
        """Return whether a variant of the same cover and operands is one of this form."""
        is_cut = len(variant.splits) == len(self.cuts)
        pairs = zip(variant.splits, self.cuts, strict=False)
        return (
            is_cut
            and all(cut in cuts.options for cut, cuts in pairs)
            and bool(self._order(variant))
        )

    def _order(self, variant: LoopVariant) -> Order | None:
        """Return the order of a variant's plain loops, one of this form's; None if it has another."""
        plain = variant.loops, variant.inner
        if plain in self.orders:
            return plain
        whole = (*variant.loops, *variant.inner)
        return next((one for one in self.orders if (*one[0], *one[1]) == whole), None)

    def _variant(self, choices: tuple[Any, ...]) -> LoopVariant:
        *splits, order = choices
        return LoopVariant("", None, self.cover, self.pack, tuple(splits), *order).plain


def label_of(variant: LoopVariant) -> str:
    """What a variant is called: how its rows are cut, or that it is loops."""
    if variant.cover is None:
        return "loops"
    rows = next((cut for cut in variant.splits if cut.axis == variant.cover.rows), None)
    label = "whole" if rows is None else f"{rows.strategy.name}_{rows.tile}"
    return label if variant.pack is None else f"{label}_packed"


def forms_of(
    computation: Computation,
    group: Sequence[Stage],
    nest: Nest,
    laid: Sequence[Staging],
    shared: Sequence[str],
    microkernels: Sequence[Microkernel],
    machine: Machine,
) -> tuple[VariantForm, ...]:
    """Return the forms of a nest, that of its first variant first where that still is one.

    nest    what the space begins with, of this group or of one that has become it
    laid    how constants lie there
    shared  axes of loops around it, by the names of the group
    """
    made = _Forms(computation, group[0], nest, tuple(laid), tuple(shared), microkernels, machine)
    forms: dict[object, VariantForm] = {}
    for form in (*made.own(), *made.others()):
        key = form.cover, form.pack, form.lay, form.axes
        forms[key] = form.union(forms[key]) if key in forms else form
    return tuple(forms.values())


@dataclass(frozen=True, slots=True)
class _Forms:
    computation: Computation
    lead: Stage
    nest: Nest
    laid: tuple[Staging, ...]
    shared: tuple[str, ...]
    microkernels: Sequence[Microkernel]
    machine: Machine

    def own(self) -> Iterator[VariantForm]:
        """Yield the forms of the variants of the nest; their splits are among the choices."""
        for variant in self.nest.variants:
            match = None if variant.cover is None else self.match_of_cover(variant.cover)
            if match is None:
                yield self.plain(variant)
            else:
                laid = None if variant.pack is not None else self.lay(match)
                yield self.microkernel_form(variant, match, variant.pack, laid)

    def others(self) -> Iterator[VariantForm]:
        """Other microkernels along the same axes, and other variants for the columns' operand to lie."""
        first = next((variant for variant in self.nest.variants if variant.cover is not None), None)
        if first is None or first.cover is None:
            return
        same = [replace(first.cover, microkernel=kernel.name) for kernel in self.microkernels]
        matches = [match for cover in same if (match := self.match_of_cover(cover)) is not None]
        for match in matches or list(all_matches(self.lead, self.microkernels))[:1]:
            cover = KernelAxes.of(match)
            same_cover = next(
                (variant for variant in self.nest.variants if variant.cover == cover), None
            )
            variant = replace(first, cover=cover, splits=()) if same_cover is None else same_cover
            for pack, laid in self.operands(match):
                yield self.microkernel_form(variant, match, pack, laid)

    def operands(self, found: Match) -> Iterator[tuple[Pack | None, Staging | None]]:
        """Yield how the columns' operand of a match may lie."""
        load, kernel = found.by_columns, found.microkernel
        lay, shares_bytes = self.lay(found), kernel.per_byte > 1
        if shares_bytes and self.computation.buffer(load.buffer).bits is None:
            return
        if lay is not None and kernel.packed:
            assert lay.layout is not None
            yield None, replace(lay, layout=_layout(lay.layout, kernel))
        if found.columns is None or (kernel.interleave == 1 and beside(load, found.columns)):
            yield None, None
        used = set().union(*(variables(part) for part in load.index))
        axes = [a for a in (*self.lead.axes, *self.lead.reduce_axes) if a.name in used]
        own_copy = used >= set(self.shared) and len(axes) <= len(load.index)
        if kernel.packed and found.columns is not None and own_copy and not shares_bytes:
            own = (variant.pack.name for variant in self.nest.variants if variant.pack is not None)
            name = next(own, self.computation.names().fresh(f"{load.buffer}_panels"))
            yield pack_of(self.lead, found, name, self.shared), None

    def match_of_cover(self, cover: KernelAxes) -> Match | None:
        """Return the microkernel laid over the nest's sum as `cover` says."""
        kernels = [kernel for kernel in self.microkernels if kernel.name == cover.microkernel]
        found = all_matches(self.lead, kernels)
        return next((match for match in found if KernelAxes.of(match) == cover), None)

    def lay(self, found: Match) -> Staging | None:
        """Return how the constant lies that the columns of a match read."""
        return next((step for step in self.laid if step.what == found.by_columns.buffer), None)

    def plain(self, variant: LoopVariant) -> VariantForm:
        """Return the form of loops without a microkernel: those of `variant`, as far as the nest has them."""
        own = [axis.name for axis in self.lead.axes if axis.name not in self.shared]
        summed = [axis.name for axis in self.lead.reduce_axes]
        splits = [cut for cut in variant.splits if cut.axis in (*own, *summed)]
        if variant.cover is not None:
            variant, splits = replace(variant, loops=tuple(own[:-1]), inner=()), []
        cut = {one.axis for one in splits}
        loops, inner = (
            tuple(name for name in names if name in own and name not in cut)
            for names in (variant.loops, variant.inner)
        )
        copies = self.machine.policy.copies
        cuts = tuple(plain_cuts(one, copies) for one in splits)
        return VariantForm(
            None, None, None, cuts, self.orders(replace(variant, loops=loops, inner=inner))
        )

    def microkernel_form(
        self, variant: LoopVariant, found: Match, pack: Pack | None, laid: Staging | None
    ) -> VariantForm:
        """Return the form of a microkernel; the splits of `variant` are among the choices."""
        own = {cut.axis: cut for cut in variant.splits}
        kernel, made = found.microkernel, list[AxisCuts]()
        extents = {a.name: a.extent for a in (*self.lead.axes, *self.lead.reduce_axes)}
        for axis in own or [name for name in (found.rows, found.columns) if name is not None]:
            if axis == found.rows:
                made.append(row_cuts(axis, kernel, own.get(axis)))
            elif axis == found.columns:
                depth = ix.literal_value(extents[found.depth]) or self.machine.policy.group_terms
                bytes = depth * ITEM_BYTES[found.by_columns.dtype]
                has_rows = found.rows is not None
                given = (has_rows, extents[axis], bytes, self.machine, own.get(axis))
                made.append(column_cuts(axis, kernel, *given))
            else:
                made.append(AxisCuts((own[axis],)))
        return VariantForm(KernelAxes.of(found), pack, laid, tuple(made), self.orders(variant))

    @staticmethod
    def orders(variant: LoopVariant) -> tuple[Order, ...]:
        """Return the orders of plain loops, its own first."""
        every = [(loops, variant.inner) for loops in permutations(variant.loops)]
        every += [(variant.loops, inner) for inner in permutations(variant.inner)]
        return tuple(dict.fromkeys(every))


def _layout(shared_layout: Layout, kernel: Microkernel) -> Layout:
    """Return the panels that a microkernel reads, of the same rows and columns."""
    shape = as_panels(shared_layout)
    layout = None if shape is None else kernel.layout_on(shape.rows, shape.columns)
    return shared_layout if layout is None else layout
