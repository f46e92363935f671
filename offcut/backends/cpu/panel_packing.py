"""Panels of a constant, filled by compiled code.

    void offcut_fill(void *panels, const void *source, int64_t columns, int64_t rows,
                     int64_t width, int64_t pitch_bytes, int64_t panel_bytes);

    panels  word ``(p, r, c)`` of them lies at byte ``p * panel_bytes + (r * width + c) * word``
    source  its word of row r and column ``p * width + c``: words of a column lie side by side and columns `pitch_bytes`
            apart, or words of a row do and rows are `pitch_bytes` apart

A square of words is read along memory, turned in registers where columns lie along it, and written along panels.
"""

from __future__ import annotations

import ctypes
from functools import cache

from offcut.backends.cpu.lowering.interleave import emit_transpose_step
from offcut.backends.cpu.machine import isa, jit
from offcut.backends.host import cache as objects
from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter
from offcut.backends.llvm.loader import JitModule

WORDS = (1, 2, 4, 8)
"""Bytes of the words that can be filled."""
_SIDE = {1: 16, 2: 16, 4: 16, 8: 8}
"""Words along a square, by their bytes: such a line of them is a vector register, or a part of one."""
_SYMBOL = "offcut_fill"
_FILL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 5)


class PackFunction:
    """The function, as long as this object lives."""

    def __init__(self, code: JitModule) -> None:
        self._code, self._function = code, _FILL(code.address(_SYMBOL))

    def __call__(
        self,
        panels: int,
        source: int,
        *,
        columns: int,
        rows: int,
        width: int,
        pitch_bytes: int,
        panel_bytes: int,
    ) -> None:
        """Fill the panels at one address from the words at another."""
        self._function(panels, source, columns, rows, width, pitch_bytes, panel_bytes)


@cache
def pack_function(word: int, *, turned: bool) -> PackFunction:
    """The function for words of one of `WORDS` bytes; `turned` where those of a column lie side by side."""
    host, text = isa.host(), filling_ir(word, turned=turned)
    name = objects.key("filling", text, repr(host))
    code = objects.get_or_build(name, lambda: jit.object_code(text, host, passes=True))
    return PackFunction(jit.load([code], host))


def filling_ir(word: int, *, turned: bool) -> str:
    """LLVM IR of the function."""
    f = FunctionWriter()
    last = ir.sub(f, "%columns", "1")
    count = ir.add(f, ir.floordiv(f, last, "%width"), "1")
    with f.loop("0", count) as panel:
        first = ir.mul(f, panel, "%width")
        columns = ir.minimum(f, ir.sub(f, "%columns", first), "%width")
        to = f.let(f"getelementptr i8, ptr %panels, i64 {ir.mul(f, panel, '%panel_bytes')}")
        step = "%pitch_bytes" if turned else str(word)
        of = f.let(f"getelementptr i8, ptr %source, i64 {ir.mul(f, first, step)}")
        _Panel(f, word, turned, to, of).fill("%rows", columns)
    f.do("ret void")
    names = ("columns", "rows", "width", "pitch_bytes", "panel_bytes")
    numbers = ", ".join(f"i64 %{name}" for name in names)
    head = f"define void @{_SYMBOL}(ptr noalias %panels, ptr noalias readonly %source, {numbers})"
    return f"{head} nounwind {{\n{f.text()}\n}}\n" + "\n".join(sorted(f.declares))


class _Panel:
    """One panel, being filled.

    to, of  where its words go, and where those of its first column come from
    """

    def __init__(self, f: FunctionWriter, word: int, turned: bool, to: str, of: str) -> None:
        self.f, self.word, self.turned, self.to, self.of = f, word, turned, to, of

    def fill(self, rows: str, columns: str) -> None:
        """Squares, then what is left on their right and below."""
        f, side = self.f, _SIDE[self.word]
        down = side if self.turned else 1
        whole = [
            ir.mul(f, ir.floordiv(f, count, str(unit), natural=True), str(unit))
            for count, unit in ((rows, down), (columns, side))
        ]
        with f.loop("0", whole[0], down) as row, f.loop("0", whole[1], side) as column:
            self.square(row, column, side if self.turned else 1)
        self.words(("0", rows), (whole[1], columns))
        self.words((whole[0], rows), ("0", whole[1]))

    def square(self, row: str, column: str, rows: int) -> None:
        """So many rows of as many columns as a vector has words."""
        f, side = self.f, _SIDE[self.word]
        kind = f"<{side} x i{8 * self.word}>"
        lanes = []
        for line in range(rows):
            at = (row, ir.add(f, column, str(line))) if self.turned else (row, column)
            lanes.append(f.let(f"load {kind}, ptr {self.source(*at)}, align 1"))
        step = side // 2 if self.turned else 0
        while step:
            lanes = emit_transpose_step(f, lanes, step, kind)
            step //= 2
        for line, vector in enumerate(lanes):
            place = self.target(ir.add(f, row, str(line)), column)
            f.do(f"store {kind} {vector}, ptr {place}, align 1")

    def words(self, rows: tuple[str, str], columns: tuple[str, str]) -> None:
        """Word by word, from a row and column to others."""
        f, kind = self.f, f"i{8 * self.word}"
        with f.loop(*rows) as row, f.loop(*columns) as column:
            value = f.let(f"load {kind}, ptr {self.source(row, column)}, align 1")
            f.do(f"store {kind} {value}, ptr {self.target(row, column)}, align 1")

    def source(self, row: str, column: str) -> str:
        """The address of a word that is read."""
        f = self.f
        far, near = (column, row) if self.turned else (row, column)
        apart, beside = ir.mul(f, far, "%pitch_bytes"), ir.mul(f, near, str(self.word))
        return f.let(f"getelementptr i8, ptr {self.of}, i64 {ir.add(f, apart, beside)}")

    def target(self, row: str, column: str) -> str:
        """The address of a word that is written."""
        f = self.f
        at = ir.add(f, ir.mul(f, row, "%width"), column)
        return f.let(f"getelementptr i8, ptr {self.to}, i64 {ir.mul(f, at, str(self.word))}")
