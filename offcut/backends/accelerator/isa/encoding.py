"""Instructions and micro-ops as bits, and back; what does not fit its field is refused.

``decode(encode(x, spec), spec) == x`` for every instruction that fits; the widths of fields are those of
`costmodel.machine_validation`, so both need the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import assert_never

from offcut.backends.accelerator.isa.instructions import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    MemorySpace,
    MicroOp,
    Store,
    Tokens,
)
from offcut.backends.accelerator.isa.listing import summary
from offcut.backends.accelerator.isa.validation import check_instruction, check_spec
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.integers import whole
from offcut.costmodel.machine_validation import INSTRUCTION_BITS, Fields, instructions, micro_op
from offcut.errors import StreamError

_OPCODES = {"load": 0, "store": 1, "gemm": 2, "finish": 3, "alu": 4}
_PLACES = (
    MemorySpace.MICRO_OPS,
    MemorySpace.WEIGHTS,
    MemorySpace.INPUTS,
    MemorySpace.ACCUMULATORS,
    MemorySpace.OUTPUTS,
)
_OPERATIONS = (AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR, AluOp.MUL)
_PADS = ("pad_top", "pad_bottom", "pad_left", "pad_right")


def encode(instruction: Instruction, spec: AcceleratorSpec) -> int:
    """The 128 bits of an instruction.

    Raises StreamError, with the field, for a value that does not fit it.
    """
    check_spec("encode", spec)
    check_instruction("encode", instruction)
    check(instruction, spec)
    layout = _layout(_format(instruction), _depths(spec))
    return sum(value << layout[name][0] for name, value in _values(instruction).items() if value)


def check(instruction: Instruction, spec: AcceleratorSpec) -> None:
    """Raises StreamError, with the field, for an instruction that has no binary form."""
    values = _values(instruction)
    layout = _layout(_format(instruction), _depths(spec))
    for name, value in values.items():
        _, bits = layout.get(name, (0, 0))
        if not 0 <= value < 1 << bits:
            raise _unfit(instruction, name, value, bits)


def decode(word: int, spec: AcceleratorSpec) -> Instruction:
    """The instruction that has these 128 bits.

    Raises StreamError for bits that are none.
    """
    check_spec("decode", spec)
    if whole(word) is None:
        because = f"it is of type {type(word).__name__}, not an integer"
        raise StreamError("decode", f"cannot decode {word!r}", because=because)
    opcode = next((name for name, number in _OPCODES.items() if number == word & 7), None)
    if opcode is None:
        raise _meaningless(word, f"no instruction has the opcode {word & 7}")
    layout = _layout("memory" if opcode in ("load", "store") else opcode, _depths(spec))
    field = {name: word >> at & (1 << bits) - 1 for name, (at, bits) in layout.items()}
    tokens = Tokens(
        *(bool(field[name]) for name in ("pop_prev", "pop_next", "push_prev", "push_next"))
    )
    instruction: Instruction
    match opcode:
        case "load" if field["place"] < 4:
            instruction = Load(
                place=_PLACES[field["place"]],
                sram=field["sram"],
                dram=field["dram"],
                y=field["y"],
                x=field["x"],
                stride=field["stride"],
                pad=(field[_PADS[0]], field[_PADS[1]], field[_PADS[2]], field[_PADS[3]]),
                tokens=tokens,
            )
        case "store":
            size = field["y"], field["x"], field["stride"]
            instruction = Store(field["sram"], field["dram"], *size, tokens=tokens)
        case "gemm":
            outer, inner = (
                Loop(*(field[name] for name in (loop, f"{loop}_dst", f"{loop}_src", f"{loop}_wgt")))
                for loop in ("outer", "inner")
            )
            reset = bool(field["reset"])
            instruction = Gemm(field["begin"], field["end"], outer, inner, reset, tokens)
        case "alu" if field["op"] < len(_OPERATIONS):
            outer, inner = (
                Loop(*(field[name] for name in (loop, f"{loop}_dst", f"{loop}_src")))
                for loop in ("outer", "inner")
            )
            half = 1 << layout["immediate"][1] - 1
            immediate = (field["immediate"] ^ half) - half if field["use_immediate"] else None
            op = _OPERATIONS[field["op"]]
            instruction = Alu(op, field["begin"], field["end"], outer, inner, immediate, tokens)
        case "finish":
            instruction = Finish(tokens)
        case _:
            raise _meaningless(word, f"no {opcode} has such fields")
    if encode(instruction, spec) != word:
        raise _meaningless(word, "bits are set that no field has")
    return instruction


def encode_micro_op(op: MicroOp, spec: AcceleratorSpec) -> int:
    """The bits of a micro-op, the accumulator's lowest.

    Raises StreamError, with the field, for a value that does not fit it.
    """
    values = {"dst": op.dst, "src": op.src, "wgt": op.wgt}
    layout = _place_fields(micro_op(dict(_depths(spec))), 0)
    for name, (_, bits) in layout.items():
        if not 0 <= values[name] < 1 << bits:
            raise _unfit(op, name, values[name], bits)
    return sum(values[name] << at for name, (at, _) in layout.items())


def decode_micro_op(word: int, spec: AcceleratorSpec) -> MicroOp:
    """The micro-op that has these bits.

    Raises StreamError for bits that are none.
    """
    layout = _place_fields(micro_op(dict(_depths(spec))), 0)
    decoded = MicroOp(**{name: word >> at & (1 << bits) - 1 for name, (at, bits) in layout.items()})
    if encode_micro_op(decoded, spec) != word:
        raise _meaningless(word, "bits are set that no field of a micro-op has")
    return decoded


_Depths = tuple[tuple[str, int], ...]
_Layout = Mapping[str, tuple[int, int]]


def _depths(spec: AcceleratorSpec) -> _Depths:
    return tuple((place.value, words.depth) for place, words in spec.words.items())


@cache
def _layout(name: str, depths: _Depths) -> _Layout:
    """The first bit and the width of each field of a format."""
    first, second = instructions(dict(depths))[name]
    begin = min(64, INSTRUCTION_BITS - sum(bits for _, bits in second))
    return {**_place_fields(first, 0), **_place_fields(second, begin)}


def _place_fields(fields: Fields, at: int) -> dict[str, tuple[int, int]]:
    positions = {}
    for name, bits in fields:
        positions[name] = (at, bits)
        at += bits
    return positions


def _format(instruction: Instruction) -> str:
    named = type(instruction).__name__.lower()
    return "memory" if named in ("load", "store") else named


def _values(instruction: Instruction) -> dict[str, int]:
    tokens = instruction.tokens
    values = {
        "opcode": _OPCODES[type(instruction).__name__.lower()],
        "pop_prev": int(tokens.pop_prev),
        "pop_next": int(tokens.pop_next),
        "push_prev": int(tokens.push_prev),
        "push_next": int(tokens.push_next),
    }
    match instruction:
        case Load(place, sram, dram, y, x, stride, pad):
            if place is MemorySpace.OUTPUTS:
                raise StreamError(
                    "encode",
                    "cannot encode an instruction",
                    at=summary(instruction),
                    because="outputs are stored, never loaded",
                )
            values |= {"place": _PLACES.index(place), "sram": sram, "dram": dram}
            values |= {"y": y, "x": x, "stride": stride, **dict(zip(_PADS, pad, strict=True))}
        case Store(sram, dram, y, x, stride):
            values |= {"place": _PLACES.index(MemorySpace.OUTPUTS), "sram": sram, "dram": dram}
            values |= {"y": y, "x": x, "stride": stride}
        case Gemm(begin, end, outer, inner, reset):
            values |= {"reset": int(reset), "begin": begin, "end": end}
            values |= _loop_fields("outer", outer) | _loop_fields("inner", inner)
        case Alu(op, begin, end, outer, inner, immediate):
            values |= {"begin": begin, "end": end, "op": _OPERATIONS.index(op)}
            values |= _loop_fields("outer", outer) | _loop_fields("inner", inner)
            if immediate is not None:
                values |= {
                    "use_immediate": 1,
                    "immediate": _unsigned_immediate(instruction, immediate),
                }
        case Finish():
            pass
        case _:
            assert_never(instruction)
    return values


def _loop_fields(name: str, loop: Loop) -> dict[str, int]:
    return {
        name: loop.extent,
        f"{name}_dst": loop.dst,
        f"{name}_src": loop.src,
        f"{name}_wgt": loop.wgt,
    }


def _unsigned_immediate(instruction: Instruction, immediate: int) -> int:
    """An immediate of 16 bits in two's complement."""
    if not -(1 << 15) <= immediate < 1 << 15:
        raise StreamError(
            "encode",
            "cannot encode an instruction",
            at=summary(instruction),
            because=f"immediate = {immediate}, and its field has 16 bits: -32768 to 32767",
        )
    return immediate & 0xFFFF


def _unfit(of: Instruction | MicroOp, name: str, value: int, bits: int) -> StreamError:
    kind = "a micro-op" if isinstance(of, MicroOp) else "an instruction"
    room = f"its field has {bits} bit{'s' * (bits != 1)}: 0 to {(1 << bits) - 1}"
    return StreamError(
        "encode",
        f"cannot encode {kind}",
        at=str(of) if isinstance(of, MicroOp) else summary(of),
        because=f"{name} = {value}, and " + (room if bits else "there is no such field"),
    )


def _meaningless(word: int, because: str) -> StreamError:
    return StreamError("decode", "cannot decode bits", at=f"0x{word:032x}", because=because)
