"""Checks each covered tile, as it runs, against the declaration of its microkernel.

The judge of covers asks the same of the text, for all sizes; here it is asked of numbers, by other code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from offcut.backends.executor.faults import fault
from offcut.backends.executor.steps import Agent, Place, Step
from offcut.backends.gpu.boxes import CELL, accesses
from offcut.backends.gpu.executor.box_faults import BoxChecker
from offcut.backends.gpu.units import REGISTERS
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import reads_memory, variables
from offcut.core.interpret.values import evaluate
from offcut.core.program import Cover, For, Program, Tile, walk
from offcut.describe.microkernel import LOOP_UNITS, Microkernel


class CoverChecker:
    """Checks covers against the declarations of the microkernels that they name."""

    def __init__(self, program: Program, kernels: Sequence[Microkernel]) -> None:
        self.program, self.boxes = program, BoxChecker(program)
        self.by_name: dict[str, Microkernel] = {}
        for kernel in kernels:
            for name in (kernel.update, kernel.reset, kernel.name):
                if name is not None:
                    self.by_name[name] = kernel

    def check_tile(self, agent: Agent, step: Step, places: Mapping[str, Place]) -> None:
        """Check a tile with a cover.

        Raises ExecutionFault for one that its microkernel does not run.
        """
        tile = step.stmt
        assert isinstance(tile, Tile)
        assert tile.cover is not None
        kernel = self.by_name.get(tile.cover.microkernel)
        if kernel is None:
            return
        for finder, because in self.mismatches(agent, step, tile, tile.cover, kernel, places):
            at = f"{step.head} on {agent}"
            raise fault(self.program.name, finder, at=at, because=because)

    def tile_bytes(self, step: Step) -> int:
        """Return the bytes that arrive with a copy in boxes, whole boxes always; 0 of any other step."""
        tile = step.stmt
        if not isinstance(tile, Tile) or tile.cover is None:
            return 0
        kernel = self.by_name.get(tile.cover.microkernel)
        result = "" if kernel is None else dict(tile.cover.operands).get(kernel.computes.name, "")
        return self.boxes.box_bytes(kernel, step.places.get(result))

    def mismatches(
        self,
        agent: Agent,
        step: Step,
        tile: Tile,
        cover: Cover,
        kernel: Microkernel,
        places: Mapping[str, Place],
    ) -> Iterator[tuple[str, str]]:
        """Yield the finder and the reason of each mismatch between a tile and its microkernel."""
        runs = agent.unit if kernel.unit in LOOP_UNITS else (tile.unit or agent.unit)
        if runs != kernel.unit:
            yield "unit", f"{kernel.name} runs on a {kernel.unit}, and it is on a {runs}"
        is_reset = cover.microkernel == kernel.reset  # of several microkernels
        if kernel.issue == "async" and not tile.asynchronous and not is_reset:
            yield "cover", f"{kernel.name} runs in the background, and the tile is not @async"
        extents = self.extents(step, tile)
        for axis, iterator in cover.axes:
            extent = extents.get(iterator)
            limits = kernel.extents_of(axis)
            if extent is not None and not _takes(kernel, axis, extent):
                yield "cover", f"{iterator} is {extent} long, and {kernel.name} takes {limits}"
        for operand, name in cover.operands:
            place, declared = places.get(name), kernel.place_of(operand)
            if (
                place is not None
                and declared.memories
                and place.region.memory not in declared.memories
            ):
                memories = " or ".join(declared.memories)
                because = f"{name} lies in {place.region.memory}, and {kernel.name} takes {operand} in {memories}"
                yield "memory", because
            if not is_reset:
                yield from self.operand_faults(tile, cover, kernel, operand, name)
        if kernel.issue == "async":
            for operand, name in cover.operands:
                place = places.get(name)
                if place is not None and kernel.place_of(operand).beside:
                    yield from self.alignment_faults(step, tile, name, place)
        yield from self.boxes.faults(step, tile, kernel, places)

    def operand_faults(
        self, tile: Tile, cover: Cover, kernel: Microkernel, operand: str, name: str
    ) -> Iterator[tuple[str, str]]:
        """Yield faults of an operand of a microkernel: another element type, or other axes of the tile.

        operand  by the name of the microkernel
        name     of the array
        """
        tensors = (kernel.computes, *kernel.definition.reads)
        (dtype,) = {tensor.dtype for tensor in tensors if tensor.name == operand}
        own = self.program.buffer(name).dtype
        if own != dtype:
            yield "cover", f"{name} is of {own}, and {kernel.name} takes {operand} of {dtype}"
        axes = dict(cover.axes)
        index = next(accesses(tile, name), ())
        moves = {one for part in index for one in variables(part)} & {*axes.values()}
        declared = {one for part in kernel.index_of(operand) for one in variables(part)}
        expected = {iterator for axis, iterator in axes.items() if axis in declared}
        if moves != expected:
            own_axes, taken_axes = (
                ", ".join(sorted(one)) or "nothing" for one in (moves, expected)
            )
            because = f"{name} moves along {own_axes}, and {kernel.name} takes {operand} along {taken_axes}"
            yield "cover", because

    def extents(self, step: Step, tile: Tile) -> dict[str, int]:
        """Return the extents of axes of a tile, and of loops inside whose bounds are known around it."""
        extents = {axis.iter: int(evaluate(axis.extent, step.values)) for axis in tile.axes}
        starts = {axis.iter: int(evaluate(axis.start, step.values)) for axis in tile.axes}
        values = {**step.values, **starts}
        for stmt in walk(tile.body):
            if isinstance(stmt, For) and not (reads_memory(stmt.lo) or reads_memory(stmt.hi)):
                lo, hi = (int(evaluate(end, values)) for end in (stmt.lo, stmt.hi))
                extents[stmt.iter], values[stmt.iter] = hi - lo, lo
        return extents

    def alignment_faults(
        self, step: Step, tile: Tile, name: str, place: Place
    ) -> Iterator[tuple[str, str]]:
        """Yield why rows of a tile do not begin at whole cells, if they do not."""
        if place.region.memory == REGISTERS:
            return
        item = ITEM_BYTES[place.dtype]
        starts = {axis.iter: int(evaluate(axis.start, step.values)) for axis in tile.axes}
        index = next(accesses(tile, name), None)
        if index is None:
            return
        values = {**step.values, **starts}
        offsets = [
            int(evaluate(expr, values)) - s for expr, s in zip(index, place.starts, strict=True)
        ]
        pitch = place.extents[-1] * item
        if offsets and offsets[-1] * item % CELL:
            yield (
                "alignment",
                f"it begins at byte {offsets[-1] * item} of a row of {name}, which is inside of a cell of {CELL}",
            )
        elif len(offsets) > 1 and pitch % CELL:
            yield "alignment", f"rows of {name} are {pitch} bytes apart, no multiple of {CELL}"


def _takes(kernel: Microkernel, axis: str, extent: int) -> bool:
    """Return whether a tile may be so long along an axis: one issue, or several where it repeats, of which some may be off."""
    limits, is_off = kernel.extents_of(axis), axis in kernel.predicates
    if axis in kernel.repeats:
        return is_off or extent % (limits.only or limits.multiple_of) == 0
    return extent in limits or (is_off and extent <= limits.most)
