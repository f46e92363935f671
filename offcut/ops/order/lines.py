"""Lines along an axis of a tensor, in an order, as text of loop programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from offcut.core.dtypes import FLOATS
from offcut.describe.tensor import Tensor
from offcut.ops.programs.written import Written

_LOOP = re.compile(r" *for \$(\w+) in ")

NO_PLACE = 2**31 - 1
"""The place of no element."""


class Lines:
    """The lines of `x` along an axis, and an order of their elements, NaN being the greatest.

    ascending  whether the least comes first
    """

    def __init__(self, x: Tensor, position: int, ascending: bool) -> None:
        self.x, self.position, self.ascending = x, position, ascending
        letters = [f"z{n}" for n in range(len(x.shape))]
        self.others = [name for n, name in enumerate(letters) if n != position]

    def at(self, place: str) -> str:
        """Return the index of a place along the axis."""
        others = [f"${name}" for name in self.others]
        return f"[{', '.join([*others[: self.position], place, *others[self.position :]])}]"

    def before(self, a: str, b: str) -> str:
        """Return whether `a` comes before `b`."""
        less, greater = (a, b) if self.ascending else (b, a)
        if self.x.dtype not in FLOATS:
            return f"({less} < {greater})"
        return f"({less} < {greater} or ({less} == {less} and {greater} != {greater}))"

    def write(self, text: Written, *body: str) -> None:
        """Write what is done for each line; each loop in it has an iterator of its own, by which a proof tells one from the next."""
        extents = [e for n, e in enumerate(self.x.shape) if n != self.position]
        text.nest(0, self.others, extents, *_apart(body))


def _apart(body: Sequence[str]) -> list[str]:
    """Return lines whose loops have iterators of their own."""
    inside, result = list[tuple[int, str, str]](), list[str]()
    for number, line in enumerate(body):
        depth = len(line) - len(line.lstrip())
        inside = [one for one in inside if one[0] < depth]
        for _, old, new in inside:
            line = re.sub(rf"\${old}\b", f"${new}", line)
        head = _LOOP.match(line)
        if head is not None:
            inside.append((depth, head[1], f"{head[1]}{number}"))
            line = re.sub(rf"for \${head[1]}\b", f"for ${head[1]}{number}", line)
        result.append(line)
    return result
