"""The operations on elements that a program of plain loops means, over its sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.core import index as ix
from offcut.core.expr import Expr, substitute
from offcut.core.program import For, If, Program, Stmt, Store
from offcut.core.scan import Range, ScanContext
from offcut.costmodel.closed.operations import operations
from offcut.costmodel.closed.summation import decided, folded
from offcut.costmodel.closed.sums import Amount, Sums, of_counts, settled


def flop(program: Program, sizes: Mapping[str, int]) -> Amount:
    """Return the operations that a program means, over the sizes that are not given."""
    fixed = {name: ix.const(value) for name, value in sizes.items()}
    known = ScanContext.of(size for size in program.sizes if size.name not in fixed)

    def block(body: Sequence[Stmt], known: ScanContext, sums: Sums) -> Expr:
        total: Expr = ix.const(0)
        for stmt in body:
            match stmt:
                case Store():
                    term: Expr = ix.const(operations(stmt))
                case For(name, lo, hi, inner):
                    lo, hi = folded(substitute(lo, fixed)), folded(substitute(hi, fixed))
                    within = known.within(Range(name, (lo,), (ix.sub(hi, 1),)))
                    term = sums.over(name, lo, hi, block(inner, within, sums), known)
                case If(condition, then, other):
                    holds = decided(substitute(condition, fixed))
                    term = sums.where(holds, block(then, known, sums), block(other, known, sums))
                case _:
                    continue
            total = ix.add(total, term)
        return total

    return settled(
        of_counts(is_open=bool(known.ranges)), lambda sums: block(program.body, known, sums)
    )
