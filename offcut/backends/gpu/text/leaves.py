"""Writes the statements that one unit runs, as C++: copies, products, and loops over what lies in registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from offcut.backends.gpu.instructions import BY_NAME, RESET
from offcut.backends.gpu.text.groups import GroupWriter
from offcut.backends.gpu.text.lanes import MEET, LaneWriter
from offcut.backends.gpu.text.windows import (
    Fragments,
    SharedWindow,
    Windows,
    at_warp,
    name_of,
    no_text,
    writer,
)
from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays
from offcut.core.dtypes import HALVES
from offcut.core.expr import COMBINED, Expr, Load, Var, all_loads, rewrite, substitute, variables
from offcut.core.program import For, If, Kind, Program, Stmt, Store, Tile, walk
from offcut.core.text.c_expressions import CExpressions, parenthesize
from offcut.core.text.printer import format_head
from offcut.core.traversal import expressions
from offcut.polyhedral.affine import coefficient


@dataclass
class LeafWriter:
    """Writes statements that one unit runs.

    places  the ``alloc`` around by buffer, by its identity
    warps    what stands for the iterators of loops over warps, and over warpgroups
    signed   the iterators that may be below 0
    barrier  at which copies of boxes arrive
    """

    program: Program
    windows: Windows
    places: Mapping[str, int]
    warps: Mapping[str, Expr]
    signed: frozenset[str] = frozenset()
    fragment: Mapping[str, str] = field(default_factory=dict)  # by buffer, inside of its loops
    barrier: str = ""

    @property
    def writer(self) -> CExpressions:
        """Return a writer of expressions at this place of the text."""
        return writer(self.element, self.signed)

    def text(self, expr: Expr) -> str:
        """Return the text of an index, with the number of the warp in place of its iterator."""
        return self.writer.text(at_warp(expr, self.warps))

    # -- elements

    def element(self, load: Load) -> str:
        """Return the text of an element."""
        if load.buffer in self.fragment:
            return self.fragment[load.buffer]
        window = self.shared_window(load.buffer)
        if window is not None:
            return f"{window.name}[{self.offset(window, load.index)}]"
        if load.buffer in self.places:
            raise no_text(
                load.buffer, "an element in registers is read where it is multiplied, or by itself"
            )
        return f"{name_of(load.buffer)}[{self.address(load.buffer, load.index)}]"

    def shared_window(self, name: str) -> SharedWindow | None:
        """Return the window in shared memory that a buffer has at this place of the text; None if it has none."""
        return self.windows.shared.get(self.places.get(name, 0))

    def fragments(self, name: str) -> Fragments | None:
        """Return the accumulators that hold a buffer at this place of the text; None if none do."""
        return self.windows.fragments.get(self.places.get(name, 0))

    def address(self, name: str, index: tuple[Expr, ...]) -> str:
        """Return the text of the offset of an element in an array stored by rows, in 64 bits if it has several axes."""
        shape = self.program.buffer(name).shape
        if not index:
            return "0"
        text = self.text(index[0])
        if len(index) > 1:
            text = f"(long long){parenthesize(text)}"
        for axis, part in enumerate(index[1:], 1):
            text = f"({text})" if axis > 1 else text
            text = f"{text} * {parenthesize(self.text(shape[axis]))} + {self.writer.text(at_warp(part, self.warps), 3)}"
        return text

    def offset(self, window: SharedWindow, index: tuple[Expr, ...]) -> str:
        """Return the offset of an element in a window."""
        parts = [
            ix.simplify(ix.sub(part, start))
            for part, start in zip(index, window.starts, strict=True)
        ]
        if window.boxes:
            first = self.text(ix.mul(window.slot, window.rows * window.columns))
            place = ", ".join(self.text(part) for part in parts[-2:])
            return f"{first} + in_boxes({place}, {window.rows})"
        along, column = (parts[axis] for axis in window.axes)
        row = ix.add(ix.mul(window.slot, window.rows), along)
        return self.text(ix.simplify(ix.add(ix.mul(row, window.pitch), column)))

    # -- statements

    def lines(self, stmt: Stmt) -> list[str]:
        """Return the lines of a statement.

        Raises DescribeError for a statement that has no text so far.
        """
        name = (stmt.microkernel or "") if isinstance(stmt, Tile) else ""
        if isinstance(stmt, Tile) and "_rows_" in name:
            return [self.copy(stmt, name.startswith("cp_async"))]
        if isinstance(stmt, Tile) and name.startswith("tma_load_2d_"):
            return GroupWriter(self).load_boxes(stmt, _store_of(stmt))
        if isinstance(stmt, Tile) and name.startswith("wgmma_m64nNk16_"):
            return GroupWriter(self).multiply(stmt)
        if isinstance(stmt, Tile) and name in BY_NAME:
            return [self.multiply(stmt)]
        if isinstance(stmt, Tile) and name in ("zero_accumulators", RESET):
            return [f"zero({name_of(_store_of(stmt).buffer)});"]
        if name:
            raise no_text(format_head(stmt), f"{name} has no text so far")
        arrays = accessed_arrays((stmt,))
        accumulators = [one for one in (self.fragments(name) for name in arrays) if one is not None]
        if accumulators:
            return self.by_fragments(stmt, accumulators, arrays)
        return [*LaneWriter(self).lines(stmt), MEET]

    def copy(self, tile: Tile, background: bool) -> str:
        """Return the copy of a rectangle into shared memory."""
        store = _store_of(tile)
        window, source = self.shared_window(store.buffer), store.value
        names = [axis.iter for axis in tile.axes]
        plain = isinstance(source, Load) and len(source.index) == len(store.index)
        if window is None or not isinstance(source, Load) or not plain or len(names) < 2:
            raise no_text(format_head(tile), "a copy that is not a rectangle of rows has no text")
        begin = {axis.iter: axis.start for axis in tile.axes}
        extents = {axis.iter: axis.extent for axis in tile.axes}
        shape = self.program.buffer(source.buffer).shape
        counts, steps = list[Expr](), list[Expr]()
        for axis in window.axes:
            name = _name(store.index[axis], tile)
            if name is not None and source.index[axis] != store.index[axis]:
                raise no_text(
                    format_head(tile), "a copy that is not a rectangle of rows has no text"
                )
            counts.append(ix.const(1) if name is None else extents[name])
            step: Expr = ix.const(1)
            for extent in shape[axis + 1 :]:
                step = ix.mul(step, extent)
            steps.append(step)
        where = tuple(substitute(part, begin) for part in source.index)
        to = self.offset(window, tuple(substitute(part, begin) for part in store.index))
        kind = f"{window.rows}, {window.columns}, {window.pitch}"
        apart = "" if ix.literal_value(steps[1]) == 1 else f"{self.text(steps[1])}, "
        name = "copy_rows_in_background" if background else "copy_rows"
        target = window.name if to == "0" else f"{window.name} + {to}"
        return (
            f"{name}<{kind}>({target}, {name_of(source.buffer)} + ({self.address(source.buffer, where)}), "
            f"{self.text(steps[0])}, {apart}{self.text(counts[0])}, {self.text(counts[1])}, lane);"
        )

    def multiply(self, tile: Tile) -> str:
        """Return the product of a warp's rows, added to its accumulators."""
        assert tile.cover is not None
        axes, operands = dict(tile.cover.axes), dict(tile.cover.operands)
        loops = {one.iter: one for one in walk(tile.body) if isinstance(one, For)}
        terms = loops.get(axes.get("p", ""))
        accumulators = self.fragments(operands["C"])
        if terms is None or accumulators is None or len(loops) != 1:
            raise no_text(format_head(tile), "this product has no text so far")
        begin: dict[str, Expr] = {axis.iter: axis.start for axis in tile.axes}
        begin[terms.iter] = terms.lo
        loads = {load.buffer: load for one in walk(tile.body) for e in expressions(one) for load in all_loads(e)}  # fmt: skip
        texts, pitches, turned = [], [], []
        for operand, first in (("A", axes["i"]), ("B", axes["p"])):
            load = loads[operands[operand]]
            window = self.shared_window(load.buffer)
            if window is None:
                raise no_text(format_head(tile), f"{load.buffer} is in no window of rows")
            if not self.has_zeros(tile, load.buffer):
                because = f"it reads {load.buffer} in whole terms, and no copy of rows writes zeros past its end"
                raise no_text(format_head(tile), because)
            row, column = (
                [coefficient(load.index[axis], name) or 0 for name in begin] for axis in window.axes
            )
            if sum(column) > 1 or len([*filter(None, row)]) > 1:
                raise no_text(
                    format_head(tile),
                    f"{load.buffer} is not read element by element along its axes",
                )
            at = self.offset(window, tuple(substitute(part, begin) for part in load.index))
            texts.append(window.name if at == "0" else f"{window.name} + {at}")
            pitches.append(str(window.pitch * max(sum(row), 1)))
            turned.append("false" if first in variables(load.index[window.axes[0]]) else "true")
        m, n = accumulators.shape
        kind = ", ".join([str(m), str(n), *pitches, *turned])
        count = self.text(ix.simplify(ix.sub(terms.hi, terms.lo)))
        name = BY_NAME[tile.cover.microkernel].primitive
        return f"{name}<{kind}>({accumulators.name}, {texts[0]}, {texts[1]}, {count}, lane);"

    def has_zeros(self, tile: Tile, buffer: str) -> bool:
        """Return whether zeros follow the elements of an operand in its window, where a product reads them: it is copied in rows, or
        the product goes term by term.
        """
        assert tile.cover is not None
        copies = (one for one in walk(self.program.body) if isinstance(one, Tile))
        stores = [one for one in copies if any(_stores_to(s, buffer) for s in walk(one.body))]
        in_rows = all("_rows_" in (one.microkernel or "") for one in stores)
        return in_rows or tile.cover.microkernel.startswith("fma_shared_")

    # -- loops over elements in registers

    def by_fragments(
        self, stmt: Stmt, accumulators: list[Fragments], arrays: set[str]
    ) -> list[str]:
        """Return loops over the accumulators of a warp, with an instance of a statement for each."""
        first = accumulators[0]
        if len({(one.starts, one.extents) for one in accumulators}) > 1:
            raise no_text(format_head(stmt), "it reads accumulators of several tiles")
        names = {name for name in arrays if self.fragments(name) is not None}
        loads = [load for one in walk((stmt,)) for e in expressions(one) for load in all_loads(e)]
        indices = {load.index for load in loads if load.buffer in names}
        indices |= {s.index for s in walk((stmt,)) if isinstance(s, Store) and s.buffer in names}
        if len(indices) != 1:
            raise no_text(format_head(stmt), "it reads accumulators at several places")
        (index,) = indices
        loops, conditions, body = _nest(stmt)
        if len(body) != 1 or not isinstance(body[0], Store):
            raise no_text(format_head(stmt), "several statements on accumulators have no text")
        row = "64 * row_tile + 16 * (warp % 4)" if first.warps > 1 else "16 * row_tile"
        places = (
            f"{row} + fragment_row(lane, element)",
            "8 * column_tile + fragment_column(lane, element)",
        )
        values: dict[str, str] = {}
        for axis, start, place in zip(first.axes, first.starts, places, strict=True):
            offset = at_warp(ix.sub(index[axis], start), self.warps)
            moving = [name for name, _, _ in loops if name in variables(offset)]
            if len(moving) != 1 or moving[0] in values:
                raise no_text(
                    format_head(stmt), "its loops are not rows and columns of accumulators"
                )
            rest = ix.simplify(ix.sub(offset, Var(moving[0])))
            if variables(rest) & {name for name, _, _ in loops}:
                raise no_text(
                    format_head(stmt), "its loops are not rows and columns of accumulators"
                )
            shift = self.text(ix.simplify(ix.sub(0, rest)))
            values[moving[0]] = place if shift == "0" else f"{place} + {parenthesize(shift)}"
        m, n = first.shape
        lines = [
            "#pragma unroll",
            f"for (int row_tile = 0; row_tile < {m}; ++row_tile)",
            "  #pragma unroll",
            f"  for (int column_tile = 0; column_tile < {n}; ++column_tile)",
            "    #pragma unroll",
            "    for (int element = 0; element < 4; ++element) {",
        ]
        guards, terms = list[str](), list[str]()
        for name, lo, hi in loops:
            if name in values:
                lines.append(f"      const int {name_of(name)} = {values[name]};")
                if not (values[name] in places and ix.literal_value(lo) == 0):
                    guards.append(f"{name_of(name)} >= {self.text(lo)}")
                extent = (
                    first.rows * first.shape[0] if values[name] == places[0] else 8 * first.shape[1]
                )
                ends = ix.literal_value(hi)
                if values[name] not in places or ends is None or ends < extent:
                    guards.append(f"{name_of(name)} < {self.text(hi)}")
            elif ix.literal_value(ix.sub(hi, lo)) == 1:
                lines.append(f"      const int {name_of(name)} = {self.text(lo)};")
            elif not (variables(lo) | variables(hi)) & {*values}:  # around those in registers
                loop = For(name, lo, hi, ())
                terms.append(f"{LaneWriter(self).plain.head(loop)} {{")
            else:
                raise no_text(
                    format_head(stmt), f"{name} is neither a row nor a column of accumulators"
                )
        guards += [self.text(condition) for condition in conditions]
        fragment = {name: f"{name_of(name)}[row_tile][column_tile][element]" for name in names}
        inner = replace(self, fragment=fragment)
        condition = f"if ({' && '.join(guards)}) " if guards else ""
        lines.append(f"      {condition}{inner.store(body[0])}")
        lines.append("    }")
        return [*terms, *(f"{'  ' * len(terms)}{line}" for line in lines), *"}" * len(terms)]

    def store(self, stmt: Store) -> str:
        """Return an assignment, or an update."""
        buffer = self.program.buffer(stmt.buffer)
        if buffer.kind is Kind.PRIVATE:
            raise no_text(stmt.buffer, "a private array has no text so far")
        to = self.element(Load(stmt.buffer, stmt.index, buffer.dtype))
        value = self.writer.text(rewrite(stmt.value, self.at_warp))
        if stmt.reduce is None:
            return f"{to} = {value};"
        return self.update(stmt.reduce, buffer.dtype, to, value)

    def update(self, reduce: str, dtype: str, to: str, value: str) -> str:
        """Return the update of an element of a type by a value of it."""
        if reduce == "sum" and dtype not in HALVES:
            return f"{to} += {value};"
        return f"{to} = {self.writer.combine(COMBINED[reduce], dtype, to, value)};"

    def at_warp(self, node: Expr) -> Expr | None:
        """Return the number of the warp for an iterator of a loop over warps."""
        return self.warps.get(node.name) if isinstance(node, Var) else None


