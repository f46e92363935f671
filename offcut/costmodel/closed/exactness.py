"""How exact an amount of a cost is: one word for operations, bytes, cycles and energy, of every machine."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Exactness(StrEnum):
    """What an amount says of what it names, the better first."""

    EXACT = "exact"  # it is that
    BOUND = "bound"  # it is at most that
    ESTIMATE = "estimate"  # it is near that


def worst(*each: Exactness) -> Exactness:
    """Of an amount that is made of others."""
    return max(each, key=list(Exactness).index, default=Exactness.EXACT)


def told(amounts: Mapping[str, Exactness]) -> str:
    """Amounts by how exact they are: ``exact: flop; estimate: bytes, cycles, energy``."""
    by_kind = {kind: [name for name, own in amounts.items() if own is kind] for kind in Exactness}
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind.items() if names)
