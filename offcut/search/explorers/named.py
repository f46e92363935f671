"""Explorers by name: those that there are, and those of plug-ins."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isclass
from typing import Any

from offcut.errors import DescribeError
from offcut.search.explorers.anneal import Anneal
from offcut.search.explorers.beam import Beam
from offcut.search.explorers.evolution import Evolution
from offcut.search.explorers.explorer import Exhaustive, Explorer, Function, Sampling
from offcut.search.plugged import plugged

GROUP = "offcut.explorers"
EXPLORERS: dict[str, Callable[[], Explorer]] = {
    "anneal": Anneal,
    "beam": Beam,
    "evolution": Evolution,
    "exhaustive": Exhaustive,
    "random": Sampling,
}
_OTHERWISE = ("a function of (space, seen, rng, count)",)


def explorer_named(given: object) -> tuple[str, Explorer]:
    """What a user gave as ``explorer=``, and what records call it.

    given   a name, of `EXPLORERS` or of an entry point of the group ``offcut.explorers``; an explorer; a class of
            them; or a function ``(space, seen, rng, count) -> schedules``

    Raises DescribeError for anything else, and for a plug-in that cannot be loaded.
    """
    if isinstance(given, str):
        return given, _made(_loaded(given), given)
    name = getattr(given, "__name__", type(given).__name__)
    return str(name), _made(given, repr(given))


def _loaded(name: str) -> object:
    if name in EXPLORERS:
        return EXPLORERS[name]
    return plugged(GROUP, "explorer", name, ", ".join(EXPLORERS), _OTHERWISE)


def _made(given: Any, shown: str) -> Explorer:
    made = given() if isclass(given) else given
    if isinstance(made, Explorer):
        return made
    if callable(made):
        return Function(made)
    raise DescribeError(
        "tune",
        f"cannot take explorer={shown}",
        because="it is no name, no function, and has no method propose",
        help=(", ".join(EXPLORERS), *_OTHERWISE),
    )
