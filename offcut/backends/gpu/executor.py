"""Runs programs of a GPU's units on numpy arrays, and checks what a GPU does not: covers, boxes, the limits of a block.

What copies in boxes and products by descriptors do not find, asked of numbers as a tile runs.

`boxes` asks the same of the text, for all sizes.

Checks each covered tile, as it runs, against the declaration of its microkernel.

The judge of covers asks the same of the text, for all sizes; here it is asked of numbers, by other code.

The limits of a block, and a check of what a launch asks of them at given sizes.

The executor of programs of units, with what a GPU asks of a tile and of a launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy.typing as npt

from offcut.backends import executor
from offcut.backends.executor import FINDERS, ExecutionFault
from offcut.backends.executor.faults import fault
from offcut.backends.executor.steps import Agent, Place, Step
from offcut.backends.gpu.block_limits import MOST_THREADS, block_of, register_faults
from offcut.backends.gpu.boxes import (
    CELL,
    accesses,
    is_box_copy,
    is_descriptor_product,
    operand_axes,
    window_layouts,
)
from offcut.backends.gpu.units import AGENTS, REGISTERS, SHARED
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, reads_memory, variables
from offcut.core.interpret.values import Array, evaluate
from offcut.core.program import Alloc, Cover, For, Program, Size, Stmt, Tile, walk
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_head
from offcut.describe.microkernel import LOOP_UNITS, Microkernel


class BoxChecker:
    """Checks tiles of a program whose operands descriptors describe."""

    def __init__(self, program: Program) -> None:
        self.program, self.layouts = program, window_layouts(program)
        self.extents = {
            stmt.buffer: [ix.literal_bound(extent) for _, extent in stmt.axes]
            for stmt in walk(program)
            if isinstance(stmt, Alloc)
        }

    def box_bytes(self, kernel: Microkernel | None, place: Place | None) -> int:
        """Return the bytes that arrive with a copy in boxes: those of whole boxes; 0 of any other tile.

        place  the window that it fills
        """
        if kernel is None or place is None or not is_box_copy(kernel):
            return 0
        name = place.region.name
        bounds = self.extents.get(name, [])
        shape = [
            e if bound is None else bound for e, bound in zip(place.extents, bounds, strict=True)
        ]
        layout = self.layouts.get(name)
        whole = shape if layout is None else layout.padded_extents(shape)
        return prod(whole) * ITEM_BYTES[place.dtype]

    def faults(
        self, step: Step, tile: Tile, kernel: Microkernel, places: Mapping[str, Place]
    ) -> Iterator[tuple[str, str]]:
        """Yield the finder and the reason of each operand that an instruction would not find."""
        assert tile.cover is not None
        if not (is_box_copy(kernel) or is_descriptor_product(kernel)):
            return
        axes = dict(tile.cover.axes)
        values = {**step.values}
        values |= {axis.iter: int(evaluate(axis.start, step.values)) for axis in tile.axes}
        loops = {stmt.iter: stmt for stmt in walk(tile.body) if isinstance(stmt, For)}
        values |= {name: int(evaluate(loop.lo, values)) for name, loop in loops.items()}
        for operand, name in tile.cover.operands:
            place, declared = places.get(name), kernel.layout_of(operand)
            index = next(accesses(tile, name), None)
            is_shared = place is not None and place.region.memory == SHARED
            if declared is None or index is None or place is None or not is_shared:
                continue
            expected, lies = (
                declared.on(*operand_axes(kernel, operand, axes, index)),
                self.layouts.get(name),
            )
            if lies is None or lies.canonical() != expected.canonical():
                shown = "row by row" if lies is None else f"in {format_layout(lies)}"
                yield (
                    "layout",
                    f"{name} lies {shown}, and {kernel.name} has it in {format_layout(expected)}",
                )
                continue
            for at, (part, start) in enumerate(zip(index, place.starts, strict=True)):
                along_terms = axes.get(kernel.depth) in variables(part)
                terms = kernel.extents_of(kernel.depth).multiple_of if along_terms else 1
                step_size = (
                    min(terms, expected.multiple_of(at))
                    if along_terms
                    else expected.multiple_of(at)
                )
                offset = int(evaluate(part, values)) - start
                if offset % step_size:
                    because = f"it begins at {offset} along axis {at} of a window of {name}, which is inside of {step_size}"
                    yield "alignment", because
            if is_descriptor_product(kernel):
                yield from self.term_faults(
                    kernel, loops.get(axes.get(kernel.depth, "")), name, index, values
                )

    def term_faults(
        self,
        kernel: Microkernel,
        loop: For | None,
        name: str,
        index: tuple[Expr, ...],
        values: Mapping[str, int],
    ) -> Iterator[tuple[str, str]]:
        """Yield why the terms of a product are neither all of a window nor end with their array."""
        if loop is None:
            return
        at = next(k for k, part in enumerate(index) if loop.iter in variables(part))
        lo, hi = (int(evaluate(end, values)) for end in (loop.lo, loop.hi))
        most, end = (
            self.extents[name][at],
            int(evaluate(self.program.buffer(name).shape[at], values)),
        )
        last = int(evaluate(index[at], {**values, loop.iter: hi}))
        at_once = kernel.extents_of(kernel.depth).multiple_of
        if last != end and (most is None or hi - lo != most or most % at_once):
            because = f"its terms end at {last} of {name}, whose window holds {most} and whose array ends at {end}"
            yield "cover", because


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


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a block: bytes of shared memory, threads, and registers of 32 bits."""

    shared_bytes: int = 232_448
    threads: int = MOST_THREADS
    registers: int = 65_536


