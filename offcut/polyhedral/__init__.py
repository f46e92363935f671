"""Set mathematics, and the only importer of islpy."""

from offcut.polyhedral.affine import (
    Map,
    Set,
    Space,
    coefficient,
    coordinates,
    lane_step,
    lanes_alike,
    lanes_in_groups,
    space_of,
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
from offcut.polyhedral.kept import forget, kept
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
    "INDEX_LIMIT",
    "PASS",
    "REQUEST",
    "Dependence",
    "Facts",
    "GaveUp",
    "Map",
    "Outside",
    "Set",
    "Space",
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
    "forget",
    "greatest",
    "in_pass",
    "instances",
    "kept",
    "lane_step",
    "lanes_alike",
    "lanes_in_groups",
    "outside_window",
    "over_sizes",
    "sizes_inside",
    "smallest",
    "space_of",
    "statements",
    "unbounded",
    "unsafe_divisor",
    "windows_left",
]
