"""Row blocks whose steps take several terms at once: what is left of the depth is a last step of fewer.

A step loads words of B that hold `terms` elements of a column, side by side in its panels, and multiplies
them by as many neighbouring elements of a row of A. In the last step, elements of A past the depth are zeros.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import ClassVar

from offcut.backends.cpu.microkernels.family import Variant
from offcut.backends.cpu.microkernels.llvm_blocks import RowBlock

PANELS = Variant(unit_depth=True, panels=True)
"""The only one, but for loops around the terms: what is left of the depth is asked in each function."""


class DotBlock(RowBlock, ABC):
    """The text of one function.

    terms   elements of a row that a step takes, a power of two; their size is a word's
    """

    terms: ClassVar[int]

    def opening(self) -> Generator[str, None, tuple[str, str]]:
        """The steps that are whole."""
        yield f"  %steps = lshr i64 %depth, {self.terms.bit_length() - 1}"
        return "%entry", "%steps"

    def before_last(self) -> Iterator[str]:
        """What the rows of the last step share; ``%odd`` terms are left."""
        return iter(())

    @abstractmethod
    def last_terms(self, address: str) -> Generator[str, None, str]:
        """The terms of A that are left at an address, then zeros, in each word of a vector."""

    def splat(self, new: str, kind: str, value: str) -> Iterator[str]:
        """Define a vector that holds a value in all lanes."""
        one = self.temp()
        v = f"<{self.lanes} x {kind}>"
        yield f"  {one} = insertelement {v} poison, {kind} {value}, i32 0"
        yield f"  {new} = shufflevector {v} {one}, {v} poison, <{self.lanes} x i32> zeroinitializer"

    def last_bytes(self, address: str) -> Generator[str, None, str]:
        """Define a vector with the one to three bytes at `address`, then zeros, in each word; return its name."""
        word, splat = self.temp(), self.temp()
        yield from first_bytes(word[1:], address)
        yield from self.splat(splat, "i32", word)
        return splat

    @property
    def latch(self) -> tuple[str, str, str]:
        """Return the end of a turn, as `RowBlock.latch` does; the last step is part of each turn."""
        return "finish", "whole", "%end_ahead"

    def closing(self, end: str) -> Generator[str, None, str]:
        """The step that is not."""
        yield f"  %odd = and i64 %depth, {self.terms - 1}"
        yield "  %any_odd = icmp ne i64 %odd, 0"
        yield "  br i1 %any_odd, label %part, label %finish"
        yield "part:"
        yield from self.before_last()
        yield f"  %part_k = mul i64 %steps, {self.item}"
        yield f"  %part_offset = mul i64 %steps, {self.lanes * self.item}"
        a_start, b_start = ("%a_turn", "%b_turn") if self.variant.turns else ("%a_start", "%b")
        yield f"  %part_b = getelementptr i8, ptr {b_start}, i64 %part_offset"
        b = []
        for p in range(self.vectors):
            address, value = self.temp(), self.temp()
            yield from self.panel_address(address, "%part_b", p, 0)
            yield f"  {value} = load {self.v}, ptr {address}, align {self.item}"
            b.append((yield from self.b_operand(value)))
        for r in range(self.rows):
            base, address = (yield from self.row_address(f"{a_start}{r - r % 4}", r)), self.temp()
            yield f"  {address} = getelementptr i8, ptr {base}, i64 %part_k"
            a = yield from self.a_operand((yield from self.last_terms(address)))
            for p in range(self.vectors):
                yield from self.multiply_add(f"%part{r}_{p}", a, b[p], f"%{end}{r}_{p}")
        yield "  br label %finish"
        yield "finish:"
        for r, p in self.cells:
            yield f"  %whole{r}_{p} = phi {self.v} [ %{end}{r}_{p}, %done ], [ %part{r}_{p}, %part ]"
        return "whole"


def first_bytes(name: str, address: str) -> Iterator[str]:
    """Define ``%name``, an i32 of the one to three bytes at `address`, whose number is ``%odd``, then zeros; nothing else is read."""
    yield f"  %{name}_0 = load i8, ptr {address}, align 1"
    yield f"  %{name}_word0 = zext i8 %{name}_0 to i32"
    for n in (1, 2):
        yield f"  %{name}_at{n} = getelementptr i8, ptr {address}, i64 %odd_place{n}"
        yield f"  %{name}_{n} = load i8, ptr %{name}_at{n}, align 1"
        yield f"  %{name}_wide{n} = zext i8 %{name}_{n} to i32"
        yield f"  %{name}_up{n} = shl i32 %{name}_wide{n}, {8 * n}"
        yield f"  %{name}_word{n} = or i32 %{name}_word{n - 1}, %{name}_up{n}"
    yield f"  %{name} = and i32 %{name}_word2, %odd_bits"


def odd_places() -> Iterator[str]:
    """Define what `first_bytes` shares: the places of the second and third byte, of the last one where there are fewer; bits of those there are."""
    yield "  %odd_last = sub i64 %odd, 1"
    for n in (1, 2):
        yield f"  %odd_place{n} = call i64 @llvm.umin.i64(i64 %odd_last, i64 {n})"
    yield "  %odd_shift = shl i64 %odd, 3"
    yield "  %odd_ones = shl nuw i64 1, %odd_shift"
    yield "  %odd_wide = sub i64 %odd_ones, 1"
    yield "  %odd_bits = trunc i64 %odd_wide to i32"
