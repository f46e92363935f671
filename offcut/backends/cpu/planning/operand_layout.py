"""How the operands of a sum lie, which microkernels may therefore compute it, and which is best.

The rows' operand is read where it lies. The columns' operand is read where it lies (``direct``), as
a constant that was laid in panels when it was bound (``panels``), or from a copy in panels that each
call makes (``packed``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

from offcut.backends.cpu.microkernels.family import Family
from offcut.backends.cpu.planning.lanes import is_row_reduction
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Cast, Expr, Var, variables
from offcut.core.layout import Layout
from offcut.core.program import MAX_SIZE, For, Kind, Store
from offcut.costmodel import Inside, Machine, StatementPrices, tile_cycles
from offcut.describe.computation import Computation, Stage
from offcut.describe.microkernel import Microkernel
from offcut.partition import (
    Match,
    StagedValue,
    all_matches,
    conversions,
    element_copy,
    is_multiple,
    is_read_once,
    reading,
    with_value,
)
from offcut.schedule import Nests, beside

ACROSS = 2  # the first of the forms in which a tile is one column, or packs for one row


@dataclass(frozen=True, slots=True)
class OperandChoice:
    """A microkernel over a sum, and how it reads the columns' operand.

    how  ``direct``, ``panels`` or ``packed``
    """

    match: Match
    how: str


@dataclass(frozen=True, slots=True)
class OperandPlanner:
    """The ways to lay microkernels over the sums of a computation.

    families     whose microkernels there are, by name
    auto         whether two ways may compete at run time
    reassociate  whether a sum over several axes may add them in another order
    lanes        elements of float32 in a vector
    """

    computation: Computation
    families: Mapping[str, Family]
    machine: Machine
    auto: bool
    reassociate: bool
    lanes: int

    @property
    def kernels(self) -> tuple[Microkernel, ...]:
        """Return the microkernels, in the order of their declaration."""
        return tuple(family.microkernel for family in self.families.values())

    def best(self, lead: Stage) -> list[OperandChoice]:
        """Return the best way to lay a microkernel over `lead`; several where packing, or other rows, compete at run time; none where
        vectors take less.
        """
        first = self.cheapest(lead)
        if first is None:
            return []
        price, best = first
        if self.auto and best.match.rows is None and self.vector_price(lead) < price:
            return []
        others = list[OperandChoice]()
        if (known_rows := self.known_rows(lead, best)) is not None:
            if known_rows[0] <= price * (1 + self.machine.policy.gain):
                best = known_rows[1]
            else:
                others.append(known_rows[1])
        may_pack = best.match.columns is not None and self.packs(lead, best.match)
        may_pack = may_pack and not is_narrow(self.computation, best.match, self.machine)
        if best.how == "direct" and self.auto and best.match.rows is not None and may_pack:
            others.insert(0, replace(best, how="packed"))
        return [best, *others]

    def known_rows(self, lead: Stage, best: OperandChoice) -> tuple[float, OperandChoice] | None:
        """Return `best` with its rows along an axis whose extent is known, the longest, where that of its own is not;
        with its price.

        A call may have fewer rows along the latter than there are along the former: one image, of 7 columns.
        """
        axes = {axis.name: ix.literal_value(axis.extent) for axis in lead.axes}
        best_match = best.match
        if not self.auto or best_match.rows is None or axes[best_match.rows] is not None:
            return None
        alike = (
            (axes[match.rows], -key[1], operand)
            for key, operand in self.candidates(lead)
            if (match := operand.match).rows is not None
            and axes[match.rows] is not None
            and operand.how == best.how
            and match.microkernel is best_match.microkernel
            and (match.columns, match.depth) == (best_match.columns, best_match.depth)
        )
        longest = max(alike, default=None, key=lambda one: one[:2])
        return None if longest is None else (-longest[1], longest[2])

    def better_order(self, group: tuple[Stage, ...]) -> tuple[str, ...] | None:
        """Return the axes of a group in an order that is worth a copy of its result: the columns of a
        microkernel last. None where the group is best as it is.
        """
        if is_row_reduction(group[0]):
            return None
        turned = self.best_transposed(group)
        if turned is None:
            return None
        key, order = turned
        here = min((key for key, _ in self.candidates(group[0])), default=None)
        if here is not None:
            return order if here > key else None
        converted = self.least_here(group[0]) / (1 + self.machine.traffic.convert_share)
        return order if converted > key[1] else None

    def best_transposed(
        self, group: tuple[Stage, ...]
    ) -> tuple[tuple[int, float], tuple[str, ...]] | None:
        """Return the best form and price of a group in another order of its axes, its copy included, and that
        order; None where no microkernel computes it so.
        """
        lead = group[0]
        names = [axis.name for axis in lead.axes]
        priced_orders: list[tuple[tuple[int, float], tuple[str, ...]]] = []
        terms = 1
        for axis in lead.reduce_axes:
            terms *= ix.literal_value(axis.extent) or self.machine.policy.terms
        readings = (lead, reading(lead, conversions(lead)))
        for match in (one for each in readings for one in all_matches(each, self.kernels)):
            columns, how = match.columns, self.how(lead, match)
            if how is None or match.rows is None or columns is None or columns == names[-1]:
                continue
            order = (*(name for name in names if name != columns), columns)
            price = self.price(lead, match, how) + self.machine.traffic.copy_cycles / terms
            if how == "packed":
                rows = next(a.extent for a in lead.axes if a.name == match.rows)
                item = (
                    ITEM_BYTES[match.by_columns.dtype] / self.machine.traffic.pack_bytes_per_cycle
                )
                price += item / max(ix.literal_value(rows) or self.machine.policy.trips, 1)
            priced_orders.append(((0 if how == "panels" else 1, price), order))
        whole = all(len(self.computation.buffer(s.buffer).shape) == len(names) for s in group)
        return min(priced_orders, default=None) if whole else None

    def is_computed(self, lead: Stage, exact: bool) -> bool:
        """Return whether some microkernel computes a stage; its operands converted, if not `exact`."""
        readings = (lead,) if exact else (lead, reading(lead, conversions(lead)))
        return any(m.columns for reading in readings for m in all_matches(reading, self.kernels))

    def to_copy(self, position: int) -> StagedValue | None:
        """Return the copy of the rows' operand of the sum of a group in which its terms lie side by side; None where no
        microkernel gains by that what the copy takes.
        """
        group = self.computation.groups[position]
        lead, now = group[0], self.least(group)
        priced_copies: list[tuple[float, StagedValue]] = []
        for match in all_matches(lead, self.kernels):
            unit_depth = self.families[match.microkernel.name].unit_depth
            if not unit_depth or beside(match.by_rows, match.depth) or match.columns is None:
                continue
            copy = element_copy(self.computation, position, match.by_rows, match.depth)
            if copy is not None:
                copied = with_value(self.computation, position, copy)
                columns = next(a.extent for a in lead.axes if a.name == match.columns)
                reused = ix.literal_value(columns) or self.machine.policy.trips
                then = replace(self, computation=copied).least(copied.groups[position + 1])
                price = then + self.machine.traffic.copy_cycles / max(reused, 1)
                priced_copies.append((price, copy))
        if not priced_copies:
            return None
        price, copy = min(priced_copies, key=lambda one: one[0])
        return copy if price * (1 + self.machine.traffic.convert_share) < now else None

    def least(self, group: tuple[Stage, ...]) -> float:
        """Return the least price of a multiply–add of a group's sum: as it is, its operands converted, or turned."""
        turned = self.best_transposed(group)
        return min(self.least_here(group[0]), inf if turned is None else turned[0][1])

    def least_here(self, lead: Stage) -> float:
        """Return the least price of a multiply–add in the order that there is, whatever is converted before."""
        every = conversions(lead)
        done = ((), every, *combinations(every, max(len(every) - 1, 0)))
        ways = (self.cheapest(reading(lead, some)) for some in done)
        return min((way[0] for way in ways if way is not None), default=inf)

    def to_convert(self, lead: Stage) -> tuple[Cast, ...]:
        """Return the operands to convert before a sum; none where a microkernel takes all as they are.

        A constant stays as it is where it can: every call reads it, and its panels are of its bytes.
        """
        plain, every = self.cheapest(lead), conversions(lead)
        done = self.cheapest(reading(lead, every))
        if done is None or (
            plain is not None and plain[0] <= done[0] * (1 + self.machine.traffic.convert_share)
        ):
            return ()
        for some in combinations(every, len(every) - 1):
            way = self.cheapest(reading(lead, some))
            if (
                way is not None
                and way[1].how == "panels"
                and way[0] <= done[0] * (1 + self.machine.traffic.convert_share)
            ):
                return some
        return every

    def cheapest(self, lead: Stage) -> tuple[float, OperandChoice] | None:
        """Return the microkernel of the least price, in its best form, and that price.

        One that reads vectors across its tiles comes after all others. Elements that share bytes are worth what a conversion is:
        calls of few rows wait for memory.
        """
        shared = 1 / (1 + self.machine.traffic.convert_share)

        def rank(entry: tuple[tuple[int, float], OperandChoice]) -> tuple[bool, float]:
            (form, price), operand = entry
            narrow = operand.match.microkernel.per_byte > 1
            return form >= ACROSS, price * (shared if narrow else 1)

        by_kernel: dict[str, tuple[tuple[int, float], OperandChoice]] = {}
        for key, operand in self.candidates(lead):
            name = operand.match.microkernel.name
            if name not in by_kernel or key < by_kernel[name][0]:
                by_kernel[name] = key, operand
        if not by_kernel:
            return None
        (_, price), operand = min(by_kernel.values(), key=rank)
        return price, operand

    def candidates(self, lead: Stage) -> list[tuple[tuple[int, float], OperandChoice]]:
        """Return every way to lay a microkernel over `lead`: its form, less is better, and its price."""
        ranked: list[tuple[tuple[int, float], OperandChoice]] = []
        for match in all_matches(lead, self.kernels):
            if not self.reassociate and match.depth != lead.reduce_axes[-1].name:
                continue
            last = lead.axes[-1].name if lead.axes else None
            if match.columns not in (None, last) and self.is_stored(lead):
                continue
            how = self.how(lead, match)
            if how is None:
                continue
            across = match.columns is None or (how == "packed" and match.rows is None)
            one = any(
                a.name == match.columns and ix.literal_value(a.extent) == 1 for a in lead.axes
            )
            if (across or one) and is_row_reduction(lead):
                continue
            form = 1 if how == "packed" else 0
            if match.columns is None:
                form = ACROSS
            elif how == "packed" and match.rows is None:
                form = ACROSS + 1
            ranked.append(((form, self.price(lead, match, how)), OperandChoice(match, how)))
        return ranked

    def is_stored(self, lead: Stage) -> bool:
        """Return whether a stage of the group that `lead` is in writes an array, along its last axis."""
        group = next(g for g in self.computation.groups if g[0].buffer == lead.buffer)
        kinds = (self.computation.buffer(stage.buffer).kind for stage in group)
        return any(kind is not Kind.PRIVATE for kind in kinds)

    def price(self, lead: Stage, match: Match, how: str) -> float:
        """Predicted cycles of a multiply–add, by which ways that read the operands alike compete.

        In the largest tile that a call has: the fewer rows it has, the more each pays for reading the
        columns' operand, and the smaller it is, the more for the tile's start, which counts for every
        run of its depth: of the axes that it may run innermost, the longest is the best.
        """
        kernel = match.microkernel
        axes = {axis.name: axis.extent for axis in (*lead.axes, *lead.reduce_axes)}
        extents = {name: ix.literal_value(extent) for name, extent in axes.items()}
        columns, depth = extents.get(match.columns or "", 1), extents[match.depth]
        rows = 1 if match.rows is None else self.at_most(axes[match.rows])
        height = max(min(rows, kernel.max_rows), 1)
        widest, term, start = tile_cycles(kernel).of(height)
        item = ITEM_BYTES[match.by_columns.dtype] / kernel.per_byte
        near = item / self.machine.nearest.bytes_per_cycle
        cycles = max(term / (height * widest), near / height)
        width = max(min(columns or widest, widest), 1)
        cycles += start / (height * width * max(depth or self.machine.policy.terms, 1))
        if columns and kernel.panel:
            cycles *= -(-columns // kernel.panel) * kernel.panel / columns
        if depth is not None:
            cycles *= 1.0 + self.machine.traffic.accumulate_terms / max(depth, 1)
        if (
            how == "direct"
            and kernel.packed
            and not is_narrow(self.computation, match, self.machine)
        ):
            cycles *= self.machine.traffic.unpacked_near
        return (
            cycles if beside(match.by_rows, match.depth) else cycles * self.machine.traffic.strided
        )

    def vector_price(self, lead: Stage) -> float:
        """Return the predicted cycles of a multiply–add if vectors along the last axis run the sum, which starts without a function call.

        `prefetch_share` of them is added: a microkernel asks for its operands ahead.
        """
        axes, inner = [axis.name for axis in lead.axes], lead.reduce_axes[-1].name
        store = Store(lead.buffer, tuple(map(Var, axes)), lead.value, lead.reducer)
        around = For(inner, ix.const(0), ix.const(1), (store,))
        at = Inside(axes[-1], inner, frozenset((lead.buffer,)))
        cycles = StatementPrices(self.machine, self.lanes).each(store, at, around) / self.lanes
        return cycles * (1 + self.machine.traffic.prefetch_share)

    def at_most(self, extent: Expr) -> int:
        """What an extent is at most."""
        literal = ix.literal_value(extent)
        if literal is not None:
            return literal
        return next((s.max for s in self.computation.sizes if Var(s.name) == extent), MAX_SIZE)

    def how(self, lead: Stage, match: Match) -> str | None:
        """Return how the columns' operand can be read; None where the operands do not lie as they must."""
        load, kernel = match.by_columns, match.microkernel
        buffer = self.computation.buffer(load.buffer)
        unit_depth = self.families[kernel.name].unit_depth
        if unit_depth and not beside(match.by_rows, match.depth):
            return None
        if match.columns is None:
            return "direct" if kernel.interleave == 1 else None
        if buffer.kind is Kind.CONSTANT and self.layout(lead, match) is not None:
            return "panels"
        if kernel.per_byte > 1:
            return None
        if kernel.interleave == 1 and beside(load, match.columns):
            return "direct"
        return "packed" if self.packs(lead, match) else None

    def packs(self, lead: Stage, match: Match) -> bool:
        """Return whether a packed copy of the columns' operand holds each element of it once."""
        load = match.by_columns
        used = set().union(*(variables(part) for part in load.index))
        axes = [axis for axis in (*lead.axes, *lead.reduce_axes) if axis.name in used]
        return bool(match.microkernel.packed) and len(axes) <= len(load.index)

    def layout(self, lead: Stage, match: Match) -> Layout | None:
        """Return the panels of a constant that only this sum reads, at its depth and column themselves."""
        load, kernel = match.by_columns, match.microkernel
        rows, columns = (
            [at for at, part in enumerate(load.index) if name in variables(part)]
            for name in (match.depth, match.columns)
        )
        if not (
            is_read_once(self.computation, load.buffer)
            and len(rows) == len(columns) == 1
            and load.index[columns[0]] == Var(match.columns or "")
            and self.begins_whole(lead, load.index[rows[0]], match)
        ):
            return None
        layout = kernel.layout_on(rows[0], columns[0])
        buffer = replace(self.computation.buffer(load.buffer), layout=layout)
        return None if buffer.narrow_refusal else layout

    def begins_whole(self, lead: Stage, row: Expr, match: Match) -> bool:
        """Return whether terms along the depth begin at a multiple of the rows that lie side by side, and end at one where others follow."""
        first, multiple = ix.sub(row, Var(match.depth)), match.microkernel.multiple
        if ix.literal_value(first) == 0:
            return True
        extent = next(a.extent for a in lead.reduce_axes if a.name == match.depth)
        return is_multiple(first, multiple) and is_multiple(extent, multiple)


def is_narrow(computation: Computation | Nests, match: Match, machine: Machine) -> bool:
    """Return whether the rows of the columns' operand are so short that they lie as near as in panels."""
    load = match.by_columns
    shape = computation.buffer(load.buffer).shape
    extent = ix.literal_value(shape[-1]) if shape else None
    return extent is not None and extent * ITEM_BYTES[load.dtype] <= machine.traffic.narrow_bytes
