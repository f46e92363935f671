"""Models as the cache keeps them: saved files (`saved`), each named by the file that it was compiled from and by all that decides how.

A process that finds one runs it, and imports neither the reader of that file nor the compiler. Such a file calls the machine code of the
kernels as the cache has it, so that to keep a model compiles no kernel again; it leaves to the compiled model what it does not
do as fast, or cannot: a call whose values do not fit in the last cache, which may run for parts of the batch, and data too large for
fewer products.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from offcut import debug
from offcut.backends.abi import PortableCode
from offcut.backends.host import cache
from offcut.backends.host.cache import machine_facts
from offcut.backends.host.saved import SavedCode, SavedModel, load, write_saved
from offcut.core.records_path import records_fingerprint
from offcut.errors import OffcutError

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
    if cache.cache_dir() is None or debug.verifies() or os.path.exists(machine):
        return None
    texts = (machine, os.environ.get("OFFCUT_HIDE_FEATURES", ""), records_fingerprint())
    return cache.key(
        "saved model", digest, *map(repr, decides), *texts, *machine_facts(), rooms=_ROOMS
    )


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
    home = cache.cache_dir()
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
