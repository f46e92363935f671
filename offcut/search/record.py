"""One measurement of a schedule: what ran, where, at which sizes, and what became of it; and what a record names by digest only, in full:
a program as text, a place to plan for.

In a file each is a line of JSON, programs and places with their ``kind``; or records alone are lines of CSV, where sizes are a JSON object and an empty
cell is None. A field's name is its name in `Record`, and what is written is read back exactly.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar

from offcut.errors import OffcutError

if TYPE_CHECKING:
    from offcut.costmodel import Device


T = TypeVar("T")

Sizes: TypeAlias = tuple[tuple[str, int], ...]
"""A vector of sizes as a key: the user's name of each and its value, in the order of names."""


def key_of(sizes: Mapping[str, int]) -> Sizes:
    """Return sizes by name as a key."""
    return tuple(sorted(sizes.items()))


class Outcome(Enum):
    """What became of a candidate."""

    OK = "ok"  # its results are right, and it was timed
    REFUSED = "refused"  # it is not legal, or the target does not take it: in words
    WRONG = "wrong"  # a result is not what the program means
    CRASHED = "crashed"  # its process ended, or Python raised what is not a refusal
    HUNG = "hung"  # it was silent for longer than it may be
    OUT_OF_MEMORY = "out_of_memory"  # it asked for more than it may have


class Source(Enum):
    """Where the seconds of a record are from."""

    MEASURED = "measured"  # calls were timed
    SIMULATED = "simulated"  # a simulator of the machine counted its cycles
    PREDICTED = "predicted"  # a closed form, or what corrects it: nothing ran


@dataclass(frozen=True, slots=True)
class Record:
    """A candidate at one vector of sizes.

    program    `Program.digest` of what was asked for
    schedule   the text of the schedule, which `Schedule.parse` reads
    machine    what `place_of` gives
    version    of offcut
    sizes      by the user's names; empty where it ended before any size was tried
    seconds    median of a call, only where the outcome is ok, as is `spread`
    spread     distance of the quartiles over the median
    because    why it is not ok
    seed       of what it was measured on, and of the explorer
    explorer   that proposed it
    predicted  seconds of a call, where a model was asked
    created    seconds since 1970, UTC
    source     where `seconds` are from; `spread` is 0 where nothing was timed

    Raises OffcutError for a value that is none of these.
    """

    program: str
    schedule: str
    machine: str
    version: str
    sizes: Mapping[str, int] = field(hash=False)
    outcome: Outcome
    seconds: float | None = None
    spread: float | None = None
    because: str = ""
    seed: int = 0
    explorer: str = ""
    predicted: float | None = None
    created: float = 0.0
    source: Source = Source.MEASURED

    def __post_init__(self) -> None:
        because = self._misfit()
        if because:
            raise OffcutError("record", "cannot record this", because=because)

    def _misfit(self) -> str:
        """What is not as the fields say; "" where all is."""
        for name in ("program", "schedule", "machine", "version", "because", "explorer"):
            value = getattr(self, name)
            if not isinstance(value, str):
                return f"{name} is {value!r}, not a text"
            if not _encodable(value):
                return f"{name} is {value!r}, which UTF-8 does not hold"
        if not isinstance(self.outcome, Outcome):
            return f"outcome is {self.outcome!r}, none of {', '.join(o.value for o in Outcome)}"
        if not isinstance(self.source, Source):
            return f"source is {self.source!r}, none of {', '.join(o.value for o in Source)}"
        if not isinstance(self.sizes, Mapping):
            return f"sizes are {self.sizes!r}, no mapping of names to integers"
        for name, size in self.sizes.items():
            if not isinstance(name, str) or not _encodable(name) or not _is_integer(size):
                return f"sizes hold {name!r}: {size!r}, not a name and an integer of 64 bits"
        if not _is_integer(self.seed):
            return f"seed is {self.seed!r}, not an integer of 64 bits"
        ok = self.outcome is Outcome.OK
        for name in ("seconds", "spread"):
            value = getattr(self, name)
            if ok != (value is not None):
                return f"{name} is {value!r} where the outcome is {self.outcome.value}"
        for name, least in (("seconds", 0.0), ("spread", 0.0), ("predicted", 0.0), ("created", 0)):
            value = getattr(self, name)
            if value is None and name != "created":
                continue
            number = isinstance(value, float | int) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < least:
                return f"{name} is {value!r}, not a number from {least:g} on"
        return ""


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A program that was tuned.

    digest  `Program.digest`, which records call it by
    text    as `parse` reads it; which inputs are constants is in it
    sizes   the program's names of the sizes, by the user's

    Raises OffcutError for a field of another type.
    """

    digest: str
    text: str
    sizes: Mapping[str, str] = field(hash=False)

    def __post_init__(self) -> None:
        _check(self, digest=_is_text, text=_is_text, sizes=_is_names)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was measured: all that `place_of` makes a digest of.

    digest        which records call it by
    target        its name
    machine       the description that it plans for, field by field
    threads       of a call, at most
    reassociate   whether sums may be reassociated
    microkernels  names of those that were handed over, which nothing here describes

    Raises OffcutError for a field of another type.
    """

    digest: str
    target: str
    machine: Mapping[str, Any] = field(hash=False)
    threads: int
    reassociate: bool
    microkernels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "microkernels", tuple(self.microkernels))
        _check(
            self,
            digest=_is_text,
            target=_is_text,
            machine=lambda value: isinstance(value, Mapping),
            threads=lambda value: type(value) is int and value >= 1,
            reassociate=lambda value: type(value) is bool,
            microkernels=lambda value: all(map(_is_text, value)),
        )


