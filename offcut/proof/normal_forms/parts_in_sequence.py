"""The parts of two programs that meet in whole arrays, in pairs that are compared one by one; or the part that differs, alone.

Stages of a program meet in whole arrays: a later one reads what an earlier one has left::

    for i in 0:n                                 tiles of i
      S[i] = f(A[i])                               S[i] = f(A[i])
    for i in 0:n                                 tiles of i
      Y[i] = g(S[i])                               Y[i] = g(S[i])

Where the first statements of both programs leave the same arrays, and the others read these and store none of them, the
first parts are compared with these arrays as results, and the second ones with them as inputs. If both pairs are equal, so
are the programs, and no question is about statements of two parts. If no parts meet so, also parts meet whose second one stores
what the first one has left: it is compared with these arrays as inputs and results.

Statements that both programs have need no question, wherever they stand: a decision about one stage leaves those of others::

    for i in 0:n                                 for j in 0:m
      S[i] = f(A[i])                               T[j] = h(B[j])
    for j in 0:m                                 for i in 0:n
      T[j] = h(B[j])                     and       S[i] = f(A[i])
    for i in 0:n                                   Y[i] = g(S[i], T[0])
      Y[i] = g(S[i], T[0])

Theorem. Let each of two programs be the same if T stands first in it (or last): no statement that T passes stores an array that T
touches, or touches one that T stores. Then they are equal if they are so without T, of which the arrays that T touches are arguments and results.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import pairwise

from offcut.core.analysis import (
    accessed_arrays,
    analysis,
    stored_arrays,
    unwindowed_arrays,
    windowed_arrays,
)
from offcut.core.program import Alloc, Buffer, Kind, Program, Stmt, walk
from offcut.proof.by_instances.pairing import SCRATCH


def parts_in_sequence(source: Program, emitted: Program) -> list[tuple[Program, Program]]:
    """Return the parts of two programs that meet in whole arrays, in pairs; none where there is one part.

    If each pair computes the same, so do the programs. The reverse does not hold: of an array in which parts meet, all
    elements are compared, whoever reads them.
    """
    if min(len(source.body), len(emitted.body)) < 2:
        return []
    return _parts(source, emitted, updates=False) or _parts(source, emitted, updates=True)


def _parts(source: Program, emitted: Program, updates: bool) -> list[tuple[Program, Program]]:
    """Return the parts of two programs, whose later ones may update what earlier ones leave if `updates`."""
    mine, theirs = (_meeting_arrays(program, updates) for program in (source, emitted))
    cuts = [(0, 0)]
    for position, arrays in enumerate(mine):
        behind = range(cuts[-1][1] + 1, len(emitted.body))
        place = next((k for k in behind if arrays and theirs[k] == arrays), None)
        if place is not None and all(_is_one_array(source, emitted, name) for name in arrays):
            cuts.append((position, place))
    if len(cuts) == 1:
        return []
    shared = {buffer.name for buffer in source.buffers if buffer.kind not in SCRATCH}
    shared = shared.union(*(mine[position] for position, _ in cuts))
    cuts.append((len(source.body), len(emitted.body)))
    return [
        _part(
            source,
            emitted,
            (source.body[a:c], emitted.body[b:d]),
            shared,
            stored_arrays(source.body[:a]),
        )
        for (a, b), (c, d) in pairwise(cuts)
    ]


def changed_part(source: Program, emitted: Program) -> tuple[Program, Program] | None:
    """Return what two programs run that is not in both; None if nothing is, or an array is not the same in both.

    If the two parts compute the same, so do the programs. The reverse does not hold: of an array that a statement of both
    touches, all elements are compared.
    """
    mine, theirs, before = list(source.body), list(emitted.body), list[Stmt]()
    for stmt in source.body:
        if stmt not in theirs or stmt not in mine:
            continue
        first, last = (all(_moves(stmt, one, ways) for one in (mine, theirs)) for ways in (-1, 1))
        if first or last:
            before += [stmt] if first else []
            mine.remove(stmt)
            theirs.remove(stmt)
    common = tuple(stmt for stmt in source.body if stmt not in mine)
    bodies = tuple(mine), tuple(theirs)
    callers = [{b for b in one.buffers if b.kind not in SCRATCH} for one in (source, emitted)]
    if not common or callers[0] != callers[1] or _promises(source) != _promises(emitted):
        return None
    shared = {buffer.name for buffer in callers[0]} | unwindowed_arrays(common)
    touched = shared & (accessed_arrays(bodies[0]) | accessed_arrays(bodies[1]))
    windows = {stmt.buffer for stmt in walk((*mine, *theirs)) if isinstance(stmt, Alloc)}
    names = {b.name for b in source.buffers} & {b.name for b in emitted.buffers}
    if touched & windows or not touched <= names:
        return None
    if not all(_is_one_array(source, emitted, name) for name in touched):
        return None
    return _part(source, emitted, bodies, shared, unwindowed_arrays(tuple(before)))


def _promises(program: Program) -> object:
    """Return what is known of the sizes of a program."""
    return program.sizes, program.assumptions


def _moves(stmt: Stmt, body: Sequence[Stmt], way: int) -> bool:
    """Return whether a program is the same if one of its statements stands first (`way` -1), or last (1)."""
    place = body.index(stmt)
    passed = tuple(body[:place] if way < 0 else body[place + 1 :])
    stores, touches = stored_arrays((stmt,)), unwindowed_arrays((stmt,))
    return not (stores & unwindowed_arrays(passed) or touches & stored_arrays(passed))


def _meeting_arrays(program: Program, updates: bool) -> list[frozenset[str]]:
    """Return, by position, the arrays that the statements before store and those from there on read, results among them.

    Empty where the later statements store an array that the earlier ones access, but for what these store if `updates`, or if both meet
    in a window.

    An array that both touch in windows alone is another one in each.
    """
    results = {buffer.name for buffer in program.results}
    meeting_arrays = [frozenset[str]()]
    for position in range(1, len(program.body)):
        before, after = program.body[:position], program.body[position:]
        separate = windowed_arrays(before) & windowed_arrays(after)
        arrays = stored_arrays(before) & (accessed_arrays(after) | results) - separate
        again = stored_arrays(after) & accessed_arrays(before) - separate
        again -= arrays if updates else frozenset()
        is_open = not again and not arrays & analysis(program).windows
        meeting_arrays.append(frozenset(arrays) if is_open else frozenset())
    return meeting_arrays


def _is_one_array(source: Program, emitted: Program, name: str) -> bool:
    """Return whether two programs declare an array alike: with one shape and type, and not private."""
    one, other = source.buffer(name), emitted.buffer(name)
    private = Kind.PRIVATE in (one.kind, other.kind)
    return not private and (one.shape, one.dtype) == (other.shape, other.dtype)


def _part(
    source: Program,
    emitted: Program,
    bodies: tuple[tuple[Stmt, ...], tuple[Stmt, ...]],
    shared: AbstractSet[str],
    earlier: AbstractSet[str] = frozenset(),
) -> tuple[Program, Program]:
    """Return some statements of each program as two programs.

    shared   the arrays in which they meet the others
    earlier  of these, the ones that hold something before
    """
    touched = accessed_arrays(bodies[0]) | accessed_arrays(bodies[1])
    stored = stored_arrays(bodies[0]) | stored_arrays(bodies[1])
    common = tuple(
        _with_kind(buffer, buffer.name in stored, buffer.name in earlier)
        for buffer in source.buffers
        if buffer.name in touched & shared
    )
    parts = []
    for program, body in zip((source, emitted), bodies, strict=True):
        used = accessed_arrays(body) | {s.buffer for s in walk(body) if isinstance(s, Alloc)}
        own = (b for b in program.buffers if b.name in used - shared)
        parts.append(replace(program, buffers=(*common, *own), body=body))
    return parts[0], parts[1]


def _with_kind(buffer: Buffer, is_stored: bool, is_argument: bool) -> Buffer:
    """Return an array as a part has it: a result that it stores, or updates, or an input."""
    if buffer.kind in (Kind.INPUT, Kind.CONSTANT) or (buffer.kind is Kind.INOUT and is_stored):
        return buffer
    kind = (Kind.INOUT if is_argument else Kind.OUTPUT) if is_stored else Kind.INPUT
    return replace(buffer, kind=kind, layout=None, scope=None)
