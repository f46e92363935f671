"""The table of programs and places beside that of records: what a digest stands for, once.

A file of an earlier offcut has no such table, and gets one with the first that is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from offcut.search.origin import KINDS, Origin, origin_of, text_of

if TYPE_CHECKING:
    import sqlite3

_TABLE = """
CREATE TABLE IF NOT EXISTS origin (
  kind TEXT NOT NULL, digest TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (kind, digest))
"""


def keep(connection: sqlite3.Connection, origins: Iterable[Origin]) -> None:
    """Write those that are not there; what a digest stands for never changes."""
    connection.execute(_TABLE)
    rows = [(_kind(one), one.digest, text_of(one)) for one in origins]
    connection.executemany("INSERT OR IGNORE INTO origin VALUES (?, ?, ?)", rows)


def kept(connection: sqlite3.Connection) -> tuple[Origin, ...]:
    """All of them, programs and places, in order of their digests."""
    if not _is_there(connection):
        return ()
    known = ", ".join(f"'{kind}'" for kind in KINDS)  # a later offcut may keep others
    query = f"SELECT said FROM origin WHERE kind IN ({known}) ORDER BY kind DESC, digest"
    rows = connection.execute(query).fetchall()
    return tuple(origin_of(json.loads(said)) for (said,) in rows)


def drop_unused(connection: sqlite3.Connection) -> None:
    """Remove those that no record names."""
    if _is_there(connection):
        connection.execute(
            "DELETE FROM origin WHERE digest NOT IN "
            "(SELECT program FROM record UNION SELECT machine FROM record)"
        )


def _is_there(connection: sqlite3.Connection) -> bool:
    named = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'origin'"
    return bool(connection.execute(named).fetchone()[0])


def _kind(origin: Origin) -> str:
    return next(kind for kind, made in KINDS.items() if isinstance(origin, made))