Origin: TypeAlias = ProgramText | Place
KINDS: Mapping[str, type[Origin]] = {"program": ProgramText, "place": Place}
"""By what a line of JSON calls them; records have no kind there."""


def kind_of(origin: Origin) -> str:
    """Return what a line of JSON calls it."""
    return next(kind for kind, entry_type in KINDS.items() if isinstance(origin, entry_type))


def plain(entry: Record | Origin) -> dict[str, Any]:
    """Return the fields as JSON has them; of a program or a place behind their ``kind``."""
    values_by_field = {one.name: getattr(entry, one.name) for one in fields(entry)}
    if not isinstance(entry, Record):
        return {"kind": kind_of(entry), **values_by_field}
    values = {"outcome": entry.outcome.value, "source": entry.source.value}
    return {**values_by_field, "sizes": dict(entry.sizes), **values}


def text_of(entry: Record | Origin) -> str:
    """Return a line of JSON; what JSON has not, in the description of a machine of a plug-in, as it prints."""
    return json.dumps(plain(entry), ensure_ascii=False, default=repr)


def entry_of(data: Mapping[str, Any]) -> Record | Origin:
    """Return the record, the program or the place that `plain` was given; of a record that was written before records had a source,
    it was measured.

    Raises ValueError, in words, where the fields are of none.
    """
    if "kind" not in data:
        return record_of(data)
    kind_of_entry = KINDS.get(str(data["kind"]))
    if kind_of_entry is None:
        raise ValueError(f"its kind is {data['kind']!r}, none of {', '.join(KINDS)}")
    return _make_entry(
        kind_of_entry, {name: value for name, value in data.items() if name != "kind"}
    )


def record_of(data: Mapping[str, Any]) -> Record:
    """Return the record with these fields, as `entry_of`."""
    data = {"source": Source.MEASURED.value, **data}
    _check_names(Record, data)
    values: dict[str, Any] = {}
    for name, kind in (("outcome", Outcome), ("source", Source)):
        known = {one.value: one for one in kind}
        if not isinstance(data[name], str) or data[name] not in known:
            raise ValueError(f"its {name} is {data[name]!r}, none of {', '.join(known)}")
        values[name] = known[data[name]]
    return _make_entry(Record, {**data, **values})


def record_of_row(row: Mapping[str, Any]) -> Record:
    """Return the record in a row of a table of any layout: its sizes are JSON."""
    data = {name: value for name, value in row.items() if name in FIELD_NAMES}
    return record_of({**data, "sizes": json.loads(row["sizes"])})


def _check_names(kind: type[Any], data: Mapping[str, Any]) -> None:
    names = {one.name for one in fields(kind)}
    missing, odd = sorted(names - set(data)), sorted(set(data) - names)
    if missing or odd:
        raise ValueError(
            f"it lacks {', '.join(missing)}" if missing else f"it has {', '.join(map(str, odd))}"
        )


