"""Represent the times of instances as relations: which run before others, and the last write before a read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import islpy as isl

from offcut.polyhedral.program_sets import Entry, Statement

UnionMap = isl.UnionMap
Time = tuple[
    Sequence[Entry], Mapping[str, int]
]  # of a statement, and the positions of its iterators
Level = tuple[isl.Map, bool | tuple[int, int], bool]
_PARAM, _IN, _OUT = isl.dim_type.param, isl.dim_type.in_, isl.dim_type.out


def _levels(pairs: isl.Map, first: Time, second: Time) -> Iterator[Level]:
    """Yield the pairs of `pairs` whose times are equal so far, level by level.

    With each: which is first where the times are literals that differ, which no pair survives; else the
    positions of the iterators that are compared, and whether these are lanes, which have no order.
    """
    (ours, at), (theirs, to) = first, second
    for one, other in zip(ours, theirs, strict=False):
        if isinstance(one, int) and isinstance(other, int):
            if one != other:
                yield pairs, one < other, False
                return
            continue
        lanes = isinstance(one, tuple)
        first_coordinates = one if isinstance(one, tuple) else (str(one),)
        right = other if isinstance(other, tuple) else (str(other),)
        for x, y in zip(first_coordinates, right, strict=True):
            yield pairs, (at[x], to[y]), lanes
            pairs = pairs.equate(_IN, at[x], _OUT, to[y])
        if pairs.is_empty():
            return


def _nonempty(*maps: isl.Map) -> Iterator[isl.Map]:
    return (pairs for pairs in maps if not pairs.is_empty())


def misordered_pairs(pairs: isl.Map, first: Time, second: Time) -> Iterator[isl.Map]:
    """Yield the pairs of `pairs` whose first instance does not run before the second, level by level.

    Two lanes of one tile have no order, so a pair of them is late.
    """
    for equal_so_far, differ, lanes in _levels(pairs, first, second):
        if isinstance(differ, tuple):
            x, y = differ
            yield from _nonempty(equal_so_far.order_gt(_IN, x, _OUT, y))
            if lanes:
                yield from _nonempty(equal_so_far.order_lt(_IN, x, _OUT, y))
        elif not differ:
            yield equal_so_far


def ordered_pairs(pairs: isl.Map, first: Time, second: Time) -> Iterator[isl.Map]:
    """Yield the pairs of `pairs` whose first instance runs before the second, level by level; lanes in turn."""
    for equal_so_far, differ, _ in _levels(pairs, first, second):
        if isinstance(differ, tuple):
            x, y = differ
            yield from _nonempty(equal_so_far.order_lt(_IN, x, _OUT, y))
        elif differ:
            yield equal_so_far


def cross_lane_pairs(pairs: isl.Map, first: Time, second: Time) -> Iterator[isl.Map]:
    """Yield the pairs of `pairs` that are different lanes of one execution of a tile."""
    for equal_so_far, differ, lanes in _levels(pairs, first, second):
        if isinstance(differ, tuple) and lanes:
            x, y = differ
            yield from _nonempty(
                equal_so_far.order_lt(_IN, x, _OUT, y), equal_so_far.order_gt(_IN, x, _OUT, y)
            )


def last_writes(
    reads: Sequence[isl.Map], writes: Sequence[isl.Map], times: isl.UnionMap
) -> tuple[isl.UnionMap, isl.UnionMap]:
    """Return ``read -> the last write before it`` of the same element, and ``read -> element`` of reads without one.

    reads, writes   ``instance -> element``
    times           ``instance -> time`` of all of them
    """
    sinks, sources = union(reads, times), union(writes, times)
    info = isl.UnionAccessInfo.from_sink(sinks).set_must_source(sources)
    flow = info.set_schedule_map(times).compute_flow()
    return flow.get_must_dependence().reverse(), flow.get_must_no_source()


def terms_between(
    reads: Sequence[isl.Map],
    writes: Sequence[isl.Map],
    updates: Sequence[isl.Map],
    times: isl.UnionMap,
) -> isl.UnionMap:
    """Return ``read -> update``: the updates of the same element after the last write before the read."""
    readers, writers, terms = (union(maps, times) for maps in (reads, writes, updates))

    def earlier(one: isl.UnionMap, other: isl.UnionMap) -> isl.UnionMap:
        first, second = (times.intersect_domain(each.domain()) for each in (one, other))
        return one.apply_range(other.reverse()).intersect(first.lex_gt_union_map(second))

    overwritten = earlier(readers, writers).apply_range(earlier(writers, terms))
    return earlier(readers, terms).subtract(overwritten)


def reached_twice(relation: isl.UnionMap, values: isl.UnionMap) -> isl.UnionMap:
    """Return ``a -> v`` where `relation` leads from ``a`` to two points with the value v."""
    pairs = relation.domain_map().range_product(relation.range_map().apply_range(values))
    others = pairs.apply_range(pairs.reverse()).subtract(pairs.domain().identity())
    return others.domain().unwrap().apply_range(values)


def union(maps: Sequence[isl.Map], like: isl.UnionMap) -> isl.UnionMap:
    """Return the union of `maps`; of no maps an empty one, over the parameters of `like`."""
    result = isl.UnionMap.empty(like.get_space())
    for each in maps:
        result = result.union(isl.UnionMap.from_map(each))
    return result


def time_text(name: str, statement: Statement, depth: int, phase: int) -> str:
    """Return ``S3[x0] -> [0, x0, 1, 0, phase]``: reads are phase 0 of an instance, the write is phase 1."""
    at = statement.coordinates
    entries: list[str] = []
    for entry in statement.time:
        if isinstance(entry, int):
            entries.append(str(entry))
        else:
            entries += [at[x] for x in (entry if isinstance(entry, tuple) else (entry,))]
    entries += ["0"] * (depth - len(entries))
    return f"{name}[{', '.join(at.values())}] -> [{', '.join([*entries, str(phase)])}]"


def time_depth(statements: Sequence[Statement]) -> int:
    """Return the number of entries of the longest time; each lane counts."""
    return max(
        (sum(len(e) if isinstance(e, tuple) else 1 for e in s.time) for s in statements), default=1
    )


def rename_domain(relation: isl.Map, name: str) -> isl.Map:
    """Return `relation` with the domain tuple called `name`."""
    return relation.set_tuple_name(_IN, name)


def in_name(relation: isl.Map) -> str:
    """Return the name of the domain tuple."""
    return str(relation.get_tuple_name(_IN))


def out_name(relation: isl.Map) -> str:
    """Return the name of the range tuple."""
    return str(relation.get_tuple_name(_OUT))


def map_pieces(relation: isl.UnionMap) -> list[isl.Map]:
    """Return the maps of a union, one per pair of tuples."""
    maps = relation.get_map_list()
    return [maps.get_at(k) for k in range(maps.n_map())]


def len_in(relation: isl.Map) -> int:
    """Return the number of domain coordinates."""
    return int(relation.dim(_IN))
