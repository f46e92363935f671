"""What search is made of that no target is named in: spaces, explorers, records, and processes to measure in.

Names are loaded when first used: a process that measures begins with `child` alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offcut.search.choices import Choices as Choices
    from offcut.search.choices import Points as Points
    from offcut.search.prices import Expected as Expected
    from offcut.search.prices import OutOfTime as OutOfTime
    from offcut.search.prices import Price as Price
    from offcut.search.prices import Refitted as Refitted
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
    from offcut.search.space import Space as Space
    from offcut.search.trials import Trial as Trial
    from offcut.search.trials import by_place as by_place
    from offcut.search.trials import ranked as ranked

_HOME = {
    "choices": "Choices Points",
    "prices": "Expected OutOfTime Price Refitted Times",
    "record": "Origin Outcome Place ProgramText Record Sizes Source key_of place_of",
    "records": "Records",
    "space": "Space",
    "trials": "Trial by_place ranked",
}
_MODULE_OF = {
    name: f"{__name__}.{module}" for module, names in _HOME.items() for name in names.split()
}

__all__ = sorted(_MODULE_OF)

if not TYPE_CHECKING:  # a name that is not there is an error in an editor, too

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
        return globals()[name]
