"""What is learned about the closed form from measurements: features, boosted trees, and what both say together."""

from offcut.costmodel.learned import library, metrics
from offcut.costmodel.learned.case import Case, Ran
from offcut.costmodel.learned.counted import Counted
from offcut.costmodel.learned.described import Feature, check_names, described, features_found
from offcut.costmodel.learned.ensemble import Settings
from offcut.costmodel.learned.features import CLOSED, FEATURES
from offcut.costmodel.learned.pair import Foreseen, Pair, columns, learned, ordered, useless_in
from offcut.costmodel.learned.rows import Rows

__all__ = [
    "CLOSED",
    "FEATURES",
    "Case",
    "Counted",
    "Feature",
    "Foreseen",
    "Pair",
    "Ran",
    "Rows",
    "Settings",
    "check_names",
    "columns",
    "described",
    "features_found",
    "learned",
    "library",
    "metrics",
    "ordered",
    "useless_in",
]
