"""A stage computed wherever it is read: compute_inline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.analysis import read_arrays
from offcut.core.expr import (
    Expr,
    Load,
    rewrite,
    substitute,
)
from offcut.core.program import Kind
from offcut.core.text.printer import format_stmt
from offcut.errors import PartitionError
from offcut.schedule.apply.axes import Target
from offcut.schedule.apply.staged_form import Nests, Rewrite, point_of
from offcut.schedule.apply.staging import is_gathered, with_expressions


def compute_inline(target: Target) -> Nests:
    """Return the schedule with the stage computed wherever it is read, and nowhere else."""
    check_compute_inline(target)
    return build_compute_inline(target)


def check_compute_inline(target: Target) -> None:
    """Theorem: the stage is one equation ``P[i, j] = e(i, j)`` over elements that are written before
    it and not after, so ``P[a, b]`` is ``e(a, b)`` wherever it is read.
    """
    nests, nest, buffer = target.nests, target.nest, target.buffer
    stores = [store for part in nest.parts for store in part.stores]
    because, help_ = "", tuple[str, ...]()
    after = nests.nests[nests.nests.index(nest) + 1 :]
    sources = read_arrays(store.value for store in stores)
    writers = [n.name for n in after if sources & set(n.stored_buffers)]
    inner = [n.name for n in nests.nests if n.at is not None and n.at[0] == nest.name]
    kind = nests.buffer(buffer).kind
    if kind is not Kind.LOCAL:
        because = f"{buffer} is {kind.value}: all of it is wanted"
    elif len(stores) != 1 or stores[0].reduce is not None:
        because = "it is a reduction, which takes more than one store"
        help_ = (f"{buffer} computed at a loop of its reader",)
    elif any(part.body != (store,) for part in nest.parts for store in part.stores):
        because = "its store is under a condition"
    elif point_of(nest, buffer) is None:
        because = "its store does not name its element by loops alone"
    elif buffer in sources:
        because = "it reads itself"
    elif writers:
        because = f"{writers[0]} writes what it reads"
    elif not nest.is_untouched:
        because = "its loops are scheduled already"
    elif inner:
        because = f"{inner[0]} is computed in its loops"
        help_ = (f"inline {buffer}, before the line that says where {inner[0]} is computed",)
    if because:
        raise PartitionError(
            "compute_inline",
            f"cannot inline {buffer}",
            at=f"stage {buffer}",
            because=because,
            help=help_,
        )


def build_compute_inline(target: Target) -> Nests:
    """Return the schedule with the equation put in at every read, and the stage and its buffer gone."""
    nests, nest, buffer = target.nests, target.nest, target.buffer
    point = point_of(nest, buffer)
    (store,) = (store for part in nest.parts for store in part.stores)
    assert point is not None
    names = point

    def put_in(node: Expr) -> Expr | None:
        match node:
            case Load(name, index, _) if name == buffer:
                values: Mapping[str, Expr] = dict(zip(names, index, strict=True))
                return ix.fold_indices(substitute(store.value, values))
            case _:
                return None

    result = replace(
        nests,
        buffers=tuple(b for b in nests.buffers if b.name != buffer),
        nests=tuple(
            with_expressions(n, lambda e: rewrite(e, put_in))
            for n in nests.nests
            if n.name != nest.name
        ),
    )
    # What computes the stage besides is seen through.
    alike = None if is_gathered(nests, buffer) else (result.source, nests.source)
    return result.rewritten(Rewrite(f"compute_inline({buffer})", format_stmt(store), alike))
