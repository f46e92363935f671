"""Sorting along wide axes, as a loop program: what takes each element a few times, where `sort` compares it with all."""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import FLOATS, NUMBERS, reduction_start
from offcut.core.expr import Compare, Load, Var
from offcut.core.program import Program
from offcut.core.text.printer import format_expr
from offcut.describe.tensor import Tensor
from offcut.describe.value import Value
from offcut.ops.given.arguments import flag
from offcut.ops.given.naming import named
from offcut.ops.given.operands import axis_number, check_dtype, check_tensor
from offcut.ops.order.lines import Lines
from offcut.ops.order.ranking import precedes
from offcut.ops.programs.written import Written

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
    check_tensor("merged", "x", x, least=1)
    check_dtype("merged", "x", x, NUMBERS)
    position = axis_number("merged", x, axis)
    descending = flag("merged", "descending", descending)
    options = (("axis", position, len(x.shape) - 1), ("descending", descending, False))
    name = named("merged", name, [x], *options)
    order = Lines(x, position, not descending)
    text, extent = Written("merged", name, {"x": x}), x.shape[position]
    values = text.result(name, x.dtype, x.shape)
    places = text.result(f"{name}_places", "int64", x.shape)
    key = "float64" if x.dtype in FLOATS else x.dtype
    own, new = (text.local(wish, key, (extent,)) for wish in ("own", "new"))
    from_, to = (text.local(wish, "int32", (extent,)) for wish in ("from", "to"))
    left, right, middle, end, chosen, behind, run = (
        f"{text.local(wish, 'int64', (1,))}[0]"
        for wish in ("left", "right", "middle", "end", "taken", "behind", "run")
    )
    a, b = (f"{text.local(wish, key, (1,))}[0]" for wish in ("a", "b"))
    shown = text.shown(extent)
    count, pair = f"int64({shown})", f"({run} + {run})"
    begin, last = f"int64($q)*{pair}", f"int64({shown}) - int64(1)"
    stop = f"min({begin} + {pair}, {count})"
    earlier = f"{b} {'>' if descending else '<'} {a}"
    if x.dtype == "float64":
        earlier = order.before(b, a)
    order.write(
        text,
        *_ranked(text, order, extent, own, from_),
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
        f"        {chosen} = where({behind} > int64(0), min({right}, {last}), min({left}, {last}))",
        f"        {new}[$t] = {own}[index({chosen})]",
        f"        {to}[$t] = {from_}[index({chosen})]",
        f"        {left} += int64(1) - {behind}",
        f"        {right} += {behind}",
        f"    for $t in 0:{shown}",
        f"      {own}[$t] = {new}[$t]",
        f"      {from_}[$t] = {to}[$t]",
        f"    {run} += {run}",
        f"for $t in 0:{shown}",
        f"  {values}{order.at('$t')} = {text.given['x']}{order.at(f'index({from_}[$t])')}",
        f"  {places}{order.at('$t')} = int64({from_}[$t])",
    )
    return text.made()


def _ranked(text: Written, order: Lines, extent: Any, own: str, places: str) -> list[str]:
    """Return each block of a line in order: the keys of its elements into `own`, and their places. Behind the last element of a line a block
    has keys that come after all others, which stay at its end.
    """
    dtype = order.x.dtype
    key = "float64" if dtype in FLOATS else dtype
    blocks, shown = (extent + BLOCK - 1) // BLOCK, text.shown(extent)
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
    each = (f"for $q in 0:{text.shown(blocks)}", f"  for $c in 0:{BLOCK}")
    return [
        *each,
        f"    {own_key} = where({at} < {shown}, {_key(dtype, text.given['x'] + order.at(at))}, {after_all})",
        *each,
        f"    {ranks}[$q, $c] = int32(0)",
        f"    for $r in 0:{BLOCK}",
        f"      {ranks}[$q, $c] += {before}",
        *each,
        f"    if {at} < {shown}",
        f"      {own}[{place}] = {own_key}",
        f"      {places}[{place}] = int32({at})",
    ]


def _key(dtype: str, element: str) -> str:
    """What an element is compared by: a NaN of less than 64 bits is infinite there, and infinity a number beyond those of its type."""
    if dtype == "float64" or dtype not in FLOATS:
        return element
    finite = f"where({element} < inf, float64({element}), 1e39)"
    return f"where({element} == {element}, {finite}, inf)"
