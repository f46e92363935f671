"""Search for any target: spaces, explorers, records, and processes to measure in.

Names are loaded when first used: a process that measures begins with `child_process` alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from offcut.core.names import warn_renamed

if TYPE_CHECKING:
    from offcut.search.prices import ExpectedCost as ExpectedCost
    from offcut.search.prices import Price as Price
    from offcut.search.prices import RefittablePrice as RefittablePrice
    from offcut.search.prices import TimeLimitReached as TimeLimitReached
    from offcut.search.prices import Times as Times
    from offcut.search.record import Origin as Origin
    from offcut.search.record import Outcome as Outcome
    from offcut.search.record import Place as Place
    from offcut.search.record import ProgramText as ProgramText
    from offcut.search.record import Record as Record
    from offcut.search.record import Sizes as Sizes
    from offcut.search.record import Source as Source
    from offcut.search.record import key_of as key_of
    from offcut.search.record import place_of as place_of
    from offcut.search.records import Records as Records
    from offcut.search.schedule_space import ScheduleSpace as ScheduleSpace
    from offcut.search.schedule_space import product_space as product_space
    from offcut.search.trials import Trial as Trial
    from offcut.search.trials import by_place as by_place
    from offcut.search.trials import rank_trials as rank_trials

_HOME = {
    "prices": "ExpectedCost TimeLimitReached Price RefittablePrice Times",
    "record": "Origin Outcome Place ProgramText Record Sizes Source key_of place_of",
    "records": "Records",
    "schedule_space": "ScheduleSpace product_space",
    "trials": "Trial by_place rank_trials",
}
_MODULE_OF = {
    name: f"{__name__}.{module}" for module, names in _HOME.items() for name in names.split()
}

_RENAMED = {
    "Choices": "product_space",
    "Points": "ScheduleSpace",
    "Space": "ScheduleSpace",
    "Expected": "ExpectedCost",
    "OutOfTime": "TimeLimitReached",
    "Refitted": "RefittablePrice",
    "ranked": "rank_trials",
}
"""The old names, and the new ones."""

__all__ = sorted(_MODULE_OF)

if not TYPE_CHECKING:  # a name that is not there is an error in an editor, too

    def __getattr__(name: str) -> Any:
        if name in _RENAMED:
            warn_renamed(f"{__name__}.{name}", f"{__name__}.{_RENAMED[name]}")
            name = _RENAMED[name]
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
        return globals()[name]
