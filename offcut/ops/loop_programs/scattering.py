"""Elements put where integers say, into a copy, as loop programs: update after update, a step for each of their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.core.dtypes import INDEX_DTYPES, UNSIGNED, index_dtype
from offcut.core.program import Program
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.ops.checks import (
    axis_letters,
    axis_number,
    check_dtype,
    check_tensor,
    choice,
    flag,
    result_name,
    wider,
)
from offcut.ops.loop_programs.program_writer import Written

_REDUCED = {"add": "{} + {}", "mul": "{} * {}", "max": "max({}, {})", "min": "min({}, {})"}


def scatter_elements(
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    reduction: str | None = None,
    from_end: bool = True,
    drop: bool = True,
    *,
    name: str | None = None,
) -> Program:
    """A program of `x`, but ``result[…, indices[…, k, …], …] = updates[…, k, …]``, in ascending order of k.

    x           of any element type, with at least one axis of n elements along `axis`
    indices     integers of the rank of `x`, -n … n - 1, those below 0 counted from the end; the update of
                any other changes nothing. On other axes it has at most the extents of `x`, else a call is refused
    updates     of the shape of `indices` and the type of `x`
    reduction   None: of several updates of one place the last stays; "add", "mul", "max" or "min": all of
                them and the element of `x`, small types in the type that `sum` takes
    from_end    False: an index below 0 is no place
    drop        False: a call with an index that is no place is refused when the kernel is called

    Raises DescribeError where there is no such axis, ranks, shapes or element types do not fit, or an operand is computed.
    """
    op = "scatter_elements"
    check_tensor(op, "x", x, least=1)
    position, rank = axis_number(op, x, axis), len(x.shape)
    check_tensor(op, "indices", indices, rank)
    _check_updates(op, x, indices, updates, indices.shape, reduction)
    places = _Places(op, from_end, drop)
    options = (("axis", position, 0), ("", reduction, None), *places.options)
    name = result_name(op, name, [x, indices, updates], *options)
    into = _Copy(op, name, x, indices, updates, reduction)
    letters = axis_letters(rank)
    own = [f"${letter}" for letter in letters]
    condition, place = into.place(f"[{', '.join(own)}]", x.shape[position], places)
    to = [*own[:position], place, *own[position + 1 :]]
    statement = into.put(to, own)
    body = (f"if {condition}", f"  {statement}") if drop else (statement,)
    into.text.nest(0, letters, indices.shape, *body)
    return into.make_program()


def scatter_nd(
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    reduction: str | None = None,
    from_end: bool = True,
    drop: bool = True,
    *,
    name: str | None = None,
) -> Program:
    """A program of `x`, but ``result[indices[k, 0], …, indices[k, q - 1], …] = updates[k, …]``, in ascending order of k.

    x           of any element type, with at least q axes
    indices     (m, q) of integers, q an int of at least 1; as in `scatter_elements`
    updates     (m, …), of the axes of `x` from axis q on, and of its type
    reduction, from_end, drop   as in `scatter_elements`

    Raises DescribeError where ranks, shapes or element types do not fit, or an operand is computed.
    """
    op = "scatter_nd"
    check_tensor(op, "x", x, least=1)
    check_tensor(op, "indices", indices, 2)
    columns, rank = indices.shape[1], len(x.shape)
    if not (columns.is_Integer and 1 <= columns <= rank):
        raise DescribeError(
            op,
            f"cannot take indices of {columns} columns",
            at=repr(indices),
            because=f"they are an int from 1 to the {rank} axes of {x.name}",
        )
    count = int(columns)
    _check_updates(op, x, indices, updates, (indices.shape[0], *x.shape[count:]), reduction)
    places = _Places(op, from_end, drop)
    options = (("", reduction, None), *places.options)
    name = result_name(op, name, [x, indices, updates], *options)
    into = _Copy(op, name, x, indices, updates, reduction)
    places_of = [into.place(f"[$update, {n}]", x.shape[n], places) for n in range(count)]
    is_inside = f"if {' and '.join(condition for condition, _ in places_of)}"
    into.text.nest(0, ("update",), indices.shape[:1], *([is_inside] if drop else []))
    letters = axis_letters(rank - count)
    rest = [f"${letter}" for letter in letters]
    statement = into.put([*(place for _, place in places_of), *rest], ["$update", *rest])
    into.text.nest(1 + drop, letters, x.shape[count:], statement)
    return into.make_program()


class _Places:
    """Which indices are places, and whether the updates of others are dropped."""

    def __init__(self, op: str, from_end: bool, drop: bool) -> None:
        self.from_end, self.drop = flag(op, "from_end", from_end), flag(op, "drop", drop)
        self.options = (("within", not from_end, False), ("all", not drop, False))


class _Copy:
    """A program that copies `x` and writes to the copy, which has a type that is wide enough for sums."""

    def __init__(
        self,
        op: str,
        name: str,
        x: Tensor,
        indices: Tensor,
        updates: Tensor,
        reduction: str | None,
    ) -> None:
        operands = {"x": x, "indices": indices, "updates": updates}
        self.text, self.x, self.reduction = Written(op, name, operands), x, reduction
        self.index = indices.dtype
        self.type = x.dtype if reduction is None else wider(x.dtype)
        if self.type == "bool":
            self.type = "int32" if reduction else "bool"
        self.result = self.text.result(name, x.dtype, x.shape)
        self.sums = self.result
        if self.type != x.dtype:
            self.sums = self.text.local(f"{name}_sum", self.type, x.shape)
        self._every(self.sums, self.operand_name("x"), self.type)

    def operand_name(self, label: str) -> str:
        """What the program calls an operand."""
        return self.text.given[label]

    def place(self, at: str, extent: Any, places: _Places) -> tuple[str, str]:
        """Whether an index is a place along an axis, and which."""
        number, count = f"{self.operand_name('indices')}{at}", self.text.extent_text(extent)
        wide = index_dtype(self.index)
        if self.index != wide:
            number = f"{wide}({number})"
        condition = f"{number} < {wide}({count})"
        if self.index in UNSIGNED:
            return condition, f"index({number})"
        if not places.from_end:
            return f"{number} >= {wide}(0) and {condition}", f"index({number})"
        from_end = f"{number} + {wide}({count})"
        return (
            f"{from_end} >= {wide}(0) and {condition}",
            f"index(where({number} < {wide}(0), {from_end}, {number}))",
        )

    def put(self, to: Sequence[str], own: Sequence[str]) -> str:
        """The store of an update to a place."""
        element = f"{self.sums}[{', '.join(to)}]"
        update = f"{self.operand_name('updates')}[{', '.join(own)}]"
        if self.type != self.x.dtype:
            update = f"{self.type}({update})"
        value = update
        if self.reduction is not None:
            value = _REDUCED[self.reduction].format(element, update)
        return f"{element} = {value}"

    def make_program(self) -> Program:
        """The program."""
        if self.sums != self.result:
            self._every(self.result, self.sums, self.x.dtype)
        return self.text.program()

    def _every(self, into: str, of: str, dtype: str) -> None:
        """Copy all elements, as another type where that is another."""
        letters = axis_letters(len(self.x.shape))
        at = f"[{', '.join(f'${letter}' for letter in letters)}]"
        value = f"{of}{at}" if self.type == self.x.dtype else f"{dtype}({of}{at})"
        self.text.nest(0, letters, self.x.shape, f"{into}{at} = {value}")


def _check_updates(
    op: str,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    shape: Sequence[Any],
    reduction: Any,
) -> None:
    check_dtype(op, "indices", indices, INDEX_DTYPES)
    check_tensor(op, "updates", updates, len(shape), shape=shape, dtypes=(x.dtype,))
    if reduction is not None:
        choice(op, "reduction", reduction, [*_REDUCED], ", or None")
