"""Sequences of which it is known at import what they hold, and values that are optional: nothing is left of them in a graph."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.graph.sizes.extent_values import arithmetic, extent
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    KnownArray,
    Operand,
    Results,
    SequenceValue,
    UnsupportedNode,
    known_array,
)
from offcut.plugins.onnx.rules.elementwise import Operator
from offcut.plugins.onnx.rules.shapes import emit_unsqueeze


def _empty(g: Context, call: Call) -> Results:
    call.overlook("dtype")
    return SequenceValue(())


def _at(g: Context, call: Call) -> Results:
    sequence = _elements_of_sequence(call, 0)
    return sequence[_place(g, call, 1, len(sequence) - 1)]


def _sequence_insert(g: Context, call: Call) -> Results:
    sequence = _elements_of_sequence(call, 0)
    place = len(sequence) if call.input(2) is None else _place(g, call, 2, len(sequence))
    return SequenceValue((*sequence[:place], call[1], *sequence[place:]))


def _sequence_erase(g: Context, call: Call) -> Results:
    sequence = _elements_of_sequence(call, 0)
    place = len(sequence) - 1 if call.input(1) is None else _place(g, call, 1, len(sequence) - 1)
    return SequenceValue((*sequence[:place], *sequence[place + 1 :]))


def _split_to_sequence(g: Context, call: Call) -> Results:
    """Parts of an axis: all of one extent, the last of what is left, or each of its own."""
    x, sizes = call[0], call.input(1)
    axis = g.axis(x, call.get("axis", 0))
    whole, keepdims = g.shape(x)[axis], bool(call.get("keepdims", 1)) or sizes is not None
    if isinstance(sizes, KnownArray) and sizes.array.ndim:
        extents = g.elements(sizes, "split")
    else:
        part = 1 if sizes is None else int(g.number(sizes, "split"))
        count = -(-g.whole(whole, "an extent that is split in parts of one size") // part)
        extents = [part] * (count - 1) + [extent(whole, -part * (count - 1))]
    parts: list[Operand] = []
    start = extent(0)
    for one in extents:
        stop = arithmetic("+", start, one)
        parts.append(g.slice(x, axis, start, stop))
        start = stop
    if keepdims:
        return SequenceValue(tuple(parts))
    shape = [one for n, one in enumerate(g.shape(x)) if n != axis]
    return SequenceValue(tuple(g.reshape(part, shape) for part in parts))


def _concat_from_sequence(g: Context, call: Call) -> Results:
    sequence, axis = _elements_of_sequence(call, 0), call.get("axis", 0)
    if not sequence:
        raise UnsupportedNode("nothing is joined: its sequence is empty")
    if call.get("new_axis", 0):
        sequence = tuple(emit_unsqueeze(g, one, [axis]) for one in sequence)
    if len(sequence) == 1:
        return sequence[0]
    return g.op("concat", sequence, axis=g.axis(sequence[0], axis))


def _optional(g: Context, call: Call) -> Results:
    call.overlook("type")
    if not call.inputs:
        raise UnsupportedNode("an optional that holds nothing", "the value itself")
    return call[0]


def _elements_of_sequence(call: Call, place: int) -> tuple[Operand, ...]:
    """What a sequence holds."""
    sequence = call[place]
    if not isinstance(sequence, SequenceValue):
        raise UnsupportedNode("it is not known at import what its sequence holds")
    return sequence.values


def _place(g: Context, call: Call, place: int, last: int) -> int:
    """Return a place in a sequence, counted from the first."""
    position = int(g.number(call[place], "position"))
    counted = position + last + 1 if position < 0 else position
    if not 0 <= counted <= last:
        raise UnsupportedNode(f"there is no place {position} in its sequence")
    return counted


SEQUENCES: Mapping[str, Operator] = {
    "ConcatFromSequence": _concat_from_sequence,
    "Optional": _optional,
    "OptionalGetElement": _optional,
    "OptionalHasElement": lambda _, call: known_array(bool(call.present), "bool"),
    "SequenceAt": _at,
    "SequenceConstruct": lambda _, call: SequenceValue(tuple(call.present)),
    "SequenceEmpty": _empty,
    "SequenceErase": _sequence_erase,
    "SequenceInsert": _sequence_insert,
    "SequenceLength": lambda _, call: known_array(len(_elements_of_sequence(call, 0))),
    "SplitToSequence": _split_to_sequence,
}
