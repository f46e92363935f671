"""Attention whose mask is a condition on indices -> the same with the options `causal`, `past` and `window`, whose loops end there.

Before, in a file or a trace of torch::

    row, column = reshape(iota(s), (s, 1)), iota(t)
    y = attention(q, k, v, mask=where(less_equal(column, add(row, t - s)), 0.0, -inf))

After: ``y = attention(q, k, v, causal=true, past=t - s)``.

The elements of a mask are read from the descriptions of its operators (`offcut.graph.passes.elements`), and from all elements of constant
arrays. A mask is a conjunction of conditions. Two kinds become options: no key after ``i + past``, and no key more than a number before.
If other conditions are left, such as keys that are padding, the mask stays beside the options.

Minus infinity excludes a key, and so does False. So does the least finite number of 32 bits or more where each query is proved to see a key: weights of the others are 0,
unless all scores that a query sees are as far below 0. Of a query that sees no key it makes the mean of all values, so such a mask stays.
Attention with a symbolic depth of heads keeps its mask: the proof of loops with other bounds takes minutes there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offcut.core import index as ix
from offcut.core.conditions import at_least_zero, conjuncts
from offcut.core.dtypes import FLOATS, finite_range
from offcut.core.expr import Compare, Const, Expr, Logic, Select, Var, variables
from offcut.graph.builder import rebuilt
from offcut.graph.graph import Bound, Node, Ref
from offcut.graph.passes.elements import Elements, TooManyError, is_index, to_mask_form
from offcut.graph.sizes.extent_values import plain
from offcut.graph.sizes.extents import normal, span
from offcut.graph.tensor_semantics import is_affine

ROW, COLUMN = Var("row'"), Var("column'")
"""The places of a query and of a key."""
_NAMES = ("q", "k", "v", "mask", "scale", "causal", "past", "window")
"""The arguments of attention, in order."""


def masks_as_domains(bound: Bound) -> Bound:
    """Return the graph with the options `causal`, `past` and `window` of attention in place of masks, or beside them.

    The same object if no mask is a condition on indices.
    """
    graph, known = bound.graph, dict[str, _VisibleKeys | None]()
    new_options = {
        node: arguments for node in graph.nodes if (arguments := _without_mask(bound, node, known))
    }
    if not new_options:
        return bound
    builder = rebuilt(graph, bound.arrays)
    for node in graph.nodes:
        if node in new_options:
            q, k, v = (new_options[node].pop(name) for name in _NAMES[:3])
            builder.node(node.op, q, k, v, results=(node.results[0].name,), **new_options[node])
        else:
            builder.nodes.append(node)
            builder.values.update((value.name, value) for value in node.results)
    builder.output(*map(Ref, graph.outputs))
    return builder.bound


def _without_mask(
    bound: Bound, node: Node, known: dict[str, _VisibleKeys | None]
) -> dict[str, Any]:
    """Return the arguments of attention with options in place of its mask; none if the options stay as they are.

    known  by mask, the keys that it lets be seen; filled by this function
    """
    if node.op != "attention":
        return {}
    arguments: dict[str, Any] = {
        **dict(zip(_NAMES, node.arguments, strict=False)),
        **dict(node.options),
    }
    mask = arguments.get("mask")
    values = bound.graph.values
    depths = (values[arguments[name].name].shape[-1] for name in ("q", "v"))
    if not isinstance(mask, Ref) or not all(isinstance(depth, Const) for depth in depths):
        return {}
    if mask.name not in known:
        known[mask.name] = _visible_keys_of(bound, mask.name)
    keys = known[mask.name]
    return {} if keys is None else _as_options(bound, arguments, keys)


@dataclass(frozen=True)
class _VisibleKeys:
    """The keys that a query sees.

    condition  holds for every key that is seen
    exact      whether each key for which it holds is seen, with nothing added to its score
    least      whether the least finite number excludes keys: only if a query sees another
    """

    condition: Expr
    exact: bool
    least: bool = False


def _visible_keys_of(bound: Bound, mask: str) -> _VisibleKeys | None:
    """Return the keys that a mask lets be seen; None if its elements have no such form."""
    value = bound.graph.values[mask]
    leading = [Var(f"axis{n}'") for n in range(len(value.shape) - 2)]
    own = [*leading, ROW, COLUMN][len(leading) + 2 - len(value.shape) :]
    at = [ix.const(0) if n == ix.const(1) else i for n, i in zip(value.shape, own, strict=True)]
    ends = {i.name: ix.sub(n, 1) for n, i in zip(value.shape, own, strict=True)}
    elements = Elements(bound, ends)
    try:
        keys = _visible_keys(elements.of(mask, at), value.dtype in FLOATS)
    except TooManyError:
        return None
    return replace(keys, exact=keys.exact and not elements.outside)


def _visible_keys(element: Expr, is_added: bool) -> _VisibleKeys:
    """Return the keys that an element of a mask, over `ROW` and `COLUMN`, lets be seen.

    is_added  whether it is added to scores; else it is whether they count
    """
    if not is_added:
        return _VisibleKeys(to_mask_form(_truth(element)), exact=True)
    match element:
        case Const(value, dtype):
            least = dtype in ("float32", "float64") and value == finite_range(dtype)[0]
            none = least or value == -math.inf
            return _VisibleKeys(Const(int(not none), "bool"), none or value == 0, least)
        case Select(condition, then, other):
            then_seen, other_seen = _visible_keys(then, is_added), _visible_keys(other, is_added)
            return _VisibleKeys(
                to_mask_form(Select(condition, then_seen.condition, other_seen.condition)),
                then_seen.exact and other_seen.exact,
                then_seen.least or other_seen.least,
            )
        case _:
            return _VisibleKeys(Const(1, "bool"), exact=False)


def _truth(element: Expr) -> Expr:
    """Return whether an element is not 0."""
    if isinstance(element, Compare | Logic):
        return element
    if isinstance(element, Select):
        return to_mask_form(Select(element.condition, _truth(element.then), _truth(element.other)))
    return to_mask_form(Compare("!=", element, Const(0, "index")))


def _as_options(bound: Bound, arguments: Mapping[str, Any], keys: _VisibleKeys) -> dict[str, Any]:
    """Return the arguments of attention whose options say `keys` and the options of `arguments`; none if nothing changes."""
    atoms, exact = [*conjuncts(keys.condition), *_conditions_of_options(arguments)], keys.exact
    highs, lows = list[Expr](), list[Expr]()
    for atom in atoms:
        if atom == Const(1, "bool"):
            continue
        limit = _key_limit(atom)
        if limit is None:
            exact = False
        else:
            (highs if limit[0] else lows).append(limit[1])
    high, low = (_extreme(every, least) for every, least in ((highs, True), (lows, False)))
    if (highs and high is None) or (lows and low is None):
        return {}
    options: dict[str, Any] = {
        name: one for name, one in arguments.items() if name not in _OF_PLACES
    }
    if high is not None:
        options |= {"causal": True, "past": plain(high)}
        width = None if low is None else ix.literal_value(ix.sub(high, low))
        if width is not None and width >= 1:
            options["window"] = width
        elif low is not None:
            exact = False
    elif low is not None:
        return {}
    if keys.least and not (exact and _sees_a_key(bound, arguments, high, options.get("window"))):
        return {}
    if exact:
        del options["mask"]
    same = {**dict.fromkeys(_OF_PLACES), **arguments} == {**dict.fromkeys(_OF_PLACES), **options}
    return {} if same else options


def _sees_a_key(
    bound: Bound, arguments: Mapping[str, Any], high: Expr | None, window: int | None
) -> bool:
    """Return whether each query is proved to see a key: the last one, `high` places after it, is not before all, and the first one is not behind all."""
    if high is None:
        return False
    s, t = (bound.graph.values[arguments[name].name].shape[-2] for name in ("q", "k"))
    rests = [high]
    if window is not None:
        rests.append(ix.sub(ix.add(ix.sub(t, s), window - 1), high))
    return all(span(normal(rest), bound.graph.sizes)[0] >= 0 for rest in rests)


_OF_PLACES = ("causal", "past", "window")
"""Options that say which keys a query sees by their places."""


def _conditions_of_options(arguments: Mapping[str, Any]) -> Sequence[Expr]:
    """Return the conditions on `ROW` and `COLUMN` that the options of attention stand for."""
    causal, past, window = (arguments.get(name) for name in _OF_PLACES)
    middle = ix.add(ROW, past or 0)
    conditions: list[Expr] = [Compare("<=", COLUMN, middle)] if causal else []
    if window is not None:
        conditions.append(Compare(">", COLUMN, ix.sub(middle, window)))
        if not causal:
            conditions.append(Compare("<", COLUMN, ix.add(middle, window)))
    return conditions


def _key_limit(atom: Expr) -> tuple[bool, Expr] | None:
    """Return a condition on indices as a limit of the keys that a query sees; None if it is none.

    First, whether it limits the last key; then how many places after the query that key is, or, for a first key, the one before it.
    """
    form = at_least_zero(atom) if isinstance(atom, Compare) and is_index(atom.a) else None
    if form is None or not is_index(form.a):
        return None
    factors = dict(ix.to_linear(form.a).terms)
    row, column = factors.get(ROW, 0), factors.get(COLUMN, 0)
    if (row, column) not in ((1, -1), (-1, 1)):
        return None
    rest = ix.sub(form.a, ix.add(ix.mul(row, ROW), ix.mul(column, COLUMN)))
    is_last = column == -1
    place = normal(rest if is_last else ix.sub(-1, rest))
    if not is_affine(place) or any("'" in name for name in variables(place)):
        return None
    return is_last, place


def _extreme(every: Sequence[Expr], least: bool) -> Expr | None:
    """Return the least of the limits, or the greatest; None if there is none, or if their order depends on sizes."""
    extreme: Expr | None = None
    for one in every:
        difference = 0 if extreme is None else ix.literal_value(normal(ix.sub(one, extreme)))
        if difference is None:
            return None
        if extreme is None or (difference < 0) == least:
            extreme = one
    return extreme
