"""What is known of the sizes of a file: what its user says, and what nodes want that are refused without, for which the import is done again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from offcut.core.expr import Binary, Const, Expr, Var
from offcut.errors import DescribeError
from offcut.graph import extents

OP = "from_onnx"
INT_MAX = 2**31 - 1


Origins: TypeAlias = Mapping[str, tuple[str, int]]
"""By a size of the graph, that of the file, and the number of which it is a multiple: it is this size times that."""


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """What is known of sizes, by their names in the file.

    said     by the user: a number, or the least and the greatest value
    factors  of which a size is a multiple: the size of the graph is that part of it
    equal    what a size is, of other sizes of the file
    lows, highs  of sizes of the graph, by their names there, which tell the factor
    """

    said: Mapping[str, Any] = field(default_factory=dict)
    factors: Mapping[str, int] = field(default_factory=dict)
    equal: Mapping[str, Expr] = field(default_factory=dict)
    lows: Mapping[str, int] = field(default_factory=dict)
    highs: Mapping[str, int] = field(default_factory=dict)

    def knowing(self, more: SizeFacts, origins: Origins) -> SizeFacts:
        """With more facts, of sizes of the graph by their names there."""
        own = {name: text for name, (text, _) in origins.items()}
        factors = {own[name]: self.factor(own[name]) * by for name, by in more.factors.items()}
        return SizeFacts(
            {**self.said, **{own[name]: number for name, number in more.said.items()}},
            {**self.factors, **factors},
            {**self.equal, **_of_file(more.equal, origins)},
            {**self.lows, **more.lows},
            {**self.highs, **more.highs},
        )

    def factor(self, text: str) -> int:
        """The number of which a size is a multiple."""
        return self.factors.get(text, 1)

    def read_bounds(self, text: str) -> tuple[int, int]:
        """The least and the greatest value of a size, by the user; all from 1 on where nothing is said.

        Raises DescribeError for what are no bounds.
        """
        bounds = self.said.get(text, (1, INT_MAX))
        try:
            low, high = (bounds, bounds) if isinstance(bounds, int | np.integer) else bounds
            good = 0 <= int(low) <= int(high) <= INT_MAX
        except (TypeError, ValueError):
            good = False
        if not good:
            raise DescribeError(
                OP,
                f"cannot bound {text} by {bounds!r}",
                because="bounds are the least and the greatest value, from 0 on",
                help=(f'sizes={{"{text}": (1, 512)}}', f'sizes={{"{text}": 8}}'),
            )
        return int(low), int(high)

    def number(self, text: str) -> int | None:
        """What a size is where the user, or a node, says one number; a pair of equal bounds is a range of one."""
        if isinstance(self.said.get(text), int | np.integer):
            return self.read_bounds(text)[0]
        return None

    def bounds(self, text: str, name: str) -> tuple[int, int]:
        """The least and the greatest value of the size of the graph, called `name`, that stands for a size of the file.

        Raises DescribeError where no multiple is between what the user says.
        """
        factor = self.factor(text)
        low, high = self.read_bounds(text)
        low = max(-(-low // factor), self.lows.get(name, 0))
        high = min(high // factor, self.highs.get(name, high))
        if low > high:
            raise DescribeError(
                OP,
                f"cannot bound {text} by {self.said.get(text)!r}",
                because=f"the model wants a multiple of {factor}, and none is between them",
            )
        return low, high


class FactsRequired(Exception):
    """A node is taken where facts of sizes of the graph hold: the import is done again with them."""

    def __init__(self, **facts: Mapping[str, Any]) -> None:
        super().__init__(facts)
        self.facts = SizeFacts(**facts)


def _of_file(same: Mapping[str, Expr], origins: Origins) -> dict[str, Expr]:
    """What sizes are, those of the file in place of those of the graph."""
    own: dict[str, Expr] = {
        name: Binary("//", Var(text), Const(factor, "index"))
        for name, (text, factor) in origins.items()
    }
    return {
        origins[name][0]: Binary("*", Const(origins[name][1], "index"), extents.at(one, own))
        for name, one in same.items()
    }
