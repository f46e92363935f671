"""A writer of LLVM IR for builtin functions that read a table of words (`builtin_function`)."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.host.builtin_function import BYTES_OF
from offcut.backends.llvm import ir


class BuiltinWriter:
    """The instructions of a function with CPython's signature METH_FASTCALL | METH_KEYWORDS.

    fields  the names of the first words of its table
    f       what is written so far
    """

    def __init__(self, fields: Sequence[str], f: ir.FunctionWriter | None = None) -> None:
        self.f, self._fields = ir.FunctionWriter() if f is None else f, fields
        self.table = self.f.let(f"getelementptr i8, ptr %self, i64 {BYTES_OF}")

    def function(self, symbol: str, attributes: str = "nounwind") -> str:
        """Return LLVM IR of the function."""
        parameters = "ptr %self, ptr %args, i64 %nargs, ptr %kwnames"
        return f"define ptr @{symbol}({parameters}) {attributes} {{\n{self.f.text()}\n}}\n"

    def place(self, base: str, number: str | int) -> str:
        """Return the address of the 8-byte word `number` behind a base."""
        return self.f.let(f"getelementptr i64, ptr {base}, i64 {number}")

    def word(self, base: str, number: str | int, kind: str = "i64") -> str:
        """Return the 8-byte word `number` behind a base, as a value of LLVM type `kind`."""
        return self.f.let(f"load {kind}, ptr {self.place(base, number)}")

    def field(self, name: str, kind: str = "ptr") -> str:
        """Return a word of the table."""
        return self.word(self.table, self._fields.index(name), kind)

    def call(self, kind: str, name: str, arguments: str) -> str:
        """Call a function of CPython whose address is a word of the table; return its result, "" for void."""
        call = f"call {kind} {self.field(name)}({arguments})"
        if kind == "void":
            self.f.do(call)
            return ""
        return self.f.let(call)

    def require(self, holds: str, otherwise: str) -> None:
        """Branch to the block `otherwise` unless the i1 `holds`."""
        go_on = self.f.name("on")
        self.f.do(f"br i1 {holds}, label {go_on}, label {otherwise}")
        self.f.start(go_on)


__all__ = ["BuiltinWriter"]
