"""Records as text: a line of JSON each, or CSV; what is written is read back exactly.

A field's name is its name in `Record`. In CSV, sizes are a JSON object and an empty cell is None. Among lines of JSON are
those of programs and places, each with its ``kind``; CSV has none.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from offcut.errors import OffcutError
from offcut.search.record import Origin, Record, entry_of, plain, text_of

NAMES = tuple(one.name for one in fields(Record))
_NUMBERS: dict[str, type[int] | type[float]] = {
    "seed": int,
    **dict.fromkeys(("seconds", "spread", "predicted", "created"), float),
}


def write(records: Iterable[Record], file: Path, origins: Iterable[Origin] = ()) -> int:
    """Records into a file by its suffix, ``.jsonl`` or ``.csv``; how many.

    origins  what they name by digest: lines of JSON before theirs
    """
    kept = tuple(records)
    with file.open("w", encoding="utf-8", newline="") as out:
        if file.suffix == ".csv":
            writer = csv.writer(out)
            writer.writerow(NAMES)
            writer.writerows(map(_cells, kept))
        else:
            out.writelines(f"{text_of(one)}\n" for one in (*origins, *kept))
    return len(kept)


def read(file: Path) -> tuple[list[Record], list[Origin]]:
    """The records in a file that `write` wrote, and the programs and places among them.

    Raises OffcutError, with the number of the first bad line, where one is no record.
    """
    check_form(file, "import")
    data = file.read_bytes()
    try:
        lines = io.StringIO(data.decode("utf-8-sig"), newline="")
        made = [_taken(number, found) for number, found in _FORMS[file.suffix](lines)]
        records = [one for one in made if isinstance(one, Record)]
        return records, [one for one in made if not isinstance(one, Record)]
    except UnicodeDecodeError as bad:
        number, because = data.count(b"\n", 0, bad.start) + 1, f"it is not UTF-8: {bad.reason}"
    except _BadLine as bad:
        number, because = bad.number, str(bad)
    raise OffcutError(
        "import",
        f"cannot read {file.name}",
        at=f"line {number}",
        because=because,
        help=("nothing of the file was taken: without this line, or with it mended, it is",),
    )


def _taken(number: int, found: Mapping[str, Any]) -> Record | Origin:
    try:
        return entry_of(found)
    except ValueError as error:
        raise _BadLine(number, str(error)) from None


class _BadLine(Exception):
    """A line that cannot be taken apart."""

    def __init__(self, number: int, because: str) -> None:
        super().__init__(because)
        self.number = number


def _from_json(lines: IO[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _BadLine(number, f"it is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise _BadLine(number, "it is not a JSON object")
        yield number, found


def _from_csv(lines: IO[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(lines, strict=True)
    names = next(reader, None)
    if names is None:
        return
    if {*names} not in ({*NAMES}, {*NAMES} - {"source"}) or len(names) != len({*names}):
        raise _BadLine(1, f"the columns are not {', '.join(NAMES)}")
    while True:
        first = reader.line_num + 1
        try:
            cells = next(reader, None)
            if cells is None:
                return
            if len(cells) != len(names):
                raise ValueError(f"it has {len(cells)} cells of {len(names)}")
            found = dict(zip(names, cells, strict=True))
            yield first, {name: _value(name, cell) for name, cell in found.items()}
        except (ValueError, RecursionError, csv.Error) as error:
            raise _BadLine(first, str(error)) from None


def _cells(record: Record) -> list[str]:
    found = plain(record) | {"sizes": json.dumps(dict(record.sizes))}
    return ["" if value is None else str(value) for value in (found[name] for name in NAMES)]


def _value(name: str, cell: str) -> Any:
    if name == "sizes":
        return json.loads(cell)
    if name not in _NUMBERS:
        return cell
    return _NUMBERS[name](cell) if cell else None


_FORMS: dict[str, Callable[[IO[str]], Iterator[tuple[int, Mapping[str, Any]]]]] = {
    ".jsonl": _from_json,
    ".csv": _from_csv,
}


def check_form(file: Path, op: str) -> None:
    """Refuse a file whose suffix names no form, for `op`."""
    if file.suffix not in _FORMS:
        raise OffcutError(
            op,
            f"cannot {op} {file.name}",
            because=f"its suffix is {file.suffix or 'missing'}, none of {', '.join(_FORMS)}",
        )
