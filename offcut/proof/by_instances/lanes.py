"""Two programs as statements in; nothing out where no lane of a tile touches what another one writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from offcut.core.expr import Const, Expr, Var
from offcut.polyhedral.program_sets import Statement
from offcut.polyhedral.time_relations import cross_lane_pairs
from offcut.proof.by_instances.pairing import Sides, reads_of, refused, timing, untold


def check_lanes(both: Sides, free: frozenset[str]) -> None:
    """Refuse a lane of a tile that touches what another lane of it writes.

    free   buffers whose updates may run in any order
    """
    side, flows = both.emitted, both.flows
    tiled = [s for s in side.statements if any(isinstance(e, tuple) for e in s.time)]
    read = {load.buffer for one in side.statements for load, _ in reads_of(one)}
    read |= {one.store.buffer for one in side.statements if one.store.reduce is not None}
    for k, one in enumerate(tiled):
        for other in tiled[k:]:
            if one.store.buffer not in read and _says_the_same(one, other):
                continue
            shared = _shared_lanes(one, other)
            if not shared or not _may_conflict(one, other, shared):
                continue
            for (a, x, writes, update), (b, y, also, again) in product(
                _touched(one), _touched(other)
            ):
                relaxed = update and again and a in free
                if a != b or not (writes or also) or a not in side.written or relaxed:
                    continue
                first, second = flows.access(one, a, x), flows.access(other, b, y)
                if first is None or second is None:
                    raise untold(both.of, f"cannot bound {both.text(one)}: not quasi-affine")
                pairs = first.apply_range(second.reverse())
                wrong = cross_lane_pairs(pairs, timing(one), timing(other))
                for each in wrong:
                    found = flows.smallest(each.wrap())
                    if found is not None:
                        sizes, point = found
                        rank = len(one.iters)
                        i = both.instance(one, sizes, point[:rank])
                        j = both.instance(other, sizes, point[rank:])
                        raise refused(
                            both.of,
                            f"{flows.given(sizes)}{i} and {j} are lanes of one tile and touch "
                            f"one element of {a}",
                        )


def _touched(statement: Statement) -> list[tuple[str, tuple[Expr, ...], bool, bool]]:
    """(buffer, index, whether it writes, whether it is an update) of every access."""
    store = statement.store
    found = [(store.buffer, store.index, True, store.reduce is not None)]
    found += [(load.buffer, load.index, False, False) for load, _ in reads_of(statement)]
    return list(dict.fromkeys(found))


def _says_the_same(one: Statement, other: Statement) -> bool:
    """Whether two statements store one number."""
    first, second = one.store, other.store
    same = (first.value, first.reduce) == (second.value, second.reduce) == (first.value, None)
    return same and isinstance(first.value, Const) and first.buffer == second.buffer


def _shared_lanes(one: Statement, other: Statement) -> tuple[str, ...]:
    """The axes of the tiles that both are in."""
    found: tuple[str, ...] = ()
    for a, b in zip(one.time, other.time, strict=False):
        if a != b:
            break
        if isinstance(a, tuple):
            found += a
    return found


def _may_conflict(one: Statement, other: Statement, lanes: Sequence[str]) -> bool:
    """False where every access to what either writes is at an index that names all lanes."""
    for a, b in ((one, other), (other, one)):
        named = [a.store.index]
        named += [load.index for load, _ in reads_of(b) if load.buffer == a.store.buffer]
        if b.store.buffer == a.store.buffer:
            named.append(b.store.index)
        elif len(named) == 1:
            continue
        for lane in lanes:
            places = [{k for k, part in enumerate(i) if part == Var(lane)} for i in named]
            if not set.intersection(*places):
                return True
    return False
