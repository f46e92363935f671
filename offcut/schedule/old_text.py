"""Lines of schedules by hand as versions before 0.3 printed them -> the decisions that say the same."""

from __future__ import annotations

import re
from collections.abc import Callable

from offcut.partition import parse_strategy
from offcut.schedule.decisions import (
    UNIT_PRIMITIVES,
    At,
    Bind,
    Cover,
    Fuse,
    Inline,
    Level,
    Order,
    Primitive,
    RFactor,
    Split,
    Staging,
)
from offcut.schedule.lines import Line


def _split_line(
    stage: str, axis: str, tail: str | None, factor: str, outer: str, inner: str
) -> Split:
    size = int(factor)
    strategy = None if tail is None else parse_strategy(tail, at="", tiles=(size,))
    return Split(stage, axis, (Level(size, strategy),), (outer, inner))


def _staging(buffer: str, memory: str, readers: str, name: str) -> Staging:
    return Staging("read", buffer, name, tuple(readers.split()), (), memory)


# By the first word: the form of the line, and what its parts make.
OLD: dict[str, tuple[str, Callable[..., Primitive]]] = {
    "split": (
        r"split ([^\s.]+) ([^\s.]+)(?: (\w+(?:\(\d+(?:, \d+)*\))?))? (\d{1,10}) as (\S+) (\S+)",
        _split_line,
    ),
    "fuse": (r"fuse ([^\s.]+) ([^\s.]+) ([^\s.]+) as (\S+)", Fuse),
    "reorder": (
        r"reorder (\S+)((?: \S+)*)",
        lambda stage, loops: Order(stage, tuple(loops.split())),
    ),
    "bind": (r"bind ([^\s.*]+) (\S+) (\S+)", Bind),
    "compute_at": (
        r"compute_at (\S+) (\S+) (\S+)(?: depth (\d{1,9}))?",
        lambda stage, reader, axis, depth: At(stage, reader, axis, None, int(depth or 1)),
    ),
    "virtual": (
        r"virtual (\S+) (\S+)",  # its windows have a depth now
        lambda stage, axis: Bind(stage, axis, None),
    ),
    "compute_inline": (r"compute_inline (\S+)", Inline),
    "cache_read": (r"cache_read (\S+) (\S+) for (\S+(?: \S+)*) as (\S+)", _staging),
    "cache_write": (
        r"cache_write (\S+) (\S+) as (\S+)",
        lambda stage, memory, name: Staging("write", stage, name, memory=memory),
    ),
    "rfactor": (r"rfactor ([^\s.]+) (\S+) as (\S+)", RFactor),
    "tensorize": (r"tensorize (\S+) (\S+) (\S+)", Cover),
    **{
        word: (
            rf"{word} (\S+) (\S+)",
            lambda stage, axis, unit=unit: Bind(stage, axis, unit),
        )
        for unit, word in UNIT_PRIMITIVES.items()
    },
}


def read_old(line: Line) -> Primitive | None:
    """Return the decision of a line of an older version; None if the line is none."""
    pattern, read = OLD[line.word]
    found = re.fullmatch(pattern, line.text)
    return None if found is None else read(*found.groups())
