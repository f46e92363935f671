"""Loop programs to LLVM IR: the entry that every call reaches, for all sizes at once.

Loops, conditions and bounded values become control flow. What a program updates in place is copied
into its result first, unless the two are one array. A `Tile` is lowered in one of two ways:

by a microkernel   each sum of the tile that the microkernel computes becomes calls of row-block
                   functions on the tile's memory (`row_blocks`); what follows runs as vectors
by vectors         lanes along the last axis (`vectors`)

Either way an element of a sum is one chain of operations in the order of its reduction, or where
the loop is marked ``@lane`` a tree that its extent fixes (`reductions`): so the result does not
depend on the tile it falls into.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from offcut.backends.cpu.lowering.addressing import Addressing, Lanes
from offcut.backends.cpu.lowering.call_layout import Storage, runs_as_loops
from offcut.backends.cpu.lowering.expressions import panels_read_by
from offcut.backends.cpu.lowering.microkernel_calls import lower_to_microkernel_calls
from offcut.backends.cpu.machine.isa import Isa
from offcut.backends.cpu.microkernels.family import Family, Variant
from offcut.backends.llvm import ir, math_via_float64, vector_math
from offcut.backends.llvm.ir import FunctionWriter
from offcut.backends.llvm.outline import Outliner
from offcut.core import index as ix
from offcut.core.analysis import indices, limits, normalize_start
from offcut.core.expr import Binary, Expr, Unary, Var, variables
from offcut.core.expr import walk as nodes
from offcut.core.plain_loops import tile_to_loops
from offcut.core.program import (
    STATUS,
    Alloc,
    Choose,
    For,
    Form,
    If,
    Let,
    Option,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    walk,
)
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.traversal import expressions, runs_parts
from offcut.describe.intrinsic import find_instruction
from offcut.errors import InternalError
from offcut.partition import Covered, Parts, Question, Refusal, Surroundings
from offcut.partition import cover as judge
from offcut.polyhedral.units import begins_with_store


@dataclass(frozen=True, slots=True)
class Lowered:
    """LLVM IR of `offcut_entry`, `offcut_workspace`, `offcut_work`, and the tiles that they call.

    loops   a module of the functions of loops without microkernels that they call
    tiles   (microkernel, variant, (rows, panels)…) of its functions
    fastcall  a module of `offcut_fastcall`, by which Python calls them
    """

    text: str
    loops: str
    tiles: tuple[tuple[str, Variant, tuple[tuple[int, int], ...]], ...]
    fastcall: str = ""


def lower(
    program: Program,
    isa: Isa,
    families: Sequence[Family],
    work: Expr,
    chains: int = 1,
) -> Lowered:
    """`program` for an instruction set.

    work     of a call, in instances, by which it is judged worth letting other threads run
    chains   registers of lanes that a tile with a loop inside takes at once
    """
    return Lowering(program, isa, families, work, chains).lower()


class Lowering(Storage):
    """A program on its way to LLVM IR: its entry, and what the entry needs."""

    def __init__(
        self,
        program: Program,
        isa: Isa,
        families: Sequence[Family],
        work: Expr,
        chains: int,
    ) -> None:
        super().__init__(program, isa, chains)
        self.instances_of_call = work
        self.families = {family.microkernel.name: family for family in families}
        halves = {family.microkernel.name for family in families if family.halves}
        self.half_panels = panels_read_by(program, halves)
        self.outline = Outliner(self.single)

    def entry(self) -> str:
        """The function that runs a call."""
        self.sizes(self.f)
        self.buffers()
        self.block(self.program.body)
        self.f.do(f"ret i32 {self.status()}")
        self.place_scratch()
        head = "i32 @offcut_entry(ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace)"
        return f"define {head} nounwind {{\n{self.with_scratch()}\n}}"

    def lower(self) -> Lowered:
        """All that the module defines."""
        own = [self.entry(), self.workspace(), self.work(), *self.outline.functions.values()]
        loops = list(self.outline.loops.values())
        tiles = tuple(
            (kernel, variant, tuple(sorted(shapes)))
            for (kernel, variant), shapes in self.tiles.items()
        )
        for kernel, variant, shapes in tiles:
            symbol = self.families[kernel].symbol
            self.f.declares |= {
                f"declare void @{symbol(variant, *shape)}({variant.parameters})" for shape in shapes
            }
        shared = [*self.functions.values(), *self.tables.values(), *sorted(self.f.declares)]
        text = _module([*own, *shared, *self.outline.declared])
        return Lowered(text, _module([*loops, *shared]) if loops else "", tiles)

    def status(self) -> str:
        """0, or what the buffer of that scope says."""
        for buffer in self.program.buffers:
            if buffer.scope == STATUS:
                return self.f.let(f"load i32, ptr {self.memory[buffer.name].base}")
        return "0"

    def with_scratch(self) -> str:
        """The entry's text, with the parts of the workspace laid out before all else."""

        def lay_out(f: FunctionWriter) -> None:
            offset = "0"
            for name, size in self.scratch:
                f.do(f"{name} = getelementptr i8, ptr %workspace, i64 {offset}")
                offset = ir.add(f, offset, self.aligned_bytes(size))

        head, body = self.over_sizes(lay_out), self.f
        self.outline.place(body)
        return "\n".join(
            ["entry:", *body.slots, *head.slots, *head.instructions(), *body.instructions()]
        )

    def work(self) -> str:
        """Instances of a call."""

        def instances(f: FunctionWriter) -> None:
            total = self.scalar(self.instances_of_call)
            self.cap_total(total, self.magnitude(self.instances_of_call))

        text = self.over_sizes(instances).text()
        return f"define i64 @offcut_work(ptr %sizes) nounwind {{\n{text}\n}}"

    def block(self, body: Sequence[Stmt]) -> None:
        """Statements one after the other."""
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        """One statement; loops without microkernels are a piece of their own, and of loops that never run there is nothing."""
        if self.never_runs(stmt):
            return
        if isinstance(stmt, For | If) and self.is_of_loops(stmt):
            with self.outline.piece(self.f, loops=True):
                self.lowered_statement(stmt)
        else:
            self.lowered_statement(stmt)

    def never_runs(self, stmt: Stmt) -> bool:
        """Whether a statement is a loop that has no iteration at any size: of an array known to be empty."""
        return isinstance(stmt, For) and self.range_of(stmt.hi)[1] <= self.range_of(stmt.lo)[0]

    def is_of_loops(self, stmt: Stmt) -> bool:
        """Whether a statement is to be a piece of loops: it calls no microkernel, and is in no such piece yet. Of loops
        that run through one part of a range in turn, each is a piece if one of them evaluates polynomials, whose
        coefficients stay in registers while it runs.
        """
        return not self.outline.in_loops and not any(
            (isinstance(inner, Tile) and inner.microkernel in self.families)
            or (isinstance(inner, For) and runs_parts(inner) and _has_polynomials(inner))
            for inner in walk((stmt,))
        )

    def lowered_statement(self, stmt: Stmt) -> None:
        """One statement, where what is written belongs."""
        match stmt:
            case For() | If() if is_scalar_code(stmt):
                self.vector_block((stmt,), Lanes(1, None), {})
            case For():
                self.loop(stmt)
            case If(condition, then, other):
                self.branch(condition, then, other)
            case Let(name, lo, hi, value, body):
                with self.bound(name, self.scalar(value)), self.known(Var(name), lo, hi - 1):
                    self.block(body)
            case Tile():
                self.tile(stmt)
            case Store():
                self.vector_store(stmt, Lanes(1, None), {})
            case Sync():
                pass
            case Alloc():
                with self.window(stmt):
                    self.block(stmt.body)
            case Choose(options):
                self.choose(options)
            case _:
                assert_never(stmt)

    def loop(self, loop: For) -> None:
        """Emit the iterations of a loop: groups of `factor` that run together, then what is left in turn.

        Of tiles without sums, whose code is short, groups of half as many run together before that.
        """
        start, end, count = self.scalar(loop.lo), self.scalar(loop.hi), loop.factor or 1
        first, last = self.range_of(loop.lo)[0], self.range_of(loop.hi)[1]
        with self.known(Var(loop.iter), first, last - 1):
            self.around.append(loop)
            while count > 1 and start != end:
                extent = ir.maximum(self.f, ir.sub(self.f, end, start), "0")
                groups = ir.floordiv(self.f, extent, str(count))
                whole = ir.add(self.f, start, ir.mul(self.f, groups, str(count)))
                with self.f.loop(start, whole, count) as now, self.bound(loop.iter, now):
                    numbers = (ir.add(self.f, now, str(number)) for number in range(count))
                    self.jammed = loop.iter, tuple(numbers)
                    self.block(loop.body)
                    self.jammed = "", ()
                start, count = whole, 1 if has_sums(loop) else count // 2
            if start != end:
                with self.f.loop(start, end) as now, self.bound(loop.iter, now):
                    self.block(loop.body)
            self.around.pop()

    def branch(self, condition: Expr, then: Sequence[Stmt], other: Sequence[Stmt]) -> None:
        """`then` where the condition holds, else `other`."""
        holds = self.truth(condition, {})
        yes, no, end = self.f.name("then"), self.f.name("else"), self.f.name("end")
        self.f.do(f"br i1 {holds}, label {yes}, label {no}")
        with self.f.within(yes), self.assumed(condition, True):
            self.block(then)
        self.f.do(f"br label {end}")
        with self.f.within(no), self.assumed(condition, False):
            self.block(other)
        self.f.block(end)

    def choose(self, options: Sequence[Option]) -> None:
        """Run the first of the cheapest; where costs are of sizes alone, they are compared once a call."""
        if all(self.can_go_ahead(option.cost) for option in options):
            with self.ahead():
                best = self.cheapest(options)
        else:
            best = self.cheapest(options)
        end = self.f.name("end")
        labels = [self.f.name("option") for _ in options]
        cases = " ".join(f"i64 {k}, label {label}" for k, label in enumerate(labels[1:], 1))
        self.f.do(f"switch i64 {best}, label {labels[0]} [ {cases} ]")
        for label, option in zip(labels, options, strict=True):
            with self.f.within(label):
                self.block(option.body)
            self.f.do(f"br label {end}")
        self.f.start(end)

    def cheapest(self, options: Sequence[Option]) -> str:
        """The position of the first of the cheapest."""
        best, cheapest = "0", ""
        for position, option in enumerate(options):
            cost = self.cost(option.cost)
            if not cheapest:
                cheapest = cost
                continue
            less = self.f.let(f"fcmp olt double {cost}, {cheapest}")
            best = self.f.let(f"select i1 {less}, i64 {position}, i64 {best}")
            cheapest = self.f.let(f"select i1 {less}, double {cost}, double {cheapest}")
        return best

    def cost(self, expr: Expr) -> str:
        """A float64 expression over sizes and coordinates, as a scalar."""
        lanes = Lanes(1, None)
        vector = self.value(expr, lanes, {})
        return self.f.let(f"extractelement <1 x double> {vector}, i32 0")

    def tile(self, tile: Tile) -> None:
        """A tile by its microkernel, or as vectors."""
        if runs_as_loops(tile):
            self.block(tile_to_loops(tile))
            return
        cover_or_refusal = self.cover(tile)
        with self.outline.piece(self.f, loops=self.is_of_loops(tile)):
            if isinstance(cover_or_refusal, Refusal):
                if tile.microkernel in self.families:
                    raise InternalError(
                        f"a tile is not what {tile.microkernel} computes: {cover_or_refusal}"
                    )
                self.vectors(tile, tile.body, {})
            else:
                lower_to_microkernel_calls(
                    self, tile, self.families[tile.microkernel or ""], cover_or_refusal
                )

    def cover(self, tile: Tile) -> Parts | Refusal:
        """How the microkernel that `tile` names computes it."""
        if tile.form is Form.GUARD:
            return Refusal(Question.BOUNDS, "its loops ask a condition in each instance")
        if tile.microkernel is None:
            return Refusal(Question.TERM, explain_no_cover(self, tile, self.families.values()))
        family = self.families.get(tile.microkernel)
        if family is None:
            return Refusal(Question.UNIT, _elsewhere(tile.microkernel))
        return cover(self, tile, family)


