"""Scan, Loop and SequenceMap of a known number of steps: each step is walked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count as forever
from typing import Any

from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    KnownArray,
    Operand,
    Results,
    SequenceValue,
    UnsupportedNode,
    format_values,
    known_array,
)
from offcut.plugins.onnx.rules.shapes import emit_unsqueeze

LONGEST = 256

Body = Callable[[Any, Mapping[str, Operand | None]], Sequence[Operand | None]]
"""The outputs of a graph inside a node, from what its inputs are."""


def run_scan(g: Context, call: Call, walk: Body) -> Results:
    """The states after the last step, and what each step gives, one after the other."""
    if call.version < 9:
        raise UnsupportedNode("Scan of the operator set 8", "that of 9")
    body, count = call.get("body"), call.get("num_scan_inputs")
    every = call.present
    states, sequences = every[: len(every) - count], every[len(every) - count :]
    outputs = len(body.output) - len(states)
    axes = call.get("scan_input_axes") or [0] * count
    axes = [g.axis(x, axis) for x, axis in zip(sequences, axes, strict=True)]
    back = call.get("scan_input_directions") or [0] * count
    (length,) = {
        g.whole(g.shape(x)[axis], "the number of steps")
        for x, axis in zip(sequences, axes, strict=True)
    } or {0}
    _check(length)
    stacks: list[list[Operand]] = [[] for _ in range(outputs)]
    for step in range(length):
        parts = [
            _part(g, x, axis, length - 1 - step if is_reversed else step)
            for x, axis, is_reversed in zip(sequences, axes, back, strict=True)
        ]
        names = [one.name for one in body.input]
        results = _present(walk(body, dict(zip(names, (*states, *parts), strict=True))))
        states = results[: len(states)]
        for stack, one in zip(stacks, results[len(states) :], strict=True):
            stack.append(one)
    is_reversed = call.get("scan_output_directions") or [0] * outputs
    places = call.get("scan_output_axes") or [0] * outputs
    stacked = [
        _stack(g, stack[::-1] if flipped else stack, axis)
        for stack, flipped, axis in zip(stacks, is_reversed, places, strict=True)
    ]
    return (*states, *stacked)


def run_loop(g: Context, call: Call, walk: Body) -> Results:
    """The same, where the number of steps is known, and each step says that the next is taken, or not."""
    body, limit, going = call.get("body"), call.input(0), call.input(1)
    steps = forever() if limit is None else range(_trips(g, limit))
    states = call.present[sum(one is not None for one in (limit, going)) :]
    outputs = len(body.output) - 1 - len(states)
    stacks: list[list[Operand]] = [[] for _ in range(outputs)]
    is_running = True if going is None else bool(g.number(going, "condition"))
    for step in steps:
        if not is_running:
            break
        _check(step)
        arguments: list[Operand] = [known_array(step), known_array(True, "bool"), *states]
        names = [one.name for one in body.input]
        condition, *results = _present(walk(body, dict(zip(names, arguments, strict=True))))
        if not isinstance(condition, KnownArray):
            raise UnsupportedNode(
                "how often it runs depends on its values", "a condition that is known at import"
            )
        is_running = bool(condition.array.item())
        states = results[: len(states)]
        for stack, one in zip(stacks, results[len(states) :], strict=True):
            stack.append(one)
    return (*states, *(_stack(g, stack, 0) for stack in stacks))


def run_sequence_map(g: Context, call: Call, walk: Body) -> Results:
    """Sequences of what the body gives for each element of the first; others go along with it, and tensors are alike for each."""
    body, every = call.get("body"), call.present
    lengths = {len(one.values) for one in every if isinstance(one, SequenceValue)}
    if len(lengths) != 1:
        raise UnsupportedNode(f"sequences of {format_values(*sorted(lengths))} elements at once")
    (length,) = lengths
    _check(length)
    names = [one.name for one in body.input]
    results = []
    for step in range(length):
        arguments = [one.values[step] if isinstance(one, SequenceValue) else one for one in every]
        results.append(_present(walk(body, dict(zip(names, arguments, strict=True)))))
    return tuple(
        SequenceValue(tuple(one[place] for one in results)) for place in range(len(body.output))
    )


def _trips(g: Context, limit: Operand) -> int:
    (count,) = g.elements(limit, "trip count")
    return g.whole(count, "the trip count")


def _check(steps: int) -> None:
    if steps > LONGEST:
        raise UnsupportedNode(f"{steps} steps, each of them nodes", f"{LONGEST} at most")


def _present(operands: Sequence[Operand | None]) -> list[Operand]:
    present = [one for one in operands if one is not None]
    if len(present) < len(operands):
        raise UnsupportedNode("a node of its body is not supported")
    return present


def _part(g: Context, x: Operand, axis: int, place: int) -> Operand:
    shape = g.shape(x)
    return g.reshape(g.slice(x, axis, place, place + 1), (*shape[:axis], *shape[axis + 1 :]))


def _stack(g: Context, parts: Sequence[Operand], axis: int) -> Operand:
    if not parts:
        raise UnsupportedNode("no step, whose results have no shape")
    apart = [emit_unsqueeze(g, one, [axis]) for one in parts]
    place = axis % (g.rank(parts[0]) + 1)
    return g.op("concat", tuple(apart), axis=place) if len(apart) > 1 else apart[0]
