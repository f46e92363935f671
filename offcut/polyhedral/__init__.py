"""Set mathematics, and the only importer of islpy."""

from offcut.polyhedral.access import (
    Access,
    StageSets,
    check_extents,
    check_fits,
    check_in_bounds,
    check_parallel,
    coefficient,
    space_of,
    stage_sets,
)
from offcut.polyhedral.affine import Map, Set, Space
from offcut.polyhedral.instances import Run, Unbounded, project_last, runs, unbounded, where_equal
from offcut.polyhedral.witness import smallest

__all__ = [
    "Access",
    "Map",
    "Run",
    "Set",
    "Space",
    "StageSets",
    "Unbounded",
    "check_extents",
    "check_fits",
    "check_in_bounds",
    "check_parallel",
    "coefficient",
    "project_last",
    "runs",
    "smallest",
    "space_of",
    "stage_sets",
    "unbounded",
    "where_equal",
]
