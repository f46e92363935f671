"""Set mathematics, and the only importer of islpy."""

from offcut.polyhedral.affine import (
    BACK,
    NEXT,
    SAME,
    Map,
    Set,
    Space,
    Spacing,
    coefficient,
    coordinates,
    row_spacing,
    space_of,
    spacing,
)
from offcut.polyhedral.bounds import (
    Outside,
    accesses_outside,
    check_extents,
    check_inside,
    check_program_fits,
    check_promises,
    outside_window,
    windows_left,
)
from offcut.polyhedral.dependences import (
    Dependence,
    Statement,
    bounds,
    carried_by,
    dependences,
    statements,
)
from offcut.polyhedral.divisors import check_divisors, unsafe_divisor
from offcut.polyhedral.extremes import greatest
from offcut.polyhedral.facts import Facts
from offcut.polyhedral.inside import sizes_inside
from offcut.polyhedral.instances import instances, unbounded
from offcut.polyhedral.intervals import INDEX_LIMIT
from offcut.polyhedral.limit import (
    PASS,
    REQUEST,
    GaveUp,
    answered,
    at_most_operations,
    bounded,
    in_pass,
)
from offcut.polyhedral.witness import over_sizes, smallest

__all__ = [
    "BACK",
    "INDEX_LIMIT",
    "NEXT",
    "PASS",
    "REQUEST",
    "SAME",
    "Dependence",
    "Facts",
    "GaveUp",
    "Map",
    "Outside",
    "Set",
    "Space",
    "Spacing",
    "Statement",
    "accesses_outside",
    "answered",
    "at_most_operations",
    "bounded",
    "bounds",
    "carried_by",
    "check_divisors",
    "check_extents",
    "check_inside",
    "check_program_fits",
    "check_promises",
    "coefficient",
    "coordinates",
    "dependences",
    "greatest",
    "in_pass",
    "instances",
    "outside_window",
    "over_sizes",
    "row_spacing",
    "sizes_inside",
    "smallest",
    "space_of",
    "spacing",
    "statements",
    "unbounded",
    "unsafe_divisor",
    "windows_left",
]
