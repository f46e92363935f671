"""Conditions on coordinates: where a program asks them, and how far they leave its loops before it runs."""

from __future__ import annotations

from offcut import debug
from offcut.core.analysis import analysis
from offcut.core.expr import Compare, Load, Select, dtype_of, variables
from offcut.core.expr import walk as nodes
from offcut.core.program import Choose, For, Let, Program, Store, Tile
from offcut.core.traversal import expressions
from offcut.costmodel import Machine, copies_worth
from offcut.partition import separate
from offcut.schedule import Schedule, Separate, Step, is_of_loops


def default_separation(program: Program, machine: Machine) -> tuple[Step, ...]:
    """Return how far conditions leave the loops of a program: not at all where it was cut, and they were separated,
    nor where an array says how often a loop runs, since no set knows where its conditions change.
    """
    if is_cut(program) or reads_bounds(program):
        return ()
    stores = len(analysis(program).of(Store))
    return (Separate(min(machine.policy.copies, copies_worth(machine, stores))),)


def separate_conditions(program: Program, schedule: Schedule) -> tuple[Program, tuple[str, ...]]:
    """Return `program` with conditions moved out of its loops where `schedule` says so, and what was done at which loop."""
    notes: tuple[str, ...] = ()
    with debug.timed("separate"):
        for step in schedule.steps:
            if is_of_loops(step):
                result = separate(program, step.copies)
                program = result.program
                notes += tuple(f"loop {note.loop}: {note.text}" for note in result.notes)
    return program, notes


def depends_on_loops(program: Program) -> bool:
    """Return whether what is read depends on conditions on the coordinates of loops."""
    return _asks(program, analysis(program).iterators)


def depends_on_lanes(program: Program) -> bool:
    """Return whether what is read depends on conditions on the coordinates of tiles: they cannot leave these."""
    tiles = analysis(program).of(Tile)
    return _asks(program, frozenset(axis.iter for tile in tiles for axis in tile.axes))


def _asks(program: Program, names: frozenset[str]) -> bool:
    """Return whether what is read depends on conditions on some coordinates."""
    return any(
        isinstance(test, Compare) and dtype_of(test.a) == "index" and variables(test) & names
        for stmt in analysis(program).statements
        for expr in expressions(stmt)
        for choice in nodes(expr)
        if isinstance(choice, Select)
        for test in nodes(choice.condition)
    )


def is_cut(program: Program) -> bool:
    """Return whether a program was cut: its conditions were separated then, as far as that was worth it."""
    return analysis(program).has(Tile, Choose, Let)


def reads_bounds(program: Program) -> bool:
    """Return whether an array says how often some loop runs: no set knows where its conditions change."""
    bounds = (b for loop in analysis(program).of(For) for b in (loop.lo, loop.hi))
    return any(isinstance(node, Load) for bound in bounds for node in nodes(bound))
