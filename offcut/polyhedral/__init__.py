"""Integer sets and relations; the only subpackage that imports islpy."""

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
from offcut.polyhedral.buffer_bounds import (
    OutOfBoundsAccess,
    accesses_outside,
    check_extents,
    check_in_bounds,
    check_program_fits,
    check_promises,
    escaping_windows,
    outside_window,
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
from offcut.polyhedral.facts import Facts
from offcut.polyhedral.in_bounds_sizes import in_bounds_sizes
from offcut.polyhedral.index_maximum import INDEX_LIMIT, interval_maximum, maximum, quotient_range
from offcut.polyhedral.isl_budget import (
    PASS,
    REQUEST,
    BudgetExceeded,
    operation_budget,
    pass_budget,
    request_budget,
    try_isl,
)
from offcut.polyhedral.iteration_domains import find_unbounded_lets, iteration_domain
from offcut.polyhedral.witness import project_onto_sizes, smallest_point

__all__ = [
    "BACK",
    "INDEX_LIMIT",
    "NEXT",
    "PASS",
    "REQUEST",
    "SAME",
    "BudgetExceeded",
    "Dependence",
    "Facts",
    "Map",
    "OutOfBoundsAccess",
    "Set",
    "Space",
    "Spacing",
    "Statement",
    "accesses_outside",
    "bounds",
    "carried_by",
    "check_divisors",
    "check_extents",
    "check_in_bounds",
    "check_program_fits",
    "check_promises",
    "coefficient",
    "coordinates",
    "dependences",
    "escaping_windows",
    "find_unbounded_lets",
    "in_bounds_sizes",
    "interval_maximum",
    "iteration_domain",
    "maximum",
    "operation_budget",
    "outside_window",
    "pass_budget",
    "project_onto_sizes",
    "quotient_range",
    "request_budget",
    "row_spacing",
    "smallest_point",
    "space_of",
    "spacing",
    "statements",
    "try_isl",
    "unsafe_divisor",
]