def _elsewhere(name: str) -> str:
    """Why an instruction that a tile names is none of the CPU's."""
    kernel = find_instruction(name)
    if kernel is None or kernel.unit == "core":
        return "a declared instruction runs as the loops that say what it does"
    return f"it runs on a {kernel.unit}, and the CPU has none"


def has_sums(loop: For) -> bool:
    """Return whether a tile in `loop` has loops inside."""
    tiles = (stmt for stmt in statements(loop.body) if isinstance(stmt, Tile))
    return any(isinstance(stmt, For) for tile in tiles for stmt in statements(tile.body))


def _has_polynomials(loop: For) -> bool:
    """Whether something in a loop evaluates one: an exponential, a logarithm, a power."""
    functions = {*vector_math.WRITERS, *math_via_float64.WRITERS}
    return any(
        isinstance(node, Unary | Binary) and node.op in functions
        for stmt in walk((loop,))
        for expr in expressions(stmt)
        for node in nodes(expr)
    )


def _module(sections: Sequence[str]) -> str:
    return "\n\n".join(sections) + "\n"


def is_scalar_code(stmt: Stmt) -> bool:
    """Whether a statement is scalar code all through: no tiles, nothing to choose, no windows."""
    return not any(isinstance(inner, Tile | Choose | Alloc) for inner in walk((stmt,)))


