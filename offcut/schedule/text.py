"""The text form of schedules: one decision a line, what it holds indented below it.

::

    schedule C
    split C.i mask 8 as io ii
    split C.j ladder 384 then ladder of 32 16 as jg j jj
    order C jg io j ii jj
    stage read W for C as W_in in weights
    at W_in C.jg depth 2
    bind C.jj lane
    choose
      option small costs 1e-09*float64(n)
        cover C at ii fma_float32_avx512(i=ii, j=jj, p=k)
      option large
        …

`old_text` reads the lines of versions before, `old_nests` those about nests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import assert_never

from offcut.core.expr import Expr, Var
from offcut.core.layout import Layout
from offcut.core.program import LANE
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr
from offcut.schedule.decisions import (
    ANY,
    ANY_PRODUCTS,
    SERIAL,
    Alternative,
    At,
    Bind,
    Choose,
    Cover,
    Fuse,
    Inline,
    Level,
    Order,
    Primitive,
    RFactor,
    Schedule,
    Separate,
    Split,
    Staging,
    Step,
)
from offcut.schedule.lines import (
    STRATEGY,
    Line,
    LineBlock,
    lines_in_blocks,
    read_classes,
    read_expr,
    read_layout,
    read_strategy,
)
from offcut.schedule.old_nests import OLD_NESTS, OLD_STEPS, read_old_nests
from offcut.schedule.old_text import OLD, read_old

Decision = Step | Alternative


def format_schedule(schedule: Schedule) -> str:
    """Return the text that `parse_schedule` reads back."""
    return "\n".join(line for line, _ in lines_of(schedule))


def lines_of(schedule: Schedule) -> Iterator[tuple[str, Decision | None]]:
    """Yield each line of the text of `schedule`, and the decision that begins there."""
    yield f"schedule {schedule.name}", None
    for step in schedule.steps:
        yield from _lines(step, "")


def _lines(step: Step, indent: str) -> Iterator[tuple[str, Decision | None]]:
    match step:
        case Separate(copies, stage, axis):
            of = "" if stage == ANY else f"{stage}.{axis} " if axis else f"{stage} "
            yield f"{indent}separate {of}{copies}", step
        case Choose(options):
            yield f"{indent}choose", step
            for option in options:
                costs = "" if option.cost is None else f" costs {format_expr(option.cost)}"
                yield f"{indent}  option {option.label}{costs}", option
                for inner in option.steps:
                    yield from _lines(inner, indent + "    ")
        case _:
            yield indent + format_decision(step), step


def format_decision(step: Primitive) -> str:
    """Return the line of a decision that holds no other."""
    match step:
        case Split(stage, axis, levels, names):
            text = " then ".join(map(_format_level, levels))
            return f"split {stage}.{axis} {text} as {' '.join(names)}"
        case Fuse(stage, outer, inner, fused):
            return f"fuse {stage}.{outer} {stage}.{inner} as {fused}"
        case Order(stage, loops):
            return " ".join(("order", stage, *loops))
        case At(stage, reader, axis, memory, depth, inplace):
            where = _format_place(memory, None)
            where += "" if depth == 1 else f" depth {depth}"
            place = reader if axis is None else f"{reader}.{axis}"
            return f"at {stage} {place}{where}" + (f" inplace {inplace}" if inplace else "")
        case Staging("prepack", what, _, _, _, memory, layout):
            return f"stage prepack {what}{_format_place(memory, layout)}"
        case Staging(how, what, name, readers, axes, memory, layout):
            text = ", ".join(
                axis if value == Var(axis) else f"{axis} = {format_expr(value)}"
                for axis, value in axes
            )
            copy_text = f"{name}({text})" if how == "value" or axes else name
            to = f" for {' '.join(readers)}" if how != "write" else ""
            return f"stage {how} {what}{to} as {copy_text}{_format_place(memory, layout)}"
        case Inline(stage):
            return f"inline {stage}"
        case RFactor(stage, axis, name):
            return f"rfactor {stage}.{axis} as {name}"
        case Bind(stage, axis, unit, tree):
            loop = ANY if stage == ANY else f"{stage}.{axis}"
            return f"bind {loop} {unit or SERIAL}{' tree' if tree else ''}"
        case Cover(stage, _, kernel) if stage == ANY == kernel:
            return f"cover {ANY}"
        case Cover(stage, axis, microkernel, axes, operands):
            parts = [", ".join(f"{a}={b}" for a, b in pairs) for pairs in (axes, operands)]
            text = f"({'; '.join(parts if operands else parts[:1])})" if axes or operands else ""
            return f"cover {stage}{f' at {axis}' if axis else ''} {microkernel}{text}"
        case Choose():
            raise AssertionError("it has several lines")
        case _:
            assert_never(step)


def _format_level(level: Level) -> str:
    tail = "" if level.tail is None else f"{level.tail} "
    if level.by is not None:
        classes = (
            f"{low}..{high}: {' '.join(map(str, heights))}"
            for (low, high), _, heights in level.classes
        )
        return f"{tail}by {level.by} {', '.join(classes)}"
    if level.heights is not None:
        return f"{tail}of {' '.join(map(str, level.heights))}"
    return f"{tail}{level.tile}" + ("" if level.room is None else f" if fits {level.room}")


def _format_place(memory: str | None, layout: Layout | None) -> str:
    text = "" if layout is None else f" layout {format_layout(layout)}"
    return text if memory is None else f" in {memory}{text}"


def parse_schedule(text: str) -> Schedule:
    """Return the schedule that prints as `text`.

    Raises ParseError, with the line, where a line is no decision or has no place there.
    """
    whole = lines_in_blocks(text)
    name = whole.line.match(r"schedule (\S+)", "schedule C")[1]
    steps = list[Step]()
    for nests, blocks in groupby(whole.inside, lambda block: block.line.word in OLD_NESTS):
        if nests:
            steps += read_old_nests(blocks)
            continue
        for block in blocks:
            old = OLD_STEPS.get(block.line.word)
            steps += (_read_step(block),) if old is None else old(block)
    cuts = any(block.line.word == "cut" for block in whole.inside)
    if cuts and not any(isinstance(step, Separate) for step in steps):
        steps.insert(0, Separate(1))
    return Schedule(name, tuple(steps))


_NAMES = r"\S+(?: \S+)*"
_LOOP = r"(\S+)\.([^\s.]+)"


def _read_step(block: LineBlock) -> Step:
    word = block.line.word
    if word in OLD and (old := read_old(block.line)) is not None:
        block.alone()
        return old
    if word in _READERS:
        return _READERS[word](block.alone())
    if word == "choose":
        return _read_choose(block)
    return block.line.refuse("it is not a decision", ", ".join((*_READERS, "choose")))


def _read_split(line: Line) -> Split:
    found = line.match(
        rf"split {_LOOP} (.+) as ({_NAMES})",
        "split C.i mask 8 as io ii",
        "split C.j ladder 384 then ladder of 32 16 as jg j jj",
    )
    levels = tuple(_read_level(line, one) for one in found[3].split(" then "))
    names = tuple(found[4].split())
    if len(names) != len(levels) + 1:
        line.refuse(
            f"{len(levels)} levels of tiles make {len(levels) + 1} loops, and {len(names)} are named",
            f"split {found[1]}.{found[2]} {found[3]} as {' '.join(f'{found[2]}{n}' for n in range(len(levels) + 1))}",
        )
    return Split(found[1], found[2], levels, names)


def _read_level(line: Line, text: str) -> Level:
    examples = "mask 8", "ladder of 8 4 1", "ladder by ii 1..6: 64 32 16, 7..14: 32 16"
    found = re.fullmatch(
        rf"(?:{STRATEGY} )?(?:(\d+)(?: if fits (\d+))?|of (\d+(?: \d+)*)|by (\S+) (\d+\.\.\d+: .+))",
        text,
    )
    if found is None:
        line.refuse(f"{text!r} is not a level of tiles", *examples)
    tail, tile, fits, heights, by, classes = found.groups()
    if by is not None:
        read = tuple(read_classes(line, classes))
        strategy = None if tail is None else read_strategy(line, tail, *(t for _, t, _ in read))
        return Level(0, strategy, None, by, read)
    sizes = line.sizes(heights or tile)
    strategy = None if tail is None else read_strategy(line, tail, sizes[0])
    room = None if fits is None else line.size(fits)
    if room is not None and not (sizes[0] > 1 and room > 0):
        line.refuse(
            "a block is of several iterations, in some bytes",
            "split C.i 4 if fits 16384 as i_block i_in",
        )
    return Level(sizes[0], strategy, sizes if heights else None, room=room)


def _read_fuse(line: Line) -> Fuse:
    found = line.match(rf"fuse {_LOOP} {_LOOP} as (\S+)", "fuse C.i C.j as t")
    if found[1] != found[3]:
        line.refuse(f"the loops are of two stages, {found[1]} and {found[3]}", "fuse C.i C.j as t")
    return Fuse(found[1], found[2], found[4], found[5])


def _read_order(line: Line) -> Order:
    found = line.match(r"order (\S+)((?: \S+)*)", "order C j i")
    return Order(found[1], tuple(found[2].split()))


def _read_at(line: Line) -> At:
    found = line.match(
        r"at (\S+) ([^\s.]+)(?:\.([^\s.]+))?(?: in (\S+))?(?: depth (\d+))?(?: inplace (\S+))?",
        "at S C.i",
        "at W_in C",
        "at S C.i in accumulators depth 2",
        "at Y C.i inplace S",
    )
    depth = 1 if found[5] is None else line.size(found[5])
    if depth < 1:
        line.refuse("there is one window at least", "depth 2")
    return At(found[1], found[2], found[3], found[4], depth, found[6])


_PLACE = r"(?: in (\S+))?(?: layout (.+))?"


def _read_staging(line: Line) -> Staging:
    examples = (
        "stage read A for C as A_in in inputs",
        "stage value float32(A[i, k]) for C as A_wide(i, k)",
        "stage write C as C_acc in accumulators",
        "stage prepack W layout panels(0, 1, 16)",
    )
    how = line.match(r"stage (read|value|write|prepack) .+", *examples)[1]
    if how == "prepack":
        found = line.match(rf"stage prepack (\S+){_PLACE}", examples[3])
        return Staging(
            "prepack", found[1], found[1], (), (), *_read_place(line, found[2], found[3])
        )
    if how == "write":
        found = line.match(rf"stage write (\S+) as ([^\s()]+)(?:\((.*?)\))?{_PLACE}", examples[2])
        axes = tuple(_read_axes(line, found[3] or ""))
        return Staging(
            "write", found[1], found[2], (), axes, *_read_place(line, found[4], found[5])
        )
    if how == "read":
        pattern = rf"stage read (\S+) for ({_NAMES}?) as (\S+){_PLACE}"
        found = line.match(pattern, examples[0])
        place = _read_place(line, found[4], found[5])
        return Staging("read", found[1], found[3], tuple(found[2].split()), (), *place)
    pattern = rf"stage value (.+) for ({_NAMES}?) as (\w+|\*)\((.*?)\){_PLACE}"
    found = line.match(pattern, examples[1])
    axes = tuple(_read_axes(line, found[4]))
    place = _read_place(line, found[5], found[6])
    return Staging("value", found[1], found[3], tuple(found[2].split()), axes, *place)


def _read_place(
    line: Line, memory: str | None, layout: str | None
) -> tuple[str | None, Layout | None]:
    return memory, None if layout is None else read_layout(line, layout)


def _read_axes(line: Line, text: str) -> Iterator[tuple[str, Expr]]:
    """Yield (axis, what stands for it) of ``u = 2*y + r, c = c``."""
    for part in re.split(r", (?=\w+(?: = |, |$))", text) if text else ():
        axis, sign, value = part.partition(" = ")
        if not axis.isidentifier():
            line.refuse(f"{part!r} is not an axis", "u = 2*y + r")
        yield axis, read_expr(line, value, "index") if sign else Var(axis)


def _read_cover(line: Line) -> Cover:
    found = line.match(
        r"cover (?:(\*)|(\S+)(?: at (\S+))? ([^\s()]+)(?:\((.*)\))?)",
        "cover C at ii gemm8x8",
        "cover C at ii gemm8x8(i=ii, j=jj, p=k; A=A, B=W, C=C)",
        "cover C vectors",
    )
    if found[1]:
        return ANY_PRODUCTS
    axes, _, operands = (found[5] or "").partition("; ")
    pairs = tuple(tuple(_read_pairs(line, one)) for one in (axes, operands))
    for names in ([name for name, _ in some] for some in pairs):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            line.refuse(f"it says twice what {twice} of {found[4]} is")
    return Cover(found[2], found[3] or "", found[4], *pairs)


def _read_pairs(line: Line, text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(", ") if text else ():
        one, sign, other = part.partition("=")
        if not sign or not one or not other:
            line.refuse(f"{part!r} is not a pair of names", "i=ii")
        yield one, other


def _read_separate(line: Line) -> Separate:
    examples = "separate 16", "separate C 1", "separate C.i_in 1"
    found = line.match(r"separate (?:([^\s.]+)(?:\.([^\s.]+))? )?(\d+)", *examples)
    copies = line.size(found[3])
    if found[1] is None and not copies:
        line.refuse("a statement becomes one at least", "separate 1")
    if found[1] is not None and (copies > 1 or (found[2] is not None and not copies)):
        line.refuse("terms of a sum are left out, or stay", "separate C 0", *examples[1:])
    return Separate(copies, found[1] or ANY, found[2] or "")


def _read_bind(line: Line) -> Bind:
    found = line.match(
        rf"bind (?:(\*)|{_LOOP}) (\S+)( tree)?",
        "bind C.j thread",
        "bind C.j lane",
        "bind C.k lane tree",
        "bind C.j serial",
    )
    unit, tree = None if found[4] == SERIAL else found[4], found[5] is not None
    if tree and unit != LANE:
        line.refuse("partial sums of lanes are added in a tree", "bind C.k lane tree")
    return Bind(*((ANY, ANY) if found[1] else (found[2], found[3])), unit, tree)


def _read_rfactor(line: Line) -> RFactor:
    return RFactor(*line.match(rf"rfactor {_LOOP} as (\S+)", "rfactor C.ko as CF").groups())


_READERS: dict[str, Callable[[Line], Step]] = {
    "split": _read_split,
    "fuse": _read_fuse,
    "order": _read_order,
    "at": _read_at,
    "stage": _read_staging,
    "inline": lambda line: Inline(line.match(r"inline (\S+)", "inline B")[1]),
    "rfactor": _read_rfactor,
    "bind": _read_bind,
    "cover": _read_cover,
    "separate": _read_separate,
}


def _read_choose(block: LineBlock) -> Choose:
    block.line.match("choose", "choose")
    return Choose(tuple(map(_read_option, block.inside)))


def _read_option(block: LineBlock) -> Alternative:
    example = "option small costs 1e-09*float64(n)"
    found = block.line.match(r"option (\S+)(?: costs (.+))?", "option small", example)
    cost = None if found[2] is None else read_expr(block.line, found[2], "float64", example)
    steps = []
    for inner in block.inside:
        step = _read_step(inner)
        if not isinstance(step, Primitive):
            inner.line.refuse("it has no place in an option")
        steps.append(step)
    return Alternative(found[1], cost, tuple(steps))
