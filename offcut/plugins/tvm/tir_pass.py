"""Partition TVM's loops: a pass of functions, and a pipeline that `tvm.compile` takes by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.pipeline import default_s_tir_pipeline
from tvm.tirx.compilation_pipeline import finalize_device_passes, finalize_host_passes

import offcut.ir as ir
from offcut.describe.microkernel import Microkernel
from offcut.errors import DescribeError, OffcutError
from offcut.partition import Partition
from offcut.pipeline import partition
from offcut.plugins.hosts import HostFeatures, HostProgram, apply_schedule, microkernels_of
from offcut.plugins.tvm.export_tir import write
from offcut.plugins.tvm.import_tir import Reading, read, scheduled_program
from offcut.schedule import Schedule

TILE, TAIL, SCHEDULE = "offcut.tile", "offcut.tail", "offcut.schedule"
"""Attributes of a function that say how its own loops are cut."""

WORDS = HostFeatures("tvm", ("thread", "lane", "unroll"), numbers=True)


@dataclass
class Report:
    """The outcome for each function of a pass, by name; of functions of one name, the last.

    cut      the partition of each that was cut, with its certificate; of one with a schedule, what that made of it
    skipped  why each of the others is as TVM has it
    """

    cut: dict[str, Partition | HostProgram] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{name}: scheduled"
            if isinstance(result, HostProgram)
            else f"{name}: cut, {len(result.certificate.theorems)} theorems"
            for name, result in self.cut.items()
        ]
        lines += [f"{name}: left; {why.splitlines()[0]}" for name, why in self.skipped.items()]
        return "\n".join(lines)


def lowering_passes() -> Any:
    """Return TVM's passes from blocks to loops, conditions and stores: the input of `partition_pass`."""
    passes = s_tir.transform
    return tvm.ir.transform.Sequential(
        [
            passes.LowerCrossThreadReduction(),
            passes.LowerInitBlock(),
            passes.PlanAndUpdateBufferAllocationLocation(),
            passes.ConvertBlocksToOpaque(),
            passes.CompactBufferAllocation(),
            passes.LowerMatchBuffer(),
            passes.StmtSimplify(),
            passes.LowerOpaqueBlock(),
        ]
    )


def partition_pass(
    tile: Mapping[str, int] | None = None,
    tail: Mapping[str, str] | str = "cut",
    report: Report | None = None,
    schedule: Schedule | str = "",
    microkernels: Sequence[Microkernel] | str = (),
) -> Any:
    """Return a pass of TVM that separates conditions and tiles loops, proved for all sizes.

    tile    tile size by loop, in iterations, where a function has that loop; the attributes of a function,
            ``offcut.tile`` and ``offcut.tail``, say it for that function
    tail    a strategy of `offcut.partition`, or one by loop
    report  receives the outcome for each function; one that cannot be imported or proved stays as it is
    schedule      in place of tiles, for the function of its name: decisions, or their text; the attribute
                  ``offcut.schedule`` of a function says it for that function
    microkernels  that a schedule may name, beside declared instructions; or the name of a target that has them

    Raises DescribeError for another type of `tile` or `tail`, and for tiles beside a schedule; ParseError for an invalid schedule text.

    >>> from offcut.plugins.tvm import partition_pass
    >>> partition_pass(tile={"i": 8}, tail="shift").info.name
    'offcut.partition'
    """
    _check_type("tile", tile, (Mapping, NoneType), 'tile={"i": 8}')
    _check_type("tail", tail, (Mapping, str), 'tail="mask"', 'tail={"i": "mask"}')
    if schedule and (tile or tail != "cut"):
        because = "a schedule says all of a function, and tiles are beside it"
        raise DescribeError("tvm", "cannot take tile= and schedule=", because=because)
    schedule_text = schedule or None
    schedule_text = (
        Schedule.parse(schedule_text) if isinstance(schedule_text, str) else schedule_text
    )
    kernels = microkernels_of(microkernels) if isinstance(microkernels, str) else microkernels
    outcomes = Report() if report is None else report
    settings = dict(tile or {}), tail

    def cut(function: Any, _module: Any, _context: Any) -> Any:
        name = str(
            (function.attrs or {}).get(
                "global_symbol", f"function {len(outcomes.cut) + len(outcomes.skipped)}"
            )
        )
        try:
            reading = read(function)
            cut_program: Partition | HostProgram
            own_schedule = _schedule_of(function, schedule_text, reading)
            if own_schedule is not None:
                cut_program = apply_schedule(
                    scheduled_program(reading), own_schedule, WORDS, kernels
                )
                new_function = write(reading, cut_program)
            else:
                cut_program = _partition(reading, *_settings(function, *settings))
                new_function = write(reading, cut_program.loops)
        except OffcutError as error:
            outcomes.cut.pop(name, None)
            outcomes.skipped[name] = str(error)
            return function
        outcomes.skipped.pop(name, None)
        outcomes.cut[name] = cut_program
        return new_function

    return tirx.transform.prim_func_pass(cut, opt_level=0, name="offcut.partition")


