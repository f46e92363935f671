"""Print the statements that one unit of a block runs: the load unit, the warps, or the warpgroups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from offcut.backends.gpu.text.leaves import LeafWriter
from offcut.backends.gpu.text.windows import CUDA, NUMBER_OF, TYPES, Windows, name_of, no_text
from offcut.backends.gpu.units import ASYNC_SHARED
from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays
from offcut.core.conditions import negate
from offcut.core.expr import Expr
from offcut.core.program import (
    Action,
    Alloc,
    For,
    If,
    Let,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
    Token,
    walk,
)
from offcut.core.text.c_expressions import CExpressions, CStatements, braces
from offcut.core.text.printer import format_head

LANES = 32
WARPS_OF_A_GROUP = 4


class UnitKernel(Protocol):
    """The kernel of a unit.

    unit    the unit that its loops are bound to: warp or warpgroup
    warps   warps of a block that loops are bound to
    signed  the iterators that may be negative
    """

    program: Program
    windows: Windows
    tokens: list[Token]
    unit: str
    warps: int
    signed: frozenset[str]

    def kinds_of_copies(self) -> set[str]:
        """Return the kinds of copies of the load unit: boxes, asynchronous cells, synchronous elements."""

    @property
    def load_barrier(self) -> str:
        """Return the barrier at which the next copies of boxes arrive."""


@dataclass
class UnitStatements:
    """The text of what one unit runs: the load unit, the warps, or the warpgroups."""

    kernel: UnitKernel
    unit: str
    lines: list[str] = field(default_factory=list)
    counters: dict[str, None] = field(default_factory=dict)
    warps: dict[str, Expr] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # of buffers: the alloc around

    @property
    def computes(self) -> bool:
        """Return whether loops are bound to this unit; False for the load unit."""
        return self.unit == self.kernel.unit

    def add(self, depth: int, line: str) -> None:
        """Add a line, `depth` steps to the right."""
        self.lines.append("  " * depth + line)

    def block(self, body: Sequence[Stmt], depth: int) -> None:
        """Add the lines of statements."""
        for stmt in body:
            self.statement(stmt, depth)

    def braces(self, opening: str, body: Sequence[Stmt], depth: int) -> None:
        """Add statements in braces after `opening`, if this unit runs any of them."""
        at = len(self.lines)
        self.add(depth, f"{opening} {{")
        self.block(body, depth + 1)
        if len(self.lines) == at + 1:
            del self.lines[at:]
        else:
            self.add(depth, "}")

    def statement(self, stmt: Stmt, depth: int) -> None:
        """Add the lines of a statement, if this unit runs any part of it."""
        kernel = self.kernel
        leaves = LeafWriter(kernel.program, kernel.windows, self.places, self.warps, kernel.signed)
        if self.unit == "load" and "boxes" in self.kernel.kinds_of_copies():
            leaves.barrier = self.kernel.load_barrier
        plain = CStatements(CUDA, leaves.writer.text, leaves.store)
        match stmt:
            case Sync():
                self.sync(stmt, depth, leaves.writer)
            case Alloc():
                self.alloc(stmt, depth)
            case Tile(unit=unit):
                if (unit or self.kernel.unit) == self.unit:
                    self.leaf(leaves, stmt, depth)
            case For() if stmt.unit in NUMBER_OF:
                self.warp_loop(stmt, depth)
            case For() | If() | Let() | Store() if self.is_leaf(stmt):
                if self.computes:
                    self.leaf(leaves, stmt, depth)
            case For(body=body):
                self.braces(plain.head(stmt), body, depth)
            case If(condition, then, other):
                self.braces(f"if ({leaves.writer.text(condition)})", then, depth)
                if other:
                    self.braces(f"if ({leaves.writer.text(negate(condition))})", other, depth)
            case Let(body=body):
                self.add(depth, plain.let(stmt))
                self.block(body, depth)

    def is_leaf(self, stmt: Stmt) -> bool:
        """Return whether a statement is made of stores that one unit runs."""
        return all(isinstance(one, Store | If | Let | For) and not _is_bound(one) for one in walk((stmt,)))  # fmt: skip

    def alloc(self, stmt: Alloc, depth: int) -> None:
        """Add what a window surrounds; accumulators are declared in braces of their own."""
        fragments = self.kernel.windows.fragments.get(id(stmt))
        at = len(self.lines)
        if fragments is not None and self.computes:
            m, n = fragments.shape
            self.add(depth, f"{TYPES[fragments.dtype]} {fragments.name}[{m}][{n}][4];")
        outer = self.places.get(stmt.buffer)
        self.places[stmt.buffer] = id(stmt)
        self.block(stmt.body, depth)
        if outer is None:
            del self.places[stmt.buffer]
        else:
            self.places[stmt.buffer] = outer
        if len(self.lines) > at and fragments is not None and self.computes:
            self.lines[at:] = [
                "  " * depth + "{",
                *("  " + line for line in self.lines[at:]),
                "  " * depth + "}",
            ]

    def warp_loop(self, loop: For, depth: int) -> None:
        """Add the body of a loop over warps or warpgroups, for those of the block that have an iteration."""
        if not self.computes:
            return
        at, unit = len(self.lines), loop.unit or ""
        self.warps[loop.iter], name = NUMBER_OF[unit], "group" if unit == "warpgroup" else "warp"
        count = self.kernel.warps // (WARPS_OF_A_GROUP if unit == "warpgroup" else 1)
        lo, hi = ix.literal_value(loop.lo), ix.literal_value(loop.hi)
        if hi is None:
            raise no_text(format_head(loop), "how many warps there are is not a number")
        bounds = []
        if lo:
            bounds.append(f"{name} >= {lo}")
        if hi < count:
            bounds.append(f"{name} < {hi}")
        inner = depth + 1 if bounds else depth
        self.block(loop.body, inner)
        del self.warps[loop.iter]
        if bounds and len(self.lines) > at:
            self.lines.insert(at, "  " * depth + f"if ({' && '.join(bounds)}) {{")
            self.add(depth, "}")

    def leaf(self, leaves: LeafWriter, stmt: Stmt, depth: int) -> None:
        """Add the lines of a statement that one unit runs: the first warp, outside of loops over warps."""
        if self.unit == "warpgroup" and not _is_of_accumulators(leaves, stmt):
            raise no_text(format_head(stmt), "what lanes of a warpgroup run has no text so far")
        self.add_for_first_warp(leaves.lines(stmt), depth, self.computes and not self.warps)

    def add_for_first_warp(self, lines: list[str], depth: int, alone: bool) -> None:
        """Add lines, which the first warp runs for all of the block if it is to do so `alone`."""
        if alone and self.kernel.warps > 1:
            self.add(depth, "if (warp == 0) {")
            self.lines += ["  " * (depth + 1) + line for line in lines]
            self.add(depth, "}")
        else:
            self.lines += ["  " * depth + line for line in lines]

    def runs_unit(self, unit: str) -> bool:
        """Return whether this unit runs the statements of `unit`; the first warp runs those of the block."""
        return unit == self.unit or (unit == "block" and self.computes)

    def sync(self, stmt: Sync, depth: int, writer: CExpressions) -> None:
        """Add the lines of a statement of synchronization, if this unit has a part in it."""
        tokens: Mapping[str, Token] = {token.name: token for token in self.kernel.tokens}
        lines: list[str] = []
        alone = False
        match stmt.action:
            case Action.WAIT if self.runs_unit(tokens[stmt.name].target):
                alone = tokens[stmt.name].target == "block"
                count = f"{stmt.name}_waits"
                self.counters[count] = None
                lines.append(f"wait({name_of(stmt.name)}, {tokens[stmt.name].room}, {count}++);")
            case Action.ARRIVE if self.runs_unit(tokens[stmt.name].source):
                alone = tokens[stmt.name].source == "block"
                count = f"{stmt.name}_arrivals"
                self.counters[count] = None
                place = f"{name_of(stmt.name)} + {count} % {tokens[stmt.name].room}"
                lines += [*self.arrive(place), f"++{count};"]
            case Action.ARRIVE | Action.WAIT:
                return
            case Action.BARRIER if stmt.name == self.kernel.unit and not self.warps:
                if self.computes:
                    lines.append(f"meet(1, {LANES * self.kernel.warps});")
            case Action.FENCE if stmt.name == ASYNC_SHARED:
                if (stmt.unit or self.kernel.unit) == self.unit:
                    lines.append("fence_shared();")
            case Action.WAIT_GROUP if self.kernel.unit == "warpgroup" and stmt.unit is None:
                if self.computes:  # whatever the condition: what has ended is waited for at once
                    lines.append(f"wait_for_products<{stmt.pending}>();")
                    fragments = (
                        self.kernel.windows.fragments.get(at) for at in self.places.values()
                    )
                    lines += [f"end_of({one.name});" for one in fragments if one is not None]
                    self.lines += ["  " * depth + line for line in lines]
                return
            case _:
                raise no_text(format_head(stmt), "this statement has no text so far")
        if stmt.where is not None and lines:
            condition = f"if ({writer.text(ix.simplify(stmt.where))})"
            lines = [f"{condition} {lines[0]}"] if len(lines) == 1 else braces(condition, lines)
        self.add_for_first_warp(lines, depth, alone)

    def arrive(self, place: str) -> list[str]:
        """Return the lines by which a unit arrives."""
        if self.computes:
            return ["__syncwarp();", f"if (lane == 0) arrive({place});"]
        words = {
            "boxes": "if (lane == 0) arrive_and_expect({0}, bytes);",
            "cells": "arrive_with_copies({0});",
            "elements": "arrive({0});",
        }
        kinds = self.kernel.kinds_of_copies()
        lines = [text.format(place) for kind, text in words.items() if kind in kinds]
        return [*lines, *["bytes = 0;"] * ("boxes" in kinds)]


def _is_bound(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.unit in ("block", *NUMBER_OF)


def _is_of_accumulators(leaves: LeafWriter, stmt: Stmt) -> bool:
    """Return whether a statement touches what lies in registers."""
    return any(leaves.fragments(name) is not None for name in accessed_arrays((stmt,)))


__all__ = ["LANES", "WARPS_OF_A_GROUP", "UnitStatements"]
