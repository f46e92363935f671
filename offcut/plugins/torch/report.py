"""What offcut runs of the programs that torch compiled, and what stayed with torch."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offcut.plugins.torch.program import EagerProgram, Program

_PROGRAMS: list[weakref.ref[Program | EagerProgram]] = []


def register_program(program: Program | EagerProgram) -> None:
    """List a program, as long as it lives."""
    _PROGRAMS[:] = [one for one in _PROGRAMS if one() is not None]
    _PROGRAMS.append(weakref.ref(program))


def programs() -> tuple[Program | EagerProgram, ...]:
    """Those that were made by ``torch.compile`` and still live, oldest first."""
    return tuple(program for one in _PROGRAMS if (program := one()) is not None)


def report() -> str:
    """For each program that lives: its regions, and the operators that torch runs, each with the reason; what several say stands once."""
    return "\n".join(count_duplicates(one.report() for one in programs())) or "nothing was compiled"


def count_duplicates(texts: Iterable[str]) -> list[str]:
    """Each text once, with how often it stood there, where that is several times."""
    counts = Counter(texts).items()
    return [text if count == 1 else f"{count} × {text}" for text, count in counts]