def pipeline(
    tile: Mapping[str, int] | None = None,
    tail: Mapping[str, str] | str = "cut",
    report: Report | None = None,
    schedule: Schedule | str = "",
    microkernels: Sequence[Microkernel] | str = (),
) -> Callable[[], tuple[Any, Any, Any]]:
    """Return TVM's default pipeline with `partition_pass` before arrays are flattened, as `register_tir_pipeline` takes it."""

    def factory() -> tuple[Any, Any, Any]:
        rest, _, _ = default_s_tir_pipeline()
        cut = partition_pass(tile, tail, report, schedule, microkernels)
        passes = [lowering_passes(), cut, _without(rest, "s_tir.CompactBufferAllocation")]
        return tvm.ir.transform.Sequential(passes), finalize_host_passes, finalize_device_passes

    return factory


def _without(passes: Any, name: str) -> Any:
    """Return `passes` without one that has run already and would shrink buffers by sizes that change now."""

    def run(module: Any, context: Any) -> Any:
        disabled_passes = [*map(str, context.disabled_pass), name]
        with tvm.transform.PassContext(
            opt_level=context.opt_level,
            required_pass=list(context.required_pass),
            disabled_pass=disabled_passes,
            instruments=context.instruments,
            config=context.config,
        ):
            return passes(module)

    return tvm.transform.module_pass(run, opt_level=0, name="offcut.rest")


def register(
    name: str = "offcut",
    tile: Mapping[str, int] | None = None,
    tail: Mapping[str, str] | str = "cut",
    schedule: Schedule | str = "",
    microkernels: Sequence[Microkernel] | str = (),
) -> Report:
    """Register the pipeline as ``tvm.compile(…, tir_pipeline=name)``; return the report that it fills."""
    report = Report()
    factory = pipeline(tile, tail, report, schedule, microkernels)
    tirx.compilation_pipeline.register_tir_pipeline(name, factory)
    return report


def _check_type(option: str, value: object, kinds: tuple[type, ...], *help: str) -> None:
    if not isinstance(value, kinds):
        raise DescribeError(
            "tvm", f"cannot take {option}={value!r}", because="it is said by loop", help=help
        )


def _settings(
    function: Any, tile: Mapping[str, int], tail: Mapping[str, str] | str
) -> tuple[Mapping[str, int], Mapping[str, str] | str]:
    attributes = function.attrs or {}
    tile_attribute = attributes.get(TILE)
    if tile_attribute is not None:
        tile = {str(loop): int(size) for loop, size in tile_attribute.items()}
    tail_attribute = attributes.get(TAIL)
    if tail_attribute is not None:
        tails_by_loop = tail_attribute.items() if hasattr(tail_attribute, "items") else None
        tail = (
            str(tail_attribute)
            if tails_by_loop is None
            else {str(loop): str(one) for loop, one in tails_by_loop}
        )
    return tile, tail


def _schedule_of(function: Any, default: Schedule | None, reading: Reading) -> Schedule | None:
    """Return the schedule of a function: its own, or that of the pass, if it has the function's name."""
    attribute = (function.attrs or {}).get(SCHEDULE)
    if attribute is not None:
        return Schedule.parse(str(attribute))
    return default if default and default.name == reading.program.name else None


def _partition(
    reading: Reading, tile: Mapping[str, int], tail: Mapping[str, str] | str
) -> Partition:
    """Return the partition of a program: of the loops in `tile`, those that the program has."""
    loops = {stmt.iter for stmt in ir.walk(reading.program) if isinstance(stmt, ir.For)}
    if not loops:
        raise DescribeError("tvm", f"cannot cut {reading.program.name}", because="it has no loop")
    mine = {loop: size for loop, size in tile.items() if loop in loops}
    tails = (
        tail if isinstance(tail, str) else {loop: one for loop, one in tail.items() if loop in mine}
    )
    return partition(reading.program, tile=mine, tail=tails)