def check_limits(
    program: Program, launch: Sequence[Stmt], sizes: Mapping[str, int], limits: Limits
) -> None:
    """Check that each block of a launch has room for its windows, and threads for its units, at given sizes.

    launch  its statements, one after the other

    Raises ExecutionFault if one has not.
    """
    for sums, because in register_faults(program, limits.registers):
        raise fault(program.name, "limits", at=format_head(sums), because=because)
    fixed = tuple(Size(size.name, sizes[size.name], sizes[size.name]) for size in program.sizes)
    for stmt in launch:
        block = block_of(replace(program, sizes=fixed), stmt)
        if block.bytes > limits.shared_bytes:
            assert block.largest is not None
            because = f"its windows take {block.bytes} bytes of shared memory, and there are {limits.shared_bytes}"
            depth = block.largest.depth
            help = f"a depth below {depth}" if depth > 1 else "smaller tiles"
            at = format_head(block.largest)
            raise fault(program.name, "room", at=at, because=because, help=(help,))
        if block.threads is not None and block.threads > limits.threads:
            because = f"it has {block.threads} threads, and a block {limits.threads} at most"
            raise fault(program.name, "limits", at=format_head(stmt), because=because)


def execute(
    program: Program,
    inputs: Mapping[str, npt.ArrayLike],
    sizes: Mapping[str, int] | None = None,
    *,
    kernels: Sequence[Microkernel] = (),
    limits: Limits | None = None,
    expects: Mapping[str, int] | None = None,
    seed: int = 0,
) -> dict[str, Array]:
    """Run `program` by the units of a GPU side by side; return its results by name.

    inputs   an array for each input, constant and inout buffer; none is changed
    sizes    those that no shape determines
    kernels  the microkernels whose tiles are checked
    limits   of a block; None: none are checked
    expects  the bytes that each phase of a token's barrier expects
    seed     of the order in which agents run

    Raises CallError for arguments that do not fit the program, ExecutionFault for each fault of `FINDERS`.
    """
    checks = _Checks(program, kernels, limits)
    return executor.execute(
        program, inputs, sizes, agents=AGENTS, checks=checks, expects=expects, seed=seed
    )


class _Checks(CoverChecker):
    """Checks of a GPU: of tiles with a cover, and of launches."""

    def __init__(
        self, program: Program, kernels: Sequence[Microkernel], limits: Limits | None
    ) -> None:
        super().__init__(program, kernels)
        self.limits = limits

    def check_launch(self, launch: Sequence[Stmt], sizes: Mapping[str, int]) -> None:
        """Check that each block of a launch has room and threads enough.

        Raises ExecutionFault if one has not.
        """
        if self.limits is not None:
            check_limits(self.program, launch, sizes, self.limits)


__all__ = ["FINDERS", "ExecutionFault", "Limits", "execute"]
