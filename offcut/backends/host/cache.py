"""Object code and models on disk: private to the user, safe when two processes write at once.

An entry is one file named by the SHA-256 of all that its code depends on. It starts with a magic
number and the SHA-256 of its name and the rest, so that a torn, edited or renamed file is seen and
rebuilt. Files appear by rename, whole or not at all. ``OFFCUT_CACHE`` names another folder, or ``off`` for none.

Models as the cache keeps them: saved files (`saved`), each named by the file that it was compiled from and by all that decides how.

A process that finds one runs it, and imports neither the reader of that file nor the compiler. Such a file calls the machine code of the
kernels as the cache has it, so that to keep a model compiles no kernel again; it leaves to the compiled model what it does not
do as fast, or cannot: a call whose values do not fit in the last cache, which may run for parts of the batch, and data too large for
fewer products.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite

import offcut
from offcut import debug
from offcut.backends.abi import PortableCode
from offcut.backends.host.saved_file import SavedCode, SavedModel, load, write_saved
from offcut.core.records_path import records_fingerprint
from offcut.errors import OffcutError, TargetError

_MAGIC = b"offcut-object-2\n"
_DIGEST = 32
BUILT_ON_COMPILING = frozenset({"cli", "experiment", "graph", "plugins", "studies", "tuning"})
"""Rooms of offcut that what compiles may not import: no code depends on their sources."""


def cache_dir() -> Path | None:
    """Where entries lie; None where caching is off or there is no folder of the user's.

    Raises TargetError where ``OFFCUT_CACHE`` names what is no folder, or one that others may write to: what lies there is run.
    """
    chosen = os.environ.get("OFFCUT_CACHE", "")
    if chosen == "off":
        return None
    if chosen:
        return _own(Path(chosen).expanduser(), named=True)
    import platformdirs  # not where the folder is named

    return _own(Path(platformdirs.user_cache_dir("offcut")))


@cache
def _own(path: Path, named: bool = False) -> Path | None:
    """`path`, made where there is none, with the rights that it has; None where it is no folder of the user's.

    named  whether the user asks for it: then what cannot be a folder is refused
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        if named:
            raise TargetError(
                "OFFCUT_CACHE",
                f"cannot keep code in {path}",
                because=f"it is not a folder, and none can be made there: {error.strerror}",
                help=("OFFCUT_CACHE=another folder, or off",),
            ) from None
        _warn_once(path, str(error.strerror))
        return None
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        if named:
            raise TargetError(
                "OFFCUT_CACHE",
                f"cannot keep code in {path}",
                because="it belongs to another user, and code that is kept is run",
                help=("OFFCUT_CACHE=another folder, or off",),
            )
        _warn_once(path, "it belongs to another user")
        return None
    by_group = bool(status.st_mode & stat.S_IWGRP) and not _is_alone_in(status.st_gid)
    if by_group or status.st_mode & stat.S_IWOTH:
        raise TargetError(
            "cache",
            f"cannot keep code in {path}",
            because=f"others may write there (its mode is {stat.S_IMODE(status.st_mode):o}), and code that is kept is run",
            help=("chmod go-w of it", "OFFCUT_CACHE=another folder, or off"),
        )
    return path


def _is_alone_in(group: int) -> bool:
    """Whether a group is the user's own: of the user's name, and nobody else in it."""
    try:
        import grp
        import pwd

        name, members = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(group)
    except (ImportError, KeyError):
        return False
    return members.gr_name == name and set(members.gr_mem) <= {name}


def key(*parts: str, rooms: frozenset[str] = frozenset()) -> str:
    """The name of an entry that depends on `parts` and on the versions of offcut and LLVM.

    rooms  of `BUILT_ON_COMPILING` on whose sources it depends, too
    """
    digest = hashlib.sha256()
    for part in (_source_digest(rooms), llvmlite.__version__, *parts):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


@cache
def _source_digest(rooms: frozenset[str]) -> str:
    """Return a digest of offcut's version, and of the sources that an entry may depend on: edited ones are others.

    An installer writes down the contents of all files that it installs, in one; of a folder of sources, sizes and times are read.
    """
    root = os.path.dirname(offcut.__file__)
    with suppress(OSError), open(f"{root}-{offcut.__version__}.dist-info/RECORD", "rb") as record:
        return hashlib.sha256(record.read()).hexdigest()
    apart = frozenset(os.path.join(root, room) for room in BUILT_ON_COMPILING - rooms)
    digest = hashlib.sha256(offcut.__version__.encode())
    digest.update(repr(sorted(_sources(root, apart))).encode())
    return digest.hexdigest()


