"""The samples of a study: a line for each cell and process, which its content names, so that nothing is measured twice."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from offcut.studies.environment import digest
from offcut.studies.errors import refusal

FILE = "samples.jsonl"
WRONG = "wrong values"
"""What a failure begins with where a contender gave another result than the exact one."""
CALLS, WALL = "processor time", "wall"
"""The clocks of calls, of one thread and of several."""
PREDICTED, SIMULATED = "predicted", "simulated"
"""The clocks of a cost model and of a machine that is simulated: nothing is timed."""
COMPILE, CACHED_COMPILE = "processor time of a compile", "processor time of a cached compile"
PROOF = "time of the proof"
"""The clocks of compiles and their proofs, each in a process of its own."""
_KINDS = {
    **dict.fromkeys(
        ("cell", "operator", "contender", "turns", "clock", "environment", "device"), str
    ),
    **dict.fromkeys(("sizes", "load", "bytes"), dict),
    **dict.fromkeys(("seconds", "process"), tuple),
    "failed": str,
    "peer": bool,
    "calls": int,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of one contender on one operator at one vector of sizes: in one process, a line of the file; or in all of them.

    cell        what names it: a digest of the operator, the sizes, the contender and how it is measured
    peer        whether the contender is something else than offcut
    seconds     per call, a number for each round; none where it failed
    calls       that a round's number is the mean of
    process     the number of the process that each number is of, from 0 on; none where nothing is timed, where each round is a
                process of its own, and of folders that were measured in one process
    round       the round of each number in its process; order: its place among those that took turns in that round
    turns       the same for all cells that took turns with each other, whose rounds may be compared in pairs
    error       the largest distance of an element from the exact result, as a part of the largest one; None where it failed
    exact       how that result was computed
    predicted   seconds; None of a peer. energy: joules that are predicted. bytes: from each memory, predicted
    flop, moved operations, and bytes of operands and results
    limit       the least seconds that the machine allows, measured before and after the row; 0 where it was not
    limit_by    the instruction, or the memory, that it is by
    peak        operations per second of the unit that the most of them run on; 0 where unknown
    device      of a pool, that measured it; "" of the process that the study ran in
    load        of the machine, meanwhile
    environment the digest of a file beside
    failed      why it was not measured; "" where it was
    """

    cell: str
    operator: str
    sizes: Mapping[str, int]
    contender: str
    seconds: tuple[float, ...]
    calls: int = 0
    round: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    turns: str = ""
    way: str = ""
    clock: str = CALLS
    error: float | None = None
    exact: str = ""
    predicted: float | None = None
    energy: float | None = None
    bytes: Mapping[str, int] = field(default_factory=dict)
    flop: int = 0
    moved: int = 0
    limit: float = 0.0
    limit_by: str = ""
    compile_seconds: float = 0.0
    load: Mapping[str, float] = field(default_factory=dict)
    environment: str = ""
    date: str = ""
    failed: str = ""
    peer: bool = False
    peak: float = 0.0
    device: str = ""
    process: tuple[int, ...] = ()


def cell_of(
    operator: Mapping[str, Any],
    sizes: Mapping[str, int],
    contender: Mapping[str, Any],
    how: Mapping[str, Any],
) -> str:
    """Return what names a cell: equal only where all that was asked for is equal."""
    return digest({"operator": operator, "sizes": dict(sizes), "contender": contender, "how": how})


def read_samples(file: Path) -> dict[str, Sample]:
    """Return the samples of a file by cell, their processes together; a line that was cut short is left out."""
    lines: dict[str, list[Sample]] = {}
    for sample in _samples(file):
        lines.setdefault(sample.cell, []).append(sample)
    return {cell: merge_processes(some) for cell, some in lines.items()}


