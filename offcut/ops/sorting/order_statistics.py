"""The k-th element along an axis in an order, and the first k, as loop programs: two bounds are moved together until as many lie above as are wanted.

Each pass counts the elements above a value between the bounds, lanes side by side, so that no step depends on the order in
which the elements come. Of n values that spread evenly it takes about ``log2(n)`` passes, of others at most as many as `PASSES` says: first the distance
of the bounds is halved, and where that does not end, the distance of their exponents.
"""

from __future__ import annotations

from typing import Any

from offcut.core.dtypes import (
    FLOATS,
    HALVES,
    NUMBERS,
    UNSIGNED,
    finite_range,
    numpy_dtype,
    reduction_start,
)
from offcut.core.integers import whole
from offcut.core.program import Program
from offcut.core.sizes import size_expr
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.ops.checks import axis_number, check_tensor, flag, integer, result_name
from offcut.ops.loop_programs.program_writer import Written
from offcut.ops.sorting.merging import NO_PLACE, Lines

BLOCK = 64
"""Elements among which it is asked at once whether one is taken."""

PLAIN = 16
"""Passes that halve the distance of two floats, before those that halve the distance of their exponents."""

ENOUGH = 1000
"""More passes than there are."""

PASSES = {"float32": 64, "float64": 96}
"""Of floats of these types, at most; one for each bit, and one more, of integers."""

_BEHIND = 2**29  # more than the elements of a list


def kth(
    x: Tensor, k: Any, axis: int = -1, largest: bool = False, *, name: str | None = None
) -> Program:
    """Return a program of the k-th least element along `axis`, which stays, of extent 1, and its place, of int64.

    x         of numbers, with at least one axis
    k         an int of at least 1 or an expression in sizes of `x`; "median": the lower one in the middle, the first NaN where there is one;
              "nanmedian": that of those that are not NaN
    largest   the k-th greatest instead; not of medians

    Of equal elements the first comes first; a NaN is greater than all else. A call is refused in which the axis has fewer than k elements.

    Raises DescribeError where there is no such axis or k, or `x` is computed.
    """
    check_tensor("kth", "x", x, least=1, dtypes=NUMBERS)
    position, largest = axis_number("kth", x, axis), flag("kth", "largest", largest)
    is_median = isinstance(k, str) and k in ("median", "nanmedian") and not largest
    count = whole(k)
    if not is_median and (isinstance(k, str) or (count is not None and count < 1)):
        raise DescribeError(
            "kth",
            f"cannot take k={k!r}",
            because='k is an int of at least 1 or an expression in sizes, or of the least "median" or "nanmedian"',
        )
    options = (("", k, None), ("axis", position, len(x.shape) - 1), ("largest", largest, False))
    name = result_name("kth", name, [x], *options)
    text = Written("kth", name, {"x": x})
    number = None if is_median else size_expr(k, "kth")
    others = {str(one) for one in number.free_symbols} - {*text.sizes} if number is not None else ()
    if others:
        raise DescribeError(
            "kth",
            f"cannot take k={k!r}",
            at=repr(x),
            because=f"it has no axis that says {', '.join(sorted(others))}",
        )
    shape = (*x.shape[:position], 1, *x.shape[position + 1 :])
    values = text.result(name, x.dtype, shape)
    places = text.result(f"{name}_places", "int64", shape)
    lines = Lines(x, position, not largest)
    search = _Search(text, lines)
    rank, place, counter, hit = (
        f"{text.local(wish, 'int32', (1,))}[0]" for wish in ("rank", "place", "seen", "hit")
    )
    known, extent = search.numbers, f"int32({search.extent})"
    middle = "({} + int32(1)) // int32(2)"
    match k:
        case "median":
            rank_text = f"where({known} < {extent}, {known} + int32(1), {middle.format(extent)})"
        case "nanmedian":
            rank_text = f"max({middle.format(known)}, int32(1))"
        case _:
            rank_text = f"int32({text.extent_text(number)})"
    if largest:
        need, among_nan = f"max({rank} - {extent} + {known}, int32(0))", rank
    else:
        need, among_nan = f"where({rank} <= {known}, {rank}, int32(0))", f"{rank} - {known}"
    key = f"{search.key}[$r]"
    here, nan = f"{key} == {search.kth}", f"{key} != {key}"
    nth = f"where({search.need} > 0, {search.need} - {search.above}, {among_nan})"
    along = f"for $r in 0:{search.extent}"
    lines.write(
        text,
        *search.search_lines(need, f"{rank} = {rank_text}"),
        f"{rank} = {nth}",
        f"{place} = {NO_PLACE}",
        f"if {search.need} > 0",
        f"  {along}",
        f"    {place} min= where({here}, int32($r), {NO_PLACE})",
        "else",
        f"  {along}",
        f"    {place} min= where({nan}, int32($r), {NO_PLACE})",
        f"if {rank} > 1",
        f"  {counter} = int32(0)",
        f"  {place} = {NO_PLACE}",
        f"  {along}",
        f"    {hit} = where({search.need} > 0, {_one(here)}, {_one(nan)})",
        f"    {counter} += {hit}",
        f"    {place} = where({hit} * {_one(f'{counter} == {rank}')} > 0, int32($r), {place})",
        f"{values}{lines.at('0')} = {text.given['x']}{lines.at(f'index({place})')}",
        f"{places}{lines.at('0')} = int64({place})",
    )
    return text.program()


