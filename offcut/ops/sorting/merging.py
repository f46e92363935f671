"""Sorting along wide axes, as a loop program: what takes each element a few times, where `sort` compares it with all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from offcut.core.dtypes import FLOATS, NUMBERS, reduction_start
from offcut.core.expr import Compare, Load, Var
from offcut.core.program import Program
from offcut.core.text.printer import format_expr
from offcut.describe.tensor import Tensor
from offcut.describe.value import Value
from offcut.ops.checks import axis_number, check_tensor, flag, result_name
from offcut.ops.loop_programs.program_writer import Written
from offcut.ops.sorting.ranking import precedes

BLOCK = 64
"""Elements of which each is compared with all others, side by side, before runs are merged."""

LEVELS = 31  # how often what is merged may double: places are of int32


def merged(
    x: Tensor, axis: int = -1, descending: bool = False, *, name: str | None = None
) -> Program:
    """Return a program of what `sort` gives: the elements along `axis` in ascending order, and their places, of int64.

    x, axis, descending   as in `sort`

    Of a block of 64 elements each goes behind as many as come before it there, then runs of 64, 128, … elements are merged in
    pairs: ``64 * n`` comparisons side by side and ``n * log2(n / 64)`` steps for n elements, none of which takes a branch
    that depends on their order.

    Raises DescribeError where there is no such axis, or `x` is computed.
    """
    check_tensor("merged", "x", x, least=1, dtypes=NUMBERS)
    position = axis_number("merged", x, axis)
    descending = flag("merged", "descending", descending)
    options = (("axis", position, len(x.shape) - 1), ("descending", descending, False))
    name = result_name("merged", name, [x], *options)
    order = Lines(x, position, not descending)
    text, extent = Written("merged", name, {"x": x}), x.shape[position]
    values = text.result(name, x.dtype, x.shape)
    places = text.result(f"{name}_places", "int64", x.shape)
    key = "float64" if x.dtype in FLOATS else x.dtype
    own, new = (text.local(wish, key, (extent,)) for wish in ("own", "new"))
    from_, to = (text.local(wish, "int32", (extent,)) for wish in ("from", "to"))
    left, right, middle, end, source, behind, run = (
        f"{text.local(wish, 'int64', (1,))}[0]"
        for wish in ("left", "right", "middle", "end", "taken", "behind", "run")
    )
    a, b = (f"{text.local(wish, key, (1,))}[0]" for wish in ("a", "b"))
    count_text = text.extent_text(extent)
    count, pair = f"int64({count_text})", f"({run} + {run})"
    begin, last = f"int64($q)*{pair}", f"int64({count_text}) - int64(1)"
    stop = f"min({begin} + {pair}, {count})"
    earlier = f"{b} {'>' if descending else '<'} {a}"
    if x.dtype == "float64":
        earlier = order.before(b, a)
    order.write(
        text,
        *_sort_blocks(text, order, extent, own, from_),
        f"{run} = int64({BLOCK})",
        f"for $l in 0:{LEVELS}",
        f"  if {run} < {count}",
        f"    for $q in 0:index(({count} + {pair} - int64(1)) // max({pair}, int64(1)))",
        f"      {left} = {begin}",
        f"      {right} = {begin} + {run}",
        f"      {middle} = {begin} + {run}",
        f"      {end} = {stop}",
        f"      for $t in index({begin}):index({stop})",
        f"        {a} = {own}[index(min({left}, {last}))]",
        f"        {b} = {own}[index(min({right}, {last}))]",
        f"        {behind} = where({right} < {end}, where({left} >= {middle}, int64(1), "
        f"where({earlier}, int64(1), int64(0))), int64(0))",
        f"        {source} = where({behind} > int64(0), min({right}, {last}), min({left}, {last}))",
        f"        {new}[$t] = {own}[index({source})]",
        f"        {to}[$t] = {from_}[index({source})]",
        f"        {left} += int64(1) - {behind}",
        f"        {right} += {behind}",
        f"    for $t in 0:{count_text}",
        f"      {own}[$t] = {new}[$t]",
        f"      {from_}[$t] = {to}[$t]",
        f"    {run} += {run}",
        f"for $t in 0:{count_text}",
        f"  {values}{order.at('$t')} = {text.given['x']}{order.at(f'index({from_}[$t])')}",
        f"  {places}{order.at('$t')} = int64({from_}[$t])",
    )
    return text.program()


def _sort_blocks(text: Written, order: Lines, extent: Any, own: str, places: str) -> list[str]:
    """Return each block of a line in order: the keys of its elements into `own`, and their places. Behind the last element of a line a block
    has keys that come after all others, which stay at its end.
    """
    dtype = order.x.dtype
    key = "float64" if dtype in FLOATS else dtype
    blocks, count_text = (extent + BLOCK - 1) // BLOCK, text.extent_text(extent)
    keys = text.local("keys", key, (blocks, BLOCK))
    ranks = text.local("ranks", "int32", (blocks, BLOCK))
    after_all = str(reduction_start("min" if order.ascending else "max", key))
    if dtype == "float64" and order.ascending:
        after_all = "nan"
    at, own_key = f"{BLOCK}*$q + $c", f"{keys}[$q, $c]"
    its, mine = (Value(Load(keys, (Var("$q"), Var(name)), key)) for name in ("$r", "$c"))
    less, greater = (its, mine) if order.ascending else (mine, its)
    earlier = Value(Compare("<", Var("$r"), Var("$c")))
    before = format_expr(precedes(less, greater, earlier, nan=dtype == "float64").node)
    place = f"{BLOCK}*$q + index({ranks}[$q, $c])"
    each = (f"for $q in 0:{text.extent_text(blocks)}", f"  for $c in 0:{BLOCK}")
    return [
        *each,
        f"    {own_key} = where({at} < {count_text}, {_key(dtype, text.given['x'] + order.at(at))}, {after_all})",
        *each,
        f"    {ranks}[$q, $c] = int32(0)",
        f"    for $r in 0:{BLOCK}",
        f"      {ranks}[$q, $c] += {before}",
        *each,
        f"    if {at} < {count_text}",
        f"      {own}[{place}] = {own_key}",
        f"      {places}[{place}] = int32({at})",
    ]


def _key(dtype: str, element: str) -> str:
    """What an element is compared by: a NaN of less than 64 bits is infinite there, and infinity a number beyond those of its type."""
    if dtype == "float64" or dtype not in FLOATS:
        return element
    finite = f"where({element} < inf, float64({element}), 1e39)"
    return f"where({element} == {element}, {finite}, inf)"


_LOOP = re.compile(r" *for \$(\w+) in ")

NO_PLACE = 2**31 - 1
"""The place of no element."""


class Lines:
    """The lines of `x` along an axis, and an order of their elements, NaN being the greatest.

    ascending  whether the least comes first
    """

    def __init__(self, x: Tensor, position: int, ascending: bool) -> None:
        self.x, self.position, self.ascending = x, position, ascending
        letters = [f"z{n}" for n in range(len(x.shape))]
        self.others = [name for n, name in enumerate(letters) if n != position]

    def at(self, place: str) -> str:
        """Return the index of a place along the axis."""
        others = [f"${name}" for name in self.others]
        return f"[{', '.join([*others[: self.position], place, *others[self.position :]])}]"

    def before(self, a: str, b: str) -> str:
        """Return whether `a` comes before `b`."""
        less, greater = (a, b) if self.ascending else (b, a)
        if self.x.dtype not in FLOATS:
            return f"({less} < {greater})"
        return f"({less} < {greater} or ({less} == {less} and {greater} != {greater}))"

    def write(self, text: Written, *body: str) -> None:
        """Write what is done for each line; each loop in it has an iterator of its own, by which a proof tells one from the next."""
        extents = [e for n, e in enumerate(self.x.shape) if n != self.position]
        text.nest(0, self.others, extents, *_apart(body))


def _apart(body: Sequence[str]) -> list[str]:
    """Return lines whose loops have iterators of their own."""
    inside, result = list[tuple[int, str, str]](), list[str]()
    for number, line in enumerate(body):
        depth = len(line) - len(line.lstrip())
        inside = [one for one in inside if one[0] < depth]
        for _, old, new in inside:
            line = re.sub(rf"\${old}\b", f"${new}", line)
        head = _LOOP.match(line)
        if head is not None:
            inside.append((depth, head[1], f"{head[1]}{number}"))
            line = re.sub(rf"for \${head[1]}\b", f"for ${head[1]}{number}", line)
        result.append(line)
    return result
