"""The lines of what the CPU's policy decides of nests: `ways` as text, and back.

::

    lay W panels(0, 1, 16)
    nest C
      way ladder
        cover fma_float32_avx512 rows i columns j depth k
        split i ladder 14
        split j ladder by height 1..6: 64 32 16, 7..14: 32 16 in groups of 384
    mark rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from offcut.core.expr import Expr
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr
from offcut.partition import AxisCut, Block
from offcut.schedule.lines import (
    STRATEGY,
    Line,
    LineBlock,
    read_classes,
    read_expr,
    read_layout,
    read_strategy,
)
from offcut.schedule.ways import (
    Convert,
    Copy,
    Cover,
    Cut,
    Lay,
    Mark,
    Nest,
    OfWays,
    Pack,
    Scratch,
    Together,
    Turn,
    Way,
    Words,
)

OfWay = Way | Cover | Words | Pack


def lines_of(step: OfWays, indent: str) -> Iterator[tuple[str, Any]]:
    """Yield each line of a decision, indented so, and the record that begins there."""
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
        case Mark(unit):
            yield f"{indent}mark {unit}", step
        case Together(axes, parts, block):
            by = "" if block is None else f" by {block.iterations} in {block.room}"
            yield f"{indent}together {' '.join(axes)}{by}", step
            for part in parts:
                yield from lines_of(part, deeper)
        case Nest(stage, ways):
            yield f"{indent}nest {stage}", step
            for way in ways:
                yield from _way(way, deeper)


def _way(way: Way, indent: str) -> Iterator[tuple[str, Any]]:
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


_NAMES = r"\S+(?: \S+)*"


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
    return Lay(found[1], read_layout(block.line, found[2]))


def _read_cut(block: LineBlock) -> Cut:
    found = block.alone().match(rf"cut (\S+) {STRATEGY} (\d+(?: \d+)*)", "cut C.i balance 14")
    tiles = block.line.sizes(found[3])
    return Cut(found[1], tiles, read_strategy(block.line, found[2], tiles[-1]))


def _read_mark(block: LineBlock) -> Mark:
    return Mark(block.alone().match(r"mark (\S+)", "mark lanes")[1])


def _read_together(block: LineBlock) -> Together:
    pattern = rf"together ({_NAMES}?)(?: by (\d+) in (\d+))?"
    found = block.line.match(pattern, "together b h", "together i by 4 in 16384")
    parts = []
    for inner in block.inside:
        part = _read_part(inner)
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


def _read_part(block: LineBlock) -> OfWays | None:
    reader = READERS.get(block.line.word)
    return None if reader is None else reader(block)


READERS: dict[str, Callable[[LineBlock], OfWays]] = {
    "scratch": _read_scratch,
    "copy": _read_copy,
    "turn": _read_turn,
    "convert": _read_convert,
    "lay": _read_lay,
    "nest": _read_nest,
    "together": _read_together,
    "cut": _read_cut,
    "mark": _read_mark,
}


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
        """Return the lines that begin with `word`."""
        return [part for part in self.blocks if part.line.word == word]

    def loops(self, word: str) -> tuple[str, ...]:
        """Return the axes after `word`."""
        found = (part.alone().match(rf"{word} ({_NAMES})", f"{word} i") for part in self.all(word))
        return tuple(name for match in found for name in match[1].split())

    def depth(self) -> tuple[str, int] | None:
        """Return the axis in whose loop windows take turns, and how many of each; before 0.3 it is said by `virtual`."""
        for part in (*self.all("depth"), *self.all("virtual")):
            line = part.alone()
            found = line.match(rf"{line.word} (\S+) (\d+)", "depth i 2")
            return found[1], line.size(found[2])
        return None

    def splits(self) -> tuple[AxisCut, ...]:
        """Return how axes are split."""
        return tuple(_read_split(part.alone()) for part in self.all("split"))


def _read_cost(line: Line) -> Expr:
    shown = "costs 1e-09*float64(n)"
    return read_expr(line, line.match(r"costs (.+)", shown)[1], "float64", shown)


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
    return Pack(found[1], read_layout(block.line, found[2]), parts.splits(), parts.loops("loops"))


def _read_split(line: Line) -> AxisCut:
    pattern = (
        rf"split (\S+) {STRATEGY} "
        r"(?:(\d+)|of (\d+(?: \d+)*)|by height (\d+\.\.\d+: .+?))(?: in groups of (\d+))?"
    )
    found = line.match(
        pattern,
        "split i ladder 14",
        "split i ladder of 8 4 1",
        "split j ladder by height 1..6: 64 32 16, 7..14: 32 16 in groups of 384",
    )
    group = None if found[6] is None else line.size(found[6])
    classes = tuple(read_classes(line, found[5])) if found[5] else ()
    if classes:
        strategy = read_strategy(line, found[2], *(tile for _, tile, _ in classes))
        return AxisCut(found[1], strategy, 0, None, classes, group)
    heights = line.sizes(found[3] or found[4])
    strategy = read_strategy(line, found[2], heights[0])
    return AxisCut(found[1], strategy, heights[0], heights if found[4] else None, group=group)
