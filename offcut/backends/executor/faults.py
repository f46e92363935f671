"""The faults that an execution finds, each by a finder with a name."""

from __future__ import annotations

from typing import Final

from offcut.errors import CallError

FINDERS: Final = {
    "bounds": "an access lies outside of its array or its window",
    "uninitialized": "what is read was never written",
    "unwritten": "an element of a result was never written",
    "race": "two units touch one place, and nothing orders them",
    "instances": "two instances of one tile write different values to one place",
    "async": "what a copy or a product in the background writes or reads is touched before its end was waited for",
    "fence": "a unit beside the caches touches what an ordinary store wrote, without a fence",
    "lanes": "one lane issues what touches what other lanes of its warpgroup have written, without a barrier",
    "registers": "a unit touches registers of another one",
    "arrivals": "a token has more arrivals than its count",
    "phase": "an arrival, or a wait, is in another phase of its barrier than its own",
    "bytes": "a phase of a barrier has other bytes than it expects",
    "standstill": "units wait for each other, or for what never comes",
    "room": "windows do not fit in their memory",
    "limits": "a launch is larger than the machine takes",
    "unit": "a tile or a loop is on a unit that cannot run it",
    "cover": "a tile is not as its microkernel takes it",
    "layout": "an operand does not lie as its microkernel reads or writes it",
    "memory": "an operand of a microkernel lies in a memory that it cannot reach",
    "alignment": "what moves in whole cells or boxes begins inside of one",
    "promise": "a value is outside of its promised range",
}
"""The finders, each with what is wrong where it finds something."""


class ExecutionFault(CallError):
    """An error of a program that units side by side do not run as its text says.

    finder  the name of what found it, one of `FINDERS`
    """

    @property
    def finder(self) -> str:
        """Return the name of the finder, which ends the line that says what was refused."""
        return self.refused.rpartition(": ")[2]


def fault(
    program: str, finder: str, *, at: str = "", because: str, help: tuple[str, ...] = ()
) -> ExecutionFault:
    """Return the error of a finder."""
    assert finder in FINDERS, finder
    return ExecutionFault(
        "execute", f"cannot run {program}: {finder}", at=at, because=because, help=help
    )
