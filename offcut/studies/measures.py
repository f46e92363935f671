"""Measures of a cell other than the times of calls: predicted and simulated seconds, compile and proof times, first calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.costmodel import Device
from offcut.errors import OffcutError
from offcut.studies.contenders import Contender, Ours
from offcut.studies.definition import Definition
from offcut.studies.described import CompiledKernel
from offcut.studies.errors import refusal
from offcut.studies.samples import CACHED_COMPILE, COMPILE, PREDICTED, PROOF, SIMULATED
from offcut.studies.sizes import Point
from offcut.studies.tasks import Operator


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
    runs = _in_processes("compile", cell)
    return {
        "seconds": tuple(one["compile"] for one in runs),
        "clock": COMPILE,
    }


def _cached_compile(cell: Cell) -> Mapping[str, Any]:
    """Return the processor seconds of compiles, each in a process of its own, with the cache that an earlier process has filled."""
    _ours(cell, "cached compile")
    runs = _in_processes("cached compile", cell)
    return {
        "seconds": tuple(one["compile"] for one in runs),
        "clock": CACHED_COMPILE,
    }


def _proof(cell: Cell) -> Mapping[str, Any]:
    """Return the seconds that the pass ``prove`` takes in these compiles.

    Raises DescribeError where none of them has this pass.
    """
    _ours(cell, "proof")
    seconds = tuple(one["proof"] for one in _in_processes("compile", cell))
    if not all(seconds):
        because = "its compile has no pass that proves: it is a model, whose kernels are compiled one by one"
        raise refusal(
            cell.operator.name, because, 'measure = "compile"', what="cannot time a proof"
        )
    return {"seconds": seconds, "clock": PROOF}


def _first_call(cell: Cell) -> Mapping[str, Any]:
    """Return the seconds of the first call at the cell's sizes in a stream of all sizes of the operator, in their order."""
    runs = _in_processes("first_call", cell)
    at = cell.operator.points.index(cell.point)
    return {"seconds": tuple(one["firsts"][at - 1] for one in runs), "clock": "wall, first call"}


_READERS: Mapping[str, Callable[[Cell], Mapping[str, Any]]] = {
    "predicted": _predicted_seconds,
    "simulated": _simulated_seconds,
    "compile": _compile,
    "cached compile": _cached_compile,
    "proof": _proof,
    "first call": _first_call,
}


def _in_processes(job: str, cell: Cell) -> list[dict[str, Any]]:
    """Return the results of a job in fresh processes, one for each round of the study; cached, since several cells read them."""
    definition, operator = cell.definition, cell.operator
    points = json.dumps([dict(one.sizes) for one in operator.points])
    file = str(definition.file.resolve())
    key = (job, file, operator.name, cell.contender.name, points)
    full_key = (*key, definition.rounds, definition.seed)
    if full_key not in _RESULTS:
        results = []
        fills = 1 if job == "cached compile" else 0  # runs that fill the cache, which do not count
        with tempfile.TemporaryDirectory(prefix="offcut-study-") as folder:
            for number in range(fills + definition.rounds):
                cell.turn()
                cache = folder if fills else f"{folder}/{number}"
                results.append(_in_process(*key, definition.seed, cache))
        _RESULTS[full_key] = results[fills:]
    return _RESULTS[full_key]


_RESULTS: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
"""By job and cell: the results of fresh processes, of which several cells take a part each."""


def _in_process(
    job: str, file: str, operator: str, contender: str, points: str, seed: int, cache: str
) -> dict[str, Any]:
    """Return the result of a job in one fresh process, whose compiled programs lie in a folder.

    Raises OffcutError where the process fails, with the last line that it wrote.
    """
    cache_setting = {"OFFCUT_CACHE": cache} if job.endswith("compile") else {}
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.run(
        [sys.executable, "-m", "offcut.studies.fresh_process", job.removeprefix("cached ")],
        input=json.dumps([file, operator, contender, json.loads(points), seed]),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "OFFCUT_PROCESSES": "1", **cache_setting},
        cwd=Path(file).parent,
    )
    if process.returncode != 0:
        status = f"its process left with status {process.returncode}"
        because = (process.stderr.strip().splitlines() or [status])[-1]
        if process.returncode < 0:
            because = f"its process was ended by {signal.Signals(-process.returncode).name}"
        raise OffcutError("study", f"cannot measure {contender}", because=because)
    result: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    return result
