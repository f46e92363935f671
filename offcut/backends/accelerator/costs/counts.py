"""What the leaves of a nest issue and move in a call: expressions over its sizes.

A leaf is a copy, a product, an operation or a result over a box. Of one instance, with ``c`` the words along
each axis of the box, and ``c'`` those of them that main memory has::

    steps   product of c                of a product or an operation
    words   product of c'               of a copy or a result
    zeros   product of c, less words    of a copy; where it is filled by another value, the vector unit sets them

and its bytes are those of its rows, ``c'`` along the axes that are in one, in whole beats. A nest is the sum over its loops
in closed form; where all sizes are known, instances are visited one by one instead (`accelerator/nest_run.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from offcut.backends.accelerator.isa import Alu, Gemm, Load, MemorySpace, Store
from offcut.backends.accelerator.lowering.instruction_selection import Copy, Result
from offcut.backends.accelerator.lowering.issue_tree import (
    Guard,
    Repeat,
    leaves_and_ancestors,
)
from offcut.backends.accelerator.lowering.nest import LoweredLeaf
from offcut.backends.accelerator.nest_run import ONE, ZERO, Instance, Issued, Ran
from offcut.backends.accelerator.simulator.timing import step_count
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.core.scan import Range, ScanContext
from offcut.costmodel.closed.counts import Exactness, least_exact
from offcut.costmodel.closed.sums import Amount, Sums, count_methods, first_success
from offcut.costmodel.simplification import drop_decided_conditions, simplify_index


@dataclass(frozen=True, slots=True)
class NestCounts:
    """A nest, counted.

    leaves  what each issues and moves, by number
    kept    bytes of each memory that windows take
    exact_counts, exact_bytes  how exact what is issued is, and what is moved: an estimate where half a beat a row is lost
    """

    leaves: Sequence[Issued]
    kept: Mapping[str, int]
    exact_counts: Exactness
    exact_bytes: Exactness


def nest_counts(at: Ran) -> NestCounts:
    """Return what a nest issues, moves and keeps, at any sizes.

    at  the nest at typical sizes: its largest instances there say what each takes
    """
    nest, counts = at.nest, _LoopSums(ScanContext.of(at.nest.program.sizes))
    bytes_exactness, leaves = [Exactness.EXACT], list[Issued]()
    for leaf, ancestors in leaves_and_ancestors(nest.nodes):
        work, largest = nest.work[leaf.number], at.largest.get(leaf.number)
        each = None if largest is None else per_instance(work, largest)
        issued, exactness = _instance(work, each, nest.spec)
        leaves.append(counts.over(issued, ancestors).map(nest.derived.expand))
        bytes_exactness.append(exactness)
    moved = least_exact(counts.exactness, *bytes_exactness)
    return NestCounts(leaves, at.kept, counts.exactness, moved)


@dataclass
class _LoopSums:
    """Sums over loops, and how exact those so far are."""

    sizes: ScanContext
    exactness: Exactness = Exactness.EXACT

    def over(self, one: Issued, around: Sequence[Repeat | Guard]) -> Issued:
        """Return the counts of an instance, added up over what stands around it."""
        known = [self.sizes]
        for node in around:
            if isinstance(node, Repeat):
                inner = Range(
                    node.name, (simplify_index(node.lo),), (ix.sub(simplify_index(node.hi), ONE),)
                )
                known.append(known[-1].within(inner))

        def total(term: Expr, sums: Sums) -> Expr:
            term, inside = simplify_index(term), list(known)
            for node in reversed(around):
                if isinstance(node, Guard):
                    condition = drop_decided_conditions(simplify_index(node.condition))
                    term = sums.where(condition, term, ZERO)
                else:
                    inside.pop()
                    lo, hi = simplify_index(node.lo), simplify_index(node.hi)
                    term = sums.over(node.name, lo, hi, term, inside[-1])
            return term

        def settle(term: Expr) -> Expr:
            count = first_success(count_methods(is_open=True), lambda sums: total(term, sums))
            self.exactness = least_exact(self.exactness, count.exactness)
            return count.value

        return one.map(settle)


def _instance(
    work: LoweredLeaf, one: PerInstance | None, spec: AcceleratorSpec
) -> tuple[Issued, Exactness]:
    """Return the counts of one instance, and how exact its bytes are."""
    if one is None:
        return Issued(), Exactness.EXACT
    counts = [ix.maximum(ix.ceildiv(work.asked[at], lanes), 0) for at, lanes in work.counts]
    whole = ix.product(counts)
    calls = ix.mul(one.instructions, ix.product([counts[axis] for axis in one.apart]))
    if not isinstance(work.does, Copy | Result):
        visits = (ix.mul(often, whole) for often in (one.steps, one.pairs, one.resets))
        return Issued(ONE, calls, *visits), Exactness.EXACT
    there = [
        _there(count, [work.asked[at] for at in low], [work.asked[at] for at in high])
        for count, (low, high) in zip(counts, work.bounds, strict=True)
    ]
    words, rows = ix.product(there), ix.product([there[axis] for axis in one.across])
    zeros = ix.sub(whole, words)
    row = ix.product([count for axis, count in enumerate(there) if axis not in one.across])
    place = work.does.place if isinstance(work.does, Copy) else MemorySpace.OUTPUTS
    size = _bytes(spec, place, rows, words, ix.literal_value(row))
    issued = Issued(runs=ONE, instructions=calls, words=words, bytes=size.value, zeros=zeros)
    fill = work.does.fill if isinstance(work.does, Copy) else 0
    if not fill:
        return issued, size.exactness
    missing = (
        ix.sub(count, there[axis]) for axis, count in enumerate(counts) if axis not in one.apart
    )
    # Rows of which a part is missing are filled whole, before that part comes; others only where all of it is missing.
    whole_rows = ix.sub(1, ix.minimum(ix.add(*missing), 1))
    filled = ix.sub(whole, ix.mul(whole_rows, words))
    count = "steps" if spec.is_immediate(fill) else "pairs"
    return replace(issued, zeros=ZERO, resets=filled, **{count: filled}), size.exactness


def _bytes(
    spec: AcceleratorSpec, place: MemorySpace, rows: Expr, words: Expr, row: int | None
) -> Amount:
    """Bytes of rows in whole beats, of so many words each: where that is not known, half a beat a row is lost."""
    each, beat = spec.words[place].bytes, spec.beat
    if each % beat == 0:
        return Amount(ix.mul(each, words))
    if row is not None:
        return Amount(ix.mul(-(-row * each // beat) * beat, rows))
    lost = ix.mul((beat - gcd(each, beat)) // 2, rows)
    return Amount(ix.add(ix.mul(each, words), lost), Exactness.ESTIMATE)


def _there(count: Expr, low: Sequence[Expr], high: Sequence[Expr]) -> Expr:
    """Iterations of an axis that main memory has."""
    if not low and not high:
        return count
    first: Expr = ZERO
    last = count
    for end in low:
        first = ix.maximum(first, end)
    for end in high:
        last = ix.minimum(last, end)
    return ix.maximum(ix.sub(last, first), 0)


@dataclass(frozen=True, slots=True)
class PerInstance:
    """What an instance of a leaf takes.

    instructions  of one, at each coordinate of the axes that no instruction runs along
    steps, pairs, resets  times that each word of the box is visited: by a product or with an immediate; with a second
                          word; to be set to 0
    across        axes that are in no row, of what moves words; apart: of these, the ones along which no instruction runs
    """

    instructions: int
    steps: int = 0
    pairs: int = 0
    resets: int = 0
    across: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()


def per_instance(work: LoweredLeaf, largest: Instance) -> PerInstance:
    """Return what an instance takes."""
    counts, made = largest
    if isinstance(work.does, Copy | Result):
        moving = [one for one in made if isinstance(one, Load | Store)]
        row = max((one.x for one in moving), default=0)
        across = _across(work, counts, row)
        column = next((axis for axis in across if counts[axis] != 1), None)
        apart = tuple(axis for axis in across if axis != column)
        each = max(prod(counts[axis] for axis in apart), 1)
        return PerInstance(len(moving) // each, across=across, apart=apart)
    steps = pairs = resets = 0
    own = [one for one in made if isinstance(one, Gemm | Alu)]
    for one in own:
        visited = step_count(one)
        if isinstance(one, Gemm) and one.reset:
            resets += visited
        elif isinstance(one, Alu) and one.immediate is None:
            pairs += visited
        else:
            steps += visited
    box = max(prod(counts), 1)
    return PerInstance(len(own), steps // box, pairs // box, resets // box)


def _across(work: LoweredLeaf, counts: Sequence[int], row: int) -> tuple[int, ...]:
    """The axes around a row: those that are fastest on the chip are in it, until it is as long."""
    side, _ = work.sides[0]
    order = side.lanes.order
    fast = [
        max((order.index(a) for a, k in enumerate(moved) if k), default=-1) for moved in side.steps
    ]
    rest = sorted(range(len(counts)), key=lambda axis: -fast[axis])
    length = 1
    while rest and length < row:
        length *= counts[rest.pop(0)]
    return tuple(rest)
