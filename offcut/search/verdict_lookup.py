"""Which schedule tuning settled on for a program at a place, looked up in what is recorded and in what is shipped.

A look-up never fails, never waits and writes nothing: what cannot be read gives no verdict, and a reason. Nothing
but the system's folder is asked where there is no file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import offcut
from offcut.costmodel import Device, Machine
from offcut.errors import OffcutError
from offcut.search.record import Outcome, Record, digest_of, place_of, record_of
from offcut.search.trials import (
    BEST,
    DEFAULT,
    Verdict,
    has_same_planner,
    latest_verdict,
    verdicts_of,
)

SHIPPED = Path(offcut.__file__).with_name("records")
"""The folder of what was measured before: ``NAME-PLACE.jsonl``, where PLACE is what `machine_kind` gives."""

_PATIENCE = 0.1
"""Seconds that a look-up waits for a writer who has locked the whole file."""

_QUERY = (
    "SELECT * FROM record"
    " WHERE program = ? AND machine = ? AND explorer IN (?, ?) AND outcome = ? ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class VerdictLookup:
    """What a look-up gives.

    verdict  None: there is none
    source   what it is from, as a plan says it
    because  why a file was left aside; "" where none was
    """

    verdict: Verdict | None = None
    source: str = ""
    because: str = ""


def recorded_verdict(file: Path, program: str, machine: str) -> VerdictLookup:
    """The last word of a file of records.

    program, machine  digests: `Program.digest`, `place_of`
    """
    import sqlite3  # takes longer to load than the rest of this file

    try:
        # a connection that may write takes away the log that it makes; one that may not leaves it behind
        address = f"{file.resolve().as_uri()}?mode=rw"
        connection = sqlite3.connect(address, timeout=_PATIENCE, uri=True)
        try:
            asked = program, machine, BEST, DEFAULT, Outcome.OK.value
            connection.row_factory = sqlite3.Row
            rows = connection.execute(_QUERY, asked).fetchall()
        finally:
            connection.close()
        records = [_record(dict(row)) for row in rows]
    except (sqlite3.Error, OSError, OffcutError, ValueError, TypeError) as error:
        reason = error.because if isinstance(error, OffcutError) else str(error)
        return VerdictLookup(because=f"{file.name} cannot be used: {reason}")
    return _lookup(records, file.name)


def shipped_verdict(program: str, place: str) -> VerdictLookup:
    """The last word of what is shipped.

    place   what `machine_kind` gives
    """
    records: list[Record] = []
    try:
        for file in sorted(SHIPPED.glob(f"*-{place}.jsonl")):
            with file.open(encoding="utf-8") as lines:
                records += _read(lines, program)
    except (OSError, ValueError) as error:
        return VerdictLookup(because=f"shipped records cannot be used: {error}")
    return _lookup(records, "shipped records")


def machine_kind(target: str, machine: Device, threads: int, *facts: object) -> str:
    """What shipped records call the place: the target, and of a processor what a schedule is made for, which is its
    instructions and the caches that a core has for itself; not its clock, its cores, or what was measured of it.
    """
    if not isinstance(machine, Machine):
        return place_of(target, machine, threads, *facts)
    own = tuple((memory.name, memory.bytes) for memory in machine.memory[:2])
    return digest_of(target, machine.architecture, sorted(machine.features), own, threads, *facts)


def _lookup(records: Sequence[Record], source: str) -> VerdictLookup:
    """Return the last verdict of versions that plan as this one does, or the reason why one of another version is not taken."""
    alike = (one for one in records if has_same_planner(one.version, offcut.__version__))
    verdict = latest_verdict(verdicts_of(alike))
    if verdict is not None or not records:
        return VerdictLookup(verdict, source)
    versions = ", ".join(sorted({one.version for one in records}))
    return VerdictLookup(
        because=f"{source} has a verdict of offcut {versions}, which is not taken: this is "
        f"{offcut.__version__}, and schedules may plan otherwise; tune again"
    )


def _read(lines: Iterator[str], program: str) -> Iterator[Record]:
    """The records of a program, others not taken apart."""
    for line in lines:
        if program in line:
            found = json.loads(line)
            if found.get("explorer") in (BEST, DEFAULT) and found.get("program") == program:
                yield record_of(found)


def _record(row: Mapping[str, Any]) -> Record:
    """Return the record in a row of a file of any version that there was."""
    found = {name: value for name, value in row.items() if name != "id"}
    return record_of({**found, "sizes": json.loads(row["sizes"])})
