"""A source and an emitted program -> nothing, where declarations agree and a walk over both bodies finds no difference.

What they declare is the same, no name is bound twice, and no access leaves its array; then the two
bodies are walked together (`structural_match`).
"""

from __future__ import annotations

from dataclasses import replace

from offcut.core.plain_loops import strip_annotations
from offcut.core.program import Program
from offcut.core.traversal import bound_names, canonicalize, walk_with_parents
from offcut.polyhedral import Space, accesses_outside
from offcut.proof.by_axis.strips import NotSeparable
from offcut.proof.by_structure.places import NotStructural
from offcut.proof.by_structure.structural_match import check_structural_match


def check_structure(source: Program, emitted: Program) -> None:
    """Prove that `emitted` computes what `source` does; raises NotStructural where it cannot."""
    declared = source
    source, emitted = (strip_annotations(canonicalize(program)) for program in (source, emitted))
    if _declarations(source) != _declarations(emitted):
        raise NotStructural("other declarations")
    if any(one.sizes is not None for one in accesses_outside(declared)):
        raise NotStructural("accesses that may lie outside")
    if source.body == emitted.body:
        return
    space = Space(source.sizes, source.assumptions)
    if _rebinds(emitted):
        raise NotStructural("a name that is bound twice")
    try:
        masked = check_structural_match(space, source, emitted)
    except NotSeparable as reason:
        raise NotStructural(str(reason)) from None
    if masked and any(one.sizes is not None for one in accesses_outside(emitted)):
        raise NotStructural("a masked instance that leaves an array")


def _declarations(program: Program) -> tuple[object, ...]:
    """What a program declares, but for the layout of what it alone sees."""
    buffers = {replace(buffer, layout=None, scope=None) for buffer in program.buffers}
    return program.sizes, program.assumptions, buffers


def _rebinds(program: Program) -> bool:
    """Whether a loop, a tile or a value takes a name that is bound around it."""
    sizes = [size.name for size in program.sizes]
    for stmt, path in walk_with_parents(program):
        names = [
            *sizes,
            *(name for outer, _ in path for name in bound_names(outer)),
            *bound_names(stmt),
        ]
        if bound_names(stmt) and len(set(names)) < len(names):
            return True
    return False