def _sources(root: str, apart: frozenset[str]) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of each source, descriptions of machines and shipped records among them.

    apart  folders whose sources are left out
    """
    folders, within = [root], len(root)
    for at in folders:
        with os.scandir(at) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".toml", ".jsonl")):
                    try:
                        status = entry.stat()
                    except OSError:  # an editor links to nothing beside a file that is open
                        continue
                    yield entry.path[within:], status.st_size, status.st_mtime_ns
                elif entry.name == "__pycache__" or entry.path in apart:
                    continue
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def read(name: str) -> bytes | None:
    """The entry, or None where there is none or it is damaged; a damaged one is removed."""
    home = cache_dir()
    if home is None:
        return None
    path = home / name
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head, digest, payload = (
        data[: len(_MAGIC)],
        data[len(_MAGIC) :][:_DIGEST],
        data[len(_MAGIC) + _DIGEST :],
    )
    if head == _MAGIC and _digest(name, payload) == digest:
        debug.note(2, f"cache: {name} read, {len(payload):,} bytes", logger="cache")
        return payload
    debug.note(1, f"cache: {name} is damaged, rebuilt", logger="cache")
    with suppress(OSError):  # a folder that others fill
        path.unlink()
    return None


def get_or_build(name: str, make: Callable[[], bytes]) -> bytes:
    """The entry; what `make` gives, which is kept, where there is none."""
    data = read(name)
    if data is None:
        data = make()
        write(name, data)
    return data


def write(name: str, payload: bytes) -> None:
    """Keep an entry; where that fails the next process builds it again."""
    home = cache_dir()
    if home is None:
        return
    left = None
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix="new-", delete=False) as file:
            left = file.name
            file.write(_MAGIC + _digest(name, payload) + payload)
        os.replace(file.name, home / name)
        debug.note(2, f"cache: {name} written, {len(payload):,} bytes", logger="cache")
    except OSError as error:
        debug.note(1, f"cache: {name} not written: {error}", logger="cache")
        _warn_once(home, str(error.strerror))
        if left is not None:
            with suppress(OSError):
                os.unlink(left)


@cache
def _warn_once(path: Path, reason: str) -> None:
    """Warn that nothing is cached in `path`; once a process for each reason."""
    warnings.warn(
        f"offcut: compiled code is not cached in {path}: {reason}; each process compiles again "
        "(OFFCUT_CACHE=another folder, or off)",
        RuntimeWarning,
        stacklevel=2,
    )


def _digest(name: str, payload: bytes) -> bytes:
    return hashlib.sha256(name.encode() + payload).digest()


_CACHES = "/sys/devices/system/cpu/cpu0/cache"  # where Linux describes them
DATA_CACHES = (0, 2, 3)
"""How Linux counts L1, L2 and L3; 1 holds instructions."""
CACHE_FACTS = ("size", "ways_of_associativity", "coherency_line_size", "shared_cpu_list")


def cache_text(index: int, fact: str) -> str:
    """Return what the system says of one of the caches of a core; nothing where it does not."""
    try:
        with open(f"{_CACHES}/index{index}/{fact}", "rb", 0) as file:
            return file.read().decode().strip()
    except OSError:
        return ""


def machine_facts() -> tuple[str, ...]:
    """Return all that code for this machine, and the choice of it, depends on: processor, features, number of cores, caches."""
    import llvmlite.binding as llvm

    features = sorted(name for name, on in llvm.get_host_cpu_features().items() if on)
    caches = (cache_text(index, fact) for index in DATA_CACHES for fact in CACHE_FACTS)
    triple, name = llvm.get_process_triple(), llvm.get_host_cpu_name()
    return triple, name, ",".join(features), str(os.cpu_count()), *caches


MAX_BYTES = 1 << 31
"""Of all models that the cache keeps: those that were not used for the longest time are removed, and a larger one is not kept."""
_SUFFIX = ".offcut"
_ROOMS = frozenset({"graph", "plugins"})


def model_key(digest: str, *decides: object) -> str | None:
    """Return the name of the model of a file, on this machine; None where none is kept, or may be read.

    digest   of the bytes of the file
    decides  what else the model depends on, in texts
    """
    machine = os.environ.get("OFFCUT_MACHINE", "")
    if cache_dir() is None or debug.verifies() or os.path.exists(machine):
        return None
    texts = (machine, os.environ.get("OFFCUT_HIDE_FEATURES", ""), records_fingerprint())
    return key("saved model", digest, *map(repr, decides), *texts, *machine_facts(), rooms=_ROOMS)


def read_model(key: str) -> SavedModel | None:
    """Return the model of that name; None where none is kept, it is damaged, or does not run here."""
    path = _path(key)
    if path is None or not path.exists():
        return None
    with debug.timed("model"):
        try:
            model = load(path)
        except OffcutError as error:
            debug.note(1, f"cache: {key} is not read: {error.because}", logger="cache")
            return None
    if not isinstance(model, SavedModel) or model.saved.key != key:
        return None
    with suppress(OSError):
        os.utime(path)  # it was used
    return model


def write_model(
    saved: SavedCode, code: PortableCode, constants: Sequence[Any], kernels: Sequence[Any]
) -> None:
    """Keep a model by its key, as `write_saved` takes it; where that fails the next process compiles it again."""
    path = _path(saved.key)
    if path is None or sum(one.nbytes for one in constants) > MAX_BYTES:
        return
    try:
        write_saved(path, saved, code, constants, kernels)
        path.chmod(0o600)
    except (OffcutError, OSError) as error:
        debug.note(1, f"cache: {saved.key} not written: {error}", logger="cache")
        return
    _remove_oldest(path.parent)


def _path(key: str) -> Path | None:
    home = cache_dir()
    return None if home is None else home / f"{key}{_SUFFIX}"


def _remove_oldest(folder: Path) -> None:
    """Remove models until the others have at most `MAX_BYTES`."""
    with suppress(OSError):  # another process does the same
        files = [(path.stat(), path) for path in folder.glob(f"*{_SUFFIX}")]
        total = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda one: one[0].st_mtime_ns):
            if total <= MAX_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= status.st_size
