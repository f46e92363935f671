"""Where a stage is computed: inside a loop of the stage that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Expr, Var, variables
from offcut.core.program import For, If, Kind, Stmt, Store
from offcut.core.text.printer import format_expr, format_head
from offcut.errors import PartitionError
from offcut.schedule.apply.axes import Target, find_stage
from offcut.schedule.apply.reading import loads_of
from offcut.schedule.apply.staged_form import Nest, Nests, Root, depends_on, point_of
from offcut.schedule.decisions import At, Staging
from offcut.schedule.diagnostics import Advice, DecidedError


def compute_at(target: Target, step: At) -> Nests:
    """Return the schedule with the stage inside a loop of its consumer, on the box of elements that is read there."""
    consumer = find_stage(target.nests, step.reader)
    name = None if step.axis is None else consumer.axis("compute_at", step.axis)
    if target.nest.placed is not None:
        refused = f"cannot compute {target.buffer} in two places"
        raise DecidedError(
            "compute_at", refused, at=f"stage {target.buffer}", first=target.nest.placed
        )
    check_compute_at(target, consumer, name)
    check_depth(target, consumer, name, step.depth)
    check_window(target, step)
    if step.inplace is not None:
        check_inplace(target, find_stage(target.nests, step.inplace), (consumer.name, name))
    return build_compute_at(target, consumer, name, step)


def check_compute_at(target: Target, consumer: Target, axis: str | None) -> None:
    """Theorem: only `consumer`, and what is computed inside it, reads the stage, and only inside the
    loop; every store of the stage names its element by loops of its own, over all of an axis, so
    that what a box of elements needs is a box of loops. Of a result all elements are read there.
    """
    nests, nest = target.nests, target.nest
    at = f"stage {target.buffer}"
    place = consumer.buffer if axis is None else f"{consumer.buffer}.{axis}"
    refused = f"cannot compute {target.buffer} at {place}"
    because, help_ = "", tuple[str, ...]()
    if nest.name == consumer.name:
        because = f"{target.buffer} and {consumer.buffer} are one nest"
    elif len(nest.stored_buffers) != 1:
        because = f"its nest writes {' and '.join(nest.stored_buffers)}"
    elif is_unread_result(nests, nest) and not reads(nests, nest.name, consumer.buffer):
        because = _not_alike(nest, consumer, axis)
    elif because := _why_not_whole(target, consumer):
        write = Staging("write", target.stage, f"{target.buffer}L")
        help_ = (Advice.of(write, " makes a local buffer that computes it"),)
    elif point_of(nest, target.buffer) is None:
        because = f"a store of {target.buffer} does not name its element by loops alone"
    elif (ragged := _ragged_loop(nest, target.buffer)) is not None:
        because = f"the bounds of {ragged.name} depend on other loops"
    else:
        readers = [n.name for n in nests.nests if reads(nests, n.name, target.buffer)]
        inside = set(enclosing_nests(nests, consumer.name))
        outside = [name for name in readers if consumer.name not in enclosing_nests(nests, name)]
        if not readers or consumer.name not in {
            c for r in readers for c in enclosing_nests(nests, r)
        }:
            because = f"{consumer.buffer} does not read it"
            help_ = (f"{target.buffer} is read by {', '.join(readers) or 'nothing'}",)
        elif outside:
            because = f"{', '.join(outside)} reads it too, outside of {consumer.buffer}"
        elif nest.name in inside:
            because = f"{consumer.buffer} is computed inside {target.buffer}"
        elif (part := _beside(consumer, axis, target.buffer)) is not None:
            because = f"{part} reads it outside of that loop"
            help_ = (f"loops around it: {', '.join(consumer.loops)}",)
    if because:
        raise PartitionError("compute_at", refused, at=at, because=because, help=help_)


def is_unread_result(nests: Nests, nest: Nest) -> bool:
    """Whether a nest computes a result that nothing reads: at a loop of another it is computed beside that one's elements."""
    (buffer, *more) = nest.stored_buffers
    result = not more and nests.buffer(buffer).kind is Kind.OUTPUT
    return result and not any(reads(nests, other.name, buffer) for other in nests.nests)


