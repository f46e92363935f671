"""Which nests of a partition are drawn, and in the plane of which of their axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.core.expr import reads_memory, variables
from offcut.core.program import For
from offcut.errors import PartitionError
from offcut.partition.pieces import Partition, Piece


def nests(partition: Partition) -> list[list[Piece]]:
    """The pieces that are cut, by what they compute."""
    found: dict[Any, list[Piece]] = {}
    for piece in partition.pieces:
        if piece.segments:
            found.setdefault((piece.store.buffer, _kept(piece)), []).append(piece)
    if not found:
        raise PartitionError(
            "plot",
            "cannot draw the partition",
            because="no axis of it is cut",
            help=('tile={"i": 14}',),
        )
    return list(found.values())


def _kept(piece: Piece) -> tuple[str, ...]:
    """The axes that are no reduction's: instances along others update the same element."""
    if piece.store.reduce is None:
        return piece.names
    indexed = {name for index in piece.store.index for name in variables(index)}
    return tuple(name for name in piece.names if name in indexed)


def _over_data(piece: Piece) -> set[str]:
    """The loops of a piece whose bounds data decides: how long they are is not known before the program runs."""
    found: set[str] = set()
    for stmt, _ in piece.inside:
        if isinstance(stmt, For):
            ends = variables(stmt.lo) | variables(stmt.hi)
            if reads_memory(stmt.lo) or reads_memory(stmt.hi) or ends & found:
                found.add(stmt.iter)
    return found


class Nest:
    """The pieces of one nest, and the axes of it that are drawn.

    plane   their names in the program, none where the nest has not those asked for
    labels  the user's names of the axes that can be drawn, which no data bounds; those of a reduction are marked in `shown`
    """

    def __init__(
        self,
        partition: Partition,
        pieces: Sequence[Piece],
        wanted: Sequence[str] | None,
    ) -> None:
        self.partition, self.pieces, self.wanted = partition, pieces, wanted
        lead = max(pieces, key=lambda piece: len(piece.names))
        buffer, reduce = lead.store.buffer, lead.store.reduce
        shared = set(lead.names).intersection(*(piece.names for piece in pieces))
        shared -= {name for piece in pieces for name in _over_data(piece)}
        names = [name for name in lead.names if name in shared]
        self.labels = [lead.label_of(name) for name in names]
        users = {inner: user for user, inner in partition.users.buffers}
        self.label = users.get(buffer, buffer)
        self.operator = " =" if reduce is None else f" {'+' if reduce == 'sum' else reduce}="
        reduced = set(names) - set(_kept(lead))
        cut = {name for piece in pieces for name, _ in piece.segments}
        places = [k for k, name in enumerate(names) if name in cut]
        if len(places) == 1 and len(names) > 1:
            beside = places[0] + 1 if places[0] + 1 < len(names) else places[0] - 1
            places = sorted((places[0], beside))
        if wanted is not None:
            unique = len(set(wanted)) == len(wanted) in (1, 2) and set(wanted) <= set(self.labels)
            places = [self.labels.index(label) for label in wanted] if unique else []
        self.plane = [names[k] for k in places[:2]]
        self.shown = [
            f"{self.labels[k]} (reduced)" if names[k] in reduced else self.labels[k]
            for k in places[:2]
        ]

    def by_update(self) -> list[Nest]:
        """The pieces that assign and those that add, each by themselves."""
        found: dict[str | None, list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.store.reduce, []).append(piece)
        nests = [Nest(self.partition, pieces, self.wanted) for pieces in found.values()]
        return [nest for nest in nests if nest.plane]
