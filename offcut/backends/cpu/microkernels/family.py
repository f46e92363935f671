"""A family: a microkernel of the CPU with the functions that compute its tiles.

A family is data: what is computed, which tiles there are, and text generators. Two calling
conventions exist, both with byte strides:

tiles   one function for each shape, of `TILES`: A, its row and depth steps, B, from panel to
        panel (or vector to vector) and from term to term, C and its row step, the depth, the columns
        of the last vector, whether C is added to, what is asked for ahead of its use where B is in
        panels, and how far that moves with every step; then, for each loop around the terms that it runs as
        well, outermost first: how often, and by how much A and B move. Behind these two, other operands follow alike:
        an address, and a step for each loop
wide    one function of any rows up to the tallest tile and any columns, of `WIDE_PARAMETERS`

Either adds the terms of an element in an order that depends on the depth alone, and touches nothing
outside of what the call names, but for up to one vector past the last column of B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from offcut.describe.microkernel import Microkernel
from offcut.errors import DescribeError

TILES = "ptr, i64, i64, ptr, i64, i64, ptr, i64, i64, i64, i64, ptr, i64"
"""The parameters of a function for one shape, as above."""

TERM_LOOP_PARAMETERS = "i64, i64, i64"
"""Those of a loop around the terms: its iterations, at least one, the steps of A and of B."""

WIDE_PARAMETERS = "ptr, i64, i64, ptr, i64, ptr, i64, i64, i64, i64"
"""A, its row step, rows, B, from panel to panel (from term to term, where B is not packed), C, its
row step, depth, columns, whether C is added to."""

Shapes = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Variant:
    """How a function addresses its operands.

    unit_depth  A moves by one element per step of k; else by a run-time stride
    panels      B is packed in panels one vector wide; else its rows are at a run-time stride
    even        the depth is a multiple of the unrolled terms, so that no step is left over
    turns       loops around the terms that the function runs as well
    others      operands beside A and B
    """

    unit_depth: bool
    panels: bool
    even: bool = False
    turns: int = 0
    others: int = 0

    @property
    def suffix(self) -> str:
        """Part of the symbol's name."""
        letters = ("u" if self.unit_depth else "s", "p" if self.panels else "r")
        return "".join(letters) + ("e" if self.even else "") + (str(self.turns or ""))

    @property
    def parameters(self) -> str:
        """The types of the parameters of a function for one shape."""
        loop = ", ".join((TERM_LOOP_PARAMETERS, *["i64"] * self.others))
        return ", ".join((TILES, *["ptr"] * self.others, *[loop] * self.turns))


@dataclass(frozen=True, slots=True)
class Family:
    """The functions that compute one microkernel.

    symbol   the name of the function of a variant and a shape (rows, panels)
    text     LLVM IR of the functions of these shapes
    widths   rows -> how many panels wide a tile may be, widest first; empty: the family is wide
    halves   whether a function of one panel reads its first half alone where that holds all columns

    Raises DescribeError where the microkernel adds along several axes: functions take one depth, and loops around it
    are `Variant.turns`.
    """

    microkernel: Microkernel
    symbol: Callable[[Variant, int, int], str]
    text: Callable[[Variant, Shapes], str]
    widths: Mapping[int, tuple[int, ...]]
    halves: bool = False

    def __post_init__(self) -> None:
        kernel = self.microkernel
        if len(kernel.reduce_axes) > 1:
            raise DescribeError(
                "microkernel",
                f"cannot take {kernel.name} as one of the CPU's",
                because=f"it adds along {', '.join(kernel.reduce_axes)}, and its functions take one depth",
                help=(
                    f"the sum along {kernel.depth} alone: others are loops around it",
                    f"repeats={{{kernel.depth!r}}}: a call runs up to two of these, Variant.turns",
                ),
            )

    @property
    def unit_depth(self) -> bool:
        """Whether the terms of A must lie next to each other."""
        kernel = self.microkernel
        return kernel.place_of(kernel.operand_along(kernel.rows)).beside == kernel.depth

    @property
    def others(self) -> tuple[str, ...]:
        """Return the operands beside that of the rows and that of the columns."""
        kernel = self.microkernel
        both = {kernel.operand_along(kernel.rows), kernel.operand_along(kernel.columns)}
        return tuple(one.name for one in kernel.definition.reads if one.name not in both)

    @property
    def wide(self) -> bool:
        """Whether one function takes any rows and columns."""
        return not self.widths