def leading(
    x: Tensor,
    last: Tensor,
    place: Tensor,
    k: int,
    axis: int = -1,
    largest: bool = True,
    *,
    name: str | None = None,
) -> Program:
    """Return a program of the `k` greatest elements along `axis` in descending order, and their places, of int64, where the last of them is known.

    x             of numbers, with at least one axis, of k elements at least
    last, place   what `kth` gives for the same k and order
    k             an int of at least 1
    largest       False: the k least, ascending

    Of equal elements the first comes first; a NaN is greater than all else. What comes before the last is put into a list in one pass, and this is
    sorted by the ranks of its elements, ``k * k`` comparisons side by side.

    Raises DescribeError where there is no such axis or k, shapes or types do not fit, or an operand is computed.
    """
    check_tensor("leading", "x", x, least=1, dtypes=NUMBERS)
    position, largest = axis_number("leading", x, axis), flag("leading", "largest", largest)
    count, rank = integer("leading", "k", k, 1), len(x.shape)
    alone = (*x.shape[:position], 1, *x.shape[position + 1 :])
    for label, one, dtype in (("last", last, x.dtype), ("place", place, "int64")):
        check_tensor("leading", label, one, rank, shape=alone, dtypes=(dtype,))
    options = (("", count, None), ("axis", position, rank - 1), ("least", not largest, False))
    name = result_name("leading", name, [x, last, place], *options)
    text = Written("leading", name, {"x": x, "last": last, "place": place})
    shape = (*alone[:position], count, *alone[position + 1 :])
    values = text.result(name, x.dtype, shape)
    places = text.result(f"{name}_places", "int64", shape)
    lines, extent = Lines(x, position, not largest), text.extent_text(x.shape[position])
    kind = _key_type(x.dtype)
    picked = text.local("taken", "int32", (count + 1,))
    first, turn, ranks = (
        text.local(wish, "int32", (count,)) for wish in ("first", "turn", "ranks")
    )
    key, picked_keys = (
        text.local("key", kind, (x.shape[position],)),
        text.local("held", kind, (count,)),
    )
    bound = f"{text.local('bound', kind, (1,))}[0]"
    number, some, equal = (
        f"{text.local(wish, 'int32', (1,))}[0]" for wish in ("number", "some", "equal")
    )
    source, is_float = text.given["x"], x.dtype in FLOATS
    its, there = text.given["last"] + lines.at("0"), f"int32({text.given['place']}{lines.at('0')})"
    least, most = (str(reduction_start(op, kind)) for op in ("max", "min"))
    before = [f"{bound} = {_key(its, lines)}", f"{equal} = {there}"]
    if is_float:  # a last one that is NaN is behind all numbers, or before them
        mine = f"{text.local('mine', kind, (1,))}[0]"
        nan = f"{text.local('nan', 'int32', (1,))}[0]"
        ends = (most, -1, NO_PLACE) if largest else (least, NO_PLACE, -1)
        before = [
            f"{mine} = {_key(its, lines)}",
            f"{bound} = where({mine} == {mine}, {mine}, {ends[0]})",
            f"{equal} = where({mine} == {mine}, {there}, int32({ends[1]}))",
            f"{nan} = where({mine} == {mine}, int32({ends[2]}), {there})",
        ]
    own, element = f"{key}[$r]", f"{source}{lines.at('$r')}"
    condition = f"{_one(f'{own} > {bound}')} + {_one(f'{own} == {bound}')} * {_one(f'int32($r) <= {equal}')}"
    if is_float:
        condition += f" + {_one(f'{own} != {own}')} * {_one(f'int32($r) <= {nan}')}"
    block = f"for $r in {BLOCK}*$q:min({BLOCK}*$q + {BLOCK}, {extent})"
    lines.write(
        text,
        *before,
        f"for $r in 0:{extent}",
        f"  {own} = {_key(element, lines)}",
        f"{number} = int32(0)",
        f"for $q in 0:({extent} + {BLOCK - 1})//{BLOCK}",
        f"  {some} = int32(0)",
        f"  {block}",
        f"    {some} += where({own} < {bound}, int32(0), int32(1))",
        f"  if {some} > 0",
        f"    {block}",
        f"      {picked}[index(max(min({number}, int32({count})), int32(0)))] = int32($r)",
        f"      {number} += {condition}",
        f"for $t in 0:{count}",
        f"  {picked_keys}[$t] = {key}[index({picked}[$t])]",
        f"  {turn}[$t] = int32($t)",
        *(
            [f"  {line}" for line in _with_nan(picked_keys, turn, largest, least, most)]
            if is_float
            else []
        ),
        f"for $t in 0:{count}",
        f"  {ranks}[$t] = int32(0)",
        f"  for $s in 0:{count}",
        f"    {ranks}[$t] += {_one(f'{picked_keys}[$s] > {picked_keys}[$t]')}"
        f" + {_one(f'{picked_keys}[$s] == {picked_keys}[$t]')} * {_one(f'{turn}[$s] < {turn}[$t]')}",
        f"for $t in 0:{count}",
        f"  {first}[index({ranks}[$t])] = {picked}[$t]",
        f"for $t in 0:{count}",
        f"  {values}{lines.at('$t')} = {source}{lines.at(f'index({first}[$t])')}",
        f"  {places}{lines.at('$t')} = int64({first}[$t])",
    )
    return text.program()


