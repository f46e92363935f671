"""Whether tiles are covered by what they name: each leaf is the microkernel of its tile, or a declared instruction."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.accelerator.lowering.covers import Operation, Product
from offcut.backends.accelerator.lowering.nest import Lowered, Work
from offcut.backends.accelerator.microkernels import name_of
from offcut.core.text.printer import format_stmt
from offcut.describe.intrinsic import declared
from offcut.errors import TargetError


def check_named(nests: Sequence[Lowered]) -> None:
    """Refuse a tile that names another microkernel or another unit than runs it.

    Raises TargetError. Declared instructions were compared with their tiles when these were covered.
    """
    for nest in nests:
        for work in nest.work:
            _check(nest, work)


def _check(nest: Lowered, work: Work) -> None:
    given, store = work.leaf.microkernel, work.leaf.store
    unit = None if work.leaf.tile is None else work.leaf.tile.unit
    if unit not in (None, work.unit.value):
        raise TargetError(
            "compile",
            f"cannot run a tile by {unit}",
            at=format_stmt(store),
            because=f"{work.unit.value} of {nest.spec.name} runs it",
            help=(f"@by({work.unit.value})",),
        )
    if given is None or declared(given) is not None:
        return
    computes = isinstance(work.does, Product | Operation)
    own = name_of(store, nest.spec) if computes else None
    if given == own:
        return
    raise TargetError(
        "compile",
        f"cannot cover a tile by {given}",
        at=format_stmt(store),
        because=f"{own} of {nest.spec.name} computes it" if own else "it is copied, not computed",
        help=(f"@cover({own})" if own else f"without @cover({given})",),
    )
