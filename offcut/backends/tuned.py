"""The schedule that tuning settled on, for a kernel that nobody decided anything about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from offcut import debug
from offcut.backends.requested import Request
from offcut.backends.target import Options, Target
from offcut.core.program import digest_of
from offcut.errors import OffcutError
from offcut.schedule import Schedule
from offcut.search import Records
from offcut.search.default_file import default_file
from offcut.search.settled import Settled, settled_before, settled_in

# What a user says of records: a file; False: none; None: the default file, and behind it what is shipped.
Asked: TypeAlias = str | os.PathLike[str] | Records | bool | None


@dataclass(frozen=True, slots=True)
class Tuned:
    """What records say of a kernel.

    schedule  None: the target's policy decides
    notes     for its plan: which records, what they say, and why one was left aside
    source    what the schedule is from
    """

    schedule: Schedule | None = None
    notes: tuple[str, ...] = ()
    source: str = ""


def tuned(request: Request, options: Options, target: Target, asked: Asked) -> Tuned:
    """The schedule that the first records which know the program settled on; the user's come before what is
    shipped.

    Nothing that is wrong with records is an error here: it is said in the notes.
    """
    notes: tuple[str, ...] = ()
    for found in _looked_up(request, options, target, asked):
        if found.because:
            debug.note(1, f"records: {found.because}")
            notes = (*notes, f"records: {found.because}")
        if found.verdict is None:
            continue
        said = f"{found.source}: {found.verdict}"
        if not found.verdict.changes:
            return Tuned(None, (*notes, said))
        try:
            schedule = Schedule.parse(found.verdict.schedule)
            return Tuned(schedule, (*notes, said), found.source)
        except OffcutError as refused:
            notes = (*notes, left_aside(found.source, refused))
    return Tuned(None, notes)


def state_of_records() -> str:
    """The default file of records as it is now: another text where it may have come to say something else."""
    try:
        file = default_file()
        parts = () if file is None else (file, file.with_name(f"{file.name}-wal"))
        found = [(one.stat().st_size, one.stat().st_mtime_ns) for one in parts if one.exists()]
    except (OSError, RuntimeError) as error:
        return str(error)
    return f"{file} {found}"


def left_aside(source: str, refused: Exception) -> str:
    """What a plan says of a tuned schedule that cannot be taken."""
    reason = str(refused).splitlines()[0]
    if isinstance(refused, OffcutError):
        reason = f"{refused.refused}, because {refused.because}"
    said = f"{source}: the tuned schedule is left aside: {reason}"
    debug.note(1, said)
    return said


def _looked_up(
    request: Request, options: Options, target: Target, asked: Asked
) -> Iterator[Settled]:
    if asked is False:
        return
    try:
        file = _file(asked)
        there = file is not None and file.exists()
    except (OSError, RuntimeError) as error:  # no rights to the folder, no home
        yield Settled(because=f"they cannot be used: {error}")
        file, there = None, False
    digest = digest_of(request.text)
    if file is not None and there:
        yield settled_in(file, digest, target.place(options))
    elif asked is not None and file is not None:
        yield Settled(because=f"there is no file {file}")
    if asked is None and file is not None:
        yield settled_before(digest, target.kind(options))


def _file(asked: Asked) -> Path | None:
    if isinstance(asked, Records):
        return asked.path
    if isinstance(asked, str | os.PathLike):
        return Path(asked).expanduser()
    return default_file()
