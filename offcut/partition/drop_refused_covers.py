"""A partition and what its back end refused in, the partition without the covers that do not run out.

A microkernel is laid over a tile where the tile's term and heights are its own. Whether it runs there
is the back end's to say: how operands lie, what a sum starts from, what limits a row. What it refuses
is taken from the tile and from the piece, and noted with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from offcut.core.program import Choose, If, Program, Stmt, Store, Sync, Tile, walk
from offcut.partition.pieces import Partition, Piece


@dataclass(frozen=True)
class Settled:
    """A program without the covers that were refused.

    notes   a line for every microkernel and reason
    by      the statements of the program, by the identity of those they were
    """

    program: Program
    notes: tuple[str, ...]
    by: Mapping[int, Stmt]


def without_covers(program: Program, refused: Mapping[int, str]) -> Settled:
    """`program` with tiles that name no microkernel where one was refused.

    refused   the reason, by the position of the tile among the program's statements, parents first
    """
    positions = count()
    notes: dict[str, None] = {}

    def strip(stmt: Stmt) -> Stmt:
        position = next(positions)
        match stmt:
            case Tile():
                reason = refused.get(position)
                cover = stmt.cover if reason is None else None
                if reason is not None:
                    axes = ", ".join(axis.iter for axis in stmt.axes)
                    notes[f"tile {axes}: {stmt.microkernel} does not run it: {reason}"] = None
                return replace(stmt, body=block(stmt.body), cover=cover)
            case If(condition, then, other):
                return If(condition, block(then), block(other))
            case Choose(options):
                return Choose(tuple(replace(one, body=block(one.body)) for one in options))
            case Store() | Sync():
                return replace(stmt)
            case _:
                return replace(stmt, body=block(stmt.body))

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(strip, body))

    stripped = replace(program, body=block(program.body))
    pairs = zip(walk(program.body), walk(stripped.body), strict=True)
    return Settled(stripped, tuple(notes), {id(before): after for before, after in pairs})


def drop_refused_covers(partition: Partition, refused: Mapping[int, str]) -> Partition:
    """`partition` whose tiles and pieces name the microkernels that run, and notes why others do not."""
    if not refused:
        return partition
    result = without_covers(partition.loops, refused)
    pieces = tuple(_piece(piece, result.by) for piece in partition.pieces)
    notes = tuple(dict.fromkeys((*partition.notes, *result.notes)))
    return replace(partition, loops=result.program, pieces=pieces, notes=notes)


def _piece(piece: Piece, by: Mapping[int, Stmt]) -> Piece:
    """`piece` in the settled program: a microkernel is its own where no tile of it lost one."""
    before = (*piece.path[:-1], *walk(piece.path[-1:]))
    piece = replace(piece, path=tuple(by.get(id(stmt), stmt) for stmt in piece.path))
    is_rejected = any(_name(by.get(id(stmt), stmt)) != _name(stmt) for stmt in before)
    return replace(piece, microkernel=None) if is_rejected else piece


def _name(stmt: Stmt) -> str | None:
    return stmt.microkernel if isinstance(stmt, Tile) else None
