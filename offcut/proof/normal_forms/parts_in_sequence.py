"""The parts of two programs that meet in whole arrays, in pairs that are compared one by one.

Stages of a program meet in whole arrays: a later one reads what an earlier one has left::

    for i in 0:n                                 tiles of i
      S[i] = f(A[i])                               S[i] = f(A[i])
    for i in 0:n                                 tiles of i
      Y[i] = g(S[i])                               Y[i] = g(S[i])

Where the first statements of both programs leave the same arrays, and the others read these and store none of them, the
first parts are compared with these arrays as results, and the second ones with them as inputs. If both pairs are equal, so
are the programs, and no question is about statements of two parts. If no parts meet so, also parts meet whose second one stores
what the first one has left: it is compared with these arrays as inputs and results.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from offcut.core.accesses import accessed_arrays, stored_arrays, windowed_arrays
from offcut.core.analysis import analysis
from offcut.core.program import Alloc, Buffer, Kind, Program, walk
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
    return [_part(source, emitted, (a, c), (b, d), shared) for (a, b), (c, d) in pairwise(cuts)]


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
    mine: tuple[int, int],
    theirs: tuple[int, int],
    shared: set[str],
) -> tuple[Program, Program]:
    """Return the statements between two positions of each program as two programs, which share the arrays `shared`."""
    bodies = source.body[slice(*mine)], emitted.body[slice(*theirs)]
    touched = accessed_arrays(bodies[0]) | accessed_arrays(bodies[1])
    stored = stored_arrays(bodies[0]) | stored_arrays(bodies[1])
    before = stored_arrays(source.body[: mine[0]])
    common = tuple(
        _with_kind(buffer, buffer.name in stored, buffer.name in before)
        for buffer in source.buffers
        if buffer.name in touched & shared
    )
    parts = []
    for program, body in zip((source, emitted), bodies, strict=True):
        used = accessed_arrays(body) | {s.buffer for s in walk(body) if isinstance(s, Alloc)}
        own = (b for b in program.buffers if b.name in used - shared)
        parts.append(replace(program, buffers=(*common, *own), body=body))
    return parts[0], parts[1]


def _with_kind(buffer: Buffer, is_stored: bool, has_values: bool) -> Buffer:
    """Return an array as a part has it: a result that it stores, which may have values before, or an input."""
    if buffer.kind in (Kind.INPUT, Kind.CONSTANT) or (buffer.kind is Kind.INOUT and is_stored):
        return buffer
    kind = (Kind.INOUT if has_values else Kind.OUTPUT) if is_stored else Kind.INPUT
    return replace(buffer, kind=kind, layout=None, scope=None)
