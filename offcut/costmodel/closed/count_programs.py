"""One walk over a loop program: what each of its pieces counts, and what moves between memories.

A machine says by methods of its own what a statement, a tile and a window count, and which statements are its pieces.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Compare, Const, Expr, Var, reads_memory, variables
from offcut.core.interpret.values import evaluate
from offcut.core.program import Alloc, Choose, For, If, Let, Stmt, Store, Sync, Tile
from offcut.core.scan import Range
from offcut.core.traversal import substitute_coordinates
from offcut.costmodel.closed.count_loops import LoopCounts, Scope, Tally, inside_loop, stored_in
from offcut.costmodel.closed.counts import (
    ZERO,
    Counted,
    Counts,
    Piece,
    PricedOption,
    least_exact,
    sum_counts,
)
from offcut.costmodel.closed.sums import SumMethod, Sums, count_methods
from offcut.costmodel.simplification import drop_decided_conditions, simplify_index
from offcut.polyhedral.derived_sizes import with_positive_divisors


class ProgramCounts(LoopCounts):
    """Counts of all statements of a program, by piece.

    last_method  by which sums are computed that have no closed form, of what cannot be added up
    """

    last_method = SumMethod.NEAR

    @property
    def methods(self) -> Sequence[SumMethod]:
        """Return the methods to sum what a piece counts, the most exact first."""
        return count_methods(is_open=self.is_open, last=self.last_method)

    def counts_by_piece(self, body: tuple[Stmt, ...]) -> Counted:
        """Return what a program counts, by piece."""
        tally = self.block(body, Scope(self.known))
        volumes = self.traffic.at_a_call(tally.touched)
        every = range(len(self.pieces))
        whole = tally.whole
        counts = tuple(whole.get(one, Counts()).map(self.sums[one].finish) for one in every)
        return Counted(
            tuple(self.pieces),
            counts,
            volumes,
            tally.touched.kept or tuple(ZERO for _ in self.traffic.levels),
            tuple(self.choices),
            self.values,
            least_exact(self.exactness, *(self.sums[one].exactness for one in every)),
        )

    def block(self, body: Sequence[Stmt], scope: Scope) -> Tally:
        """Return the counts of statements, one after the other."""
        parts: list[Tally] = []
        before: set[str] = set()
        for stmt in body:
            piece = self.piece(stmt, scope) if scope.piece is None else scope.piece
            tally = self.statement(stmt, replace(scope, piece=piece))
            if scope.piece is None and scope.loop is not None and tally.counts:
                number = next(iter(tally.counts))
                if before and self.pieces[number].stage not in before:
                    tally = self.behind_stages(tally, number, scope)
                before |= {self.pieces[one].stage for one in tally.counts}
            parts.append(tally)
        touched = self.traffic.block([part.touched for part in parts])
        staged = {piece: one for part in parts for piece, one in part.staged.items()}
        return Tally(touched, sum_counts(part.counts for part in parts), staged)

    @abstractmethod
    def piece_of(self, stmt: Stmt, scope: Scope) -> Piece | None:
        """Return the piece that a statement is; None if it is none by itself: its parts may be."""

    def piece(self, stmt: Stmt, scope: Scope) -> int | None:
        """Return the number of the piece of a statement outside of pieces; None if it is none."""
        piece = self.piece_of(stmt, scope)
        if piece is None:
            return None
        number = len(self.pieces)
        self.pieces.append(piece)
        self.sums[number] = Sums(self.piece_methods.get(number, self.methods), self.tables)
        return number

    def statement(self, stmt: Stmt, scope: Scope) -> Tally:
        """Return the counts of one run of a statement."""
        match stmt:
            case Store():
                return self.store(stmt, scope)
            case For():
                return self.for_loop(stmt, scope)
            case Tile():
                return self.tile_of(stmt, scope)
            case If(condition, then, other):
                match drop_decided_conditions(condition):
                    case Const(holds):
                        return self.block(then if holds else other, scope)
                    case open_:
                        return self.where(open_, self.block(then, scope), self.block(other, scope))
            case Let():
                return self.count_bounded_value(stmt, scope)
            case Sync():
                return self.sync(stmt, scope)
            case Alloc():
                return self.alloc(stmt, scope)
            case Choose():
                return self.choose(stmt, scope)

    @abstractmethod
    def store(self, stmt: Store, scope: Scope) -> Tally:
        """Return the counts of one instance of a statement."""

    @abstractmethod
    def tile_of(self, tile: Tile, scope: Scope) -> Tally:
        """Return the counts of one run of a tile."""

    @abstractmethod
    def alloc(self, stmt: Alloc, scope: Scope) -> Tally:
        """Return the counts of the statements inside of a window."""

    def sync(self, stmt: Sync, scope: Scope) -> Tally:
        """Return the counts of a meeting of units."""
        return Tally(self.traffic.nothing, {})

    def behind_stages(self, tally: Tally, piece: int, scope: Scope) -> Tally:
        """Return the counts of a stage that follows others in the loop around both."""
        return tally

    def for_loop(self, stmt: For, scope: Scope) -> Tally:
        """Return the counts of all iterations of a loop."""
        name, lo, hi = stmt.iter, self.bound(stmt.lo), self.bound(stmt.hi, stmt.lo)
        inside = replace(
            scope,
            known=inside_loop(scope.known, name, lo, hi),
            loop=stmt,
            written=stored_in(stmt.body),
        )
        with self.around(name, lo, hi):
            body = self.block(stmt.body, inside)
        return self.loop(name, lo, hi, body, scope.known)

    def count_bounded_value(self, let: Let, scope: Scope) -> Tally:
        """Return the counts inside of a bounded value: with the value in its place if that is a literal or moves with a loop; with each
        of the two values that it may have; else with a name for it.
        """
        # It is evaluated even if no statement uses it.
        value = bounded_value(let.value)
        range_ = ix.const(let.lo), ix.const(let.hi - 1)
        open_ = {one.name for one in self.program.sizes} | set(self.values)
        if isinstance(value, Const) or not variables(value) <= open_:
            return self.block(substitute_coordinates(let.body, {let.name: value}), scope)
        if let.hi - let.lo == 2:
            counts_of_both = (
                self.block(substitute_coordinates(let.body, {let.name: ix.const(one)}), scope)
                for one in range(let.lo, let.hi)
            )
            return self.where(Compare("<=", value, ix.const(let.lo)), *counts_of_both)
        name = next((known for known, other in self.values.items() if other == value), "")
        if not name:
            name = self.names.fresh(let.name)
            self.values[name] = value
        known = scope.known.within(Range(name, (range_[0],), (range_[1],)))
        return self.block(
            substitute_coordinates(let.body, {let.name: Var(name)}), replace(scope, known=known)
        )

    def choose(self, stmt: Choose, scope: Scope) -> Tally:
        """Return the counts of the option that `options` names, else of the cheapest if all costs are literals, else of all, each by itself."""
        costs = [option.cost for option in stmt.options]
        known = [self.seconds(cost) for cost in costs]
        self.choices.append(tuple(PricedOption(o.label, o.cost) for o in stmt.options))
        number = len(self.choices) - 1
        known_costs = [one for one in known if one is not None]
        if number in self.options or len(known_costs) == len(known):
            best = self.options.get(number, 0)
            if number not in self.options:
                best = known.index(min(known_costs))
            return self.block(stmt.options[best].body, replace(scope, option=(number, best)))
        parts = [
            self.block(option.body, replace(scope, option=(number, at)))
            for at, option in enumerate(stmt.options)
        ]
        touched = parts[0].touched
        for part in parts[1:]:
            both = self.traffic.block([touched, part.touched])
            volumes = tuple(
                {**a, **b} for a, b in zip(touched.moved, part.touched.moved, strict=True)
            )
            touched = replace(both, moved=volumes)
        staged = {piece: one for part in parts for piece, one in part.staged.items()}
        return Tally(touched, sum_counts(part.counts for part in parts), staged)

    def seconds(self, cost: Expr) -> float | None:
        """Return a cost as a number of seconds; None if it depends on sizes or on memory."""
        return None if variables(cost) or reads_memory(cost) else float(evaluate(cost, {}))


def bounded_value(value: Expr) -> Expr:
    """Return what a bounded value is bound to, at all sizes: quotients and remainders in it are by at least 1."""
    return with_positive_divisors(simplify_index(value))