def _with_nan(keys: str, turn: str, first: bool, least: str, most: str) -> list[str]:
    """Return the lines that write, of a key that is NaN, one beside which it is before all others or behind them, and that turn."""
    number = f"{keys}[$t] == {keys}[$t]"
    end, away = (most, -_BEHIND) if first else (least, _BEHIND)
    return [
        f"{turn}[$t] += where({number}, int32(0), int32({away}))",
        f"{keys}[$t] = where({number}, {keys}[$t], {end})",
    ]


def _key_type(dtype: str) -> str:
    """Return the type that elements are compared in."""
    return "float32" if dtype in HALVES else dtype


def _key(element: str, lines: Lines) -> str:
    """Return what an element is compared by: of what comes first it is the greatest; that of NaN is NaN."""
    dtype = lines.x.dtype
    kind = _key_type(dtype)
    if kind != dtype:
        element = f"{kind}({element})"
    if not lines.ascending:
        return element
    if dtype in FLOATS:
        return f"-{element}"
    return f"{kind}({reduction_start('min', kind) if kind in UNSIGNED else -1}) - {element}"


def _one(condition: str) -> str:
    """Return 1 where a condition holds, else 0: sums of these read all that they compare, where what ``and`` follows is read one by one."""
    return f"where({condition}, int32(1), int32(0))"


