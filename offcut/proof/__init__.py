"""Whether an emitted program computes what its source does, for all sizes; and the witness where it does not."""

from offcut.proof.by_instances.initialization import check_written
from offcut.proof.by_instances.pairing import UNDECIDED
from offcut.proof.by_structure.structure import strip_annotations
from offcut.proof.certificate import Certificate, Theorem
from offcut.proof.equivalence import check_equal
from offcut.proof.normal_forms.loop_concatenation import concatenate_loops
from offcut.proof.normal_forms.loop_origin import count_from_elements, stored_offset
from offcut.proof.normal_forms.reduction_init import with_floats
from offcut.proof.option_equivalence import (
    check_options,
    check_throughout,
    has_choice,
    without_costs,
)

__all__ = [
    "UNDECIDED",
    "Certificate",
    "Theorem",
    "check_equal",
    "check_options",
    "check_throughout",
    "check_written",
    "concatenate_loops",
    "count_from_elements",
    "has_choice",
    "stored_offset",
    "strip_annotations",
    "with_floats",
    "without_costs",
]
