"""Where operands and the result lie: memories and layouts, as a microkernel declares them and as arrays have them."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Load, Select, Var, variables
from offcut.core.layout import Layout
from offcut.core.panels import as_panels
from offcut.core.program import Buffer, For, Kind, Program, Store
from offcut.core.program import walk as statements
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr
from offcut.partition.judge.coverage import Surroundings
from offcut.partition.judge.match import Match, Question, Refusal
from offcut.polyhedral import NEXT, coefficient, row_spacing


class Places:
    """The arrays that a microkernel reads and writes where it is laid over a statement, and what stands around."""

    def __init__(
        self, store: Store, match: Match, loops: tuple[For, ...], program: Program, at: Surroundings
    ) -> None:
        self.store, self.match, self.loops = store, match, loops
        self.kernel, self.program, self.at = match.microkernel, program, at

    def memory_refusal(self) -> Refusal | None:
        """Return why an operand lies where the microkernel cannot find it."""
        both: tuple[tuple[str, Load | Store], ...] = self.match.operands
        for name, load in (*both, (self.kernel.computes.name, self.store)):
            memories, buffer = self.kernel.place_of(name).memories, self.program.buffer(load.buffer)
            if not memories:
                if load is not self.store and self.at.is_held(buffer):
                    return Refusal(Question.MEMORY, "an operand lies in registers")
                continue
            lies = self.at.memory_of(buffer)
            if lies is not None and lies not in memories:
                takes = f"{self.kernel.name} has {name} in {' or '.join(memories)}"
                return Refusal(Question.MEMORY, f"{load.buffer} lies in {lies}, and {takes}")
        return None

    def layout_refusal(self, padded: bool) -> Refusal | None:
        """Return why operands and the result do not lie as the microkernel reads and writes them.

        padded  whether the result is computed in a scratch
        """
        because = next(
            (b for name, load in self.match.operands if (b := self.of_operand(name, load))),
            "",
        )
        because = because or self.of_result(padded)
        return Refusal(Question.LAYOUT, because) if because else None

    def of_result(self, padded: bool) -> str:
        """Why the result does not lie as the microkernel writes it; "" where it does."""
        name, index = self.kernel.computes.name, self.store.index
        place, buffer = self.kernel.place_of(name), self.program.buffer(self.store.buffer)
        layout, iterator = self.at.layout_of(buffer), self.match.axis(place.beside)
        if layout is not None and as_panels(layout) is None:
            if self.is_laid(name, index, layout):
                return ""
            return f"{element_text(self.store)} lies as {format_layout(layout)}"
        if layout is None and self.at.open:
            return ""
        if layout is None and (lane := self.broken_lane(name, index)):
            return f"{element_text(self.store)} does not move by itself along {lane}"
        if iterator is None or self.at.is_held(buffer) or padded:
            return ""
        if layout is None and row_spacing(index, iterator, 2, 1) == NEXT:
            return ""
        return f"{element_text(self.store)} does not lie side by side along {iterator}"

    def of_operand(self, name: str, load: Load) -> str:
        """Why an operand does not lie as the microkernel reads it; "" where it does."""
        place, buffer = self.kernel.place_of(name), self.program.buffer(load.buffer)
        layout, iterator = self.at.layout_of(buffer), self.match.axis(place.beside)
        packed = name == self.kernel.packed and place.by == "plain"
        if layout is None and self.at.open:
            return ""
        if layout is None:
            # the declared layout is laid so by the target in a memory of its own, or read in place
            if place.layout is not None and not (
                (buffer.kind is Kind.LOCAL and self.at.memory_of(buffer) in place.memories)
                or (packed and self.kernel.interleave == 1)
            ):
                return f"{format_expr(load)} is not packed as it reads it"
            if lane := self.broken_lane(name, load.index):
                return f"{format_expr(load)} does not move by itself along {lane}"
            if iterator is None or row_spacing(load.index, iterator, 2, 1) == NEXT:
                return ""
            return f"{format_expr(load)} does not lie side by side along {iterator}"
        if place.layout is None:
            return f"{format_expr(load)} is packed, and its rows are read one step apart"
        if not (
            self.is_packed(layout, buffer, load)
            if packed
            else self.is_laid(name, load.index, layout)
        ):
            return f"{format_expr(load)} is not packed as it reads it"
        panels, columns = as_panels(layout), self.match.columns
        if packed and panels and columns and load.index[panels.columns] != Var(columns):
            return f"{format_expr(load)} does not lie side by side along {columns}"
        return ""

    def broken_lane(self, name: str, index: Sequence[Expr]) -> str:
        """Return the first iterator along which blocks of a declared layout cannot be had of an array, since it is no index
        of its own there, from whole blocks on; "" where there is none.
        """
        place = self.kernel.place_of(name)
        if place.layout is None or not place.memories:
            return ""
        for part, block in zip(self.kernel.index_of(name), place.layout.multiple, strict=True):
            iterator = self.match.axis(part.name) if isinstance(part, Var) else None
            if block == 1 or iterator is None:
                continue
            parts = [one for one in index if iterator in variables(one)]
            if not parts and isinstance(part, Var) and part.name in place.repeated:
                continue
            if len(parts) != 1 or not is_multiple(ix.sub(parts[0], Var(iterator)), block):
                return iterator
        return ""

    def is_laid(self, name: str, index: Sequence[Expr], layout: Layout) -> bool:
        """Return whether a stated layout is the declared one, each of its axes an axis of the array."""
        declared = self.kernel.layout_of(name)
        axes: list[int] = []
        for part in self.kernel.index_of(name):
            iterator = self.match.axis(part.name) if isinstance(part, Var) else None
            places = [
                at for at, one in enumerate(index) if iterator and coefficient(one, iterator) == 1
            ]
            if len(places) != 1:
                return False
            axes += places
        if declared is None:
            return False
        # registers of lanes are no addresses: there the names of coordinates mean something
        by_address = self.kernel.place_of(name).by != "fragment"
        mine = declared.on(*axes)
        return mine == layout or (by_address and mine.canonical() == layout.canonical())

    def is_packed(self, layout: Layout, buffer: Buffer, load: Load) -> bool:
        """Return whether an operand lies in panels as the microkernel reads them, from the first term on, zeros past the last."""
        kernel, loop, panels = self.kernel, self.loops[-1], as_panels(layout)
        if panels is None or panels.width != kernel.panel:
            return False
        declared = kernel.layout_on(panels.rows, panels.columns)
        if declared is None or declared.canonical() != layout.canonical():
            return False
        terms = [coefficient(part, loop.iter) for part in load.index]
        if terms.pop(panels.rows) != 1 or any(term != 0 for term in terms):
            return False
        first = ix.sub(ix.add(load.index[panels.rows], loop.lo), Var(loop.iter))
        whole = is_multiple(first, kernel.multiple)
        return whole and self.ends_in_zeros(panels.rows, buffer, loop.hi)

    def ends_in_zeros(self, rows: int, buffer: Buffer, end: Expr) -> bool:
        """Return whether the last group of terms is whole, or what follows `end` in it is zero.

        The unit multiplies all of a group, and what lies past the last term of the other operand may be no NaN.
        """
        multiple, depth = self.kernel.multiple, buffer.shape[rows]
        if is_multiple(end, multiple):
            return True
        if buffer.kind is Kind.CONSTANT:
            return end == depth
        whole = ix.mul(ix.ceildiv(end, multiple), multiple)
        return depth == whole and _is_zero_beyond(self.program, buffer.name, rows, end)


def is_multiple(value: Expr, of: int) -> bool:
    """Return whether the form of an index expression shows that `of` divides it."""

    def divides(atom: Expr, factor: int) -> bool:
        match atom:
            case Binary("min" | "max", a, b):
                return factor % of == 0 or (is_multiple(a, of) and is_multiple(b, of))
            case _:
                return factor % of == 0

    form = ix.to_linear(value)
    return form.const % of == 0 and all(divides(*term) for term in form.terms)


def element_text(store: Store) -> str:
    """Return the text of the element that a store writes."""
    return f"{store.buffer}[{', '.join(map(format_expr, store.index))}]"


def _is_zero_beyond(program: Program, buffer: str, rows: int, depth: Expr) -> bool:
    """Return whether all that is stored in a buffer from row `depth` on is zero."""
    for stmt in statements(program.body):
        match stmt:
            case Store(name) if name != buffer:
                pass
            case Store(_, index, Select(Compare("<", row, end), _, Const(0)), None):
                if (row, end) != (index[rows], depth):
                    return False
            case Store():
                return False
            case _:
                pass
    return True
