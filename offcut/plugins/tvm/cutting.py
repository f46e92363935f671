"""TVM's loops cut by our partitioner: a pass of functions, and a pipeline that `tvm.compile` knows by name."""

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
from offcut.plugins.hosts import Said, Words, microkernels_of, scheduled
from offcut.plugins.tvm.reading import Reading, read, stages
from offcut.plugins.tvm.writing import write
from offcut.schedule import Schedule

TILE, TAIL, SCHEDULE = "offcut.tile", "offcut.tail", "offcut.schedule"
"""Attributes of a function that say how its own loops are cut."""

WORDS = Words("tvm", ("thread", "lane", "unroll"), numbers=True)


@dataclass
class Report:
    """What became of the functions that a pass has seen, by name; of two of one name, the last.

    cut    the partition of each that was cut, with its certificate; of one with a schedule, what that made of it
    left   why each of the others is as TVM has it
    """

    cut: dict[str, Partition | Said] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{name}: scheduled"
            if isinstance(made, Said)
            else f"{name}: cut, {len(made.certificate.theorems)} theorems"
            for name, made in self.cut.items()
        ]
        lines += [f"{name}: left; {why.splitlines()[0]}" for name, why in self.left.items()]
        return "\n".join(lines)


def lowered() -> Any:
    """TVM's passes from blocks to loops, conditions and stores: what `partitioned` reads."""
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


def partitioned(
    tile: Mapping[str, int] | None = None,
    tail: Mapping[str, str] | str = "cut",
    report: Report | None = None,
    schedule: Schedule | str = "",
    microkernels: Sequence[Microkernel] | str = (),
) -> Any:
    """A pass of TVM: conditions separated and loops cut, proved for all sizes; what it cannot read or prove stays.

    tile    tile size by loop, in iterations, where a function has that loop; the attributes of a function,
            ``offcut.tile`` and ``offcut.tail``, say it for that function
    tail    a strategy of `offcut.partition`, or one by loop
    report  is told what became of each function
    schedule      in place of tiles, for the function of its name: decisions, or their text; the attribute
                  ``offcut.schedule`` of a function says it for that function
    microkernels  that a schedule may name, beside declared instructions; or the name of a target that has them

    Raises DescribeError where `tile` or `tail` is something else, and where tiles stand beside a schedule; ParseError for a text that
    is no schedule.

    >>> from offcut.plugins.tvm import partitioned
    >>> partitioned(tile={"i": 8}, tail="shift").info.name
    'offcut.partitioned'
    """
    _checked("tile", tile, (Mapping, NoneType), 'tile={"i": 8}')
    _checked("tail", tail, (Mapping, str), 'tail="mask"', 'tail={"i": "mask"}')
    if schedule and (tile or tail != "cut"):
        because = "a schedule says all of a function, and tiles are beside it"
        raise DescribeError("tvm", "cannot take tile= and schedule=", because=because)
    schedule_text = schedule or None
    schedule_text = (
        Schedule.parse(schedule_text) if isinstance(schedule_text, str) else schedule_text
    )
    kernels = microkernels_of(microkernels) if isinstance(microkernels, str) else microkernels
    told = Report() if report is None else report
    settings = dict(tile or {}), tail

    def cut(function: Any, _module: Any, _context: Any) -> Any:
        name = str(
            (function.attrs or {}).get(
                "global_symbol", f"function {len(told.cut) + len(told.left)}"
            )
        )
        try:
            reading = read(function)
            cut_program: Partition | Said
            decided = _schedule_of(function, schedule_text, reading)
            if decided is not None:
                cut_program = scheduled(stages(reading), decided, WORDS, kernels)
                written = write(reading, cut_program)
            else:
                cut_program = _partitioned(reading, *_settings(function, *settings))
                written = write(reading, cut_program.loops)
        except OffcutError as refused:
            told.cut.pop(name, None)
            told.left[name] = str(refused)
            return function
        told.left.pop(name, None)
        told.cut[name] = cut_program
        return written

    return tirx.transform.prim_func_pass(cut, opt_level=0, name="offcut.partitioned")


def pipeline(
    tile: Mapping[str, int] | None = None,
    tail: Mapping[str, str] | str = "cut",
    report: Report | None = None,
    schedule: Schedule | str = "",
    microkernels: Sequence[Microkernel] | str = (),
) -> Callable[[], tuple[Any, Any, Any]]:
    """What `register_tir_pipeline` takes: TVM's default pipeline with `partitioned` before it flattens arrays."""

    def factory() -> tuple[Any, Any, Any]:
        rest, _, _ = default_s_tir_pipeline()
        cut = partitioned(tile, tail, report, schedule, microkernels)
        passes = [lowered(), cut, _without(rest, "s_tir.CompactBufferAllocation")]
        return tvm.ir.transform.Sequential(passes), finalize_host_passes, finalize_device_passes

    return factory


def _without(passes: Any, name: str) -> Any:
    """Return `passes` without one that has run already: what it found small then, it would make of a changing size now."""

    def run(module: Any, context: Any) -> Any:
        disabled = [*map(str, context.disabled_pass), name]
        with tvm.transform.PassContext(
            opt_level=context.opt_level,
            required_pass=list(context.required_pass),
            disabled_pass=disabled,
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
    """Let ``tvm.compile(…, tir_pipeline=name)`` cut loops so; what becomes of each function."""
    report = Report()
    made = pipeline(tile, tail, report, schedule, microkernels)
    tirx.compilation_pipeline.register_tir_pipeline(name, made)
    return report


def _checked(option: str, given: object, kinds: tuple[type, ...], *help: str) -> None:
    if not isinstance(given, kinds):
        raise DescribeError(
            "tvm", f"cannot take {option}={given!r}", because="it is said by loop", help=help
        )


def _settings(
    function: Any, tile: Mapping[str, int], tail: Mapping[str, str] | str
) -> tuple[Mapping[str, int], Mapping[str, str] | str]:
    attributes = function.attrs or {}
    own = attributes.get(TILE)
    if own is not None:
        tile = {str(loop): int(size) for loop, size in own.items()}
    said = attributes.get(TAIL)
    if said is not None:
        each = said.items() if hasattr(said, "items") else None
        tail = str(said) if each is None else {str(loop): str(one) for loop, one in each}
    return tile, tail


def _schedule_of(function: Any, given: Schedule | None, reading: Reading) -> Schedule | None:
    """Return the schedule of a function: its own, or that of the pass, if it has the function's name."""
    own = (function.attrs or {}).get(SCHEDULE)
    if own is not None:
        return Schedule.parse(str(own))
    return given if given and given.name == reading.program.name else None


def _partitioned(
    reading: Reading, tile: Mapping[str, int], tail: Mapping[str, str] | str
) -> Partition:
    """The program with the loops that it has of those in `tile` cut."""
    loops = {stmt.iter for stmt in ir.walk(reading.program) if isinstance(stmt, ir.For)}
    if not loops:
        raise DescribeError("tvm", f"cannot cut {reading.program.name}", because="it has no loop")
    mine = {loop: size for loop, size in tile.items() if loop in loops}
    tails = (
        tail if isinstance(tail, str) else {loop: one for loop, one in tail.items() if loop in mine}
    )
    return partition(reading.program, tile=mine, tail=tails)