# How a family of the CPU computes a tile: what the judge of covers says of its microkernel, and the calls.
#
# What the judge cannot know is asked here: that a scratch for the tile's sums has bounds, and that sums
# which lie in it are indexed by the axes of the tile.


def cover(low: Addressing, tile: Tile, family: Family) -> Parts | Refusal:
    """Return what becomes of each statement of `tile` where `low` stands if `family` computes it, or why it does not."""
    kernel = family.microkernel
    stated_cover = tile.cover if tile.microkernel == kernel.name else None
    at = Surroundings((), low.range_of, lambda buffer: buffer.name not in low.memory)
    verdict = judge(tile, low.program, kernel, stated_cover, at=at, issued={kernel.columns})
    if isinstance(verdict, Refusal):
        return verdict
    tile = normalize_start(tile)
    for axis in tile.axes:
        if not low.bounded(axis.extent):
            because = f"nothing bounds the extent {format_expr(axis.extent)} of {axis.iter}"
            return Refusal(Question.EXTENTS, because)
    for one in verdict.instances:
        varying = _varying_rows(low, tile, one)
        if varying is not None:
            return Refusal(Question.EXTENTS, varying)
    target, first = verdict.instances[0].store.buffer, verdict.instances[0].match
    padded = tile.form is Form.PAD
    if (padded or target not in low.memory) and not _is_by_axes(low, tile, target):
        because = f"{target} is not indexed by the axes of the tile alone"
        return Refusal(Question.LAYOUT, because)
    parts: list[Covered | Stmt | None] = []
    for stmt, part in zip(tile.body, verdict.parts, strict=True):
        if isinstance(part, Covered):
            match = part.match
            alike = (
                part.store.buffer == target
                and match.rows == first.rows
                and match.columns == first.columns
            )
            if (padded or part.store.buffer not in low.memory) and not alike:
                if parts and parts[-1] is None:
                    parts[-1] = tile.body[len(parts) - 1]
                part = stmt
        parts.append(part)
    return tuple(parts)


