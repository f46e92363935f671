"""LLVM IR as text: one function being written.

Text is about thirty times faster to build than an object model of the same instructions. Loop
counters and other variables live in stack slots of the entry block; LLVM's first pass turns them
into registers, and no phi is written by hand. What is computed already, by an instruction that reads no
memory, is not written again where that computation is on every way: half of an address is that of
the address before, and what is never written takes LLVM no time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from offcut.backends.abi import AffineFact
from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var
from offcut.core.layout import Swizzle

# What gives the same for the same operands. A load does not, nor a call; of the intrinsics, those of addresses do.
_PURE = re.compile(
    r"(f?(add|sub|mul|div|rem|neg)|[su](div|rem)|[if]cmp|select|and|or|xor|shl|[al]shr|(fp|[sz])?ext|(fp)?trunc|bitcast"
    r"|[su]itofp|fpto[su]i|getelementptr|(insert|extract)element|shufflevector|call i64 @llvm\.s(min|max)\.i64)\b"
)


@dataclass
class FunctionWriter:
    """The body of a function: instructions in order, stack slots of the entry block apart.

    prefix   of every local name
    early    what is computed ahead of all of `lines`, once there is such a place
    known    what has been computed ahead, by whatever its users call it
    numbers  instructions that read no memory and are on every way to here, with the names of what they give;
             a block that some ways go past is written `within` its label
    reuses   whether what is computed already is not written again
    current  the label of the block that is being written
    """

    slots: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    declares: set[str] = field(default_factory=set)
    prefix: str = ""
    early: list[str] | None = None
    known: dict[object, str] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    reuses: bool = True
    current: str = "%entry"
    _early_numbers: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Inside, instructions are written at the place of what is computed ahead of all else."""
        assert self.early is not None
        outer_lines, self.lines, self.early = self.lines, self.early, None
        try:
            with self.knowing(self._early_numbers):
                yield
        finally:
            self.early, self.lines = self.lines, outer_lines

    def begin(self) -> None:
        """What is written so far is ahead of all that follows, and what is computed ahead comes behind it."""
        self.early, self.lines = self.lines, []
        self._early_numbers = dict(self.numbers)

    @contextmanager
    def within(self, label: str) -> Iterator[None]:
        """Start the block `label`; what is computed from here on, inside, is not known behind it: some ways go past it."""
        self.start(label)
        with self.knowing(dict(self.numbers)):
            yield

    @contextmanager
    def knowing(self, numbers: dict[str, str]) -> Iterator[None]:
        """Inside, these instructions and no others are known to be computed already."""
        outer_numbers, self.numbers = self.numbers, numbers
        try:
            yield
        finally:
            self.numbers = outer_numbers

    def name(self, stem: str = "t") -> str:
        """A new local name."""
        self._count += 1
        return f"%{self.prefix}{stem}{self._count}"

    def let(self, instruction: str, stem: str = "t") -> str:
        """Write ``name = instruction``, unless it is computed already, and return the name."""
        if (known := self.numbers.get(instruction)) is not None:
            return known
        name = self.name(stem)
        self.lines.append(f"  {name} = {instruction}")
        if self.reuses and _PURE.match(instruction):
            self.numbers[instruction] = name
        return name

    def do(self, instruction: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def slot(self, kind: str) -> str:
        """A new stack slot for one `kind`."""
        name = self.name("slot")
        self.slots.append(f"  {name} = alloca {kind}")
        return name

    def call(self, kind: str, name: str, arguments: str, parameters: str) -> str:
        """Write a call of a declared function and return its result."""
        self.declares.add(f"declare {kind} @{name}({parameters})")
        return self.let(f"call {kind} @{name}({arguments})")

    def block(self, label: str) -> None:
        """Start the block `label`, falling into it."""
        self.do(f"br label {label}")
        self.start(label)

    def start(self, label: str) -> None:
        """Start the block `label`; what is before it has ended."""
        self.current = label
        self.lines.append(f"{label[1:]}:")

    @contextmanager
    def loop(self, lo: str, hi: str, step: int = 1) -> Iterator[str]:
        """Around the body of ``for (i = lo; i < hi; i += step)``; gives the counter."""
        counter = self.slot("i64")
        head, body, end = self.name("head"), self.name("body"), self.name("end")
        self.do(f"store i64 {lo}, ptr {counter}")
        self.block(head)
        now = self.let(f"load i64, ptr {counter}", "i")
        more = self.let(f"icmp slt i64 {now}, {hi}")
        self.do(f"br i1 {more}, label {body}, label {end}")
        with self.within(body):
            yield now
            after = self.let(f"add nsw i64 {now}, {step}")
            self.do(f"store i64 {after}, ptr {counter}")
            self.do(f"br label {head}")
        self.start(end)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Around what runs only where the i1 `condition` holds."""
        then, end = self.name("then"), self.name("end")
        self.do(f"br i1 {condition}, label {then}, label {end}")
        with self.within(then):
            yield
        self.block(end)

    def text(self) -> str:
        """The instructions, the stack slots first."""
        return "\n".join(["entry:", *self.slots, *self.instructions()])

    def instructions(self) -> list[str]:
        """All but the stack slots, in order."""
        return [*(self.early or ()), *self.lines]


def add(f: FunctionWriter, a: str, b: str) -> str:
    """``a + b`` of two i64, folded where both are literals."""
    if a == "0":
        return b
    if b == "0":
        return a
    if _literal(a) and _literal(b):
        return str(int(a) + int(b))
    return f.let(f"add nsw i64 {a}, {b}")


def sub(f: FunctionWriter, a: str, b: str) -> str:
    """``a - b`` of two i64."""
    if b == "0":
        return a
    if a == b:
        return "0"
    if _literal(a) and _literal(b):
        return str(int(a) - int(b))
    return f.let(f"sub nsw i64 {a}, {b}")


def mul(f: FunctionWriter, a: str, b: str) -> str:
    """``a * b`` of two i64."""
    if a == "0" or b == "0":
        return "0"
    if a == "1":
        return b
    if b == "1":
        return a
    if _literal(a) and _literal(b):
        return str(int(a) * int(b))
    return f.let(f"mul i64 {a}, {b}")


def swizzle_offset(f: FunctionWriter, offset: str, swizzle: Swizzle, kind: str = "i64") -> str:
    """Return a byte offset after a swizzle, or a vector of them, which are of type `kind`."""
    if _literal(offset):
        return str(swizzle(int(offset)))

    def number(value: int) -> str:
        return str(value) if kind == "i64" else f"splat (i64 {value})"

    high = f.let(f"lshr {kind} {offset}, {number(swizzle.high)}")
    some = f.let(f"and {kind} {high}, {number((1 << swizzle.bits) - 1)}")
    moved = f.let(f"shl {kind} {some}, {number(swizzle.low)}")
    return f.let(f"xor {kind} {offset}, {moved}")


def floordiv(f: FunctionWriter, a: str, b: str, natural: bool = False) -> str:
    """``floor(a / b)`` of two i64, b > 0; `natural` says that a is not negative."""
    if _literal(a) and _literal(b):
        return str(int(a) // int(b))
    b = _positive(f, b)
    if natural:
        return f.let(f"udiv i64 {a}, {b}")
    quotient = f.let(f"sdiv i64 {a}, {b}")
    rest = f.let(f"srem i64 {a}, {b}")
    below = f.let(f"icmp slt i64 {rest}, 0")
    one = f.let(f"zext i1 {below} to i64")
    return f.let(f"sub i64 {quotient}, {one}")


def mod(f: FunctionWriter, a: str, b: str, natural: bool = False) -> str:
    """``a - b*floor(a / b)`` of two i64, b > 0; `natural` says that a is not negative."""
    if _literal(a) and _literal(b):
        return str(int(a) % int(b))
    b = _positive(f, b)
    if natural:
        return f.let(f"urem i64 {a}, {b}")
    rest = f.let(f"srem i64 {a}, {b}")
    below = f.let(f"icmp slt i64 {rest}, 0")
    again = f.let(f"add i64 {rest}, {b}")
    return f.let(f"select i1 {below}, i64 {again}, i64 {rest}")


def _positive(f: FunctionWriter, b: str) -> str:
    """A divisor that traps nowhere: a branch that is not taken may divide by anything."""
    return b if _literal(b) else maximum(f, b, "1")


def minimum(f: FunctionWriter, a: str, b: str) -> str:
    """The smaller of two i64."""
    if a == b:
        return a
    if _literal(a) and _literal(b):
        return str(min(int(a), int(b)))
    return f.call("i64", "llvm.smin.i64", f"i64 {a}, i64 {b}", "i64, i64")


def maximum(f: FunctionWriter, a: str, b: str) -> str:
    """The larger of two i64."""
    if a == b:
        return a
    if _literal(a) and _literal(b):
        return str(max(int(a), int(b)))
    return f.call("i64", "llvm.smax.i64", f"i64 {a}, i64 {b}", "i64, i64")


def _literal(text: str) -> bool:
    return not text.startswith("%")


def literal(text: str) -> int | None:
    """The value of an i64 that is a literal."""
    return int(text) if _literal(text) else None


def affine(
    f: FunctionWriter, const: int, terms: Sequence[tuple[str, int]], sizes: Mapping[str, str]
) -> str:
    """Write ``const + sum(factor * size)``."""
    total = str(const)
    for name, factor in terms:
        total = add(f, total, mul(f, sizes[name], str(factor)))
    return total


def holds(f: FunctionWriter, relation: AffineFact, sizes: Mapping[str, str]) -> str:
    """Write whether a fact between sizes holds, an i1."""
    value = affine(f, relation.const, relation.terms, sizes)
    if relation.kind == "mod":
        value = mod(f, value, str(relation.modulus))
    return f.let(f"icmp {'sge' if relation.kind == '>=' else 'eq'} i64 {value}, 0")


def extent_of(f: FunctionWriter, extent: Expr, sizes: Mapping[str, str], without: str = "") -> str:
    """Write an extent of a signature; `without` the term of a size."""
    form = ix.to_linear(extent)
    named = [(atom.name, n) for atom, n in form.terms if isinstance(atom, Var)]
    total = affine(f, form.const, [one for one in named if one[0] != without], sizes)
    for atom, factor in form.terms:
        if isinstance(atom, Binary):
            divisor = str(ix.literal_value(atom.b))
            quotient = floordiv(f, extent_of(f, atom.a, sizes), divisor)
            total = add(f, total, mul(f, quotient, str(factor)))
    return total
