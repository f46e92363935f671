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
    return t.node("take", x, ids, axis=t.axis(x, axis))


@takes("index.Tensor")
def index(t: Translation, x: Ref, places: Sequence[Any]) -> Any:
    given = [(axis, one) for axis, one in enumerate(places) if one is not None]
    if len(given) != 1:
        raise Left("it is indexed along several axes at once")
    ((axis, ids),) = given
    if t.dtype(ids) not in ("int32", "int64"):
        raise Left("its shape depends on data")
    return t.node("take", x, ids, axis=axis)


@takes("gather")
def gather(t: Translation, x: Ref, axis: int, ids: Ref, *, sparse_grad: bool = False) -> Any:
    place = t.axis(x, axis)
    for other, extent in enumerate(t.shape(ids)):  # at most that of x
        if other != place and extent != t.shape(x)[other]:
            x = t.slice(x, other, 0, plain(extent))
    return t.node("take_along_axis", x, ids, axis=place)


@takes("one_hot")
def one_hot(t: Translation, ids: Ref, depth: int = -1) -> Any:
    if depth < 0:
        raise Left("its shape depends on data")
    return t.node("one_hot", ids, depth, t.result)