def _nest(stmt: Stmt) -> tuple[list[tuple[str, Expr, Expr]], list[Expr], tuple[Stmt, ...]]:
    """Return the loops of a nest, the conditions between them, and what is inside."""
    loops: list[tuple[str, Expr, Expr]] = []
    conditions: list[Expr] = []
    body: tuple[Stmt, ...] = (stmt,)
    while len(body) == 1:
        match body[0]:
            case For(name, lo, hi, inner):
                loops.append((name, lo, hi))
                body = inner
            case If(condition, inner, ()):
                conditions.append(condition)
                body = inner
            case Tile(axes, inner, where):
                loops += [(a.iter, a.start, ix.simplify(ix.add(a.start, a.extent))) for a in axes]
                conditions += [] if where is None else [where]
                body = inner
            case _:
                break
    return loops, conditions, body


def _stores_to(stmt: Stmt, buffer: str) -> bool:
    return isinstance(stmt, Store) and stmt.buffer == buffer


def _store_of(tile: Tile) -> Store:
    (store,) = (one for one in walk(tile.body) if isinstance(one, Store))
    return store


def _name(part: Expr, tile: Tile) -> str | None:
    """Return the axis of a tile that an index is; None if it is the same in all of the tile."""
    names = [axis.iter for axis in tile.axes if axis.iter in variables(part)]
    if names and part != Var(names[0]):
        raise no_text(format_head(tile), "a copy that is not a rectangle of rows has no text")
    return names[0] if names else None
