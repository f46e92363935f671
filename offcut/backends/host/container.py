"""A file of named members: an archive in the ZIP format whose members are stored as they are, each from a page on.

So any tool for archives lists and extracts them, and a process maps the file instead of reading it: processes that map one file have
its bytes in memory once. ``manifest.json`` is a JSON object that says what the other members are.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from offcut.errors import DescribeError, TargetError

PAGE = 4096
"""Bytes at a multiple of which a member begins."""
MANIFEST = "manifest.json"
_LOCAL_HEADER = struct.Struct(
    "<4s5H3I2H"
)  # of the ZIP format: signature … length of name, of extra field
_COUNT = slice(-12, -10)  # bytes of a file that say how many members it has
_PADDING = 0xFF0C  # number of the extra field that fills up to the next page
_ZIP64_FIELD = 20  # bytes that `zipfile` adds to the header of a member of 2 GiB and more
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of each member: equal contents are equal files

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def write_container(
    path: str | os.PathLike[str], manifest: Mapping[str, Any], members: Mapping[str, Sequence[Any]]
) -> None:
    """Write a file; another process sees the one before, or the whole of this one.

    members  the parts of each, one after the other: bytes, or arrays of uint8

    Raises DescribeError where it cannot be written.
    """
    text = json.dumps(manifest, indent=1, allow_nan=False).encode()
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, parts in {MANIFEST: [text], **members}.items():
            _write_member(archive, file.tell(), name, parts)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Write a file atomically, as a context: another process sees the one before, or the whole of this one.

    Raises DescribeError where it cannot be written.
    """
    where = Path(os.fsdecode(path))
    try:
        with NamedTemporaryFile(dir=where.parent, prefix=f".{where.name}.", delete=False) as file:
            try:
                yield file
                file.close()
                os.chmod(file.name, 0o666 & ~_umask())
                os.replace(file.name, where)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise DescribeError(
            "save",
            f"cannot write {where}",
            because=error.strerror or "the system refuses",
            help=("a path in a folder that is there, and yours",),
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_member(archive: zipfile.ZipFile, at: int, name: str, parts: Sequence[Any]) -> None:
    views = [memoryview(part).cast("B") for part in parts]
    info = zipfile.ZipInfo(name, _EPOCH)
    info.file_size = sum(view.nbytes for view in views)
    large = info.file_size * 1.05 > zipfile.ZIP64_LIMIT
    end = at + _LOCAL_HEADER.size + len(name) + 4 + (_ZIP64_FIELD if large else 0)
    padding = -end % PAGE
    info.extra = struct.pack("<HH", _PADDING, padding) + bytes(padding)
    with archive.open(info, "w", force_zip64=large) as member:
        for view in views:
            member.write(view)


def read_container(path: str | os.PathLike[str]) -> tuple[Mapping[str, Any], Mapping[str, Bytes]]:
    """Return the manifest of a file, and its other members: read-only bytes of the mapped file, which lives as long as one of them.

    Raises DescribeError for a file that cannot be read, that is none of these, or of which a byte has changed since it was written.
    """
    where = Path(os.fsdecode(path))
    try:
        with where.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b""
    except (OSError, ValueError) as error:  # ValueError: a path with a byte of 0
        because = getattr(error, "strerror", None) or str(error)
        raise _unreadable(where, because) from None
    whole: Bytes = np.frombuffer(mapped, np.uint8)
    try:
        with zipfile.ZipFile(where) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, struct.error) as error:
        raise _unreadable(where, f"it is damaged, or no saved file: {error}") from None
    if int.from_bytes(whole[_COUNT].tobytes(), "little") != len(entries):
        raise _unreadable(where, "it is damaged: its directory lists other members")
    members: dict[str, Bytes] = {}
    for entry in entries:
        members[entry.filename] = _member(where, whole, entry)
    try:
        manifest = json.loads(bytes(members.pop(MANIFEST)))
    except (KeyError, ValueError):
        raise _unreadable(where, f"it has no {MANIFEST}") from None
    if not isinstance(manifest, dict):
        raise _unreadable(where, f"its {MANIFEST} is not a JSON object")
    return manifest, members


def _member(where: Path, whole: Bytes, entry: zipfile.ZipInfo) -> Bytes:
    """Return the bytes of a member, those that were written."""
    begin = entry.header_offset
    header = whole[begin : begin + _LOCAL_HEADER.size].tobytes()
    if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\3\4":
        raise _unreadable(where, f"it is damaged: {entry.filename} has no header")
    *_, name, extra = _LOCAL_HEADER.unpack(header)
    start = begin + _LOCAL_HEADER.size + name + extra
    found = whole[start : start + entry.file_size]
    stored = entry.compress_type == zipfile.ZIP_STORED and start % PAGE == 0
    stored &= whole[start - name - extra : start - extra].tobytes() == entry.filename.encode()
    if len(found) < entry.file_size or not stored or zlib.crc32(found.data) != entry.CRC:
        raise _unreadable(where, f"it is damaged: {entry.filename} is not what was written")
    return found


def _unreadable(where: Path, because: str) -> DescribeError:
    return DescribeError(
        "load",
        f"cannot read {where}",
        because=because,
        help=("kernel.save(path)", "model.save(path)"),
    )


def unreadable(where: Path, because: str) -> DescribeError:
    """Return the error for a file that is no kernel or model, or is damaged."""
    return DescribeError("load", f"cannot read {where}", because=because)


def other_processor(where: Path, name: str, because: str) -> TargetError:
    """Return the error for code of another processor than this process runs on.

    name  of the kernel or the model in the file
    """
    return _not_runnable(where, name, because, "saved again on a machine like this one")


def lacks_package(where: Path, name: str, because: str, package: str, *others: str) -> TargetError:
    """Return the error for a kernel or a model that needs a Python package which is not installed.

    name    of the kernel or the model in the file
    others  what would let it run without the package
    """
    because = f"{because}, and {package} is not installed"
    return _not_runnable(where, name, because, f"pip install {package}", *others)


def _not_runnable(where: Path, name: str, because: str, *help: str) -> TargetError:
    refused = f"cannot run {name} of {where.name} here"
    return TargetError("load", refused, because=because, help=help)