def _why_not_whole(target: Target, consumer: Target) -> str:
    """Return why a stage that is no local array cannot be computed where the consumer reads it; "" if it can.

    Theorem: it is a result, and one read of it in the consumer is at loops that run over all of its elements.
    """
    buffer, own = target.nests.buffer(target.buffer), consumer.nest
    point = point_of(target.nest, buffer.name)
    if buffer.kind is Kind.LOCAL or point is None:
        return ""
    because = f"{buffer.name} is {buffer.kind.value}: all of it is wanted"
    reads_of_it = [load for load in loads_of(own.plain) if load.buffer == buffer.name]
    if buffer.kind is not Kind.OUTPUT or not reads_of_it:
        return because
    partial_read = ""
    for load in reads_of_it:
        names = [part.name for part in load.index if isinstance(part, Var)]
        loops = [root for root in map(own.root, names) if root is not None]
        if not len(loops) == len(load.index) == len(set(names)):
            continue
        wholes = map(target.nest.root, point)
        short = [
            a for a, b in zip(loops, wholes, strict=True) if b and (a.lo, a.hi) != (b.lo, b.hi)
        ]
        if not short:
            return ""
        lo, hi = (format_expr(end) for end in (short[0].lo, short[0].hi))
        partial_read = partial_read or f"{format_expr(load)} for {short[0].label} in {lo}:{hi}"
    return f"{because}, and {consumer.buffer} reads {partial_read or format_expr(reads_of_it[0])}"


def _not_alike(nest: Nest, consumer: Target, axis: str | None) -> str:
    """Return why a result cannot be computed beside that of `consumer`; "" if it can.

    Theorem: both have the same elements, and all of the other's are stored inside the loop, so that these boxes cover both.
    """
    other = consumer.nest
    points = [
        point_of(one, one.stored_buffers[0])
        for one in (nest, other)
        if len(one.stored_buffers) == 1
    ]
    ranges = [
        [(r.lo, r.hi) for name in point or () for r in (one.root(name),) if r is not None]
        for one, point in zip((nest, other), points, strict=False)
    ]
    if len(points) != 2 or None in points or ranges[0] != ranges[1]:
        return f"it is a result, and has other elements than {consumer.buffer}"
    if axis is not None and any(axis not in part.loops for part in other.parts):
        return f"it is a result, and {consumer.buffer} is stored outside of that loop"
    return ""


def _ragged_loop(nest: Nest, buffer: str) -> Root | None:
    """Return a loop over an axis of `buffer` that is not as long everywhere."""
    for name in point_of(nest, buffer) or ():
        root = nest.root(name)
        if root is not None and any(nest.root(other) is not None for other in depends_on(root)):
            return root
    return None


def _beside(consumer: Target, axis: str | None, buffer: str) -> str | None:
    """Return a statement of the consumer that reads `buffer` and is not inside the loop `axis`."""
    for part in consumer.nest.parts:
        if axis is not None and axis not in part.loops:
            for stmt in part.body:
                if any(load.buffer == buffer for load in loads_of((stmt,))):
                    return format_head(stmt)
    return None


def check_depth(target: Target, consumer: Target, axis: str | None, depth: object) -> None:
    """Check that a stage has a number of windows.

    Raises PartitionError if it has not.
    """
    if isinstance(depth, int) and not isinstance(depth, bool) and depth >= 1:
        return
    raise PartitionError(
        "compute_at",
        f"cannot compute {target.buffer} at {consumer.buffer}.{axis}",
        at=f"stage {target.buffer}",
        because=f"a depth is a number of windows, at least 1, not {depth!r}",
        help=("depth=2",),
    )


def check_window(target: Target, step: At) -> None:
    """Check that a result is placed without a memory, several windows or the place of another stage.

    Raises PartitionError otherwise.
    """
    kind = target.nests.buffer(target.buffer).kind
    needs_window = step.memory or step.inplace or step.depth != 1
    if kind is not Kind.LOCAL and needs_window:
        raise PartitionError(
            "compute_at",
            f"cannot keep {target.buffer} in a window",
            at=f"stage {target.buffer}",
            because=f"{target.buffer} is {kind.value}: it lies in its own array",
            help=(Advice.of(At(target.stage, step.reader, step.axis)),),
        )


def check_inplace(target: Target, over: Target, at: tuple[str, str | None]) -> None:
    """Theorem: the stage reads `over`, which is computed in the same loop, and nothing after the stage reads that.

    That the stage reads it element by element is asked of the emitted program.
    """
    nests, buffer = target.nests, over.buffer
    because = ""
    later = nests.nests[nests.nests.index(target.nest) + 1 :]
    again = [nest.name for nest in later if reads(nests, nest.name, buffer)]
    if not reads(nests, target.name, buffer):
        because = f"it does not read {buffer}"
    elif over.nest.at != at:
        because = f"{buffer} is not computed in that loop"
    elif again:
        because = f"{again[0]} reads {buffer} after it"
    if because:
        raise PartitionError(
            "compute_at",
            f"cannot compute {target.buffer} in the place of {buffer}",
            at=f"stage {target.buffer}",
            because=because,
            help=(f"{target.buffer} in a window of its own",),
        )


