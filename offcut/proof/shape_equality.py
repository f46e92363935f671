"""Whether two programs have one shape when copies, windows, conditions and orders that may differ are gone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from offcut.core.plain_loops import strip_annotations
from offcut.core.program import Buffer, Program, Store
from offcut.core.program import walk as statements_of
from offcut.core.traversal import canonicalize
from offcut.polyhedral import (
    PASS,
    BudgetExceeded,
    accesses_outside,
    is_spent,
    operation_budget,
    try_isl,
)
from offcut.proof.by_structure.places import NotStructural
from offcut.proof.by_structure.structure import check_structure
from offcut.proof.normal_forms.condition_hoisting import hoist_conditions, unswitch
from offcut.proof.normal_forms.copies import forward_copies
from offcut.proof.normal_forms.element_loops import name_loops_like
from offcut.proof.normal_forms.loop_fusion import (
    fuse_loops_like,
    fuse_ranges,
    fuse_tiles,
    has_independent_blocks,
    separate_launches,
)
from offcut.proof.normal_forms.narrowed_blocks import without_unread_blocks
from offcut.proof.normal_forms.narrowing import without_unread_elements
from offcut.proof.normal_forms.reduction_init import reorder_terms_like
from offcut.proof.normal_forms.storage_order import permute_storage_like, undo_relayout
from offcut.proof.normal_forms.window_expansion import expand_windows, share_private_arrays
from offcut.proof.normal_forms.zero_terms import conditions, guard_zero_terms


def is_alike(source: Program, emitted: Program, reassociate: bool) -> bool:
    """Return whether two programs have one shape when copies, windows, names of loops, and orders that may differ are gone: those of the
    source where it is not seen with them.

    What an array that is gone held is read where it was read: inside of it, or nothing is known.
    """
    for pair in dict.fromkeys(((source, emitted), name_loops_like(source, emitted))):
        others = [buffer.name for buffer in pair[1].buffers]
        copied = try_isl(partial(forward_copies, pair[0], others), pair[0])
        for form in dict.fromkeys((pair[0], copied)):
            one, other = _align_shapes(form, pair[1], reassociate)
            if (one, other) != (source, emitted) and is_same_shape(one, other):
                return _is_inside(source, one) and _is_inside(emitted, other)
    return False


def try_is_alike(source: Program, emitted: Program, reassociate: bool) -> bool | None:
    """Return `is_alike`; None if half of the budget of a pass does not decide it."""
    try:
        with operation_budget(PASS // 2):
            return is_alike(source, emitted, reassociate) or (None if is_spent() else False)
    except BudgetExceeded:
        return None


def _is_inside(program: Program, shaped: Program) -> bool:
    """Return whether all that is read of the arrays that are gone lies in them."""
    gone = frozenset(b.name for b in program.buffers) - {b.name for b in shaped.buffers}
    return not gone or try_isl(lambda: not accesses_outside(program, gone), False)


def is_read_alone(source: Program, emitted: Program) -> bool:
    """Return whether `emitted` is `source` without tiles, or blocks, of elements that no term with a condition reads, or without loops of
    terms whose condition fails.
    """
    forms = (without_unread_elements, without_unread_blocks, unswitch)
    formed = (try_isl(partial(form, source), source) for form in forms)
    alone = [one for one in formed if one is not source]
    return bool(alone) and strip_annotations(emitted).body in [
        strip_annotations(one).body for one in alone
    ]


def is_separated(source: Program, emitted: Program) -> bool:
    """Return whether `emitted` is `source` with a launch for each statement of its independent blocks."""
    parts = separate_launches(source)
    if parts is source or strip_annotations(parts).body != strip_annotations(emitted).body:
        return False
    return try_isl(lambda: has_independent_blocks(source), False)


def is_hoisted(source: Program, emitted: Program) -> bool:
    """Return whether two programs are equal except for conditions that one of them has in the bounds of its loops."""
    stores = [
        [s for s in statements_of(each.body) if isinstance(s, Store)] for each in (source, emitted)
    ]
    if stores[0] != stores[1]:
        return False
    one, other = (try_isl(partial(hoist_conditions, each), each) for each in (source, emitted))
    return strip_annotations(one).body == strip_annotations(other).body


def is_unpadded(source: Program, emitted: Program, reassociate: bool) -> bool:
    """Return whether `emitted` is `source` without terms that padding makes zero."""
    if not conditions(source):
        return False
    ordered, other = (
        reorder_terms_like(emitted, source, reassociate),
        strip_annotations(canonicalize(fuse_tiles(emitted))),
    )
    for rows in (True, False):
        guarded = guard_zero_terms(ordered, rows)
        one = strip_annotations(canonicalize(try_isl(partial(hoist_conditions, guarded), guarded)))
        if one.body == other.body and _arrays(one) == _arrays(other):
            return True
    return False


def _arrays(program: Program) -> set[Buffer]:
    """What a program declares, but for the layout of what it alone sees."""
    return {replace(buffer, layout=None, scope=None) for buffer in program.buffers}


def _align_shapes(source: Program, emitted: Program, reassociate: bool) -> tuple[Program, Program]:
    """Programs that do the same as these two, as near to each other as is easily seen.

    All that they access must lie inside: a copy that is gone is not asked for its accesses.
    """
    own = [buffer.name for buffer in source.buffers]
    emitted = share_private_arrays(emitted, source)
    emitted = try_isl(lambda: undo_relayout(forward_copies(emitted, own), own), emitted)
    emitted = fuse_ranges(expand_windows(permute_storage_like(emitted, source)))
    source = expand_windows(source)
    return reorder_terms_like(emitted, fuse_loops_like(emitted, source), reassociate), emitted


def is_same_shape(source: Program, emitted: Program) -> bool:
    """Return whether the proof side by side holds; where not, nothing is known yet."""
    return try_isl(lambda: _is_same_shape(source, emitted), False)


def _is_same_shape(source: Program, emitted: Program) -> bool:
    try:
        check_structure(source, emitted)
    except NotStructural:
        return False
    return True
