"""What offcut says of its own work: to `logging`, under ``offcut.compile``, ``offcut.cache``, ``offcut.tune`` and others, and on standard error
as environment variables ask for it.

OFFCUT_DEBUG   a level, names of passes, or both with commas between: 1 passes and times, 2 copies of
               inputs, 3 the program after each pass that changes it, 4 LLVM IR; a pass that is named says
               its time and its program at any level
OFFCUT_DUMP    a folder: the program after each pass is written there, in order
OFFCUT_VERIFY  1: what is compiled is proved again, also where its code or its proof is kept on disk
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from offcut.errors import TargetError

if TYPE_CHECKING:
    import logging

PASSES = {
    "describe": "what is compiled, as a loop program",
    "choose": "takes what the user, or records, decided",
    "options": "compares the options of a choice that a user wrote",
    "primitives": "changes loops as a schedule by hand says",
    "raise": "reads a loop program as a computation, where it is one",
    "decide": "writes the schedule of a computation",
    "cut": "cuts a computation, covers its tiles, and proves the cut",
    "prove": "compares what is lowered with what was described, for all sizes",
    "bounds": "shows that a loop program stays inside of its arrays, or asks where it may not",
    "narrow": "ends loops where conditions on their terms do",
    "padding": "leaves out products with what lies in the padding",
    "separate": "divides loops where their conditions change",
    "products": "cuts the nests of a loop program that are computations of their own",
    "covers": "asks of each tile whether its microkernel computes it",
    "rows": "marks sums along rows of memory that run as lanes",
    "lanes": "turns loops into tiles of lanes",
    "unroll": "marks loops whose iterations run side by side in registers",
    "threads": "marks the loops that threads share",
    "lower": "writes LLVM IR",
    "microkernels": "compiles the microkernels that are called",
    "compile": "compiles LLVM IR to machine code",
    "load": "takes machine code from the cache",
    "model": "takes the steps of a model from the cache, and binds its constants",
}
"""What each pass does, in the order in which they run."""

LEVELS = range(5)
NUMBERED = re.compile(r"(\d{3,})_\w+\.offcut")


@dataclass(frozen=True, slots=True)
class Asked:
    """What `OFFCUT_DEBUG` asks for: a level, and passes by name."""

    level: int = 0
    passes: frozenset[str] = frozenset()

    def tells(self, level: int, name: str) -> bool:
        """Whether what is said at `level`, or by the pass `name`, is asked for."""
        return self.level >= level or name in self.passes


def asked() -> Asked:
    """What the environment variable `OFFCUT_DEBUG` asks for; nothing where it is unset.

    Raises TargetError for what is neither a level nor a pass.
    """
    return _asked(os.environ.get("OFFCUT_DEBUG", ""))


@lru_cache(maxsize=8)
def _asked(text: str) -> Asked:
    words = [word for word in (part.strip() for part in text.split(",")) if word]
    levels = [int(word) for word in words if word.isdecimal() and int(word) in LEVELS]
    passes = frozenset(word for word in words if word in PASSES)
    for word in words:
        if word not in passes and not (word.isdecimal() and int(word) in LEVELS):
            raise TargetError(
                "OFFCUT_DEBUG",
                f"cannot say anything of {word!r}",
                because=f"it is neither a level in 0…{LEVELS[-1]} nor a pass",
                help=("OFFCUT_DEBUG=3", "OFFCUT_DEBUG=1,separate", f"passes: {', '.join(PASSES)}"),
            )
    return Asked(max(levels, default=0), passes)


def verifies() -> bool:
    """Whether `OFFCUT_VERIFY` asks that what is kept on disk is proved again.

    Raises TargetError for anything but 0 and 1.
    """
    text = os.environ.get("OFFCUT_VERIFY", "")
    if text not in ("", "0", "1"):
        raise TargetError(
            "OFFCUT_VERIFY",
            f"cannot take {text!r}",
            because="it is 1, or 0 as if it were unset",
            help=("OFFCUT_VERIFY=1",),
        )
    return text == "1"


def note(level: int, text: str, name: str = "", logger: str = "compile") -> None:
    """Log `text` to ``offcut.LOGGER``, and write it to standard error where `OFFCUT_DEBUG` is at least `level`, or names the pass `name`.

    level  0 is written where nothing is asked, too, unless the program gave a logger a level above that
    """
    if not is_said(level, name, logger):
        return
    import logging

    target = logging.getLogger(f"offcut.{logger}")
    own = next((one.level for one in (target, _root()) if one.level), 0)
    is_audible = asked().tells(level, name) and (level > 0 or own <= _LOGGED[0])
    extra = {"offcut_told": is_audible}
    record = target.makeRecord(target.name, _LOGGED[level], "", 0, text, (), None, extra=extra)
    target.handle(record)


def is_said(level: int, name: str = "", logger: str = "compile") -> bool:
    """Return whether anybody hears what `note` is given: a program that has not imported `logging` has not asked it for anything."""
    if asked().tells(level, name):
        return True
    logging = sys.modules.get("logging")
    return logging is not None and logging.getLogger(f"offcut.{logger}").isEnabledFor(
        _LOGGED[level]
    )


_LOGGED = (20, *range(10, 6, -1))
"""The level of `logging` by that of `OFFCUT_DEBUG`: 0 is INFO, 1 is DEBUG, 2 is 9, and so on."""


@lru_cache(maxsize=1)
def _root() -> logging.Logger:
    """Return the logger ``offcut``, which writes to standard error what `OFFCUT_DEBUG` asks for."""
    import logging

    class StandardError(logging.Handler):
        """Writes to what standard error is now, but for what a handler of the program writes there."""

        def emit(self, record: logging.LogRecord) -> None:
            is_audible = getattr(record, "offcut_told", True)
            there = (
                getattr(one, "stream", None) is sys.stderr and one.level <= record.levelno
                for one in logging.root.handlers
            )
            if is_audible and not any(there):
                sys.stderr.write(f"offcut: {record.getMessage()}\n")

    logger = logging.getLogger("offcut")
    logger.addHandler(StandardError())
    return logger


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Note, at level 1, how long the pass `name` took, in milliseconds."""
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    note(1, f"{name}: {seconds * 1e3:.1f} ms", name)
    for listen in _LISTENERS.get():
        listen(name, seconds, None)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Tell who listens how long the step `name` took; nothing is written."""
    start = time.perf_counter()
    yield
    for listen in _LISTENERS.get():
        listen(name, time.perf_counter() - start, None)


Listen = Callable[[str, "float | None", object], None]
"""Is told of a step: its name, its seconds, the program after it; None of what is not said."""
_LISTENERS: ContextVar[tuple[Listen, ...]] = ContextVar("listeners", default=())


@contextmanager
def listener(listen: Listen | None) -> Iterator[None]:
    """Inside, each step that is timed, or whose program is dumped, is told to `listen`; None: to nobody."""
    token = _LISTENERS.set(() if listen is None else (listen,))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


def passed(name: str, program: object, before: object = None) -> None:
    """Tell what the pass `name` made: on standard error at level 3, and in a file of `OFFCUT_DUMP`.

    program   prints as source syntax
    before    what the pass was given; where it is the same, that is told in place of the program

    Raises TargetError where the folder cannot be written to.
    """
    for listen in _LISTENERS.get():
        listen(name, None, program)
    folder = os.environ.get("OFFCUT_DUMP", "")
    is_audible = is_said(3, name)
    if not (is_audible or folder):
        return
    unchanged = program == before
    title = f"{name} (unchanged)" if unchanged else name
    if is_audible:
        note(3, f"after {title}" if unchanged else f"after {title}\n{program}", name)
    if folder:
        _write(Path(folder), name, f"# after {title}\n{program}\n")


def _write(folder: Path, name: str, text: str) -> None:
    """A new file in `folder`, numbered after those that are there: ``003_separate.offcut``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = (NUMBERED.fullmatch(path.name) for path in folder.iterdir())
        last = max((int(match[1]) for match in there if match), default=0)
        for number in count(last + 1):
            try:
                with (folder / f"{number:03}_{name}.offcut").open("x", encoding="utf-8") as file:
                    file.write(text)
                return
            except FileExistsError:  # of another thread, or another process
                continue
    except OSError as error:
        raise TargetError(
            "OFFCUT_DUMP",
            f"cannot write into {folder}",
            because=str(error.strerror),
            help=("a folder of yours, such as OFFCUT_DUMP=dump",),
        ) from None
