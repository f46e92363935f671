"""Records in one SQLite file: several processes write it at once, each may be killed at any moment.

A call of `add` is one transaction of a write-ahead log, on disk when it returns: what was added stays
whatever becomes of the process, and what was being added is there whole or not at all. No connection
outlives a call, so that `Records` crosses threads, forks and pickles. The file lies on a disk of this
machine: SQLite's log does not work over a network.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcut.core.records_path import OFF, default_file
from offcut.errors import OffcutError, trim_tracebacks
from offcut.search.record import (
    FIELD_NAMES,
    KINDS,
    Origin,
    Record,
    check_form,
    entry_of,
    kind_of,
    plain,
    read_file,
    record_of_row,
    text_of,
    write_file,
)
from offcut.search.trials import BEST, DEFAULT, Trial, Weighted, by_place, rank_trials, trials_of

if TYPE_CHECKING:
    import sqlite3

SCHEMA = 2
"""The version of the layout of the table, kept in the file's header as ``user_version``."""

_APPLICATION = 0x6F666375
"""What the header says that the file is of: ``application_id``."""

_PATIENCE = 30.0
"""Seconds that a call waits for other writers."""

_PAGE = 512
"""Records that are read at a time."""

_TABLE = """
CREATE TABLE record (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  program TEXT NOT NULL, schedule TEXT NOT NULL, machine TEXT NOT NULL, version TEXT NOT NULL,
  sizes TEXT NOT NULL, outcome TEXT NOT NULL, seconds REAL, spread REAL, because TEXT NOT NULL,
  seed INTEGER NOT NULL, explorer TEXT NOT NULL, predicted REAL, created REAL NOT NULL,
  source TEXT NOT NULL)
"""
_OLDER = 1
_NEWER = "ALTER TABLE record ADD COLUMN source TEXT NOT NULL DEFAULT 'measured'"
"""What makes version 2 of version 1, which had no source."""
_ORIGINS = """
CREATE TABLE IF NOT EXISTS origin (
  kind TEXT NOT NULL, digest TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (kind, digest))
"""
"""What a digest stands for, once; a file of an earlier offcut has no such table, and gets one with the first that is kept."""
_UNNAMED = "DELETE FROM origin WHERE digest NOT IN (SELECT program FROM record UNION SELECT machine FROM record)"
_INDEX = "CREATE INDEX addressed ON record (program, machine, version)"
_FIELDS = ", ".join(FIELD_NAMES)
_INSERT = f"INSERT INTO record ({_FIELDS}) VALUES ({', '.join('?' * len(FIELD_NAMES))})"


