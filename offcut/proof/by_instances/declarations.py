"""What two programs declare, promise of their sizes, and ask in conditions, before instances are compared."""

from __future__ import annotations

from collections.abc import Iterator

from offcut.core.expr import loads
from offcut.core.program import If, Program, Store, Tile
from offcut.core.program import walk as statements_of
from offcut.core.text.printer import format_expr, format_size
from offcut.proof.by_instances.pairing import (
    SCRATCH,
    difference_error,
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
