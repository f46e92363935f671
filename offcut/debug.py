"""`OFFCUT_DEBUG`: how much offcut says of what it does, on the standard error stream.

Levels: 1 passes and times, 2 copies of inputs, 3 the loop program, 4 LLVM IR.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def asked() -> int:
    """The level asked for by the environment variable `OFFCUT_DEBUG`; 0 where it is unset."""
    text = os.environ.get("OFFCUT_DEBUG", "0")
    return int(text) if text.isdigit() else 0


def note(level: int, text: str) -> None:
    """Write `text` as one line to standard error where `OFFCUT_DEBUG` is at least `level`."""
    if asked() >= level:
        sys.stderr.write(f"offcut: {text}\n")


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Note, at level 1, how long the pass `name` took, in milliseconds."""
    start = time.perf_counter()
    yield
    note(1, f"{name}: {(time.perf_counter() - start) * 1e3:.1f} ms")
