"""A stream as a text: one instruction a line, with its unit, for whom it waits and whom it tells, and what it does.

    1  load     tell compute  inputs[0:32] = X[64:78], 2 rows of 6 every 8, zeros 1 1 1 1
    2  compute  wait load     accumulators[0:16] += inputs[0:29] · weights[0:10]  of micro-ops[0:2], 4 times by 4 8 0

Words are the first and last that are touched; there may be gaps between them where loops leave some out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
    Stream,
    Tokens,
    Unit,
)
from offcut.backends.accelerator.isa.validation import check_spec, check_stream
from offcut.backends.accelerator.spec import AcceleratorSpec

_NEIGHBOURS = {
    Unit.LOAD: (None, Unit.COMPUTE),
    Unit.COMPUTE: (Unit.LOAD, Unit.STORE),
    Unit.STORE: (Unit.COMPUTE, None),
}


Names = Mapping[MemorySpace, Mapping[int, str]]
"""Of arrays in main memory: by place, and by the first word of each there."""


def listing(stream: Stream, spec: AcceleratorSpec, names: Names | None = None) -> str:
    """The lines of a stream: position, unit, tokens, what it does.

    names  their words are counted from the first of each; those of other places are those of ``dram``

    Raises StreamError for what is no stream, or no machine.
    """
    check_spec("listing", spec)
    check_stream("listing", stream)
    rows = list(_rows(stream, spec, names or {}))
    width = max((len(token_text) for _, _, token_text, _ in rows), default=0)
    return "\n".join(
        f"{position:4}  {unit.value:7}  {token_text:{width}}  {does}"
        for position, unit, token_text, does in rows
    )


def summary(instruction: Instruction) -> str:
    """An instruction by its fields, as refusals name it."""
    match instruction:
        case Load(place, sram, dram, y, x, stride, pad):
            padded = f", pad {' '.join(map(str, pad))}" if any(pad) else ""
            return f"load {place.value}[{sram}] = dram[{dram}], {_block(y, x, stride)}{padded}"
        case Store(sram, dram, y, x, stride):
            return f"store dram[{dram}] = accumulators[{sram}], {_block(y, x, stride)}"
        case Gemm(begin, end, outer, inner, reset):
            return f"gemm{' reset' * reset} of micro-ops[{begin}:{end}]{_loops(outer, inner)}"
        case Alu(op, begin, end, outer, inner, immediate):
            other = "" if immediate is None else f" {immediate}"
            return f"alu {op.value}{other} of micro-ops[{begin}:{end}]{_loops(outer, inner)}"
        case Finish():
            return "finish"
        case _:
            assert_never(instruction)


def _rows(
    stream: Stream, spec: AcceleratorSpec, names: Names
) -> Iterator[tuple[int, Unit, str, str]]:
    buffer: dict[int, MicroOp] = {}
    for position, instruction in enumerate(stream.instructions):
        unit = spec.unit(instruction)
        match instruction:
            case Load(place=MemorySpace.MICRO_OPS):
                buffer.update(_brought(instruction, stream.micro_ops))
        yield (
            position,
            unit,
            _tokens_text(unit, instruction.tokens),
            _does(instruction, buffer, names),
        )


def _brought(load: Load, micro_ops: tuple[MicroOp, ...]) -> Iterator[tuple[int, MicroOp]]:
    """The micro-ops that a load brings, by the word that each goes to; padding is ``MicroOp(0)``."""
    top, bottom, left, right = load.pad
    across = left + load.x + right
    for word in range((top + load.y + bottom) * across):
        row, column = word // across - top, word % across - left
        inside = 0 <= row < load.y and 0 <= column < load.x
        source = load.dram + row * load.stride + column
        there = inside and source < len(micro_ops)
        yield load.sram + word, micro_ops[source] if there else MicroOp(0)


def _does(instruction: Instruction, buffer: Mapping[int, MicroOp], names: Names) -> str:
    match instruction:
        case Load(place, sram, dram, y, x, stride, pad):
            into = f"{place.value}[{sram}:{sram + instruction.words}]"
            if not (y and x):
                return f"{into} = 0"
            padded = f", zeros {' '.join(map(str, pad))}" if any(pad) else ""
            rows = f", {_block(y, x, stride)}" if y != 1 else ""
            there = _there(names.get(place, {}), dram, _end(dram, y, x, stride))
            return f"{into} = {there}{rows}{padded}"
        case Store(sram, dram, y, x, stride):
            rows = f", {_block(y, x, stride)}" if y != 1 else ""
            there = _there(names.get(MemorySpace.OUTPUTS, {}), dram, _end(dram, y, x, stride))
            return f"{there} = int8(accumulators[{sram}:{sram + y * x}]){rows}"
        case Gemm(begin, end, outer, inner, reset):
            ops = [buffer.get(word, MicroOp(0)) for word in range(begin, end)]
            loops = f"  of micro-ops[{begin}:{end}]{_loops(outer, inner)}"
            dst = _word_range(
                (op.dst for op in ops), (outer.extent, outer.dst), (inner.extent, inner.dst)
            )
            if reset:
                return f"accumulators{dst} = 0{loops}"
            src = _word_range(
                (op.src for op in ops), (outer.extent, outer.src), (inner.extent, inner.src)
            )
            wgt = _word_range(
                (op.wgt for op in ops), (outer.extent, outer.wgt), (inner.extent, inner.wgt)
            )
            return f"accumulators{dst} += inputs{src} · weights{wgt}{loops}"
        case Alu(op, begin, end, outer, inner, immediate):
            ops = [buffer.get(word, MicroOp(0)) for word in range(begin, end)]
            loops = f"  of micro-ops[{begin}:{end}]{_loops(outer, inner)}"
            dst = _word_range(
                (op.dst for op in ops), (outer.extent, outer.dst), (inner.extent, inner.dst)
            )
            src = _word_range(
                (op.src for op in ops), (outer.extent, outer.src), (inner.extent, inner.src)
            )
            other = f"accumulators{src}" if immediate is None else str(immediate)
            return f"accumulators{dst} {_SIGNS[op]} {other}{loops}"
        case Finish():
            return "finish"
        case _:
            assert_never(instruction)


def _there(names: Mapping[int, str], begin: int, end: int) -> str:
    """Words of the array in main memory that has the first of them."""
    base = max((one for one in names if one <= begin), default=0)
    return f"{names.get(base, 'dram')}[{begin - base}:{end - base}]"


_SIGNS = {
    AluOp.MIN: "min=",
    AluOp.MAX: "max=",
    AluOp.ADD: "+=",
    AluOp.SHR: ">>=",
    AluOp.MUL: "*=",
}


def _word_range(words: Iterable[int], *loops: tuple[int, int]) -> str:
    """The range from the first to the last word that loops by some factors reach from these."""
    known = list(words)
    if not known or not all(extent for extent, _ in loops):
        return "[]"
    reach = sum((extent - 1) * factor for extent, factor in loops)
    return f"[{min(known)}:{max(known) + reach + 1}]"


def _loops(outer: Loop, inner: Loop) -> str:
    shown = [
        f"{loop.extent} times by {loop.dst} {loop.src} {loop.wgt}"
        for loop in (outer, inner)
        if loop.extent != 1
    ]
    return "".join(f", {one}" for one in shown)


def _block(y: int, x: int, stride: int) -> str:
    return f"{y} row{'s' * (y != 1)} of {x}" + (f" every {stride}" if y > 1 else "")


def _end(dram: int, y: int, x: int, stride: int) -> int:
    return dram + (y - 1) * stride + x if y and x else dram


def _tokens_text(unit: Unit, tokens: Tokens) -> str:
    before, after = _NEIGHBOURS[unit]
    waits = [(tokens.pop_prev, before), (tokens.pop_next, after)]
    tells = [(tokens.push_prev, before), (tokens.push_next, after)]
    phrases = []
    for verb, pairs in (("wait", waits), ("tell", tells)):
        whom = [one.value if one else "nobody" for asked, one in pairs if asked]
        if whom:
            phrases.append(f"{verb} {', '.join(whom)}")
    return "; ".join(phrases)
