"""Measures of a cell other than the times of calls: predicted and simulated seconds, compile and proof times, first calls."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from offcut.costmodel import Device
from offcut.errors import OffcutError
from offcut.search.job_runner import JobRunner, JobStatus
from offcut.studies.contenders import Contender, Ours
from offcut.studies.definition import Definition, Source
from offcut.studies.errors import refusal
from offcut.studies.offcut_operators import CompiledKernel
from offcut.studies.samples import CACHED_COMPILE, COMPILE, PREDICTED, PROOF, SIMULATED
from offcut.studies.sizes import Point
from offcut.studies.tasks import Operator

MAX_SILENCE = 3600.0
"""Seconds on the wall for which a child says nothing, at most: for compiling, checking, and a call that does not return."""
MAX_MEMORY_BYTES = 1 << 40
"""Bytes of address space of a child: a study has no limit of its own."""


@dataclass(frozen=True, slots=True)
class FreshJob:
    """A cell that a fresh process measures, by the names of its operator and its contender."""

    source: Source
    operator: str
    contender: str


@dataclass(frozen=True, slots=True)
class Cell:
    """An operator at a vector of sizes, and a contender.

    turn  told before each process that is begun for it
    """

    definition: Definition
    operator: Operator
    point: Point
    contender: Contender
    turn: Callable[[], None] = lambda: None


def read_measure(measure: str, cell: Cell) -> Mapping[str, Any]:
    """Return fields of a `Sample`: seconds, clock, and facts of the measure.

    measure  a key of `MEASURES` other than ``call``

    Raises OffcutError if the measure does not apply to the contender.
    """
    fields = _READERS[measure](cell)
    count = len(fields["seconds"])
    return {"calls": 1, "round": tuple(range(count)), "order": (0,) * count, **fields}


def _predicted_seconds(cell: Cell) -> Mapping[str, Any]:
    """Return the seconds of a call that the closed form predicts."""
    cost = _cost(cell, "predicted")
    return {"seconds": (cost.seconds,), "clock": PREDICTED, **_facts(cost)}


def _simulated_seconds(cell: Cell) -> Mapping[str, Any]:
    """Return the seconds of a call by the target's simulator, with those of the closed form."""
    cost = _cost(cell, "simulated")
    compiled = _ours(cell, "simulated").compiled(cell.operator)
    if not isinstance(compiled, CompiledKernel) or not compiled.kernel.code.target.is_simulator:
        because = "its target has no simulator, or it is a model"
        what = f"cannot simulate {cell.operator.name}"
        raise refusal(cell.contender.name, because, 'target = "vta"', what=what)
    code = compiled.kernel.code
    names = [size.name for size in compiled.kernel.signature.sizes]
    sizes = {name: cell.point.sizes[name] for name in names}
    seconds = code.target.simulated_seconds(code.planned, code.request, code.options, sizes)
    facts = {**_facts(cost), "predicted": cost.seconds}
    machine = code.target.machine
    return {"seconds": (seconds,), "clock": SIMULATED, **facts, "peak": peak_of(machine)}


def _cost(cell: Cell, measure: str) -> Any:
    """Return the predicted cost of a call."""
    compiled = _ours(cell, measure).compiled(cell.operator)
    cost = compiled.cost(cell.operator.workload.task(cell.point.sizes, cell.definition.seed))
    if cost is None:
        because = "its target has no cost model"
        what = f"cannot predict {cell.operator.name}"
        raise refusal(cell.contender.name, because, what=what)
    return cost


def _ours(cell: Cell, measure: str) -> Ours:
    if not isinstance(cell.contender, Ours):
        because = f"{measure} is measured of offcut alone"
        raise refusal(cell.contender.name, because, 'measure = "call"', what="cannot measure")
    return cell.contender


def _facts(cost: Any) -> dict[str, Any]:
    """Return the energy, bytes and operations of a cost, and its pieces as the way of the call."""
    pieces = getattr(cost, "pieces", ())
    units = sorted({getattr(piece, "microkernel", "") or "loops" for piece in pieces})
    count = f"{len(pieces)} piece" + ("s" if len(pieces) != 1 else "")
    return {
        "way": f"{count}: {', '.join(units)}" if pieces else "",
        "energy": getattr(cost, "energy", None),
        "bytes": dict(getattr(cost, "bytes", {}) or {}),
        "flop": int(getattr(cost, "flop", 0)),
    }


