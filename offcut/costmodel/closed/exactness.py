"""How exact an amount of a cost is: one word for operations, bytes, cycles and energy, of every machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum


class Exactness(StrEnum):
    """What an amount says of what it names, the better first."""

    EXACT = "exact"  # it is that
    BOUND = "bound"  # it is at most that
    ESTIMATE = "estimate"  # it is near that


def worst(*each: Exactness) -> Exactness:
    """Of an amount that is made of others."""
    return max(each, key=list(Exactness).index, default=Exactness.EXACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class HowExact:
    """How exact the amounts of a cost are.

    flop    operations, with which go instances and runs
    cycles  seconds are as exact
    """

    flop: Exactness
    bytes: Exactness
    cycles: Exactness
    energy: Exactness

    def __str__(self) -> str:
        """``exact: flop; estimate: bytes, cycles, energy``."""
        amounts = asdict(self).items()
        by_kind = {kind: [name for name, own in amounts if own is kind] for kind in Exactness}
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind.items() if names)
