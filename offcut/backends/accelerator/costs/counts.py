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
from math import gcd

from offcut.backends.accelerator.costs.per_instance import PerInstance, per_instance
from offcut.backends.accelerator.isa import MemorySpace
from offcut.backends.accelerator.issue_counts import ONE, ZERO, Issued
from offcut.backends.accelerator.lowering.instruction_selection import Copy, Result
from offcut.backends.accelerator.lowering.issue_tree import (
    Guard,
    Repeat,
    leaves_and_ancestors,
)
from offcut.backends.accelerator.lowering.nest import LoweredLeaf
from offcut.backends.accelerator.nest_run import Ran
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core import index as ix
from offcut.core.expr import Expr
from offcut.core.scan import Range, ScanContext
from offcut.costmodel.closed.counts import Exactness, least_exact
from offcut.costmodel.closed.summation import decided, folded
from offcut.costmodel.closed.sums import Amount, Sums, count_methods, first_success


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


def counted(at: Ran) -> NestCounts:
    """Return what a nest issues, moves and keeps, at any sizes.

    at  the nest at typical sizes: its largest instances there say what each takes
    """
    nest, counts = at.nest, _LoopSums(ScanContext.of(at.nest.program.sizes))
    bytes_exactness, leaves = [Exactness.EXACT], list[Issued]()
    for leaf, ancestors in leaves_and_ancestors(nest.nodes):
        work, largest = nest.work[leaf.number], at.largest.get(leaf.number)
        each = None if largest is None else per_instance(work, largest)
        issued, exactness = _instance(work, each, nest.spec)
        leaves.append(counts.over(issued, ancestors).mapped(nest.derived.expand))
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
                inner = Range(node.name, (folded(node.lo),), (ix.sub(folded(node.hi), ONE),))
                known.append(known[-1].within(inner))

        def total(term: Expr, sums: Sums) -> Expr:
            term, inside = folded(term), list(known)
            for node in reversed(around):
                if isinstance(node, Guard):
                    condition = decided(folded(node.condition))
                    term = sums.where(condition, term, ZERO)
                else:
                    inside.pop()
                    lo, hi = folded(node.lo), folded(node.hi)
                    term = sums.over(node.name, lo, hi, term, inside[-1])
            return term

        def settle(term: Expr) -> Expr:
            count = first_success(count_methods(is_open=True), lambda sums: total(term, sums))
            self.exactness = least_exact(self.exactness, count.exactness)
            return count.value

        return one.mapped(settle)


def _instance(
    work: LoweredLeaf, one: PerInstance | None, spec: AcceleratorSpec
) -> tuple[Issued, Exactness]:
    """Return the counts of one instance, and how exact its bytes are."""
    if one is None:
        return Issued(), Exactness.EXACT
    counts = [ix.maximum(ix.ceildiv(work.asked[at], lanes), 0) for at, lanes in work.counts]
    whole = _product(counts)
    calls = ix.mul(one.instructions, _product([counts[axis] for axis in one.apart]))
    if not isinstance(work.does, Copy | Result):
        visits = (ix.mul(often, whole) for often in (one.steps, one.pairs, one.resets))
        return Issued(ONE, calls, *visits), Exactness.EXACT
    there = [
        _there(count, [work.asked[at] for at in low], [work.asked[at] for at in high])
        for count, (low, high) in zip(counts, work.bounds, strict=True)
    ]
    words, rows = _product(there), _product([there[axis] for axis in one.across])
    zeros = ix.sub(whole, words)
    row = _product([count for axis, count in enumerate(there) if axis not in one.across])
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


def _product(parts: Sequence[Expr]) -> Expr:
    product: Expr = ONE
    for part in parts:
        product = ix.mul(product, part)
    return product