def build_compute_at(target: Target, consumer: Target, axis: str | None, step: At) -> Nests:
    """Return the schedule with the stage attached to the loop."""
    new_nest = replace(target.nest, at=(consumer.name, axis), placed=step)
    return target.nests.with_nest(new_nest)


def reads(nests: Nests, name: str, buffer: str) -> bool:
    """Return whether a nest reads `buffer`."""
    loads = (load for part in nests.nest(name).parts for load in loads_of(part.body))
    return any(load.buffer == buffer for load in loads)


def enclosing_nests(nests: Nests, name: str) -> tuple[str, ...]:
    """`name` and the nests inside which it is computed, innermost first."""
    names = [name]
    while (at := nests.nest(names[-1]).at) is not None and at[0] not in names:
        names.append(at[0])
    return tuple(names)


Place = tuple[str, str | None]
"""A nest, and one of its loops; None: before its loops."""


def window_places(nests: Nests) -> dict[Place, tuple[str, ...]]:
    """Return the arrays that live in an iteration of a loop, by the innermost such loop.

    A stage that is placed by hand lives where it is placed. An array of a group of stages lives in the innermost loop in which all that
    write and read it are computed; in none, if it is a result. What is computed at each point of a tile lives in no window.
    """
    places: dict[Place, list[str]] = {}
    for nest in nests.nests:
        if nest.at is None or nests.is_at_points(nest):
            continue
        for buffer in nest.stored_buffers:
            if not nest.group:
                if nests.buffer(buffer).kind is Kind.LOCAL:
                    places.setdefault(nest.at, []).append(buffer)
            elif nests.buffer(buffer).kind is Kind.LOCAL:
                users = {
                    one.name
                    for one in nests.nests
                    if buffer in one.stored_buffers or reads(nests, one.name, buffer)
                }
                homes = (
                    at for at in _places_around(nests, nest) if users <= {*nests_inside(nests, at)}
                )
                home = next(homes, None)
                if home is not None:
                    places.setdefault(home, []).append(buffer)
    return {at: tuple(dict.fromkeys(buffers)) for at, buffers in places.items()}


def _places_around(nests: Nests, nest: Nest) -> Iterator[Place]:
    """Yield the loops in which a nest is computed, from the innermost on: that where it is placed, and those around this one."""
    while nest.at is not None:
        reader, axis = nest.at
        nest = nests.nest(reader)
        loops = nest.parts[0].loops
        outermost = loops[: loops.index(axis) + 1] if axis is not None else ()
        yield nest.name, axis
        yield from ((nest.name, name) for name in reversed(outermost[:-1]))


def nests_inside(nests: Nests, place: Place) -> tuple[str, ...]:
    """Return the nests that are computed in a loop of one of them, or in loops inside of that one, in order."""
    name, axis = place
    inner = tuple(loop for part in nests.nest(name).parts for loop in _loops_from(axis, part.loops))
    names = {name}
    for nest in reversed(nests.nests):
        reader, loop = nest.at or ("", None)
        if reader in names - {name} or (reader == name and (axis is None or loop in inner)):
            names.add(nest.name)
    return tuple(nest.name for nest in nests.nests if nest.name in names)


def _loops_from(axis: str | None, loops: tuple[str, ...]) -> tuple[str, ...]:
    """Return the loops from `axis` inwards."""
    return loops[loops.index(axis) :] if axis in loops else ()


def sum_terms(nests: Nests, place: Place) -> Iterator[tuple[str, Expr]]:
    """Yield (element type, number of terms) of each loop over the terms of a sum that is computed in a loop of a nest."""
    for name in nests_inside(nests, place):
        yield from _terms(nests, nests.nest(name).plain, ())


def _terms(
    nests: Nests, body: tuple[Stmt, ...], loops: tuple[For, ...]
) -> Iterator[tuple[str, Expr]]:
    for stmt in body:
        match stmt:
            case For(body=inner):
                yield from _terms(nests, inner, (*loops, stmt))
            case If(_, then, other):
                yield from _terms(nests, (*then, *other), loops)
            case Store(buffer, index, _, reduce) if reduce is not None:
                index_names = frozenset().union(*map(variables, index))
                summed = (loop for loop in loops if loop.iter not in index_names)
                dtype = nests.buffer(buffer).dtype
                yield from ((dtype, ix.sub(loop.hi, loop.lo)) for loop in summed)
            case _:
                pass
