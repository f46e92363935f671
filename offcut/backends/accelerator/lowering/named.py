"""Whether tiles are covered by what they name: each leaf is the microkernel of its tile, or a declared instruction.

The judge of covers compares a tile with the instruction that runs it; which axis is which and which array which operand is what
it finds, or, where the text says so, what it is asked about.
"""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.accelerator.lowering.covers import Operation, Product
from offcut.backends.accelerator.lowering.nest import Lowered, Work
from offcut.backends.accelerator.microkernels import START, instructions_of, name_of
from offcut.core.expr import Var
from offcut.core.program import Cover, Program, Tile
from offcut.core.text.printer import format_stmt
from offcut.describe.intrinsic import declared
from offcut.errors import TargetError
from offcut.partition import Refusal, Surroundings, cover


def check_named(program: Program, nests: Sequence[Lowered]) -> None:
    """Refuse a tile that names another microkernel, another unit, or other axes and operands than what runs it.

    Raises TargetError. Declared instructions were compared with their tiles when these were covered.
    """
    for nest in nests:
        for work in nest.work:
            if work.leaf.tile is not None:
                _check(program, nest, work, work.leaf.tile)


def cover_of(program: Program, nest: Lowered, work: Work, tile: Tile) -> Cover | None:
    """Return the cover of a tile by what runs it; None of a copy.

    Axes and operands are said where the judge finds those by which it runs: not of a value that takes several instructions.
    """
    if not isinstance(work.does, Product | Operation):
        return None
    name = name_of(work.leaf.store, nest.spec)
    if name == START:
        return Cover(name, operands=(("C", work.leaf.store.buffer),))
    found = _judged(program, nest, work, tile, None)
    return found if isinstance(found, Cover) else Cover(name)


def _check(program: Program, nest: Lowered, work: Work, tile: Tile) -> None:
    given, store = tile.cover, work.leaf.store
    if tile.unit not in (None, work.unit.value):
        raise TargetError(
            "compile",
            f"cannot run a tile by {tile.unit}",
            at=format_stmt(store),
            because=f"{work.unit.value} of {nest.spec.name} runs it",
            help=(f"@by({work.unit.value})",),
        )
    if given is None or declared(given.microkernel) is not None:
        return
    computes = isinstance(work.does, Product | Operation)
    own = name_of(store, nest.spec) if computes else None
    help_ = f"without @cover({given.microkernel})" if own is None else f"@cover({own})"
    because = "it is copied, not computed"
    if own is not None:
        because = f"{own} of {nest.spec.name} computes it"
    if given.microkernel == own:
        said = bool(given.axes or given.operands)
        found = _judged(program, nest, work, tile, given) if said else given
        if isinstance(found, Cover):
            return
        because = found
    raise TargetError(
        "compile",
        f"cannot cover a tile by {given.microkernel}",
        at=format_stmt(store),
        because=because,
        help=(help_,),
    )


def _judged(
    program: Program, nest: Lowered, work: Work, tile: Tile, wanted: Cover | None
) -> Cover | str:
    """Return the cover of a tile as the judge finds it, by the instruction that runs it; or why there is none."""
    at = Surroundings.of(tile, program)
    because = "the judge of covers has no declaration of it"
    for instruction in instructions_of(work.leaf.store, nest.spec):
        found = cover(tile, program, instruction, wanted, at=at)
        if isinstance(found, Refusal):
            because = str(found)
            continue
        axes = dict(found.cover.axes)
        for name, iterator in _lanes_of(work).items():
            if axes.get(name) != iterator:
                because = f"{name} runs over {iterator} in the words of {nest.spec.name}"
                break
        else:
            return found.cover
    return because


def _lanes_of(work: Work) -> dict[str, str]:
    """Return the axes of a product that run along the columns and the terms of words, by those of the microkernel."""
    found: dict[str, str] = {}
    if isinstance(work.does, Product):
        (result, _), (inputs, _), _ = work.sides
        parts = (
            ("j", work.leaf.store.index, result.lanes.axes[1]),
            ("p", work.does.inputs.index, inputs.lanes.axes[1]),
        )
        for name, index, axis in parts:
            part = None if axis is None else index[axis]
            if isinstance(part, Var):
                found[name] = part.name
    return found
