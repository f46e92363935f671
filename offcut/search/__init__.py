"""What search is made of that no target is named in: spaces, explorers, records, and processes to measure in."""

from offcut.search.choices import Choices
from offcut.search.origin import Origin, Place, ProgramText
from offcut.search.points import Points
from offcut.search.prices import Expected, Price, Refitted, Sizes, Times
from offcut.search.record import Outcome, Record, place_of
from offcut.search.records import Records
from offcut.search.space import Space
from offcut.search.trials import Trial, by_place, ranked

__all__ = [
    "Choices",
    "Expected",
    "Origin",
    "Outcome",
    "Place",
    "Points",
    "Price",
    "ProgramText",
    "Record",
    "Records",
    "Refitted",
    "Sizes",
    "Space",
    "Times",
    "Trial",
    "by_place",
    "place_of",
    "ranked",
]
