"""From a cut program back to plain loops: for, if and stores, which run one after the other and compute the same.

- A tile becomes a loop an axis, with its condition as an `if` inside; that its instances are independent
  makes any order the tile's, and so no instance needs a private array of its own.
- A window becomes the whole array, in which every access of it lies; one more array where something else
  lives in this one at the time.
- A choice becomes its first option: each of them computes the same.
- A bounded value takes the place of its name; where it is read from an array, which may change before the
  name is used, a loop of one iteration holds it.
- What says how something runs is left out: roles, units, microkernels, layouts, memories, synchronization.
"""

from __future__ import annotations

from dataclasses import replace

from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, unwindowed_arrays
from offcut.core.expr import Expr, Load, Logic
from offcut.core.expr import walk as nodes
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Role,
    Stmt,
    Sync,
    Tile,
    walk,
)
from offcut.core.traversal import map_blocks, rewrite, substitute_coordinates, with_buffer_renamed


def to_plain_loops(program: Program) -> Program:
    """`program` in plain loops: the same results, at every size, from loops, conditions and stores alone.

    program   no name is bound again inside of what binds it, as `parse` has it; tiles have instances
              that do not need each other, and windowed arrays are accessed in their windows

    Each `choose` is its first option. Arrays that nothing touches any more are left out. Of a program
    that is plain, the same object.
    """
    used_names = {buffer.name for buffer in program.buffers}
    shared = _arrays_outside_windows(program)
    added: list[Buffer] = []

    def rule(stmt: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        match stmt:
            case For(_, _, _, ()) | If(_, (), ()) | Let(_, _, _, _, ()) | Tile(_, ()):
                return ()
            case For():
                bare = replace(stmt, role=Role.WHOLE, unit=None, factor=None)
                return None if bare == stmt else bare
            case If(condition, (), other):
                return If(Logic("not", (condition,)), other)
            case Let(name, _, _, value, body) if _reads(value):
                return For(name, value, ix.add(value, 1), body)
            case Let(name, _, _, value, body):
                return substitute_coordinates(body, {name: value})
            case Tile():
                return tile_to_loops(stmt)
            case Alloc(name, _, body) if name in shared:
                window_name = _fresh(f"{name}_window", used_names)
                added.append(replace(program.buffer(name), name=window_name))
                return with_buffer_renamed(body, name, window_name)
            case Alloc():
                return stmt.body
            case Choose(options):
                return options[0].body if options else ()
            case Sync():
                return ()
            case _:
                return None

    rewritten = rewrite(program, rule)
    used = accessed_arrays(rewritten.body)
    buffers = tuple(
        _bare(buffer)
        for buffer in (*rewritten.buffers, *added)
        if buffer.name in used or buffer.kind not in (Kind.LOCAL, Kind.PRIVATE)
    )
    same = buffers == rewritten.buffers and not rewritten.tokens
    return rewritten if same else replace(rewritten, buffers=buffers, tokens=())


def is_synchronized(program: Program) -> bool:
    """Return whether a program has statements of synchronization, or tokens."""
    return bool(program.tokens) or any(isinstance(stmt, Sync) for stmt in walk(program.body))


def strip_annotations(program: Program) -> Program:
    """Return `program` without what does not say what it computes: roles, units, covers, memories, synchronization."""

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(plain(stmt) for stmt in body if not isinstance(stmt, Sync))

    def plain(stmt: Stmt) -> Stmt:
        match stmt:
            case For():
                stmt = For(stmt.iter, stmt.lo, stmt.hi, stmt.body)
            case Tile():
                stmt = Tile(stmt.axes, stmt.body, stmt.where, stmt.form)
            case Alloc():
                stmt = Alloc(stmt.buffer, stmt.axes, stmt.body)
            case _:
                pass
        return map_blocks(stmt, block)

    return replace(program, body=block(program.body), tokens=())


def strip_synchronization(program: Program) -> Program:
    """Return `program` without its statements of synchronization, and the tokens that these name."""
    if not is_synchronized(program):
        return program
    bare = rewrite(program, lambda stmt: () if isinstance(stmt, Sync) else None)
    return replace(bare, tokens=()) if bare.tokens else bare


def tile_to_loops(tile: Tile) -> tuple[Stmt, ...]:
    """A tile as loops, and its condition inside of them."""
    body = tile.body if tile.where is None else (If(tile.where, tile.body),)
    for axis in reversed(tile.axes):
        body = (For(axis.iter, axis.start, ix.add(axis.start, axis.extent), body),)
    return body


def _bare(buffer: Buffer) -> Buffer:
    """`buffer` as rows in main memory, of the whole call."""
    kind = Kind.LOCAL if buffer.kind is Kind.PRIVATE else buffer.kind
    return replace(buffer, kind=kind, layout=None, scope=None)


def _arrays_outside_windows(program: Program) -> set[str]:
    """The arrays that have windows and are accessed outside of them, or in windows within windows."""
    windows = [stmt for stmt in walk(program) if isinstance(stmt, Alloc)]
    windowed = {stmt.buffer for stmt in windows}
    within = {
        one.buffer
        for stmt in windows
        for one in walk(stmt.body)
        if isinstance(one, Alloc) and one.buffer == stmt.buffer
    }
    return within | (unwindowed_arrays(program.body) & windowed)


def _fresh(name: str, used_names: set[str]) -> str:
    """`name`, with a number where it is taken, which it is from now on."""
    number, candidate = 1, name
    while candidate in used_names:
        number, candidate = number + 1, f"{name}_{number + 1}"
    used_names.add(candidate)
    return candidate


def _reads(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in nodes(expr))
