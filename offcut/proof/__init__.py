"""Whether an emitted program computes what its source does, for all sizes; and the witness where it does not."""

from offcut.proof.alternatives import (
    check_options,
    check_throughout,
    leaves_choice,
    without_costs,
)
from offcut.proof.by_instances.pairing import NOT_TOLD
from offcut.proof.by_instances.unwritten import check_written
from offcut.proof.by_text.structure import bare
from offcut.proof.certificate import Certificate, Theorem
from offcut.proof.equivalence import check_equal
from offcut.proof.forms.consecutive import consecutive
from offcut.proof.forms.starts import with_floats

__all__ = [
    "NOT_TOLD",
    "Certificate",
    "Theorem",
    "bare",
    "check_equal",
    "check_options",
    "check_throughout",
    "check_written",
    "consecutive",
    "leaves_choice",
    "with_floats",
    "without_costs",
]
