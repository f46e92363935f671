"""TVM's loops cut by our partitioner: a pass of functions, and a pipeline that `tvm.compile` knows by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.pipeline import default_s_tir_pipeline
from tvm.tirx.compilation_pipeline import finalize_device_passes, finalize_host_passes

import offcut.ir as ir
from offcut.errors import DescribeError, OffcutError
from offcut.partition import Partition
from offcut.pipeline import partition
from offcut.plugins.tvm.reading import Reading, read
from offcut.plugins.tvm.writing import write

TILE, TAIL = "offcut.tile", "offcut.tail"
"""Attributes of a function that say how its own loops are cut."""


@dataclass
class Report:
    """What became of the functions that a pass has seen, by name; of two of one name, the last.

    cut    the partition of each that was cut, with its certificate
    left   why each of the others is as TVM has it
    """

    cut: dict[str, Partition] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{name}: cut, {len(made.certificate.theorems)} theorems"
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
) -> Any:
    """A pass of TVM: conditions separated and loops cut, proved for all sizes; what it cannot read or prove stays.

    tile    tile size by loop, in iterations, where a function has that loop; the attributes of a function,
            ``offcut.tile`` and ``offcut.tail``, say it for that function
    tail    a strategy of `offcut.partition`, or one by loop
    report  is told what became of each function

    Raises DescribeError where `tile` or `tail` is something else.

    >>> from offcut.plugins.tvm import partitioned
    >>> partitioned(tile={"i": 8}, tail="shift").info.name
    'offcut.partitioned'
    """
    _checked("tile", tile, (Mapping, NoneType), 'tile={"i": 8}')
    _checked("tail", tail, (Mapping, str), 'tail="mask"', 'tail={"i": "mask"}')
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
            made = _partitioned(reading, *_settings(function, *settings))
            written = write(reading, made.loops)
        except OffcutError as refused:
            told.cut.pop(name, None)
            told.left[name] = str(refused)
            return function
        told.left.pop(name, None)
        told.cut[name] = made
        return written

    return tirx.transform.prim_func_pass(cut, opt_level=0, name="offcut.partitioned")


def pipeline(
    tile: Mapping[str, int] | None = None,
    tail: Mapping[str, str] | str = "cut",
    report: Report | None = None,
) -> Callable[[], tuple[Any, Any, Any]]:
    """What `register_tir_pipeline` takes: TVM's default pipeline with `partitioned` before it flattens arrays."""

    def factory() -> tuple[Any, Any, Any]:
        rest, _, _ = default_s_tir_pipeline()
        passes = [lowered(), partitioned(tile, tail, report), rest]
        return tvm.ir.transform.Sequential(passes), finalize_host_passes, finalize_device_passes

    return factory


def register(
    name: str = "offcut",
    tile: Mapping[str, int] | None = None,
    tail: Mapping[str, str] | str = "cut",
) -> Report:
    """Let ``tvm.compile(…, tir_pipeline=name)`` cut loops so; what becomes of each function."""
    report = Report()
    tirx.compilation_pipeline.register_tir_pipeline(name, pipeline(tile, tail, report))
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