def _make_entry(kind: type[T], data: Mapping[str, Any]) -> T:
    """Return an entry with these fields.

    Raises ValueError, in words, where they are of none.
    """
    _check_names(kind, data)
    try:
        return kind(**data)
    except OffcutError as refused:
        raise ValueError(refused.because) from None
    except TypeError as error:
        raise ValueError(str(error)) from None


def _check(origin: Origin, **holds: Callable[[Any], bool]) -> None:
    for name, is_one in holds.items():
        value = getattr(origin, name)
        if not is_one(value):
            because = f"{name} is {value!r}"
            raise OffcutError(
                "record", f"cannot keep this {type(origin).__name__}", because=because
            )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_names(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, (*value, *value.values())))


def place_of(target: str, machine: Device, *facts: object) -> str:
    """What a record calls the place where it was measured: 64 bits of SHA-256, in hexadecimal.

    target, machine  the target's name, and the description that it plans for
    facts            all else that times depend on and the schedule does not say, each with a ``repr`` that is
                     the same in every process: threads, whether sums may be reassociated
    """
    return digest_of(target, machine, *facts)


def digest_of(name: str, *facts: object) -> str:
    """64 bits of SHA-256, in hexadecimal, of a name and of facts by their ``repr``."""
    text = "\0".join((name, *map(repr, facts)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


FIELD_NAMES = tuple(one.name for one in fields(Record))
_NUMBERS: dict[str, type[int] | type[float]] = {
    "seed": int,
    **dict.fromkeys(("seconds", "spread", "predicted", "created"), float),
}


def write_file(records: Iterable[Record], file: Path, origins: Iterable[Origin] = ()) -> int:
    """Records into a file by its suffix, ``.jsonl`` or ``.csv``; how many.

    origins  what they name by digest: lines of JSON before theirs
    """
    written_records = tuple(records)
    with file.open("w", encoding="utf-8", newline="") as out:
        if file.suffix == ".csv":
            writer = csv.writer(out)
            writer.writerow(FIELD_NAMES)
            writer.writerows(map(_cells, written_records))
        else:
            out.writelines(f"{text_of(one)}\n" for one in (*origins, *written_records))
    return len(written_records)


def read_file(file: Path) -> tuple[list[Record], list[Origin]]:
    """The records in a file that `write_file` wrote, and the programs and places among them.

    Raises OffcutError, with the number of the first bad line, where one is no record.
    """
    check_form(file, "import")
    data = file.read_bytes()
    try:
        lines = io.StringIO(data.decode("utf-8-sig"), newline="")
        entries = [_read_entry(number, entry) for number, entry in _FORMS[file.suffix](lines)]
        records = [one for one in entries if isinstance(one, Record)]
        return records, [one for one in entries if not isinstance(one, Record)]
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


def _read_entry(number: int, data: Mapping[str, Any]) -> Record | Origin:
    try:
        return entry_of(data)
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
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _BadLine(number, f"it is not JSON: {error}") from None
        if not isinstance(data, dict):
            raise _BadLine(number, "it is not a JSON object")
        yield number, data


def _from_csv(lines: IO[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(lines, strict=True)
    names = next(reader, None)
    if names is None:
        return
    if {*names} not in ({*FIELD_NAMES}, {*FIELD_NAMES} - {"source"}) or len(names) != len({*names}):
        raise _BadLine(1, f"the columns are not {', '.join(FIELD_NAMES)}")
    while True:
        first = reader.line_num + 1
        try:
            cells = next(reader, None)
            if cells is None:
                return
            if len(cells) != len(names):
                raise ValueError(f"it has {len(cells)} cells of {len(names)}")
            data = dict(zip(names, cells, strict=True))
            yield first, {name: _value(name, cell) for name, cell in data.items()}
        except (ValueError, RecursionError, csv.Error) as error:
            raise _BadLine(first, str(error)) from None


def _cells(record: Record) -> list[str]:
    data = plain(record) | {"sizes": json.dumps(dict(record.sizes))}
    return ["" if value is None else str(value) for value in (data[name] for name in FIELD_NAMES)]


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
