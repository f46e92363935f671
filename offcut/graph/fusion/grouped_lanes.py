"""Products by groups of few channels each: computed where they are read, so that lanes run along the channels of all groups.

Before: ``p[n, g, o, y] = sum over c, r of x[n, y + r, 4*g + c] * w[4*g + o, c, r]``, ``z[n, y, k] = p[n, k // 4, k % 4, y]``.
After: ``z[n, y, k] = sum over r, c of x[n, y + r, 4*(k // 4) + c] * w[k, c, r]``, whose vectors read one ``c`` of each group at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Load, Reduce, Var, loads, rewrite, substitute, variables
from offcut.describe.tensor import Compute, Tensor, tensors_of
from offcut.graph.fusion.tensor_rewrites import rebuilt, simpler, with_followers
from offcut.ops.images.convolution import NARROW


def with_lanes_over_groups(
    results: Sequence[Tensor], orders: Mapping[str, tuple[int, ...]]
) -> tuple[Tensor, ...]:
    """The results, where what takes its elements from the products of narrow groups, along the axis that is last in memory, computes
    them: the channels of a group innermost.

    orders  of the axes of the results
    """
    orders, tensors = with_followers(results, orders), tensors_of(results)
    readers = [
        one.name for tensor in tensors if tensor.definition for one in tensor.definition.reads
    ]

    def change(tensor: Tensor, rewritten: Mapping[str, Tensor]) -> Tensor:
        if tensor.definition is None:
            return tensor
        reads = tuple(rewritten[one.name] for one in tensor.definition.reads)
        definition = replace(tensor.definition, reads=reads)
        alone = isinstance(definition.body, Load) and readers.count(definition.body.buffer) == 1
        if alone and reads[0].definition is not None and reads[0] not in results:
            rank = len(tensor.shape)
            lane = definition.axes[orders.get(tensor.name, tuple(range(rank)))[-1]].name
            definition = _over_groups(definition, reads[0].definition, lane) or definition
        return replace(tensor, definition=definition)

    replacements = rebuilt(results, change)
    return tuple(replacements[tensor.name] for tensor in results)


def _over_groups(reader: Compute, products: Compute, axis: str) -> Compute | None:
    """What `reader`, which takes each element from `products`, is as a sum of its own; None where these have no narrow groups along
    that axis.
    """
    body, own = products.body, [one.name for one in products.axes]
    if not isinstance(reader.body, Load) or not isinstance(body, Reduce):
        return None
    lane, at = Var(axis), dict(zip(own, reader.body.index, strict=True))
    split = [part for part in at.values() if axis in variables(part)]
    match split:
        case [Binary("//", Var(), Const(each)) as group, part] if 2 <= each <= NARROW:
            if (group, part) != (ix.floordiv(lane, int(each)), ix.mod(lane, int(each))):
                return None
        case _:
            return None
    if {one.name for one in reader.axes} & {*body.axes}:
        return None
    first = ix.mul(int(each), group)
    (member,) = (name for name, index in at.items() if index == part)
    value = rewrite(substitute(body.value, {**at, member: ix.sub(lane, first)}), simpler)
    read = [part for load, _ in loads(value) for part in load.index]
    channel = next((name for name in body.axes if ix.add(first, Var(name)) in read), None)
    if channel is None:
        return None
    window = [name for name in body.axes if name != channel]
    order = (*reversed(window), channel)  # as terms that padding makes zero are left out
    axes = {one.name: one for one in products.reduce_axes}
    return replace(
        reader,
        reduce_axes=tuple(axes[name] for name in order),
        body=Reduce(body.op, value, order),
        reads=products.reads,
        sizes=tuple(dict.fromkeys((*reader.sizes, *products.sizes))),
    )
