"""Shared by the plug-ins of other compilers: apply a schedule to a host's program; keep what the host can express."""

from offcut.plugins.hosts.calls import Call, View, call_of
from offcut.plugins.hosts.scheduling import (
    HostFeatures,
    HostProgram,
    apply_schedule,
    is_about,
    microkernels_of,
)
from offcut.plugins.hosts.windows import HARDWARE

__all__ = [
    "HARDWARE",
    "Call",
    "HostFeatures",
    "HostProgram",
    "View",
    "apply_schedule",
    "call_of",
    "is_about",
    "microkernels_of",
]