def explain_no_cover(low: Addressing, tile: Tile, families: Iterable[Family]) -> str:
    """Return why a tile that names no microkernel has none: what keeps the first that sums its terms."""
    sums = [s for s in statements(tile.body) if isinstance(s, Store) and s.reduce is not None]
    if not sums:
        return "it has no sum"
    for family in families:
        verdict = cover(low, replace(tile, cover=None), family)
        if not isinstance(verdict, Refusal):
            return f"no register tile of {family.microkernel.name} has its rows and columns"
        if verdict.question is not Question.TERM:
            return f"{family.microkernel.name} does not: {verdict}"
    return f"no microkernel sums {format_expr(sums[0].value)}"


def _varying_rows(low: Addressing, tile: Tile, one: Covered) -> str | None:
    """Why rows that are padded have no scratch of one size."""
    rows = next((axis for axis in tile.axes if axis.iter == one.match.rows), None)
    if rows is None or tile.form is not Form.PAD or not any(limits(tile, rows.iter)):
        return None
    terms = ix.sub(one.loop.hi, one.loop.lo)
    sizes = {size.name for size in low.program.sizes}
    if variables(ix.mul(rows.extent, terms)) <= sizes:
        return None
    return f"the rows that are padded are as long as {one.loop.iter} is, which varies"


def _is_by_axes(low: Addressing, tile: Tile, buffer: str) -> bool:
    """Return whether the tile accesses a buffer at one element of each instance, by its axes and loops around the tile, each
    once, and fills it before it reads it if it is nobody else's.
    """
    points = {tuple(map(ix.simplify, index)) for index in indices(tile.body, buffer)}
    (point, *others) = points
    axes = {axis.iter for axis in tile.axes}
    names = [part.name for part in point if isinstance(part, Var)]
    filled = buffer in low.memory or begins_with_store(buffer, tile.body)
    return (
        not others
        and len(set(names)) == len(names) == len(point)
        and axes <= set(names)
        and all(name in axes or name in low.values for name in names)
        and filled
    )
