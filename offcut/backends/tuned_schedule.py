"""Find the schedule that tuning recorded for a kernel of which the user decided nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from offcut import debug
from offcut.backends.compile_request import CompileRequest
from offcut.backends.target import Options, Target
from offcut.core.program import digest_of
from offcut.core.records_path import default_file
from offcut.errors import OffcutError
from offcut.schedule import Schedule
from offcut.search import Records
from offcut.search.trials import VerdictLookup, recorded_verdict, shipped_verdict

# What a user says of records: a file; False: none; None: the default file, and behind it what is shipped.
RecordsArg: TypeAlias = str | os.PathLike[str] | Records | bool | None


@dataclass(frozen=True, slots=True)
class TunedSchedule:
    """The result of looking a kernel up in records.

    schedule  None: the target's policy decides
    notes     for its plan: which records, what they say, and why one was left aside
    source    what the schedule is from
    """

    schedule: Schedule | None = None
    notes: tuple[str, ...] = ()
    source: str = ""


def find_tuned_schedule(
    request: CompileRequest, options: Options, target: Target, records: RecordsArg
) -> TunedSchedule:
    """The schedule that the first records which know the program settled on; the user's come before what is
    shipped.

    Nothing that is wrong with records is an error here: it is said in the notes.
    """
    notes: tuple[str, ...] = ()
    for lookup in _lookups(request, options, target, records):
        if lookup.because:
            debug.note(1, f"records: {lookup.because}", logger="tune")
            notes = (*notes, f"records: {lookup.because}")
        if lookup.verdict is None:
            continue
        note = f"{lookup.source}: {lookup.verdict}"
        if not lookup.verdict.changes:
            return TunedSchedule(None, (*notes, note))
        try:
            schedule = Schedule.parse(lookup.verdict.schedule)
            return TunedSchedule(schedule, (*notes, note), lookup.source)
        except OffcutError as error:
            notes = (*notes, record_ignored_note(lookup.source, error))
    return TunedSchedule(None, notes)


def record_ignored_note(source: str, error: Exception) -> str:
    """Return, and log, the note of a plan whose tuned schedule cannot be used."""
    reason = str(error).splitlines()[0]
    if isinstance(error, OffcutError):
        reason = f"{error.refused}, because {error.because}"
    note = f"{source}: the tuned schedule is left aside: {reason}"
    debug.note(1, note, logger="tune")
    return note


def _lookups(
    request: CompileRequest, options: Options, target: Target, records: RecordsArg
) -> Iterator[VerdictLookup]:
    if records is False:
        return
    try:
        file = _file(records)
        exists = file is not None and file.exists()
    except (OSError, RuntimeError) as error:  # no rights to the folder, no home
        yield VerdictLookup(because=f"they cannot be used: {error}")
        file, exists = None, False
    digest = digest_of(request.text)
    if file is not None and exists:
        yield recorded_verdict(file, digest, target.record_key(options))
    elif records is not None and file is not None:
        yield VerdictLookup(because=f"there is no file {file}")
    if records is None and file is not None:
        yield shipped_verdict(digest, target.machine_kind(options))


def _file(records: RecordsArg) -> Path | None:
    if isinstance(records, Records):
        return records.path
    if isinstance(records, str | os.PathLike):
        return Path(records).expanduser()
    return default_file()