class _Search:
    """What finds a key of which so many are greater along a line; the keys of elements that come first are the greatest, a NaN is one.

    type     of keys
    key      the keys of a line
    numbers  how many of them are no NaN
    need     as the how many-th greatest the key is wanted; 0: none is
    kth      the key
    above    how many are greater
    """

    def __init__(self, text: Written, lines: Lines) -> None:
        self.text, self.lines = text, lines
        dtype, extent = lines.x.dtype, lines.x.shape[lines.position]
        self.type = _key_type(dtype)
        self.element = f"{text.given['x']}{lines.at('$r')}"
        self.is_float = dtype in FLOATS
        self.extent = text.extent_text(extent)
        self.key = text.local("key", self.type, (extent,))
        self.kth, self.low, self.high, self.middle = (
            f"{text.local(wish, self.type, (1,))}[0]" for wish in ("kth", "low", "high", "middle")
        )
        self.numbers, self.need, self.above, self.passes, self.inside, self.beyond = (
            f"{text.local(wish, 'int32', (1,))}[0]"
            for wish in ("numbers", "need", "above", "passes", "inside", "beyond")
        )
        self.least, self.most = (reduction_start(op, self.type) for op in ("max", "min"))

    def _along(self, *body: str) -> list[str]:
        return [f"for $r in 0:{self.extent}", *(f"  {line}" for line in body)]

    def _count_lines(self, into: str, condition: str) -> list[str]:
        return [f"{into} = int32(0)", *self._along(f"{into} += {_one(condition)}")]

    def search_lines(self, need: str, *first: str) -> list[str]:
        """Return the lines that find it.

        need   an expression of int32 that may read `numbers` and what `first` writes
        """
        key = f"{self.key}[$r]"
        number = f"{key} == {key}"
        low, high = key, key
        if self.is_float:
            low, high = (f"where({number}, {key}, {one})" for one in (self.most, self.least))
        between = f"{self.middle} > {self.low} and {self.middle} < {self.high}"
        if not self.is_float:
            between = f"{self.middle} > {self.low}"
        halved = [
            *self._between(),
            f"if {between}",
            *(f"  {line}" for line in self._count_lines(self.beyond, f"{key} > {self.middle}")),
            f"  if {self.beyond} < {self.need}",
            f"    {self.high} = {self.middle}",
            "  else",
            f"    {self.low} = {self.middle}",
            f"    if {self.beyond} == {self.need}",
            f"      {self.passes} = int32({ENOUGH})",
            "else",
            f"  {self.passes} = int32({ENOUGH})",
            f"{self.passes} += int32(1)",
        ]
        return [
            *self._along(f"{key} = {_key(self.element, self.lines)}"),
            f"{self.low} = {self.most}",
            f"{self.high} = {self.least}",
            *self._along(f"{self.low} min= {low}", f"{self.high} max= {high}"),
            *(
                self._count_lines(self.numbers, number)
                if self.is_float
                else [f"{self.numbers} = int32({self.extent})"]
            ),
            *first,
            f"{self.need} = {need}",
            f"{self.kth} = where({self.need} > 0, {self.low}, {self.most})",
            *self._count_lines(self.inside, f"{key} > {self.low}"),
            f"if {self.need} > 0 and {self.inside} >= {self.need}",
            f"  {self.passes} = int32(0)",
            f"  for $p in 0:{self._passes}",
            f"    if {self.passes} < {ENOUGH}",
            *(f"      {line}" for line in halved),
            f"  {self.kth} = {self.most}",
            *(
                f"  {line}"
                for line in self._along(
                    f"{self.kth} min= where({key} > {self.low}, {key}, {self.most})"
                )
            ),
            *self._count_lines(self.above, f"{key} > {self.kth}"),
        ]

    @property
    def _passes(self) -> int:
        return PASSES[self.type] if self.is_float else 8 * numpy_dtype(self.type).itemsize + 1

    def _between(self) -> list[str]:
        """Return the lines that find a value between the bounds, less than the upper; it is the lower, or no less than the upper, where there is none."""
        low, high, middle = self.low, self.high, self.middle
        if not self.is_float:
            both = f"({low} % 2 + {high} % 2) // 2"
            return [f"{middle} = {low} // 2 + {high} // 2 + {both}"]
        import ml_dtypes

        end, tiny = finite_range(self.type)[1], float(ml_dtypes.finfo(self.type).tiny)
        near, far = f"max({low}, {-end})", f"min({high}, {end})"
        small, large = (
            f"where({low} < 0, {a}, {b})" for a, b in ((f"-{far}", near), (f"-{near}", far))
        )
        small = f"max({small}, {tiny})"
        root = f"sqrt({small}) * sqrt({large})"
        return [
            f"{middle} = {near} * 0.5 + {far} * 0.5",
            f"if {self.passes} >= {PLAIN}",
            f"  if {low} < 0 and {high} > 0",
            f"    {middle} = 0",
            "  else",
            f"    if {large} > 4 * {small}",
            f"      {middle} = where({low} < 0, -({root}), {root})",
        ]
