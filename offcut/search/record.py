"""One measurement of a schedule: what ran, where, at which sizes, and what became of it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from offcut.errors import OffcutError

if TYPE_CHECKING:
    from offcut.costmodel import Device


class Outcome(Enum):
    """What became of a candidate."""

    OK = "ok"  # its results are right, and it was timed
    REFUSED = "refused"  # it is not legal, or the target does not take it: in words
    WRONG = "wrong"  # a result is not what the program means
    CRASHED = "crashed"  # its process ended, or Python raised what is no refusal
    HUNG = "hung"  # it was silent for longer than it may be
    OUT_OF_MEMORY = "out_of_memory"  # it asked for more than it may have


class Source(Enum):
    """Where the seconds of a record are from."""

    MEASURED = "measured"  # calls were timed
    SIMULATED = "simulated"  # a simulator of the machine counted its cycles
    PREDICTED = "predicted"  # a closed form, or what corrects it: nothing ran


@dataclass(frozen=True, slots=True)
class Record:
    """A candidate at one vector of sizes.

    program    `Program.digest` of what was asked for
    schedule   the text of the schedule, which `Schedule.parse` reads
    machine    what `place_of` gives
    version    of offcut
    sizes      by the user's names; empty where it ended before any size was tried
    seconds    median of a call, only where the outcome is ok, as is `spread`
    spread     distance of the quartiles over the median
    because    why it is not ok
    seed       of what it was measured on, and of the explorer
    explorer   that proposed it
    predicted  seconds of a call, where a model was asked
    created    seconds since 1970, UTC
    source     where `seconds` are from; `spread` is 0 where nothing was timed

    Raises OffcutError for a value that is none of these.
    """

    program: str
    schedule: str
    machine: str
    version: str
    sizes: Mapping[str, int] = field(hash=False)
    outcome: Outcome
    seconds: float | None = None
    spread: float | None = None
    because: str = ""
    seed: int = 0
    explorer: str = ""
    predicted: float | None = None
    created: float = 0.0
    source: Source = Source.MEASURED

    def __post_init__(self) -> None:
        because = self._misfit()
        if because:
            raise OffcutError("record", "cannot record this", because=because)

    def _misfit(self) -> str:
        """What is not as the fields say; "" where all is."""
        for name in ("program", "schedule", "machine", "version", "because", "explorer"):
            value = getattr(self, name)
            if not isinstance(value, str):
                return f"{name} is {value!r}, not a text"
            if not _encodable(value):
                return f"{name} is {value!r}, which UTF-8 does not hold"
        if not isinstance(self.outcome, Outcome):
            return f"outcome is {self.outcome!r}, none of {', '.join(o.value for o in Outcome)}"
        if not isinstance(self.source, Source):
            return f"source is {self.source!r}, none of {', '.join(o.value for o in Source)}"
        if not isinstance(self.sizes, Mapping):
            return f"sizes are {self.sizes!r}, no mapping of names to integers"
        for name, size in self.sizes.items():
            if not isinstance(name, str) or not _encodable(name) or not _is_integer(size):
                return f"sizes hold {name!r}: {size!r}, not a name and an integer of 64 bits"
        if not _is_integer(self.seed):
            return f"seed is {self.seed!r}, not an integer of 64 bits"
        ok = self.outcome is Outcome.OK
        for name in ("seconds", "spread"):
            value = getattr(self, name)
            if ok != (value is not None):
                return f"{name} is {value!r} where the outcome is {self.outcome.value}"
        for name, least in (("seconds", 0.0), ("spread", 0.0), ("predicted", 0.0), ("created", 0)):
            value = getattr(self, name)
            if value is None and name != "created":
                continue
            number = isinstance(value, float | int) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < least:
                return f"{name} is {value!r}, not a number from {least:g} on"
        return ""


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def place_of(target: str, machine: Device, *facts: object) -> str:
    """What a record calls the place where it was measured: 64 bits of SHA-256, in hexadecimal.

    target, machine  the target's name, and the description that it plans for
    facts            all else that times depend on and the schedule does not say, each with a ``repr`` that is
                     the same in every process: threads, whether sums may be reassociated
    """
    return digest_of(target, machine, *facts)


def digest_of(name: str, *facts: object) -> str:
    """64 bits of SHA-256, in hexadecimal, of a name and of facts by their ``repr``."""
    said = "\0".join((name, *map(repr, facts)))
    return hashlib.sha256(said.encode()).hexdigest()[:16]
