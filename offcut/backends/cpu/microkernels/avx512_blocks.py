"""The row blocks of `fma` as assembly of AVX-512: what they compute, their order of terms, and their bits.

A kernel calls some fifty of them, one for each height and width that a size can leave. LLVM takes 5 ms for
each, most of it to select instructions that are known beforehand; assembly takes a tenth. A function
is naked: it keeps to the System V convention by itself, with what the loops around k count below
the stack's end, where nothing else writes.

In registers: the accumulators, the vectors of B of one step, an element of A in all lanes; the mask k1 of the
columns of the last vector; a pointer for every five rows of A, which reaches them by multiples of one
step (0, 1, 2, 3, 4); where B is; what is fetched ahead; the steps that are left.

A tile of one vector of columns is twice in its function: in whole registers, and in halves of them for columns that half a vector
holds. Where a core has units of half a register, as Zen 4 has, the latter take half as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import llvmlite.binding as llvm

from offcut.backends.cpu.machine.isa import Host, Isa
from offcut.backends.cpu.microkernels.family import Variant

_VECTOR = 64  # bytes of a register
_GROUP = 5  # rows that one pointer reaches
_MULTIPLES = {3: 1, 5: 1, 7: 3, 9: 1, 11: 3}
"""Multiples of the step from panel to panel -> the multiple that each is 2, 4 or 8 steps behind."""
_PANELS = 13
"""That addresses reach, by 1, 2, 4 or 8 times a step or one of these."""
_GIVEN = ("c", "c_row", "depth", "last", "accumulate", "ahead", "ahead_step")
"""The arguments on the stack; those of each loop around k follow."""
_TURN = ("count", "a_turn_step", "b_turn_step")
_SPARE = ("rbx", "rbp", "r12", "r13", "r14", "r15")
"""Registers that the caller wants back as they were."""
_LEFT, _LOW, _WORK = "rax", "eax", "r10"
"""The steps that are left, its lower half, and what is fetched ahead; both compute addresses before and after."""
_A, _A_ROW, _A_STEP, _B, _B_PANEL, _B_STEP = "rdi", "rsi", "rdx", "rcx", "r8", "r9"


def are_for(host: Host) -> bool:
    """Whether this process can make code for `host` of such assembly, and every tile fits its registers."""
    if host.isa.name != "avx512" or not llvm.get_process_triple().startswith("x86_64"):
        return False
    tiles = enumerate(host.machine.tiles.vectors_32, start=1)
    fit = all(v <= _PANELS and rows * v + v < host.isa.registers for rows, v in tiles)
    return fit and "windows" not in host.triple


@dataclass(frozen=True)
class Arithmetic:
    """How an accumulator takes a term.

    step   the instruction: ``accumulator, one factor, the other factor``, the latter a register or memory
    all    the instruction that puts one word of memory into all lanes
    move   the instruction that loads and stores a vector
    word   bytes of a lane, of a word of A, and of one of B
    terms  of an element that a step takes, 1 or 2: elements of A in a word, side by side
    """

    step: str
    all: str
    move: str
    word: int
    terms: int = 1

    @property
    def pointer(self) -> str:
        """What a word of memory is called."""
        return {4: "dword ptr", 8: "qword ptr"}[self.word]


FMA = {
    "float32": Arithmetic("vfmadd231ps", "vbroadcastss", "vmovups", 4),
    "float64": Arithmetic("vfmadd231pd", "vbroadcastsd", "vmovupd", 8),
}


@dataclass
class Block:
    """The text of one function of `family.TILES`, `rows` × `vectors` accumulators."""

    name: str
    isa: Isa
    arithmetic: Arithmetic
    variant: Variant
    rows: int
    vectors: int

    LABELS: ClassVar[dict[str, int]] = {
        name: number
        for number, name in enumerate(
            ("resume", "begin", "turn", "loop", "between", "rest", "done", "finish", "half"),
            start=2,
        )
    }
    """Local labels; 0 and 1 would read as binary numbers."""

    def __post_init__(self) -> None:
        tiles = self.isa.machine.tiles
        few = self.rows * self.vectors <= 8
        self.unroll = tiles.unroll if few else max(tiles.unroll // 2, 1)
        self.prefetch_bytes = tiles.prefetch_bytes
        panels = self.variant.panels
        wanted = {
            "ahead_step": panels,
            "a_row3": self.rows > 3,
            **{f"b_panel{n}": panels and self.vectors > n for n in _MULTIPLES},
            **{f"a_row{r}": True for r in range(_GROUP, self.rows, _GROUP)},
        }
        free = ["r11"]
        free += [_A_STEP] * self.variant.unit_depth + [_B_STEP] * panels
        names = [name for name, needed in wanted.items() if needed]
        self.registers = dict(zip(names, (*free, *_SPARE), strict=False))
        self.saved = [one for one in self.registers.values() if one in _SPARE]
        self.halves = self.vectors == 1 and self.arithmetic.terms == 1
        self.is_half = False

    def text(self) -> str:
        """LLVM IR of the function."""
        assembly = "\\0A".join(self.lines())
        return (
            f"define void @{self.name}({self.variant.parameters}) naked noinline nounwind {{\n"
            f'  call void asm sideeffect inteldialect "{assembly}", ""()\n'
            "  unreachable\n}"
        )

    def lines(self) -> Iterator[str]:
        """The instructions."""
        for register in self.saved:
            yield f"push {register}"
        yield f"mov {_WORK}, {self.stack_argument('last')}"
        yield f"xor {_LEFT}, {_LEFT}"
        yield f"bts {_LEFT}, {_WORK}"
        yield f"dec {_LEFT}"
        yield f"kmovq k1, {_LEFT}"
        if self.halves:
            yield f"cmp {_WORK}, {_VECTOR // 2 // self.arithmetic.word}"
            yield f"jle {self.label('half', ahead=True)}"
        yield from self.tile()
        if self.halves:
            self.is_half = True
            yield self.place("half")
            yield from self.tile()
            self.is_half = False

    def tile(self) -> Iterator[str]:
        """Yield the instructions of a tile, behind those of the mask of the last columns."""
        turns = self.variant.turns
        yield f"cmp {self.stack_argument('accumulate')}, 0"
        yield f"jne {self.label('resume', ahead=True)}"
        for r, p in self.cells():
            yield f"vpxord {self.accumulator(r, p)}, {self.accumulator(r, p)}, {self.accumulator(r, p)}"
        yield f"jmp {self.label('begin', ahead=True)}"
        yield self.place("resume")
        yield from self.c_accesses(load=True)
        yield self.place("begin")
        yield from self.pointers()
        for n in range(turns):
            yield from self.spill(f"round{n}", self.stack_argument("count", n))
        if turns:
            for n in range(turns):
                yield f"mov qword ptr [{self.slot(f'a{n}')}], {_A}"
                yield f"mov qword ptr [{self.slot(f'b{n}')}], {_B}"
            yield self.place("turn")
            yield f"mov {_A}, qword ptr [{self.slot(f'a{turns - 1}')}]"
            yield f"mov {_B}, qword ptr [{self.slot(f'b{turns - 1}')}]"
        yield from self.rows_of_a()
        yield from self.steps()
        if turns:
            yield from self.close_depth_loops()
        if self.arithmetic.terms > 1:
            yield from self.part()
        yield from self.c_accesses(load=False)
        for register in reversed(self.saved):
            yield f"pop {register}"
        yield "vzeroupper"
        yield "ret"

    def pointers(self) -> Iterator[str]:
        """What the addresses of all steps share."""
        registers = self.registers
        if "a_row3" in registers:
            yield f"lea {registers['a_row3']}, [{_A_ROW} + 2*{_A_ROW}]"
        for multiple, base in _MULTIPLES.items():
            if f"b_panel{multiple}" in registers:
                moved = registers[f"b_panel{base}"] if base > 1 else _B_PANEL
                yield (
                    f"lea {registers[f'b_panel{multiple}']}, "
                    f"[{moved} + {multiple - base}*{_B_PANEL}]"
                )
        if self.fetches:
            yield f"mov {_WORK}, {self.stack_argument('ahead')}"
            yield f"mov {registers['ahead_step']}, {self.stack_argument('ahead_step')}"

    def rows_of_a(self) -> Iterator[str]:
        """A pointer to each group of rows, from that to the first."""
        for before, group in zip(self.groups(), self.groups()[1:], strict=False):
            yield f"lea {group}, [{before} + 4*{_A_ROW}]"
            yield f"add {group}, {_A_ROW}"

    def steps(self) -> Iterator[str]:
        """All terms: so many steps at once, then those that are left, one by one."""
        yield f"mov {_LEFT}, {self.stack_argument('depth')}"
        if self.arithmetic.terms > 1:
            yield f"shr {_LEFT}, 1"
        yield f"sub {_LEFT}, {self.unroll}"
        yield f"jl {self.label('between', ahead=True)}"
        yield ".p2align 4"
        yield self.place("loop")
        yield from self.at_once(self.unroll)
        yield f"sub {_LEFT}, {self.unroll}"
        yield f"jge {self.label('loop')}"
        yield self.place("between")
        if self.variant.even:
            return
        yield f"add {_LEFT}, {self.unroll}"
        yield f"jz {self.label('done', ahead=True)}"
        yield self.place("rest")
        yield from self.at_once(1)
        yield f"dec {_LEFT}"
        yield f"jnz {self.label('rest')}"
        yield self.place("done")

    def at_once(self, unroll: int) -> Iterator[str]:
        """So many steps of k, and the pointers moved behind them."""
        panels, unit = self.variant.panels, self.variant.unit_depth
        word = self.arithmetic.word
        for step in range(unroll):
            if self.fetches:
                yield f"prefetcht1 [{_WORK}]"
                yield f"add {_WORK}, {self.registers['ahead_step']}"
            yield from self.step(step * word if unit else 0, step * _VECTOR if panels else 0)
            if not unit:
                yield from (f"add {group}, {_A_STEP}" for group in self.groups())
            if not panels:
                yield f"add {_B}, {_B_STEP}"
        if unit:
            yield from (f"add {group}, {unroll * word}" for group in self.groups())
        if panels:
            yield f"add {_B}, {unroll * _VECTOR}"

    def step(self, a_offset: int, b_offset: int) -> Iterator[str]:
        """One step of k: B's vectors, then for each row an element of A times each of them."""
        arithmetic, one_row = self.arithmetic, self.rows == 1
        factors = []
        for p in range(self.vectors):
            place = self.b_place(p, b_offset)
            factor = self.vector_at(place)
            masked = not self.variant.panels and p == self.vectors - 1
            if masked or not one_row:
                yield f"{arithmetic.move} {self.b[p]}{'{k1}{z}' if masked else ''}, {factor}"
                factor = self.b[p]
            factors.append(factor)
            if self.fetches:
                yield f"prefetcht0 [{place} + {self.prefetch_bytes}]"
        for r in range(self.rows):
            element = f"{arithmetic.pointer} [{self.a_place(r, a_offset)}]"
            if self.vectors == 1 and not one_row:
                many = f"{{1to{self.register_bytes // arithmetic.word}}}"
                yield f"{arithmetic.step} {self.accumulator(r, 0)}, {factors[0]}, {element}{many}"
                continue
            yield f"{arithmetic.all} {self.element}, {element}"
            yield from self.products(r, factors)

    def products(self, r: int, factors: list[str]) -> Iterator[str]:
        """Add the element of A that stands in all lanes, times each factor, to row `r`."""
        for p, factor in enumerate(factors):
            yield f"{self.arithmetic.step} {self.accumulator(r, p)}, {self.element}, {factor}"

    def close_depth_loops(self) -> Iterator[str]:
        """The end of the loops around k: the inner one goes on, or the outer one does and it starts again."""
        turns = self.variant.turns
        again = f"jnz {self.label('turn')}"
        for n in reversed(range(turns)):
            for operand in "ab":
                yield f"mov {_LEFT}, {self.stack_argument(f'{operand}_turn_step', n)}"
                yield f"add {_LEFT}, qword ptr [{self.slot(f'{operand}{n}')}]"
                for inner in range(n, turns):
                    yield f"mov qword ptr [{self.slot(f'{operand}{inner}')}], {_LEFT}"
            if n + 1 < turns:
                yield from self.spill(f"round{n + 1}", self.stack_argument("count", n + 1))
            yield f"dec qword ptr [{self.slot(f'round{n}')}]"
            yield again

    def part(self) -> Iterator[str]:
        """The step of the terms that are left where a step takes two: the first of a word, and a zero."""
        yield f"test {self.stack_argument('depth')}, 1"
        yield f"jz {self.label('finish', ahead=True)}"
        for p, register in enumerate(self.b):
            yield f"{self.arithmetic.move} {register}, {self.vector_at(self.b_place(p, 0))}"
        for r in range(self.rows):
            yield f"movzx {_LOW}, word ptr [{self.a_place(r, 0)}]"
            yield f"vpbroadcastd {self.element}, {_LOW}"
            yield from self.products(r, self.b)
        yield self.place("finish")

    def spill(self, slot: str, value: str) -> Iterator[str]:
        """Keep a value of memory below the stack's end."""
        yield f"mov {_LEFT}, {value}"
        yield f"mov qword ptr [{self.slot(slot)}], {_LEFT}"

    def c_accesses(self, *, load: bool) -> Iterator[str]:
        """A load or a store of each vector of C; the last one of a row has the columns that there are."""
        move = self.arithmetic.move
        yield f"mov {_LEFT}, {self.stack_argument('c')}"
        yield f"mov {_WORK}, {self.stack_argument('c_row')}"
        for r, p in self.cells():
            last = p == self.vectors - 1
            register = self.accumulator(r, p)
            memory = self.vector_at(f"{_LEFT} + {p * _VECTOR}")
            if load:
                yield f"{move} {register}{'{k1}{z}' if last else ''}, {memory}"
            else:
                yield f"{move} {memory}{'{k1}' if last else ''}, {register}"
            if last and r < self.rows - 1:
                yield f"add {_LEFT}, {_WORK}"

    def cells(self) -> Iterator[tuple[int, int]]:
        """The accumulators, by row and vector."""
        return ((r, p) for r in range(self.rows) for p in range(self.vectors))

    def accumulator(self, r: int, p: int) -> str:
        """The register of a row and a vector."""
        return self.register(r * self.vectors + p)

    @property
    def b(self) -> list[str]:
        """Return the registers of the vectors of B of one step."""
        cells = self.rows * self.vectors
        return [self.register(cells + p) for p in range(self.vectors)]

    @property
    def element(self) -> str:
        """Return the register of an element of A in all lanes."""
        return self.register((self.rows + 1) * self.vectors)

    def register(self, number: int) -> str:
        """Return a vector register, or its lower half in the tile of halves."""
        return f"{'y' if self.is_half else 'z'}mm{number}"

    def vector_at(self, place: str) -> str:
        """Return an operand of memory that is as long as `register`."""
        return f"{'y' if self.is_half else 'z'}mmword ptr [{place}]"

    @property
    def register_bytes(self) -> int:
        """Return the bytes of a `register`."""
        return _VECTOR // 2 if self.is_half else _VECTOR

    @property
    def fetches(self) -> bool:
        """Return whether panels are prefetched: a panel whose half is read comes as fast without."""
        return self.variant.panels and not self.is_half

    def groups(self) -> list[str]:
        """The pointers to the first of every five rows."""
        return [_A, *(self.registers[f"a_row{r}"] for r in range(_GROUP, self.rows, _GROUP))]

    def a_place(self, r: int, offset: int) -> str:
        """The address of an element of row `r`, so many bytes behind its group's pointer."""
        row3 = self.registers.get("a_row3", "")
        moved = ("", f" + {_A_ROW}", f" + 2*{_A_ROW}", f" + {row3}", f" + 4*{_A_ROW}")[r % _GROUP]
        return f"{self.groups()[r // _GROUP]}{moved} + {offset}"

    def b_place(self, p: int, offset: int) -> str:
        """The address of a vector of B: in a panel of its own, or beside the one before."""
        if not self.variant.panels:
            return f"{_B} + {offset + p * _VECTOR}"
        if p == 0:
            return f"{_B} + {offset}"
        times = p & -p
        step = _B_PANEL if p == times else self.registers[f"b_panel{p // times}"]
        return f"{_B} + {times}*{step} + {offset}"

    def stack_argument(self, name: str, turn: int = 0) -> str:
        """An argument that lies on the stack."""
        place = _GIVEN.index(name) if name in _GIVEN else len(_GIVEN)
        place += 0 if name in _GIVEN else len(_TURN) * turn + _TURN.index(name)
        return f"qword ptr [rsp + {8 * (1 + len(self.saved) + place)}]"

    def slot(self, name: str) -> str:
        """Where the loops around k keep a value."""
        return f"rsp - {8 * (1 + ('round0', 'a0', 'b0', 'round1', 'a1', 'b1').index(name))}"

    def label(self, name: str, *, ahead: bool = False) -> str:
        """A jump's goal, which comes later or came before."""
        return f"{self.LABELS[name]}{'f' if ahead else 'b'}"

    def place(self, name: str) -> str:
        """Where a jump goes to."""
        return f"{self.LABELS[name]}:"
