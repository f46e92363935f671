"""Programs as statements in; nothing out where every access lies in its buffer and its window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Expr, substitute
from offcut.core.program import Program
from offcut.core.text.printer import format_expr
from offcut.polyhedral import accesses_outside
from offcut.polyhedral.program_sets import Statement, bounds_of
from offcut.proof.by_instances.pairing import (
    Part,
    Side,
    Sides,
    difference_error,
    reads_of,
    text_for_user,
)


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
