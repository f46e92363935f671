"""What offcut runs of the programs that torch compiled, and what stayed with torch."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offcut.plugins.torch.program import Program, Whole

_PROGRAMS: list[weakref.ref[Program | Whole]] = []


def register_program(program: Program | Whole) -> None:
    """List a program, as long as it lives."""
    _PROGRAMS[:] = [one for one in _PROGRAMS if one() is not None]
    _PROGRAMS.append(weakref.ref(program))


def programs() -> tuple[Program | Whole, ...]:
    """Those that were made by ``torch.compile`` and still live, oldest first."""
    return tuple(program for one in _PROGRAMS if (program := one()) is not None)


def report() -> str:
    """For each program that lives: its regions, and the operators that torch runs, each with the reason; what several say stands once."""
    return "\n".join(said_once(one.report() for one in programs())) or "nothing was compiled"


def said_once(texts: Iterable[str]) -> list[str]:
    """Each text once, with how often it stood there, where that is several times."""
    counts = Counter(texts).items()
    return [text if count == 1 else f"{count} × {text}" for text, count in counts]
