"""The text form of schedules: one decision a line, what it holds indented below it.

::

    schedule C
    lay W panels(0, 1, 16)
    nest C
      way ladder
        cover fma_float32_avx512 rows i columns j depth k
        split i ladder 14
        split j ladder by height 1..6: 64 32 16, 7..14: 32 16 in groups of 384
    mark rows

    schedule C
    split C i mask 8 as io ii
    vectorize C ii
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import assert_never

from offcut.core.expr import Expr
from offcut.core.layout import Layout
from offcut.core.text.expressions import parse_expr
from offcut.core.text.layouts import format_layout, layout_of
from offcut.core.text.printer import format_expr
from offcut.errors import OffcutError, ParseError
from offcut.partition import AxisCut, Block, Strategy, strategy_named
from offcut.schedule.decisions import (
    RUN_WORDS,
    Bind,
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Convert,
    Copy,
    Cover,
    Cut,
    Fuse,
    Lay,
    Mark,
    Nest,
    Pack,
    Primitive,
    Reorder,
    RFactor,
    Run,
    Schedule,
    Scratch,
    Separate,
    Split,
    Step,
    Tensorize,
    Together,
    Turn,
    Way,
    Words,
)
from offcut.schedule.lines import Line, LineBlock, lines_in_blocks

Decision = Step | Way | Cover | Words | Pack | AxisCut | tuple[str, int]


def format_schedule(schedule: Schedule) -> str:
    """The text that `parse_schedule` reads back."""
    return "\n".join(line for line, _ in lines_of(schedule))


def lines_of(schedule: Schedule) -> Iterator[tuple[str, Decision | None]]:
    """Each line of the text of `schedule`, and the decision that begins there."""
    yield f"schedule {schedule.name}", None
    for step in schedule.steps:
        yield from _step(step, "")


def _step(step: Step, indent: str) -> Iterator[tuple[str, Decision | None]]:
    deeper = indent + "  "
    match step:
        case Scratch(stage, narrow):
            yield f"{indent}scratch {stage}{' narrow' if narrow else ''}", step
        case Copy(stage, operand, depth):
            yield f"{indent}copy {stage} {operand} along {depth}", step
        case Turn(stage, axes):
            yield f"{indent}turn {stage} {' '.join(axes)}", step
        case Convert(stage, operands):
            yield f"{indent}convert {stage} {' and '.join(operands)}", step
        case Lay(buffer, layout):
            yield f"{indent}lay {buffer} {format_layout(layout)}", step
        case Cut(axis, tiles, strategy):
            yield f"{indent}cut {axis} {strategy} {' '.join(map(str, tiles))}", step
        case Separate(copies):
            yield f"{indent}separate {copies}", step
        case Mark(unit):
            yield f"{indent}mark {unit}", step
        case Together(axes, parts, block):
            by = "" if block is None else f" by {block.iterations} in {block.room}"
            yield f"{indent}together {' '.join(axes)}{by}", step
            for part in parts:
                yield from _step(part, deeper)
        case Nest(stage, ways):
            yield f"{indent}nest {stage}", step
            for way in ways:
                yield from _way(way, deeper)
        case _:
            yield indent + _by_hand(step), step


def _by_hand(step: Primitive) -> str:
    match step:
        case Split(stage, axis, outer, inner, factor, tail):
            asked = "" if tail is None else f"{tail} "
            return f"split {stage} {axis} {asked}{factor} as {outer} {inner}"
        case Fuse(stage, outer, inner, fused):
            return f"fuse {stage} {outer} {inner} as {fused}"
        case Reorder(stage, axes):
            return f"reorder {' '.join((stage, *axes))}"
        case Run(stage, axis):
            return f"{step.word} {stage} {axis}"
        case Bind(stage, axis, index):
            return f"bind {stage} {axis} {index}"
        case ComputeAt(stage, consumer, axis, depth):
            several = "" if depth == 1 else f" depth {depth}"
            return f"compute_at {stage} {consumer} {axis}{several}"
        case ComputeInline(stage):
            return f"compute_inline {stage}"
        case CacheRead(buffer, memory, readers, copy):
            return f"cache_read {buffer} {memory} for {' '.join(readers)} as {copy}"
        case CacheWrite(stage, memory, name):
            return f"cache_write {stage} {memory} as {name}"
        case RFactor(stage, axis, name):
            return f"rfactor {stage} {axis} as {name}"
        case Tensorize(stage, axis, intrinsic):
            return f"tensorize {stage} {axis} {intrinsic}"
        case _:
            assert_never(step)


def _way(way: Way, indent: str) -> Iterator[tuple[str, Decision | None]]:
    yield f"{indent}way {way.label}", way
    indent += "  "
    if way.cost is not None:
        yield f"{indent}costs {format_expr(way.cost)}", None
    if way.cover is not None:
        axes = _sides(way.cover)
        yield f"{indent}cover {way.cover.microkernel}{axes} depth {way.cover.depth}", way.cover
    if way.words is not None:
        yield f"{indent}words{_sides(way.words)}", way.words
    if way.pack is not None:
        yield f"{indent}pack {way.pack.name} {format_layout(way.pack.layout)}", way.pack
        yield from _loops("loops", way.pack.loops, indent + "  ")
        yield from _splits(way.pack.splits, indent + "  ")
    yield from _loops("loops", way.loops, indent)
    yield from _loops("inner", way.inner, indent)
    if way.depth is not None:
        yield f"{indent}depth {way.depth[0]} {way.depth[1]}", way.depth
    yield from _splits(way.splits, indent)


def _sides(of: Cover | Words) -> str:
    given = (("rows", of.rows), ("columns", of.columns))
    return "".join(f" {what} {axis}" for what, axis in given if axis is not None)


def _loops(word: str, axes: tuple[str, ...], indent: str) -> Iterator[tuple[str, None]]:
    if axes:
        yield f"{indent}{word} {' '.join(axes)}", None


def _splits(splits: tuple[AxisCut, ...], indent: str) -> Iterator[tuple[str, AxisCut]]:
    for cut in splits:
        text = f"{indent}split {cut.axis} {cut.strategy}"
        if cut.by_height:
            classes = (
                f"{low}..{high}: {' '.join(map(str, heights))}"
                for (low, high), _, heights in cut.by_height
            )
            text += f" by height {', '.join(classes)}"
        elif cut.heights is not None:
            text += f" of {' '.join(map(str, cut.heights))}"
        else:
            text += f" {cut.tile}"
        yield text + (f" in groups of {cut.group}" if cut.group is not None else ""), cut


def parse_schedule(text: str) -> Schedule:
    """The schedule that prints as `text`.

    Raises ParseError, with the line, where a line is no decision or has no place there.
    """
    whole = lines_in_blocks(text)
    name = whole.line.match(r"schedule (\S+)", "schedule C")[1]
    return Schedule(name, tuple(map(_read_step, whole.inside)))


_NAMES = r"\S+(?: \S+)*"
_STRATEGY = r"(\w+(?:\(\d+(?:, \d+)*\))?)"


def _read_step(block: LineBlock) -> Step:
    word = block.line.word
    by_hand = _BY_HAND | _OLDER_BY_HAND
    if word in by_hand:
        pattern, shown, made = by_hand[word]
        line = block.alone()
        return made(line, *line.match(f"{word} {pattern}", f"{word} {shown}").groups())
    if word not in _STEPS:
        block.line.refuse("it is no decision", ", ".join(_STEPS), ", ".join(_BY_HAND))
    return _STEPS[word](block)


def _read_scratch(block: LineBlock) -> Scratch:
    found = block.alone().match(r"scratch (\S+)( narrow)?", "scratch C", "scratch C narrow")
    return Scratch(found[1], found[2] is not None)


def _read_copy(block: LineBlock) -> Copy:
    found = block.alone().match(r"copy (\S+) (.+) along (\S+)", "copy C A[k, i] along k")
    return Copy(*found.groups())


def _read_turn(block: LineBlock) -> Turn:
    found = block.alone().match(rf"turn (\S+) ({_NAMES})", "turn C j i")
    return Turn(found[1], tuple(found[2].split()))


def _read_convert(block: LineBlock) -> Convert:
    found = block.alone().match(r"convert (\S+) (.+)", "convert C float32(A[i, k])")
    return Convert(found[1], tuple(found[2].split(" and ")))


def _read_lay(block: LineBlock) -> Lay:
    found = block.alone().match(r"lay (\S+) (.+)", "lay W panels(0, 1, 16)")
    return Lay(found[1], _layout(block.line, found[2]))


def _read_cut(block: LineBlock) -> Cut:
    found = block.alone().match(rf"cut (\S+) {_STRATEGY} (\d+(?: \d+)*)", "cut C.i balance 14")
    tiles = block.line.sizes(found[3])
    return Cut(found[1], tiles, _strategy(block.line, found[2], tiles[-1]))


def _read_separate(block: LineBlock) -> Separate:
    copies = block.line.size(block.alone().match(r"separate (\d+)", "separate 16")[1])
    if not copies:
        block.line.refuse("a statement becomes one at least", "separate 1")
    return Separate(copies)


def _read_mark(block: LineBlock) -> Mark:
    return Mark(block.alone().match(r"mark (\S+)", "mark lanes")[1])


def _read_together(block: LineBlock) -> Together:
    pattern = rf"together ({_NAMES}?)(?: by (\d+) in (\d+))?"
    found = block.line.match(pattern, "together b h", "together i by 4 in 16384")
    parts = []
    for inner in block.inside:
        part = _read_step(inner)
        if not isinstance(part, Nest | Together):
            inner.line.refuse("loops are shared by nests", "nest C", "together b h")
        parts.append(part)
    size = None if found[2] is None else Block(*map(block.line.size, found.group(2, 3)))
    if "by" in found[1].split()[1:]:
        block.line.refuse(
            "a block is of several iterations, in some bytes", "together i by 4 in 16384"
        )
    if size is not None and not (size.iterations > 1 and size.room > 0):
        block.line.refuse(
            "a block is of several iterations, in some bytes", "together i by 4 in 16384"
        )
    return Together(tuple(found[1].split()), tuple(parts), size)


def _read_nest(block: LineBlock) -> Nest:
    found = block.line.match(r"nest (\S+)", "nest C")
    if not block.inside:
        block.line.refuse("a nest runs in one way at least", "way loops")
    return Nest(found[1], tuple(map(_read_way, block.inside)))


_STEPS: dict[str, Callable[[LineBlock], Step]] = {
    "scratch": _read_scratch,
    "copy": _read_copy,
    "turn": _read_turn,
    "convert": _read_convert,
    "lay": _read_lay,
    "nest": _read_nest,
    "together": _read_together,
    "cut": _read_cut,
    "separate": _read_separate,
    "mark": _read_mark,
}


def _split_by_hand(
    line: Line, stage: str, axis: str, tail: str | None, factor: str, outer: str, inner: str
) -> Split:
    asked = None if tail is None else _strategy(line, tail, int(factor))
    return Split(stage, axis, outer, inner, int(factor), asked)


def _run(unit: str | None) -> tuple[str, str, Callable[..., Primitive]]:
    return r"(\S+) (\S+)", "C i", lambda _, stage, axis: Run(stage, axis, unit)


# By the first word: what follows it, an example of that, and what its parts make.
_BY_HAND: dict[str, tuple[str, str, Callable[..., Primitive]]] = {
    "split": (
        rf"(\S+) (\S+)(?: {_STRATEGY})? (\d+) as (\S+) (\S+)",
        "C i mask 8 as io ii",
        _split_by_hand,
    ),
    "fuse": (r"(\S+) (\S+) (\S+) as (\S+)", "C i j as i_j", lambda _, *names: Fuse(*names)),
    "reorder": (
        r"(\S+)((?: \S+)*)",
        "C j i",
        lambda _, stage, axes: Reorder(stage, tuple(axes.split())),
    ),
    **{word: _run(unit) for unit, word in RUN_WORDS.items()},
    "bind": (r"(\S+) (\S+) (\S+)", "C i blockIdx.x", lambda _, *names: Bind(*names)),
    "compute_at": (
        r"(\S+) (\S+) (\S+)(?: depth (\d+))?",
        "B C i",
        lambda line, stage, consumer, axis, depth: ComputeAt(
            stage, consumer, axis, line.size(depth or "1")
        ),
    ),
    "compute_inline": (r"(\S+)", "B", lambda _, stage: ComputeInline(stage)),
    "cache_read": (
        rf"(\S+) (\S+) for ({_NAMES}) as (\S+)",
        "A shared for C as AL",
        lambda _, buffer, memory, readers, copy: CacheRead(
            buffer, memory, tuple(readers.split()), copy
        ),
    ),
    "cache_write": (r"(\S+) (\S+) as (\S+)", "C acc as CL", lambda _, *names: CacheWrite(*names)),
    "rfactor": (r"(\S+) (\S+) as (\S+)", "C ko as CF", lambda _, *names: RFactor(*names)),
    "tensorize": (r"(\S+) (\S+) (\S+)", "C ii gemm8x8", lambda _, *names: Tensorize(*names)),
}


_OLDER_BY_HAND = {"virtual": _run(None)}
"""Decisions of texts before version 0.3, read until 0.5: the windows in that loop have a depth now."""


def _read_way(block: LineBlock) -> Way:
    label = block.line.match(r"way (\S+)", "way ladder")[1]
    parts = _Parts(block)
    once = ("costs", "cover", "words", "pack")
    costs, covers, words, packs = map(parts.all, once)
    if max(map(len, (costs, covers, words, packs))) > 1:
        block.line.refuse(f"a way has each of {', '.join(once)} once at most")
    return Way(
        label,
        _read_cost(costs[0].alone()) if costs else None,
        _read_cover(covers[0].alone()) if covers else None,
        _read_pack(packs[0]) if packs else None,
        parts.splits(),
        parts.loops("loops"),
        parts.loops("inner"),
        parts.depth(),
        _read_words(words[0].alone()) if words else None,
    )


class _Parts:
    """What a way or a pack holds, by its words."""

    def __init__(self, block: LineBlock) -> None:
        self.blocks = block.inside
        for part in self.blocks:
            if part.line.word not in (
                "costs",
                "cover",
                "words",
                "pack",
                "loops",
                "inner",
                "depth",
                "virtual",
                "split",
            ):
                part.line.refuse(f"it has no place in a {block.line.word}")

    def all(self, word: str) -> list[LineBlock]:
        """The lines that begin with `word`."""
        return [part for part in self.blocks if part.line.word == word]

    def loops(self, word: str) -> tuple[str, ...]:
        """The axes after `word`."""
        found = (part.alone().match(rf"{word} ({_NAMES})", f"{word} i") for part in self.all(word))
        return tuple(name for match in found for name in match[1].split())

    def depth(self) -> tuple[str, int] | None:
        """The axis in whose loop windows take turns, and how many of each; before 0.3 it is said by `virtual`."""
        for part in (*self.all("depth"), *self.all("virtual")):
            line = part.alone()
            found = line.match(rf"{line.word} (\S+) (\d+)", "depth i 2")
            return found[1], line.size(found[2])
        return None

    def splits(self) -> tuple[AxisCut, ...]:
        """How axes are split."""
        return tuple(_read_split(part.alone()) for part in self.all("split"))


def _read_cost(line: Line) -> Expr:
    text = line.match(r"costs (.+)", "costs 1e-09*float64(n)")[1]
    try:
        return parse_expr(text, "float64")
    except ParseError as refused:
        because = f"{refused.refused}: {refused.because}"
        line.refuse(because, *refused.help, "costs 1e-09*float64(n)")


def _read_cover(line: Line) -> Cover:
    pattern = r"cover (\S+)(?: rows (\S+))?(?: columns (\S+))? depth (\S+)"
    found = line.match(pattern, "cover fma_float32_avx512 rows i columns j depth k")
    return Cover(found[1], found[2], found[3], found[4])


def _read_words(line: Line) -> Words:
    found = line.match(r"words(?: rows (\S+))?(?: columns (\S+))?", "words columns j")
    return Words(found[1], found[2])


def _read_pack(block: LineBlock) -> Pack:
    found = block.line.match(r"pack (\S+) (.+)", "pack W_panels panels(0, 1, 16)")
    parts = _Parts(block)
    return Pack(found[1], _layout(block.line, found[2]), parts.splits(), parts.loops("loops"))


def _layout(line: Line, text: str) -> Layout:
    try:
        return layout_of(text)
    except ParseError as refused:
        line.refuse(refused.because, *refused.help)


def _read_split(line: Line) -> AxisCut:
    pattern = (
        rf"split (\S+) {_STRATEGY} "
        r"(?:(\d+)|of (\d+(?: \d+)*)|by height (\d+\.\.\d+: .+?))(?: in groups of (\d+))?"
    )
    found = line.match(
        pattern,
        "split i ladder 14",
        "split i ladder of 8 4 1",
        "split j ladder by height 1..6: 64 32 16, 7..14: 32 16 in groups of 384",
    )
    group = None if found[6] is None else line.size(found[6])
    classes = []
    for text in found[5].split(", ") if found[5] else ():
        one = re.fullmatch(r"(\d+)\.\.(\d+): (\d+(?: \d+)*)", text)
        if one is None:
            line.refuse(f"{text!r} is no range of heights", "1..6: 64 32 16")
        heights = line.sizes(one[3])
        classes.append(((line.size(one[1]), line.size(one[2])), heights[0], heights))
    if classes:
        strategy = _strategy(line, found[2], *(tile for _, tile, _ in classes))
        return AxisCut(found[1], strategy, 0, None, tuple(classes), group)
    heights = line.sizes(found[3] or found[4])
    strategy = _strategy(line, found[2], heights[0])
    return AxisCut(found[1], strategy, heights[0], heights if found[4] else None, group=group)


def _strategy(line: Line, name: str, *tiles: int) -> Strategy:
    for number in re.findall(r"\d+", name.partition("(")[2]):
        line.size(number)
    try:
        return strategy_named(name, at="", tiles=tiles)
    except OffcutError as refused:
        line.refuse(refused.because, *refused.help)