def merge_processes(lines: Sequence[Sample]) -> Sample:
    """Return the sample of a cell's lines, in the order in which they were measured.

    The last line of each process counts, if it was measured in the environment, and on the device, of the very last line; a
    failure, or a line without processes, stands for the cell alone.
    """
    last, by_process = lines[-1], dict[int, Sample]()
    for one in lines:
        if one.failed or not one.process:
            by_process.clear()
        elif (one.environment, one.device) == (last.environment, last.device):
            by_process.update((part.process[0], part) for part in _split_by_process(one))
    parts = [by_process[number] for number in sorted(by_process)]
    if len(parts) < 2:
        return last
    errors = [one.error for one in parts if one.error is not None]
    bound = min(parts, key=lambda one: one.limit)
    numbers: dict[str, Any] = {
        name: tuple(chain.from_iterable(getattr(one, name) for one in parts))
        for name in ("seconds", "process", "round", "order")
    }
    return replace(
        last,
        **numbers,
        calls=min(one.calls for one in parts),
        turns=" ".join(dict.fromkeys(turn for one in parts for turn in one.turns.split())),
        error=max(errors, default=None),
        limit=bound.limit,
        limit_by=bound.limit_by,
        compile_seconds=max(one.compile_seconds for one in parts),
        load={
            key: round(statistics.fmean(one.load.get(key, 0.0) for one in parts), 4)
            for key in last.load
        },
    )


def _split_by_process(sample: Sample) -> Iterator[Sample]:
    """Yield the rounds of each process as a sample."""
    for number in dict.fromkeys(sample.process):
        places = [place for place, one in enumerate(sample.process) if one == number]
        rounds: dict[str, Any] = {
            name: tuple(values[place] for place in places)
            for name in ("seconds", "process", "round", "order")
            if (values := getattr(sample, name))
        }
        yield replace(sample, **rounds)


def merge_lines(file: Path) -> None:
    """Write a file of samples anew with a line a cell, all its processes in it; a cell of one line keeps it to the letter.

    The file is replaced at once: a process that is killed meanwhile leaves it as it was.
    """
    samples, lines = list(_samples(file)), dict[str, list[Sample]]()
    for sample in samples:
        lines.setdefault(sample.cell, []).append(sample)
    if len(lines) == len(samples):
        return
    texts = (line for line in file.read_bytes().split(b"\n")[:-1] if line.strip())
    by_cell = {sample.cell: text for sample, text in zip(samples, texts, strict=True)}
    for cell, some in lines.items():
        if len(some) > 1:
            by_cell[cell] = _line(merge_processes(some)).encode()
    part = file.with_suffix(".part")
    with part.open("wb") as text:
        text.write(b"".join(by_cell[cell] + b"\n" for cell in lines))
        text.flush()
        os.fsync(text.fileno())
    part.replace(file)


def _line(sample: Sample) -> str:
    return json.dumps(asdict(sample), ensure_ascii=False)


def _samples(file: Path) -> Iterator[Sample]:
    if not file.exists():
        return
    try:
        content = file.read_bytes()
    except OSError as error:
        because = error.strerror or str(error)
        raise refusal(str(file), because, what="cannot read the samples") from error
    lines = content.split(b"\n")[:-1]  # a process that was killed wrote what is behind the last end
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _sample(json.loads(line))
        except (ValueError, TypeError) as error:
            because = f"line {number} is not a sample: {error}"
            raise refusal(
                file.name, because, f"remove the line {number}", what="cannot read the samples"
            ) from error


def _sample(fields: Any) -> Sample:
    """Return the sample of a line's fields.

    Raises TypeError or ValueError where they are none.
    """
    if not isinstance(fields, dict):
        raise TypeError("it is not an object")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    sample = Sample(**values)
    for name, kind in _KINDS.items():
        if not isinstance(getattr(sample, name), kind):
            raise TypeError(f"{name} is {getattr(sample, name)!r}")
    if not all(isinstance(one, float | int) and 0 < one < math.inf for one in sample.seconds):
        raise ValueError("seconds are numbers above 0")
    return sample


def missing_processes(
    count: int, earlier: Sample | None, environment: str, device: str = ""
) -> set[int]:
    """Return the numbers of the processes, of so many, in which a cell is to be measured; none where nothing is timed and it has a sample.

    earlier  its sample, which counts where it is of that environment and device
    """
    where = environment, device
    if earlier is None or earlier.failed or (earlier.environment, earlier.device) != where:
        return {*range(count)}
    return {*range(count)}.difference(earlier.process) if earlier.process else set()


def append_samples(file: Path, samples: Iterable[Sample]) -> None:
    """Write samples behind the others, in one go, each whole or not at all: a last line without an end is cut off first."""
    lines = "".join(f"{_line(one)}\n" for one in samples)
    with file.open("ab+") as text:
        end = text.seek(0, os.SEEK_END)
        if end:
            text.seek(end - 1)
            if text.read(1) != b"\n":
                text.seek(0)
                text.truncate(text.read().rfind(b"\n") + 1)
        text.write(lines.encode())
        text.flush()
        os.fsync(text.fileno())
