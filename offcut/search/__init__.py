"""What search is made of that no target is named in: spaces, explorers, records, and processes to measure in."""

from offcut.search.record import Outcome, Record, place_of
from offcut.search.records import Records
from offcut.search.trials import Trial, by_place, ranked

__all__ = ["Outcome", "Record", "Records", "Trial", "by_place", "place_of", "ranked"]
