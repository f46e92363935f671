"""The number of tokens in a queue at once, while units run in the order of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import islpy as isl

from offcut.polyhedral.sync.events import Event


def fits_capacity(pairs: isl.Map, room: int) -> bool:
    """Return whether at most `room` tokens lie in a queue at any time. When q pops, beside its own there lie those of

        { q' in dom pairs : q' > q and pairs(q') < q }

    pairs  ``{ pop -> push }``, one-to-one, rising with the order
    """
    pops = pairs.domain()
    later = isl.Map.lex_lt(pops.get_space()).intersect_domain(pops).intersect_range(pops)
    pushed = isl.Map.lex_gt(pops.get_space()).apply_range(pairs.reverse())
    beside = later.intersect(pushed)
    for _ in range(room - 1):
        if beside.is_empty():
            break
        beside = beside.subtract(beside.lexmin())
    return bool(beside.is_empty())


def max_tokens(
    sources: Sequence[Event], targets: Sequence[Event], parts: Mapping[str, int | None]
) -> float:
    """Return a bound on the tokens between two units at once: two for each part of a region that both touch.

    Let p1 < p2 < p3 be pushed before q1 < q2 < q3 pop them, all because of one part. That q1 does not wait for p2 says
    that both read the part; then q2 writes it, since it waits for p2, and has to wait for p3. So it is where a token is
    pushed by the first arrival after a leaf, and popped by the last wait before another one.

    sources, targets  the leaves of one unit, and those of the other that wait for them
    parts             the number of parts of each region, places that a leaf touches whole; None where it is not known
    """
    touched = [{a.region for leaf in some for a in leaf.accesses} for some in (sources, targets)]
    both = touched[0] & touched[1]
    return sum(2 * (parts.get(region) or inf) for region in both)