@trim_tracebacks
@dataclass(frozen=True, slots=True)
class Records:
    """The records in a file; nothing is created before the first is added.

    path  of the file; None: `default_file`

    Iteration gives every `Record` in order of writing.

    Raises OffcutError for a file that holds no records, or those of another layout; and for None where
    ``OFFCUT_RECORDS`` is ``off``.
    """

    path: Path

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        place = default_file() if path is None or (isinstance(path, str) and not path) else path
        if place is None:
            raise OffcutError(
                "records",
                "cannot keep records",
                because=f"OFFCUT_RECORDS is {OFF}",
                help=(
                    'Records("a file")',
                    "OFFCUT_RECORDS=a file",
                    "--records file, of the command",
                ),
            )
        if not isinstance(place, str | os.PathLike):
            raise OffcutError(
                "records",
                f"cannot keep records in {place!r}",
                because="records are a file",
                help=('Records("a file")',),
            )
        object.__setattr__(self, "path", Path(place).expanduser())
        if self._exists():
            with self._open():
                pass

    def add(self, records: Record | Iterable[Record]) -> None:
        """Write records, all or none; they are on disk when this returns.

        Raises OffcutError where the file cannot be written.
        """
        rows = [_row(one) for one in ((records,) if isinstance(records, Record) else records)]
        with self._open(writes=True) as connection:
            connection.executemany(_INSERT, rows)

    def keep(self, origins: Iterable[Origin]) -> None:
        """Write what digests stand for: the texts of programs, the descriptions of places; each is kept once."""
        with self._open(writes=True) as connection:
            _keep_origins(connection, origins)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """What is known of the programs and the places that records name."""
        if not self._exists():
            return ()
        with self._open() as connection:
            if not _has_origins(connection):
                return ()
            known = ", ".join(f"'{kind}'" for kind in KINDS)  # a later offcut may keep others
            query = f"SELECT said FROM origin WHERE kind IN ({known}) ORDER BY kind DESC, digest"
            rows = connection.execute(query).fetchall()
        entries = (entry_of(json.loads(text)) for (text,) in rows)
        return tuple(one for one in entries if not isinstance(one, Record))

    def __iter__(self) -> Iterator[Record]:
        for _, record in self._numbered_records():
            yield record

    def __len__(self) -> int:
        if not self._exists():
            return 0
        with self._open() as connection:
            return int(connection.execute("SELECT count(*) FROM record").fetchone()[0])

    def trials(self, program: str, machine: str, version: str | None = None) -> tuple[Trial, ...]:
        """What was tried of a program on a machine, in the order of first records.

        program, machine  digests: `Program.digest`, `place_of`
        version           of offcut; None: any
        """
        where, values = "program = ? AND machine = ?", [program, machine]
        if version is not None:
            where, values = f"{where} AND version = ?", [*values, version]
        return trials_of(record for _, record in self._numbered_records(where, values))

    def best(
        self, program: str, machine: str, version: str | None = None, sizes: Weighted = ()
    ) -> Trial | None:
        """The fastest trial, as `rank_trials` has it; None where none is ok."""
        return next(iter(rank_trials(self.trials(program, machine, version), sizes)), None)

    def prune(self, keep: int, version: str | None = None) -> int:
        """Remove all but the fastest trials of each program, machine and version; how many records went.

        What tuning settled on stays beside them.

        keep     trials that stay, of each
        version  of offcut; whatever is of another goes; None: each version keeps its own
        """
        if keep < 0:
            raise OffcutError(
                "prune",
                f"cannot keep {keep} trials",
                because="a number of trials is at least 0",
                help=("prune(keep=8)",),
            )
        if not self._exists():
            return 0
        with self._open(writes=True) as connection:
            rows = connection.execute(f"SELECT id, {_FIELDS} FROM record ORDER BY id").fetchall()
            here = [
                (row[0], record_of_row(dict(zip(FIELD_NAMES, row[1:], strict=True))))
                for row in rows
            ]
            stay = {
                (*place, trial.schedule)
                for place, trials in by_place(one for _, one in here).items()
                if version in (None, place[-1])
                for trial in rank_trials(trials)[:keep]
            }
            gone = [
                (number,)
                for number, one in here
                if (one.program, one.machine, one.version, one.schedule) not in stay
                and (one.explorer not in (BEST, DEFAULT) or version not in (None, one.version))
            ]
            connection.executemany("DELETE FROM record WHERE id = ?", gone)
            if _has_origins(connection):
                connection.execute(_UNNAMED)
        return len(gone)

    def export(self, path: str | os.PathLike[str]) -> int:
        """Write all records as text, ``.jsonl`` or ``.csv`` by the suffix; how many.

        JSON lines hold what their digests stand for, too. The file appears whole or not at all.
        """
        file = Path(path)
        check_form(file, "export")
        with _system_error_text(file, "export"):
            half = file.with_name(f".{os.getpid()}-{file.name}")
            try:
                count = write_file(self, half, self.origins)
                half.replace(file)
            finally:
                half.unlink(missing_ok=True)
        return count

    def import_(self, path: str | os.PathLike[str]) -> int:
        """Add the records of a file that `export` wrote, those that are not here yet; how many.

        Raises OffcutError, with the number of the first bad line, and adds nothing, where one is no record.
        """
        file = Path(path)
        with _system_error_text(file, "import"):
            entries, origins = read_file(file)
            rows = [_row(record) for record in entries]
        with self._open(writes=True) as connection:
            _keep_origins(connection, origins)
            here = set(connection.execute(f"SELECT {_FIELDS} FROM record"))
            new = [row for row in dict.fromkeys(rows) if row not in here]
            connection.executemany(_INSERT, new)
        return len(new)

    def _numbered_records(
        self, where: str = "1", values: Iterable[str] = ()
    ) -> Iterator[tuple[int, Record]]:
        """Records with their numbers, read a page at a time: no reader keeps the log from shrinking."""
        query = f"SELECT id, {_FIELDS} FROM record WHERE id > ? AND {where} ORDER BY id LIMIT ?"
        last = 0
        while self._exists():
            with self._open() as connection:
                page = connection.execute(query, (last, *values, _PAGE)).fetchall()
            if not page:
                return
            for row in page:
                yield row[0], record_of_row(dict(zip(FIELD_NAMES, row[1:], strict=True)))
            last = page[-1][0]

    def _exists(self) -> bool:
        return self.path.exists()

    @contextmanager
    def _open(self, writes: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection, within one transaction; closed after it."""
        import sqlite3  # takes longer to load than the rest of this file

        with self._refusing():
            if writes:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            try:
                connection.execute("PRAGMA synchronous = FULL")
                self._check(connection)
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            finally:
                connection.close()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """What SQLite and the system refuse, in words."""
        import sqlite3

        try:
            yield
        except (sqlite3.Error, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise OffcutError(
                "records",
                f"cannot use {self.path.name}",
                at=str(self.path),
                because=str(reason or error),
                help=('Records("another file")', "OFFCUT_RECORDS=another file"),
            ) from error

    def _check(self, connection: sqlite3.Connection) -> None:
        """See that the file is of records, and of this layout; an empty one becomes so."""
        application, schema = _header(connection)
        if application == 0 != schema:  # another process wrote both between the two readings
            application, schema = _header(connection)
        if (application, schema) == (0, 0):
            connection.execute("BEGIN IMMEDIATE")
            try:
                application, schema = _header(connection)  # another may have been faster
                tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
                if (application, schema, tables) == (0, 0, 0):
                    connection.execute(_TABLE)
                    connection.execute(_INDEX)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA}")
                    application, schema = _APPLICATION, SCHEMA
            finally:
                connection.execute("COMMIT")
        if application != _APPLICATION:
            because = "it is a database of something else"
        elif schema not in (_OLDER, SCHEMA):
            because = f"its layout is version {schema}, and this offcut reads version {SCHEMA}"
        else:
            _log_ahead(connection)
            if schema == _OLDER:
                _with_source(connection)
            return
        raise OffcutError(
            "records",
            f"cannot use {self.path.name}",
            at=str(self.path),
            because=because,
            help=(
                "export(…) there and import_(…) here take records across",
                'Records("another file")',
            ),
        )


def _keep_origins(connection: sqlite3.Connection, origins: Iterable[Origin]) -> None:
    """Write those that are not there; what a digest stands for never changes."""
    connection.execute(_ORIGINS)
    rows = [(kind_of(one), one.digest, text_of(one)) for one in origins]
    connection.executemany("INSERT OR IGNORE INTO origin VALUES (?, ?, ?)", rows)


def _has_origins(connection: sqlite3.Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'origin'"
    return bool(connection.execute(query).fetchone()[0])


def _header(connection: sqlite3.Connection) -> tuple[int, int]:
    return (
        int(connection.execute("PRAGMA application_id").fetchone()[0]),
        int(connection.execute("PRAGMA user_version").fetchone()[0]),
    )


def _with_source(connection: sqlite3.Connection) -> None:
    """Add the source to the records of a file; another may be faster."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _header(connection)[1] == _OLDER:
            connection.execute(_NEWER)
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
    finally:
        connection.execute("COMMIT")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch the file to a write-ahead log, where it is not; for this SQLite waits for nobody."""
    import sqlite3

    until = time.monotonic() + _PATIENCE
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


@contextmanager
def _system_error_text(file: Path, op: str) -> Iterator[None]:
    """What the system refuses of a file, in words."""
    try:
        yield
    except OSError as error:
        raise OffcutError(
            op, f"cannot {op} {file.name}", at=str(file), because=error.strerror or str(error)
        ) from error


def _row(record: Record) -> tuple[Any, ...]:
    if not isinstance(record, Record):
        raise OffcutError("records", f"cannot add {record!r}", because="it is not a Record")
    values = plain(record) | {
        "sizes": json.dumps(dict(sorted(record.sizes.items()))),
        "created": float(record.created),
    }
    return tuple(values[name] for name in FIELD_NAMES)
