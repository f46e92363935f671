"""Whether an emitted program computes what its source does, for all sizes; and the witness where it does not."""

from offcut.proof.by_instances.initialization import check_written
from offcut.proof.by_instances.pairing import UNDECIDED
from offcut.proof.certificate import Certificate, Theorem
from offcut.proof.equivalence import check_equal
from offcut.proof.normal_forms.iterations import count_from_elements, stored_offset
from offcut.proof.normal_forms.loop_fusion import concatenate_loops, unequal_pairs
from offcut.proof.normal_forms.unpacked_reads import with_constants_of
from offcut.proof.option_equivalence import (
    check_options,
    check_throughout,
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
    "stored_offset",
    "unequal_pairs",
    "with_constants_of",
    "without_costs",
]
