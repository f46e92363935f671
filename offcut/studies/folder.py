"""The folder of a study: one process measures into it at a time; what it says in text is kept under version control.

Results that are kept: what a study's folder says in text, by machine, date and commit, for version control.

Lock the folder of a study: one process measures into it at a time.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from offcut.errors import OffcutError
from offcut.studies.environment import read_environments
from offcut.studies.errors import refusal
from offcut.studies.samples import FILE, read_samples

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[str]:
    """Hold the lock of a folder, created if needed; yield the number of the process that held it and was killed, "" if none was.

    The system releases the lock when the process ends, however it does; if it is killed, its number stays in the file.

    Raises OffcutError if another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            because = f"the process {file.read().strip() or 'of another study'} measures into it"
            help = ("wait for it to end", "--out another folder")
            raise OffcutError(
                "study", "cannot measure", at=str(folder), because=because, help=help
            ) from error
        file.seek(0)
        killed_process = file.read().strip()
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield killed_process
        finally:
            file.truncate(0)


def keep_results(file: Path, folder: Path, results: Path) -> Path:
    """Copy a study's file, samples, environments and tables into ``results/machine/date-commit/study``; return that folder.

    file     of the study; folder: its samples, of one machine and one commit
    results  the folder of all results that are kept

    Pictures and the report are left out: `offcut study` writes them anew from the samples.

    Raises DescribeError for samples of several machines or commits, or of a commit with changes; OffcutError where a file cannot be
    written.
    """
    samples = [one for one in read_samples(folder / FILE).values() if one.seconds]
    facts = read_environments(folder, (one.environment for one in samples))
    places = {(one["cpu"], one["commit"]) for one in facts}
    if len(places) != 1:
        listed = "; ".join(f"{cpu} at {commit[:8]}" for cpu, commit in sorted(places)) or "nothing"
        because = f"its samples are of {listed}"
        raise refusal(str(folder), because, "--out another folder", what="cannot keep the results")
    ((cpu, commit),) = places
    if not commit or any(one["dirty"] for one in facts):
        because = "nothing can be measured again at a commit with changes, or at none"
        help = "git commit, then measure into another folder"
        raise refusal(str(folder), because, help, what="cannot keep the results")
    date = min(one.date for one in samples)[:10]
    place = results / machine_name(cpu) / f"{date}-{commit[:8]}" / file.stem
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "environments").mkdir(exist_ok=True)
        shutil.copyfile(file, place / file.name)
        shutil.copyfile(folder / FILE, place / FILE)
        for one in (*folder.glob("*.csv"), *folder.glob("environments/*.json")):
            shutil.copyfile(one, place / one.relative_to(folder))
    except OSError as error:
        because = error.strerror or str(error)
        raise OffcutError("study", f"cannot write {place}", because=because) from error
    return place


def machine_name(cpu: str) -> str:
    """Return a processor's name as the name of a folder: small letters, digits and hyphens."""
    words = re.sub(r"\((r|tm)\)|@.*|\bcpu\b|\bprocessor\b", " ", cpu.lower())
    return "-".join(re.findall(r"[a-z0-9.]+", words)) or "unknown"
