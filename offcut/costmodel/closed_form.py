"""Closed-form cost of a cut of rows: an expression in the sizes that the generated code evaluates.

A sum over K terms for M rows and N columns runs as blocks of rows. With ``c(h)`` cycles per term
and column of a block of h rows, and ``u(h)`` cycles per column to start and end its tiles,

    block(h) = K*N*max(c(h), item / near) + N*u(h)
    time     = sum of block(h) over the blocks + wait(block(first), stream)
    wait(b, s) = max(0, s - b) + loss*min(s, b)

``near`` is what the nearest cache gives per cycle: it makes a block of one row cost as much as one
of four. Whoever visits a group of columns first waits for it to come from behind that cache, in
``stream = K*N*item / far`` cycles, while it computes; the blocks after it find it near. Operands
that fit the nearest cache cost no stream.

Source: fitted to measured row-block times, not derived by subtracting them: a difference of two
noisy times misleads a search.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.expr import Binary, Compare, Const, Expr, Lookup, Select, real
from offcut.costmodel.machine import Machine


@dataclass(frozen=True, slots=True)
class Blocks:
    """What a block of rows costs, by its height.

    step     cycles per term and column, from height 0 (unused) on
    startup  cycles per column
    """

    step: tuple[float, ...]
    startup: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """The sum that is cut: its extents, and how often it is repeated (outer loops).

    item   bytes of an element
    """

    rows: Expr
    columns: Expr
    depth: Expr
    repeats: Expr
    item: int


def block(work: Work, blocks: Blocks, height: Expr, most: int) -> Expr:
    """Cycles of one block of `height` rows, which are at most `most`, over all columns; of more than the tallest, in turn."""
    tallest = len(blocks.step) - 1
    if most > tallest:
        whole, rest = ix.floordiv(height, tallest), ix.mod(height, tallest)
        one = block(work, blocks, ix.const(tallest), tallest)
        return Binary("+", Binary("*", real(whole), one), block(work, blocks, rest, tallest))
    grid = real(ix.mul(work.depth, work.columns))
    steps = Binary("*", grid, Lookup(blocks.step, height))
    return Binary("+", steps, Binary("*", real(work.columns), Lookup(blocks.startup, height)))


def stream(work: Work, machine: Machine) -> Expr:
    """Cycles in which the columns' operand comes from behind the nearest cache; 0 where it fits."""
    size = ix.mul(ix.mul(work.depth, work.columns), work.item)
    cycles = Binary("*", real(size), real(1.0 / machine.farther.bytes_per_cycle))
    fits = ix.compare("<=", size, machine.nearest.bytes)
    if isinstance(fits, Const):
        return real(0.0) if fits.value else cycles
    return Select(fits, real(0.0), cycles)


def rows_seconds(
    work: Work, blocks: Blocks, runs: tuple[tuple[Expr, Expr], ...], most: int, machine: Machine
) -> Expr:
    """Predicted seconds of runs of equal blocks, the first run first.

    runs   (how many blocks, their height); a run of no block costs nothing
    most   rows of a block
    """
    total: Expr = real(0.0)
    first: Expr = real(0.0)
    for count, height in reversed(runs):
        one = block(work, blocks, height, most)
        total = Binary("+", Binary("*", real(count), one), total)
        first = Select(Compare(">", count, ix.const(0)), one, first)
    coming = stream(work, machine)
    waiting = Binary("max", Binary("-", coming, first), real(0.0))
    lost = Binary("*", real(machine.traffic.overlap_loss), Binary("min", coming, first))
    cycles = Binary("+", total, Binary("+", waiting, lost))
    return Binary("*", real(work.repeats), Binary("*", cycles, real(1.0 / machine.core.hertz)))


def unpacked_factor(work: Work, machine: Machine) -> Expr:
    """Time on the columns' operand as it lies, rows apart, over time on panels of it."""
    size = ix.mul(ix.mul(work.depth, work.columns), work.item)
    fits = ix.compare("<=", size, machine.nearest.bytes)
    near, far = real(machine.traffic.unpacked_near), real(machine.traffic.unpacked_far)
    if isinstance(fits, Const):
        return near if fits.value else far
    return Select(fits, near, far)


def pack_seconds(work: Work, machine: Machine) -> Expr:
    """Predicted seconds to copy the columns' operand into panels: each byte is read and written."""
    size = ix.mul(ix.mul(ix.mul(work.depth, work.columns), 2 * work.item), work.repeats)
    rate = machine.traffic.pack_bytes_per_cycle * machine.core.hertz
    return Binary("*", real(size), real(1.0 / rate))
