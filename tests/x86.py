"""A reading of the assembly of row blocks, one instruction at a time, on any machine.

Addresses are positions in one array of bytes; what an instruction touches outside of the blocks that were
placed there is an error. Vectors are numpy arrays, and a multiply–add rounds twice: exact on small integers.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

LOW = {"eax": "rax"}
_ITEM = {"ps": "f4", "pd": "f8", "ss": "f4", "sd": "f8"}


class Machine:
    """Registers, flags, and memory in which arrays are placed."""

    def __init__(self, size: int = 1 << 18) -> None:
        self.memory = np.zeros(size, np.uint8)
        self.placed = np.zeros(size, np.bool_)
        self.next = 4096
        self.registers: dict[str, int] = {}
        self.whole: dict[str, Any] = {}
        self.mask = 0
        self.compared = 0

    def place(self, array: Any) -> int:
        """The address of a copy of `array`."""
        data = np.frombuffer(array.tobytes(), np.uint8)
        at, self.next = self.next, self.next + -(-len(data) // 64) * 64 + 4096
        self.memory[at : at + len(data)] = data
        self.placed[at : at + len(data)] = True
        return at

    def array(self, at: int, like: Any) -> Any:
        """What lies at an address now, of the shape and type of `like`."""
        return self.memory[at : at + like.nbytes].view(like.dtype).reshape(like.shape).copy()

    def call(self, lines: list[str], arguments: list[int]) -> None:
        """Run a function of the System V convention; registers that it must keep are checked."""
        stack = np.array([0] * 16 + [0, *arguments[6:]], np.int64)
        top = self.place(stack) + 16 * 8
        names = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
        kept = {name: 1000 + n for n, name in enumerate(("rbx", "rbp", "r12", "r13", "r14", "r15"))}
        self.registers = {**dict(zip(names, arguments, strict=False)), **kept, "rsp": top}
        at = 0
        while lines[at] != "ret":
            at = self.step(lines, at)
        assert {name: self.registers[name] for name in kept} == kept
        assert self.registers["rsp"] == top

    def step(self, lines: list[str], at: int) -> int:
        """Run the instruction of a line; the line that comes after it."""
        word, _, rest = lines[at].partition(" ")
        operands = [part.strip() for part in rest.split(",")] if rest else []
        if word.startswith("j"):
            taken = {
                "jmp": True,
                "jne": self.compared != 0,
                "jnz": self.compared != 0,
                "jz": self.compared == 0,
                "jl": self.compared < 0,
                "jle": self.compared <= 0,
                "jge": self.compared >= 0,
            }[word]
            return self.goal(lines, at, operands[0]) if taken else at + 1
        if not (word.endswith(":") or word.startswith((".", "prefetch")) or word == "vzeroupper"):
            (self.vector if word.startswith("v") else self.scalar)(word, operands)
        return at + 1

    def goal(self, lines: list[str], at: int, label: str) -> int:
        """The next line of a label forwards, or the last one backwards."""
        place = f"{label[:-1]}:"
        if label.endswith("f"):
            return lines.index(place, at)
        return max(n for n, line in enumerate(lines[:at]) if line == place)

    def address(self, operand: str) -> int:
        """Where a memory operand lies."""
        found = re.search(r"\[(.*)\]", operand)
        assert found is not None
        total = 0
        for sign, scale, name in re.findall(r"([+-]?)\s*(?:(\d)\*)?(\w+)", found[1]):
            value = int(name) if name.isdecimal() else self.registers[name] * int(scale or 1)
            total += -value if sign == "-" else value
        return total

    def read(self, at: int, count: int) -> Any:
        """Bytes of memory."""
        assert self.placed[at : at + count].all(), "a read outside of what was placed"
        return self.memory[at : at + count]

    def value(self, operand: str) -> int:
        """A whole number: of a register, of memory, or as it stands."""
        if "[" in operand:
            short = operand.startswith("word")
            return int(
                self.read(self.address(operand), 2 if short else 8).view("u2" if short else "i8")[0]
            )
        return int(operand) if operand.isdecimal() else self.registers.get(operand, 0)

    def put(self, operand: str, value: int) -> None:
        """Set a register or a word of memory."""
        if "[" in operand:
            self.read(self.address(operand), 8).view("i8")[0] = value
        else:
            self.registers[LOW.get(operand, operand)] = value

    def scalar(self, word: str, operands: list[str]) -> None:
        """An instruction on whole numbers."""
        first = operands[0]
        if word == "push":
            self.registers["rsp"] -= 8
            self.put("qword ptr [rsp]", self.value(first))
        elif word == "pop":
            self.put(first, self.value("qword ptr [rsp]"))
            self.registers["rsp"] += 8
        elif word == "lea":
            self.put(first, self.address(operands[1]))
        elif word in ("mov", "movzx"):
            self.put(first, self.value(operands[1]))
        elif word == "kmovq":
            self.mask = self.value(operands[1])
        elif word in ("cmp", "test"):
            x, y = map(self.value, operands)
            self.compared = x - y if word == "cmp" else x & y
        else:
            x, y = self.value(first), self.value(operands[1]) if len(operands) > 1 else 1
            self.compared = {
                "add": x + y,
                "sub": x - y,
                "dec": x - 1,
                "xor": x ^ y,
                "shr": x >> y,
                "bts": x | 1 << y,
            }[word]
            self.put(first, self.compared)

    def vector(self, word: str, operands: list[str]) -> None:
        """An instruction on vectors."""
        into, masked = operands[0].partition("{")[::2]
        if word == "vpxord":
            self.fill(into, np.zeros(1, np.uint8))
        elif word == "vpbroadcastd":
            self.fill(into, np.uint32([self.value("rax")]))
        elif word.startswith("vbroadcast"):
            kind = np.dtype(_ITEM[word[-2:]])
            self.fill(into, self.read(self.address(operands[1]), kind.itemsize))
        elif word.startswith("vmovup"):
            self.move(np.dtype(_ITEM[word[-2:]]).itemsize, operands, masked)
        else:
            self.multiply(word, operands)

    def fill(self, register: str, word: Any) -> None:
        """Put a word into all lanes of a register."""
        data = word.view(np.uint8)
        self.keep(register, np.tile(data, size_of(register) // len(data)))

    def keep(self, register: str, data: Any) -> None:
        """Write a register; what lies behind the half that is called ymm becomes zero."""
        vector = np.zeros(64, np.uint8)
        vector[: len(data)] = data
        self.whole[register[1:]] = vector

    def held(self, register: str) -> Any:
        """The bytes of a register, or of its half."""
        return self.whole[register[1:]][: size_of(register)]

    def move(self, item: int, operands: list[str], masked: str) -> None:
        """A load or a store, of the lanes of the mask where there is one."""
        register = operands["[" in operands[0]].partition("{")[0]
        lanes = [
            lane
            for lane in range(size_of(register) // item)
            if not (masked or "{k1}" in operands[0]) or self.mask >> lane & 1
        ]
        count = (lanes[-1] + 1) * item if lanes else 0
        if "[" in operands[0]:
            self.read(self.address(operands[0]), count)[:] = self.held(register)[:count]
            return
        self.keep(register, self.read(self.address(operands[1]), count))

    def multiply(self, word: str, operands: list[str]) -> None:
        """``first += second * third``; of two bfloat16 in a word, both products."""
        total, x, y = operands
        kind = np.dtype("f8" if word.endswith("pd") else "f4")
        size = size_of(total)
        if y.endswith(f"{{1to{size // kind.itemsize}}}"):
            y_there = np.tile(self.read(self.address(y), kind.itemsize), size // kind.itemsize)
        else:
            y_there = self.read(self.address(y), size) if "[" in y else self.held(y)
        if word == "vdpbf16ps":
            products = _halves(self.held(x)) * _halves(y_there)
            term = products[0::2] + products[1::2]
        else:
            term = self.held(x).view(kind) * y_there.view(kind)
        self.keep(total, (self.held(total).view(kind) + term).view(np.uint8))


def size_of(register: str) -> int:
    """Bytes of a register by its name."""
    return {"y": 32, "z": 64}[register[0]]


def _halves(vector: Any) -> Any:
    """The bfloat16 of a vector, as float32."""
    return (vector.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
