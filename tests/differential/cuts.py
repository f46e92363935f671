"""A case from a seed: a program of some kind, how it is cut and compiled, and where it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from math import prod

from . import meaning
from .case import Case, Tile
from .drawing import Draw
from .kinds import KINDS
from .reading import Size, Source, loop_of, read, store_of

TAILS = (
    *("exact", "guard", "cut", "mask", "pad", "shift", "ladder"),
    *("balance", "even", "residue", "version", "mix"),
)
LIKELY = tuple(tail for tail in TAILS if tail != "exact")
FAST = ("cut", "cut", "mask", "guard", "ladder", "balance", "pad", "shift", "even")
TILES: tuple[Tile, ...] = (
    *(*range(1, 9), 12, 14, 16, 16, 16, 32),
    *((4, 2), (8, 4), (16, 4), (12, 4), (1, 1), (32, 8, 4), (3, 1)),
)
MASKS = ("", "", "", "amx-tile", "avx512vnni", "avx512f", "avx512f,avx2")
UNITS = (
    "",
    "",
    "amx-tile",
    "amx-tile",
    "amx-tile,avx512vnni",
)  # for types that have units of their own
MOST, FEW = 3000, 400  # points of a nest that is interpreted
EFFORT = 4
MORE = {"tiled": 12}  # effort for a kind whose cuts are its point
Steps = tuple[tuple[str, ...], ...]
# What is tried, at leisure and where it shall be quick.
STEPS: tuple[Steps, Steps] = (
    (("uncut", "run", "cut"), ("run", "cut"), ("run",), ("run", "cut")),
    (("run",), ("run",), ("cut",), ("cut",), ("uncut",)),
)
DESCRIBED_STEPS: tuple[Steps, Steps] = (
    (("strategy",), ("strategy", "run", "cut"), ("uncut", "strategy")),
    (("strategy",), ("run",), ("run",), ("cut",)),
)
STRATEGIES = ("auto", "auto", "guard", "cut", "mask", "pad", "shift", "ladder", "balance")
LAYOUTS: Steps = (
    *(("rows",), ("rows",), ("rows", "turned"), ("spread", "rows"), ("backwards",)),
    ("rows", "crooked"),
)


def case_of(seed: int, kind: str | None = None, quick: bool = False) -> Case:
    """The case of a seed; the same one for ever, as long as the generators stay as they are.

    quick   the first that takes little effort: few loops are cut, one thing is tried, at few sizes
    """
    for attempt in count():
        case = _drawn(Draw(f"{seed} {kind} {attempt}" if quick else f"{seed} {kind}"), kind, quick)
        if not quick or effort(case) <= MORE.get(case.kind, EFFORT):
            return case.with_(seed=seed)
    raise AssertionError


def effort(case: Case) -> int:
    """About how much is to be proved and generated: levels of tiles, conditions, loops to compile."""
    levels = sum(len(tile) if isinstance(tile, tuple) else 1 for tile in case.tile.values())
    conditions = len(re.findall(r"\bif |\bwhere\(|\bmin\(|\bmax\(", case.text))
    loops = 0 if case.steps == ("run",) else case.text.count("for ") // 4
    return (1 + levels + loops) * (1 + conditions)


def _drawn(draw: Draw, kind: str | None, quick: bool) -> Case:
    kind = kind or draw.pick(*KINDS)
    drawn = KINDS[kind](draw)
    as_drawn = bool(drawn.described or drawn.tile or drawn.steps)
    few = quick and not (drawn.tile or drawn.large)
    text = drawn.text if as_drawn else renamed(draw, marked(draw, drawn.text))
    source = read(text)
    own = drawn.tile or drawn.steps
    tile, tail, copies = (drawn.tile, drawn.tail, None) if own else _cut(draw, source, quick)
    forms = DESCRIBED_STEPS if drawn.described else STEPS
    tensors = any(dtype in text for dtype in ("int8", "bfloat16"))
    mask = draw.pick(*UNITS) if tensors and draw.chance(0.7) else draw.pick(*MASKS)
    emulated = (tensors and not mask and draw.chance(0.5)) or drawn.emulated
    steps = ("cut",) if drawn.tile else draw.pick(*forms[quick])
    strategy = draw.pick(*STRATEGIES) if drawn.described else "auto"
    threads = 1 if emulated else draw.pick(1, 1, 1, 2, 3)
    return Case(
        kind=kind,
        seed=0,
        text=text,
        described=drawn.described,
        steps=drawn.steps or steps,
        tile=tile,
        tail=tail,
        copies=copies,
        strategy="auto" if drawn.steps else strategy,
        threads=drawn.threads or threads,
        mask="" if drawn.emulated else mask,  # a machine that has the unit has all the rest
        emulated=emulated,
        verify=draw.chance(0.05 if quick else 0.2),
        sizes=drawn.sizes
        or sizes_of(draw, source, tile, _points(text, FEW if few else MOST))[: 3 if few else 6],
        data="full" if drawn.data == "whole" and draw.chance(0.4) else drawn.data,
        layouts=draw.pick(*LAYOUTS),
    )


MARKS = ("@thread", "@lane", "@unroll", "@thread")
NAMES = (
    *("mod", "floor", "ceil", "exists", "x0", "e", "pi", "sum"),
    *("n_", "tile_", "i_tile", "idx", "T0"),
)


def marked(draw: Draw, text: str) -> str:
    """`text`, in which few loops say how they may run."""
    if not draw.chance(0.15):
        return text
    lines = text.splitlines()
    heads = [place for place, line in enumerate(lines) if line.lstrip().startswith("for ")]
    for place in draw.some(heads, 0.4):
        lines[place] += f"  {draw.pick(*MARKS)}"
    return "\n".join(lines) + "\n"


def renamed(draw: Draw, text: str) -> str:
    """`text`, with one of its sizes or loops named as other languages name theirs."""
    if not draw.chance(0.1):
        return text
    names = sorted(set(re.findall(r"(?:size|for) (\w+) in", text)))
    free = [name for name in NAMES if not re.search(rf"\b{name}\b", text)]
    return re.sub(rf"\b{draw.pick(*names)}\b", draw.pick(*free), text) if names else text


def loops_of(source: Source) -> list[str]:
    """A name for each loop, as `tile` takes it: with the buffer it writes where names repeat."""
    loops = [line for line in source.walk() if line.text.startswith("for ")]
    names = [loop_of(line.text).name for line in loops]
    found: dict[str, None] = {}
    for line, name in zip(loops, names, strict=True):
        if names.count(name) == 1:
            found[name] = None
            continue
        for inner in line.walk():
            if not inner.text.startswith(("for ", "if ", "else")):
                found[f"{store_of(inner.text).buffer}.{name}"] = None
    return list(found)


def _cut(
    draw: Draw, source: Source, quick: bool
) -> tuple[dict[str, Tile], dict[str, str] | str, int | None]:
    copies = draw.pick(*(None,) * 9, 1, 3, 8)
    if draw.chance(0.1):
        return {}, {}, copies
    loops = loops_of(source)
    chosen = draw.mixed(draw.some(loops, draw.pick(0.4, 0.6, 0.9)) or loops[:1])[
        : draw.pick(1, 1, 2) if quick else 4
    ]
    tiles = TILES if not quick or draw.chance(0.1) else range(1, 17)
    tile: dict[str, Tile] = {name: draw.pick(*tiles) for name in chosen}
    tails = FAST if quick else TAILS if draw.chance(0.1) else LIKELY
    if draw.chance(0.4):
        return tile, draw.pick(*tails), copies
    easy = ("cut", "guard", "mask")
    return tile, {n: draw.pick(*(easy if draw.chance(0.4) else tails)) for n in chosen}, copies


def sizes_of(
    draw: Draw, source: Source, tile: dict[str, Tile], most: int
) -> tuple[dict[str, int], ...]:
    """Where it runs: edges of its tiles, one size after the other, no nest too large to interpret."""
    greatest = [max(t) if isinstance(t, tuple) else t for t in tile.values()] or [4]
    found: list[dict[str, int]] = []
    for number in range(9):
        t = draw.pick(*greatest)
        edges = (0, 1, t - 1, t, t + 1, 3 * t + 5, 2 * t, 5, 7)
        values = [edges[number], *(draw.pick(*edges, 2, 3, 17) for _ in source.sizes)]
        for chosen in (
            values,
            sorted(values),
            sorted(values, reverse=True),
            [max(values)] * len(values),
        ):
            sizes = _within(
                source, draw.mixed(source.sizes) if chosen is values else source.sizes, chosen, most
            )
            if all(meaning.holds(fact, sizes) for fact in source.assumptions):
                if sizes not in found:
                    found.append(sizes)
                break
    return tuple({size.name: sizes[size.name] for size in source.sizes} for sizes in found)


def _points(text: str, most: int) -> int:
    """Of so many points, those that are left to loops over sizes by a nest with loops over numbers."""
    fixed = max(prod(map(int, re.findall(r"for \w+ in 0:(\d+)", nest))) for nest in _nests(text))
    return max(most // max(fixed, 1), 4)


def _nests(text: str) -> list[str]:
    return re.split(r"\n(?=for )", text)


def _within(
    source: Source, order: Sequence[Size], values: Sequence[int], most: int
) -> dict[str, int]:
    """The sizes in `order`, of these values as far as the declarations and `most` points allow."""
    multiple = max(
        (int(m) for f in source.assumptions for m in re.findall(r"% (\d+)", f)), default=1
    )
    sizes: dict[str, int] = {}
    for size, value in zip(order, values, strict=False):
        value = min(
            value, max(size.low, most // max(1, prod(max(1, v) for v in sizes.values())), 1)
        )
        value -= value % max(size.multiple, multiple)
        sizes[size.name] = value if size.allows(value) else size.low + -size.low % size.multiple
    return sizes
