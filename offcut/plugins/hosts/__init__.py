"""What hosts of other compilers share: a schedule applied to a program that a host's loops say, in the words that a host has."""

from offcut.plugins.hosts.calls import Call, View, call_of
from offcut.plugins.hosts.scheduling import Said, Words, is_about, microkernels_of, scheduled
from offcut.plugins.hosts.windows import HARDWARE

__all__ = [
    "HARDWARE",
    "Call",
    "Said",
    "View",
    "Words",
    "call_of",
    "is_about",
    "microkernels_of",
    "scheduled",
]
