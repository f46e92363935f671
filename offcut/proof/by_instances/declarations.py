"""What two programs declare, promise and ask in conditions; and whether every access lies in its buffer.

Programs as statements in; nothing out where every access lies in its buffer and its window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Expr, loads, substitute
from offcut.core.program import If, Program, Store, Tile
from offcut.core.program import walk as statements_of
from offcut.core.text.printer import format_expr, format_size
from offcut.polyhedral import accesses_outside
from offcut.polyhedral.program_sets import Statement, bounds_of
from offcut.proof.by_instances.pairing import (
    SCRATCH,
    Part,
    Side,
    Sides,
    difference_error,
    reads_of,
    text_for_user,
    undecided_error,
)


def check_conditions(source: Program, emitted: Program) -> None:
    """Refuse programs of two shapes whose conditions read what they write: such a condition is
    evaluated at a moment, and instances are compared as if each evaluated its own.
    """
    for program in (source, emitted):
        stores = [s for s in statements_of(program.body) if isinstance(s, Store)]
        written = {store.buffer for store in stores}
        for stmt in statements_of(program.body):
            condition = stmt.condition if isinstance(stmt, If) else None
            condition = stmt.where if isinstance(stmt, Tile) else condition
            if condition is None:
                continue
            for load, _ in loads(condition):
                if load.buffer in written:
                    raise undecided_error(
                        emitted.name,
                        f"{format_expr(condition)} reads {load.buffer}, which the program writes, and "
                        "the two programs differ in shape: when it is evaluated cannot be compared",
                    )


def check_declarations(source: Program, emitted: Program) -> None:
    """Check that two programs declare the same sizes, assumptions, inputs and outputs.

    Raises PartitionError where they do not, with the first difference.
    """
    promised = next(_other_promises(source, emitted), None)
    if promised is not None:
        raise difference_error(emitted.name, *promised)
    mine = {b.name: b for b in emitted.buffers if b.kind not in SCRATCH}
    for buffer in source.buffers:
        if buffer.kind in SCRATCH:
            continue
        other = mine.pop(buffer.name, None)
        if other is None or (other.dtype, other.shape, other.kind) != (
            buffer.dtype,
            buffer.shape,
            buffer.kind,
        ):
            raise difference_error(
                emitted.name, f"{buffer.kind.value} {buffer.name} is not declared as in the source"
            )
    if mine:
        name, buffer = next(iter(mine.items()))
        raise difference_error(emitted.name, f"the source has no {buffer.kind.value} {name}")


def _other_promises(source: Program, emitted: Program) -> Iterator[tuple[str, str]]:
    """Yield what is promised of the sizes of one program and not of the other's, each with the line that mends it."""
    ours, theirs = ({size.name: size for size in one.sizes} for one in (source, emitted))
    for name, size in ours.items():
        if name not in theirs:
            yield f"it has no size {name}, which the source has", format_size(size)
        elif size != theirs[name]:
            yield (
                f"it has {format_size(theirs[name])}, the source {format_size(size)}",
                format_size(size),
            )
    for name, size in theirs.items():
        if name not in ours:
            yield f"the source has no size {name}", f"{format_size(size)}, in both"
    if list(ours) != list(theirs):
        yield (
            f"it has the sizes {', '.join(theirs)} in that order, the source {', '.join(ours)}",
            "sizes in the same order",
        )
    for fact in source.assumptions:
        if fact not in emitted.assumptions:
            line = f"assume {format_expr(fact)}"
            yield f"the source has `{line}`, which it has not", line
    for fact in emitted.assumptions:
        if fact not in source.assumptions:
            line = f"assume {format_expr(fact)}"
            yield f"it has `{line}`, which the source has not", f"{line}, in both"


def check_program_inside(emitted: Program, users: Mapping[str, str]) -> None:
    """Refuse a program that leaves an array, conditions and indices included."""
    for one in accesses_outside(emitted):
        if one.sizes is None:
            continue
        at_sizes = one.sizes_text(emitted, users)
        text = f"{one.access} is [{one.element}], which lies outside of its array"
        raise difference_error(emitted.name, at_sizes + text)


def check_source_inside(both: Sides) -> None:
    """Refuse a source that leaves an array."""
    for statement in both.source.statements:
        for load, path in reads_of(statement):
            _check_access(both, both.source, statement, load.buffer, load.index, path, True)
        store = statement.store
        whole = replace(statement, domain=both.source.domains[statement.name])
        _check_access(both, both.source, whole, store.buffer, store.index, (), True)


def check_parts_inside(both: Sides, parts: Sequence[Part]) -> None:
    """Refuse emitted instances that leave an array, or a window."""
    for part in parts:
        statement, store = part.statement, part.statement.store
        for load, path in reads_of(statement):
            _check_access(both, both.emitted, statement, load.buffer, load.index, path)
        _check_access(both, both.emitted, statement, store.buffer, store.index, ())


def check_masked_inside(both: Sides, parts: Sequence[Part]) -> None:
    """Refuse updates that change nothing outside of an array: they still touch their element."""
    known = {part.statement.name for part in parts}
    for statement in both.emitted.statements:
        whole = both.emitted.domains[statement.name]
        if statement.name in known and statement.domain.plain_is_equal(whole):
            continue
        store = statement.store
        _check_access(
            both, both.emitted, replace(statement, domain=whole), store.buffer, store.index, ()
        )


def _check_access(
    both: Sides,
    side: Side,
    statement: Statement,
    buffer: str,
    index: Sequence[Expr],
    path: Sequence[Expr],
    source: bool = False,
) -> None:
    declared = side.program.buffer(buffer)
    bounds: list[tuple[Expr, Expr]] = [(ix.const(0), extent) for extent in declared.shape]
    storage = statement.storage(buffer)
    window = f"of shape ({', '.join(map(format_expr, declared.shape))})"
    windows = [(bounds, window)]
    if storage is not None and storage.window is not None:
        text = ", ".join(f"{format_expr(a)} +: {format_expr(n)}" for a, n in storage.window)
        windows = [(list(storage.window), f"in the window [{text_for_user(text)}]")]
    undecided = [*statement.predicates, *(part for c in path for part in bounds_of(c))]
    if storage is None and any(_undecided_error(both, statement, part) for part in undecided):
        return  # what isl does not decide guards it, here as in the source
    for limits, text in windows:
        broken = both.flows.outside(statement, index, limits, path)
        if broken is None:
            continue
        smallest = both.flows.smallest(broken)
        if smallest is None:
            continue
        sizes, point = smallest
        at = both.values(statement, sizes, point)
        element = ", ".join(format_expr(ix.fold_indices(substitute(part, at))) for part in index)
        whose = "the source: " if source else ""
        raise difference_error(
            both.of,
            f"{whose}{both.flows.given(sizes)}{both.instance(statement, sizes, point)} touches "
            f"{buffer}[{element}], outside {buffer} {text}",
        )


def _undecided_error(both: Sides, statement: Statement, condition: Expr) -> bool:
    coordinates = statement.coordinates
    return both.flows.restrict(statement.domain, condition, coordinates) is None
