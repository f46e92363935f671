"""Rows of a table, by number."""

from __future__ import annotations

from offcut.describe.functions import index
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value
from offcut.ops.given.naming import named
from offcut.ops.given.operands import axis_letters, check_tensor


def embedding(table: Tensor, ids: Tensor, *, name: str | None = None) -> Tensor:
    """``result[…, j] = table[ids[…], j]``, of the type of `table`.

    table   (v, d) of any element type
    ids     (…) of int64 or int32; a number below 0 or not below v is refused when the kernel is called

    Raises DescribeError where ranks or element types do not fit.
    """
    check_tensor("embedding", "table", table, 2)
    check_tensor("embedding", "ids", ids, dtypes=("int64", "int32"))

    def row(*at: Value) -> Value:
        return table[index(ids[at[:-1]]), at[-1]]

    letters = axis_letters(len(ids.shape) + 1)
    return compute(
        (*ids.shape, table.shape[1]), row, named("embedding", name, [table, ids]), letters
    )
