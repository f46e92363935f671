"""What offcut runs of the programs that torch compiled, and what stayed with torch."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offcut.plugins.torch.program import Program, Whole

_PROGRAMS: list[weakref.ref[Program | Whole]] = []


def noted(program: Program | Whole) -> None:
    """List a program, as long as it lives."""
    _PROGRAMS[:] = [one for one in _PROGRAMS if one() is not None]
    _PROGRAMS.append(weakref.ref(program))


def programs() -> tuple[Program | Whole, ...]:
    """Those that were made by ``torch.compile`` and still live, oldest first."""
    return tuple(found for one in _PROGRAMS if (found := one()) is not None)


def report() -> str:
    """For each program that lives: its regions, and the operators that torch runs, each with the reason; what several say stands once."""
    counts = Counter(one.report() for one in programs())
    said = (text if count == 1 else f"{count} × {text}" for text, count in counts.items())
    return "\n".join(said) or "nothing was compiled"
