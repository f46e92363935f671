"""``torch.einsum`` as products of matrices, traced without asking whether a size is 1.

Two operands at a time, from the left or by the path that is given. Labels of both that are wanted afterwards are a batch, those that
are not are summed; a label of one operand that nothing else names is summed before. An axis of 1 is broadcast where another operand has more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from offcut.plugins.torch.unguarded.layout import reshape

Labelled: TypeAlias = tuple[Any, tuple[str, ...]]
"""An array, and the label of each of its axes."""


def einsum(equation: str, operands: Sequence[Any], *, path: Sequence[int] | None = None) -> Any:
    """The sum of products that an equation says."""
    pending, wanted = _labelled(equation.replace(" ", ""), operands)
    pairs = [*zip(path[::2], path[1::2], strict=True)] if path else [(0, 1)] * (len(operands) - 1)
    for first, second in pairs:
        one, other = pending[first], pending[second]
        rest = [held for place, held in enumerate(pending) if place not in (first, second)]
        kept = {*wanted, *(label for _, labels in rest for label in labels)}
        joined = _product(_summed(one, {*kept, *other[1]}), _summed(other, {*kept, *one[1]}), kept)
        pending = [*rest, joined] if path else [joined, *rest]
    found, labels = _summed(pending[0], {*wanted})
    return found.permute([labels.index(label) for label in wanted])


def _labelled(equation: str, operands: Sequence[Any]) -> tuple[list[Labelled], tuple[str, ...]]:
    """The operands with their labels, and those of the result. Axes of an ellipsis are labelled from the last."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    named = [len(term.replace("...", "")) for term in terms]
    covered = [x.dim() - count for x, count in zip(operands, named, strict=True)]
    spread = [f".{place}" for place in reversed(range(max(covered, default=0)))]

    def labels(term: str, count: int) -> tuple[str, ...]:
        before, dots, after = term.partition("...")
        return (*before, *(spread[len(spread) - count :] if dots else ()), *after)

    found = [
        _diagonal(x, labels(term, count))
        for x, term, count in zip(operands, terms, covered, strict=True)
    ]
    if arrow:
        return _narrowed(found), labels(right, len(spread))
    letters = left.replace("...", "").replace(",", "")
    once = sorted(letter for letter in {*letters} if letters.count(letter) == 1)
    return _narrowed(found), (*spread, *once)


def _diagonal(x: Any, labels: tuple[str, ...]) -> Labelled:
    """An operand whose labels are named once: of a label that is named twice, its diagonal."""
    for label in labels:
        if labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            rest = (one for place, one in enumerate(labels) if place not in (first, second))
            return _diagonal(x.diagonal(0, first, second), (*rest, label))
    return x, labels


def _narrowed(operands: list[Labelled]) -> list[Labelled]:
    """The operands without axes of 1 where another has more of that label."""
    wide = {
        label
        for x, labels in operands
        for label, size in zip(labels, x.shape, strict=True)
        if _traced(size) != 1
    }
    found = []
    for x, labels in operands:
        gone = [
            place
            for place, (label, size) in enumerate(zip(labels, x.shape, strict=True))
            if label in wide and _traced(size) == 1 and bool(size == 1)  # of a symbol, a guard
        ]
        kept = tuple(label for place, label in enumerate(labels) if place not in gone)
        found.append((x.squeeze(gone) if gone else x, kept))
    return found


def _traced(size: Any) -> Any:
    """What a size is in the traced call; None for one that only data tell."""
    if not isinstance(size, torch.SymInt):
        return size
    return size.node.hint if size.node.has_hint() else None


def _summed(held: Labelled, kept: set[str]) -> Labelled:
    """An operand without the labels that nothing else names."""
    x, labels = held
    gone = [place for place, label in enumerate(labels) if label not in kept]
    return (x.sum(gone) if gone else x), tuple(label for label in labels if label in kept)


def _product(one: Labelled, other: Labelled, kept: set[str]) -> Labelled:
    """Two operands as one."""
    (x, xs), (y, ys) = one, other
    size = {**dict(zip(ys, y.shape, strict=True)), **dict(zip(xs, x.shape, strict=True))}
    both = [label for label in xs if label in ys]
    batch, summed = [a for a in both if a in kept], [a for a in both if a not in kept]
    rows, columns = [a for a in xs if a not in ys], [a for a in ys if a not in xs]
    labels = (*batch, *rows, *columns)
    if not summed:
        a = x.permute([xs.index(label) for label in (*batch, *rows)])
        b = y.permute([ys.index(label) for label in (*batch, *columns)])
        a = a[(..., *(None for _ in columns))]
        return a * b[(*(slice(None) for _ in batch), *(None for _ in rows))], labels

    def joined(parts: Sequence[str]) -> Any:
        return math.prod([size[label] for label in parts])

    a = x.permute([xs.index(label) for label in (*batch, *rows, *summed)])
    b = y.permute([ys.index(label) for label in (*batch, *summed, *columns)])
    first, second = (joined(rows), joined(summed)), (joined(summed), joined(columns))
    if batch:
        count = joined(batch)
        found = reshape(a, (count, *first)).bmm(reshape(b, (count, *second)))
    else:
        found = reshape(a, first).mm(reshape(b, second))
    return found.view([size[label] for label in labels]), labels
