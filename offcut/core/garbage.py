"""The collector of Python's garbage, where much is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_within = False


@contextmanager
def old_objects_aside() -> Iterator[None]:
    """Within it, collections look at what is made there alone, and not at what a process holds already: torch and
    a model are a million objects, of which no collection frees one.

    Nothing changes where somebody has set objects aside already (`gc.freeze`): they would be his.
    """
    global _within
    if _within or gc.get_freeze_count():
        yield
        return
    gc.freeze()
    _within = True
    try:
        yield
    finally:
        _within = False
        gc.unfreeze()
