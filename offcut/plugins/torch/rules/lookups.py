"""Elements by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.graph import Ref
from offcut.plugins.torch.left import Left
from offcut.plugins.torch.table import takes
from offcut.plugins.torch.translation import Translation, plain


@takes("embedding")
def embedding(t: Translation, table: Ref, ids: Ref, *_: Any) -> Any:
    return t.node("embedding", table, ids)


@takes("index_select")
def index_select(t: Translation, x: Ref, axis: int, ids: Ref) -> Any:
    return t.node("take", x, ids, axis=t.axis(x, axis), from_end=False)


@takes("index.Tensor", "_unsafe_index.Tensor")
def index(t: Translation, x: Ref, places: Sequence[Any]) -> Any:
    """Of several axes: one element for each place of the indices together; between others, they are the first axes of the result."""
    given = {axis: one for axis, one in enumerate(places) if one is not None}
    if any(t.dtype(one) not in ("int32", "int64") for one in given.values()):
        raise Left("its shape depends on data")
    first, last = min(given), max(given)
    if last - first >= len(given):
        x = t.transpose(x, [*given, *(axis for axis in range(t.rank(x)) if axis not in given)])
        first = 0
    each = tuple(given.values())
    return t.node("take", x, each[0] if len(each) == 1 else each, axis=first)


@takes("gather")
def gather(t: Translation, x: Ref, axis: int, ids: Ref, *, sparse_grad: bool = False) -> Any:
    place = t.axis(x, axis)
    for other, extent in enumerate(t.shape(ids)):  # at most that of x
        if other != place and extent != t.shape(x)[other]:
            x = t.slice(x, other, 0, plain(extent))
    return t.node("take_along_axis", x, ids, axis=place, from_end=False)


@takes("one_hot")
def one_hot(t: Translation, ids: Ref, depth: int = -1) -> Any:
    if depth < 0:
        raise Left("its shape depends on data")
    return t.node("one_hot", ids, depth, t.result)
