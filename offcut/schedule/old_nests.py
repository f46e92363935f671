"""Lines of nests as versions before 0.3 printed them -> the decisions that say the same.

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

from collections.abc import Callable, Iterable

from offcut.core.expr import Expr, Var
from offcut.partition import AxisCut, LoopCut
from offcut.schedule.decisions import (
    ANY,
    ANY_LANES,
    ANY_PRODUCTS,
    ANY_THREADS,
    ANY_TREE,
    Level,
    Split,
    Staging,
    Step,
    split_of,
)
from offcut.schedule.lines import (
    STRATEGY,
    Line,
    LineBlock,
    read_classes,
    read_expr,
    read_layout,
    read_strategy,
)
from offcut.schedule.nest_decisions import decisions_of
from offcut.schedule.nests import WORDS, KernelAxes, LoopVariant, Nest, Pack, Together

_NAMES = r"\S+(?: \S+)*"
FACTORS, NARROW = "factors", "narrow factors"
"""What `scratch` stages: each factor of a sum that is computed; as it is read, and converted by the sum."""


def _read_scratch(block: LineBlock) -> tuple[Staging, ...]:
    found = block.alone().match(r"scratch (\S+)( narrow)?", "scratch C", "scratch C narrow")
    return (Staging("value", NARROW if found[2] else FACTORS, ANY, (found[1],)),)


def _read_copy(block: LineBlock) -> tuple[Staging, ...]:
    found = block.alone().match(r"copy (\S+) (.+) along (\S+)", "copy C A[k, i] along k")
    return (Staging("value", f"{found[2]} along {found[3]}", ANY, (found[1],)),)


def _read_turn(block: LineBlock) -> tuple[Staging, ...]:
    found = block.alone().match(rf"turn (\S+) ({_NAMES})", "turn C j i")
    axes = tuple((name, Var(name)) for name in found[2].split())
    return (Staging("write", found[1], ANY, (), axes),)


def _read_convert(block: LineBlock) -> tuple[Staging, ...]:
    found = block.alone().match(r"convert (\S+) (.+)", "convert C float32(A[i, k])")
    return tuple(Staging("value", one, ANY, (found[1],)) for one in found[2].split(" and "))


def _read_lay(block: LineBlock) -> tuple[Staging, ...]:
    found = block.alone().match(r"lay (\S+) (.+)", "lay W panels(0, 1, 16)")
    return (Staging("prepack", found[1], found[1], layout=read_layout(block.line, found[2])),)


def _read_cut(block: LineBlock) -> tuple[Split, ...]:
    found = block.alone().match(rf"cut (\S+) {STRATEGY} (\d+(?: \d+)*)", "cut C.i balance 14")
    tiles = block.line.sizes(found[3])
    return (split_of(found[1], LoopCut(tiles, read_strategy(block.line, found[2], tiles[-1]))),)


_MARKS: dict[str, Step] = {
    "products": ANY_PRODUCTS,
    "rows": ANY_TREE,
    "lanes": ANY_LANES,
    "threads": ANY_THREADS,
}


def _read_mark(block: LineBlock) -> tuple[Step, ...]:
    unit = block.alone().match(r"mark (\S+)", "mark lanes")[1]
    if unit not in _MARKS:
        block.line.refuse(f"no unit is called {unit}", *(f"mark {one}" for one in _MARKS))
    return (_MARKS[unit],)


def _read_together(block: LineBlock) -> Together:
    pattern = rf"together ({_NAMES}?)(?: by (\d+) in (\d+))?"
    found = block.line.match(pattern, "together b h", "together i by 4 in 16384")
    parts = list(map(_read_part, block.inside))
    if not parts:
        block.line.refuse("no nest shares them", "nest C, indented below it")
    size = None
    if found[2] is not None:
        size = Level(block.line.size(found[2]), room=block.line.size(found[3]))
    if "by" in found[1].split()[1:]:
        block.line.refuse(
            "a block is of several iterations, in some bytes", "together i by 4 in 16384"
        )
    if size is not None and not (size.tile > 1 and (size.room or 0) > 0):
        block.line.refuse(
            "a block is of several iterations, in some bytes", "together i by 4 in 16384"
        )
    return Together(tuple(found[1].split()), tuple(parts), size)


def _read_nest(block: LineBlock) -> Nest:
    found = block.line.match(r"nest (\S+)", "nest C")
    if not block.inside:
        block.line.refuse("a nest runs in one way at least", "way loops")
    return Nest(found[1], tuple(map(_read_variant, block.inside)))


def _read_part(block: LineBlock) -> Nest | Together:
    if block.line.word not in OLD_NESTS:
        block.line.refuse("loops are shared by nests", "nest C", "together b h")
    return _read_nest(block) if block.line.word == "nest" else _read_together(block)


OLD_STEPS: dict[str, Callable[[LineBlock], tuple[Step, ...]]] = {
    "scratch": _read_scratch,
    "copy": _read_copy,
    "turn": _read_turn,
    "convert": _read_convert,
    "lay": _read_lay,
    "cut": _read_cut,
    "mark": _read_mark,
}
"""By their first word, the lines of a version before about what is no nest."""

OLD_NESTS = frozenset(("nest", "together"))
"""What lines of nests begin with."""


def read_old_nests(blocks: Iterable[LineBlock]) -> tuple[Step, ...]:
    """Return the decisions of nests that stand one behind the other."""
    return decisions_of(tuple(map(_read_part, blocks)))


def _read_variant(block: LineBlock) -> LoopVariant:
    label = block.line.match(r"way (\S+)", "way ladder")[1]
    parts = _Parts(block)
    once = ("costs", "cover", "words", "pack")
    costs, covers, words, packs = map(parts.all, once)
    if max(map(len, (costs, covers, words, packs))) > 1:
        block.line.refuse(f"a way has each of {', '.join(once)} once at most")
    return LoopVariant(
        label,
        _read_cost(costs[0].alone()) if costs else None,
        _read_cover(covers[0].alone())
        if covers
        else _read_words(words[0].alone())
        if words
        else None,
        _read_pack(packs[0]) if packs else None,
        parts.splits(),
        parts.loops("loops"),
        parts.loops("inner"),
        parts.depth(),
    )


class _Parts:
    """What a variant or a pack holds, by its words."""

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
        matches = (
            part.alone().match(rf"{word} ({_NAMES})", f"{word} i") for part in self.all(word)
        )
        return tuple(name for match in matches for name in match[1].split())

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
    example = "costs 1e-09*float64(n)"
    return read_expr(line, line.match(r"costs (.+)", example)[1], "float64", example)


def _read_cover(line: Line) -> KernelAxes:
    pattern = r"cover (\S+)(?: rows (\S+))?(?: columns (\S+))? depth (\S+)"
    found = line.match(pattern, "cover fma_float32_avx512 rows i columns j depth k")
    return KernelAxes(found[1], found[2], found[3], found[4])


def _read_words(line: Line) -> KernelAxes:
    found = line.match(r"words(?: rows (\S+))?(?: columns (\S+))?", "words columns j")
    return KernelAxes(WORDS, found[1], found[2], "")


def _read_pack(block: LineBlock) -> Pack:
    found = block.line.match(r"pack (\S+) (.+)", "pack W_panels panels(0, 1, 16)")
    parts = _Parts(block)
    layout = read_layout(block.line, found[2])
    staging = Staging("read", ANY, found[1], layout=layout)
    return Pack(staging, parts.splits(), parts.loops("loops"))


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