def peak_of(machine: Device) -> float:
    """Return the operations per second of the fastest matrix unit of a machine; 0 where it has none."""
    rates = [one.multiply_adds for one in machine.unit]
    return 2 * max(rates) * machine.hertz if rates else 0.0


def _compile(cell: Cell) -> Mapping[str, Any]:
    """Return the processor seconds of compiles, each in a process of its own, with nothing in the cache."""
    return {"seconds": _fresh_seconds("compile_times", cell, 0), "clock": COMPILE}


def _cached_compile(cell: Cell) -> Mapping[str, Any]:
    """Return the processor seconds of compiles, each in a process of its own, with the cache that an earlier process has filled."""
    _ours(cell, "cached compile")
    seconds = _fresh_seconds("compile_times", cell, 0, is_cached=True)
    return {"seconds": seconds, "clock": CACHED_COMPILE}


def _proof(cell: Cell) -> Mapping[str, Any]:
    """Return the seconds that the pass ``prove`` takes in these compiles.

    Raises DescribeError where none of them has this pass.
    """
    _ours(cell, "proof")
    seconds = _fresh_seconds("compile_times", cell, 1)
    if not all(seconds):
        because = "its compile has no pass that proves: it is a model, whose kernels are compiled one by one"
        help = 'measure = "compile"'
        raise refusal(cell.operator.name, because, help, what="cannot time a proof")
    return {"seconds": seconds, "clock": PROOF}


def _first_call(cell: Cell) -> Mapping[str, Any]:
    """Return the seconds of the first call at the cell's sizes in a stream of all sizes of the operator, in their order."""
    place = cell.operator.points.index(cell.point) - 1
    return {"seconds": _fresh_seconds("first_calls", cell, place), "clock": "wall, first call"}


_READERS: Mapping[str, Callable[[Cell], Mapping[str, Any]]] = {
    "predicted": _predicted_seconds,
    "simulated": _simulated_seconds,
    "compile": _compile,
    "cached compile": _cached_compile,
    "proof": _proof,
    "first call": _first_call,
}


def _fresh_seconds(job: str, cell: Cell, place: int, is_cached: bool = False) -> tuple[float, ...]:
    """Return the seconds at a place of what a job gives in fresh processes, one for each round of the study.

    job        a function of `offcut.studies.fresh_process`; its results are kept
    is_cached  whether all have one cache, which a first process fills that does not count

    Raises OffcutError where a process fails, with the reason.
    """
    definition = cell.definition
    argument = FreshJob(definition.source, cell.operator.name, cell.contender.name)
    points = " ".join(map(str, cell.operator.points))
    of_study = definition.file, definition.rounds, definition.seed, points
    key = job, argument.operator, argument.contender, is_cached, of_study
    if key not in _RESULTS:
        results = []
        with tempfile.TemporaryDirectory(prefix="offcut-study-") as folder:
            for number in range(is_cached + definition.rounds):
                cell.turn()
                environment = {"OFFCUT_PROCESSES": "1"}
                if job == "compile_times":
                    environment["OFFCUT_CACHE"] = folder if is_cached else f"{folder}/{number}"
                with JobRunner(MAX_MEMORY_BYTES, environment) as child:
                    name = f"offcut.studies.fresh_process:{job}"
                    ended = child.run(name, argument, MAX_SILENCE)
                results.append(ended.value)
                if ended.status is not JobStatus.RETURNED or isinstance(ended.value, str):
                    because = ended.value or f"its process ended: {ended.because}"
                    what = f"cannot measure {argument.contender}"
                    raise OffcutError("study", what, because=because)
        _RESULTS[key] = results[is_cached:]
    return tuple(one[place] for one in _RESULTS[key])


_RESULTS: dict[tuple[Any, ...], list[list[float]]] = {}
"""By job and cell: the results of fresh processes, of which several cells take a part each."""
